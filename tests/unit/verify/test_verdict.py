from collections import Counter

import pytest

from tidegate.core.fault_points import FaultPoint
from tidegate.verify.verdict import PointVerdict, SinkDifference


def test_equal_contents_do_not_differ():
    found = SinkDifference.between(Counter("aab"), Counter("aba"))
    assert (found.lost, found.duplicated, found.examples) == (0, 0, ())


def test_what_is_missing_is_lost_and_what_is_too_much_is_duplicated():
    found = SinkDifference.between(Counter("aabb"), Counter("abbbc"))
    assert (found.lost, found.duplicated) == (1, 2)
    assert found.examples == ("lost: 'a'", "duplicated: 'b'", "duplicated: 'c'")


def test_differences_of_several_runs_add_up():
    lost = SinkDifference.between(Counter("ab"), Counter("a"))
    doubled = SinkDifference.between(Counter("ab"), Counter("abb"))
    both = lost + doubled
    assert (both.lost, both.duplicated) == (1, 1)


@pytest.mark.parametrize(
    ("lost", "duplicated", "may_repeat", "holds"),
    [
        (0, 0, False, True),
        (0, 1, False, False),
        (0, 1, True, True),
        (1, 0, True, False),
    ],
)
def test_at_least_once_may_repeat_but_not_lose(lost, duplicated, may_repeat, holds):
    difference = SinkDifference(lost, duplicated)
    assert PointVerdict(FaultPoint.COMMIT, 1, difference, may_repeat).holds is holds
