"""Every key group has exactly one owner, at every parallelism."""

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tidegate.state.keys.key_groups import MAX_PARALLELISM_LIMIT, range_of, subtask_of


@st.composite
def parallelisms(draw):
    """(parallelism, max parallelism), with 1 <= parallelism <= max parallelism."""
    max_parallelism = draw(st.integers(1, 400) | st.just(MAX_PARALLELISM_LIMIT))
    return draw(st.integers(1, min(max_parallelism, 400))), max_parallelism


@examples()
@given(parallelisms())
def test_ranges_cover_each_group_once_and_agree_with_its_owner(drawn):
    parallelism, max_parallelism = drawn
    ranges = [range_of(i, parallelism, max_parallelism) for i in range(parallelism)]
    assert list(chain(*ranges)) == list(range(max_parallelism))
    assert all(
        subtask_of(group, parallelism, max_parallelism) == i
        for i, groups in enumerate(ranges)
        for group in (groups.start, groups.stop - 1)
    )


@examples()
@given(parallelisms())
def test_no_subtask_owns_two_groups_more_than_another(drawn):
    parallelism, max_parallelism = drawn
    sizes = {len(range_of(i, parallelism, max_parallelism)) for i in range(parallelism)}
    assert max(sizes) - min(sizes) <= 1
