import pytest

from tidegate.core.modes import CheckpointingMode
from tidegate.protocol.alignment import Abort, Alignment, Block, Complete, Release
from tidegate.stream.elements import Barrier


def barrier(number, mode=CheckpointingMode.EXACTLY_ONCE, *, is_unaligned=False):
    return Barrier(number, 0.0, mode=mode, is_unaligned=is_unaligned)


@pytest.fixture
def alignment():
    return Alignment("abc")


def test_several_loose_barriers_are_in_flight_at_once(alignment):
    loose = [barrier(n, CheckpointingMode.AT_LEAST_ONCE) for n in (1, 2)]
    for channel in "ab":
        for each in loose:
            alignment.barrier(channel, each, 0.0)
    assert alignment.in_flight == (1, 2)
    assert alignment.barrier("c", loose[0], 0.0) == [Complete(loose[0], 0.0)]
    assert alignment.barrier("c", loose[1], 0.0) == [Complete(loose[1], 0.0)]


def test_aborting_what_is_complete_changes_nothing(alignment):
    for channel in "abc":
        alignment.barrier(channel, barrier(1), 0.0)
    assert alignment.abort(1) == []
    assert alignment.barrier("a", barrier(2), 0.0) == [Block("a")]


def test_aborted_numbers_are_forgotten_once_no_channel_can_bring_them(alignment):
    for number in range(1, 1000):
        alignment.abort(number)
        for channel in "abc":
            assert alignment.barrier(channel, barrier(number), 0.0) == []
    assert alignment.remembered == 0


def test_a_channel_that_has_ended_is_never_blocked(alignment):
    alignment.ended("a")
    assert alignment.barrier("a", barrier(1), 0.0) == []
    assert alignment.barrier("b", barrier(1), 1.0) == [Block("b")]
    assert alignment.barrier("c", barrier(1), 2.0) == [Complete(barrier(1), 0.0), Release(("b",))]


def test_a_channel_that_ends_after_its_barrier_keeps_the_others_owed(alignment):
    loose = barrier(1, CheckpointingMode.AT_LEAST_ONCE)
    assert alignment.barrier("a", loose, 0.0) == []
    assert alignment.ended("a") == []
    assert alignment.barrier("b", loose, 1.0) == []
    assert alignment.barrier("c", loose, 2.0) == [Complete(loose, 0.0)]


def test_a_log_that_misses_its_barrier_is_aborted(alignment):
    first, second = (barrier(n, is_unaligned=True) for n in (1, 2))
    assert alignment.barrier("a", first, 0.0) == [Complete(first, 0.0, frozenset("bc"))]
    aborted = alignment.barrier("b", second, 1.0)[0]
    assert aborted == Abort(1, "channel b brought 2 before it")
    assert alignment.logged_by("c") == [2]
