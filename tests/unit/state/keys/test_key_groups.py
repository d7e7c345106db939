import numpy as np
import pytest

from tidegate.core.errors import ConfigError
from tidegate.state.keys.key_groups import (
    KeyGroupRange,
    check_max_parallelism,
    default_max_parallelism,
    key_groups_of,
    range_of,
    subtask_of,
    subtasks_of,
)


def test_a_range_behaves_like_the_numbers_in_it():
    groups = KeyGroupRange(3, 6)
    assert list(groups) == [3, 4, 5]
    assert len(groups) == 3
    assert (2 in groups, 3 in groups, 5 in groups, 6 in groups) == (False, True, True, False)


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [((0, 4), (2, 8), (2, 4)), ((0, 4), (4, 8), (4, 4)), ((0, 2), (5, 8), (5, 5))],
)
def test_ranges_have_what_both_hold_in_common(one, other, common):
    assert KeyGroupRange(*one).intersection(KeyGroupRange(*other)) == KeyGroupRange(*common)


@pytest.mark.parametrize("bounds", [(-1, 3), (4, 3)])
def test_a_range_that_is_none_is_refused(bounds):
    with pytest.raises(ConfigError, match="0 <= start <= stop"):
        KeyGroupRange(*bounds)


def test_subtasks_own_neighbouring_key_groups_of_nearly_equal_number():
    assert [range_of(i, 3, 128) for i in range(3)] == [
        KeyGroupRange(0, 43),
        KeyGroupRange(43, 86),
        KeyGroupRange(86, 128),
    ]


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [(1, 128), (2, 128), (85, 128), (86, 256), (128, 256), (1000, 2048), (30_000, 32_768)],
)
def test_the_default_max_parallelism_is_flinks(parallelism, expected):
    assert default_max_parallelism(parallelism) == expected


@pytest.mark.parametrize("max_parallelism", [100, 128])
def test_columns_of_hashes_have_the_owners_of_single_hashes(max_parallelism):
    hashes = np.random.default_rng(0).integers(0, 2**64, 1000, np.uint64)
    groups = key_groups_of(hashes, max_parallelism)
    assert groups.tolist() == [h % max_parallelism for h in hashes.tolist()]
    owners = subtasks_of(groups, 7, max_parallelism)
    assert owners.tolist() == [subtask_of(g, 7, max_parallelism) for g in groups.tolist()]


@pytest.mark.parametrize("value", [0, -1, 32_769])
def test_a_max_parallelism_out_of_bounds_is_refused(value):
    with pytest.raises(ConfigError, match="give 1 to 32768"):
        check_max_parallelism(value, 1)


def test_a_max_parallelism_below_the_parallelism_is_refused():
    with pytest.raises(ConfigError, match="below the parallelism 9"):
        check_max_parallelism(8, 9)
