"""Records whose timestamp cannot be had: those before and after them keep theirs."""

import pytest

from tidegate.common import Types, WatermarkStrategy
from tidegate.core.errors import UserFunctionError
from tidegate.core.poison import PoisonOrders
from tidegate.operators.event_time.assigning import assign_timestamps
from tidegate.testing.harness import OperatorHarness
from tidegate.types.row import Row

AT_ONCE = PoisonOrders(skips_at_once=True)
MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps()


def test_a_row_without_a_timestamp_is_skipped_alone():
    rows = Types.ROW_NAMED(["name", "at"], [Types.STRING(), Types.LONG()])
    operator = assign_timestamps(MONOTONOUS.with_timestamp_assigner("at"), rows)
    with OperatorHarness(operator, poison=AT_ONCE) as harness:
        given = [Row(name="a", at=1), Row(name="b", at=None), Row(name="c", at=3)]
        harness.process(given, type_info=rows)
        assert harness.timed_output == [(given[0], 1), (given[2], 3)]


@pytest.mark.parametrize("wrong", [2**64, 2**63, -(2**63) - 1, 1.5, None])
def test_what_is_no_timestamp_is_refused(wrong):
    operator = assign_timestamps(MONOTONOUS.with_timestamp_assigner(lambda each, _: each), None)
    message = "a timestamp is an integer"
    with OperatorHarness(operator) as harness, pytest.raises(UserFunctionError, match=message):
        harness.process([wrong])
    with OperatorHarness(operator, poison=AT_ONCE) as harness:
        harness.process([1, wrong, 3])
        assert harness.timed_output == [(1, 1), (3, 3)]
