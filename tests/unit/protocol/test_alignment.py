import pytest

from tidegate.core.modes import CheckpointingMode
from tidegate.protocol.alignment import Abort, Alignment, Block, Complete, Release
from tidegate.stream.elements import Barrier


def barrier(number, mode=CheckpointingMode.EXACTLY_ONCE):
    return Barrier(number, 0.0, mode=mode)


@pytest.fixture
def alignment():
    return Alignment("abc")


def test_a_channel_is_blocked_until_the_last_one_brings_the_barrier(alignment):
    assert alignment.barrier("a", barrier(1), 1.0) == [Block("a")]
    assert alignment.barrier("b", barrier(1), 2.0) == [Block("b")]
    assert alignment.in_flight == (1,)
    assert alignment.barrier("c", barrier(1), 3.0) == [
        Complete(barrier(1), 1.0),
        Release(("a", "b")),
    ]
    assert alignment.in_flight == ()


def test_at_least_once_blocks_nobody(alignment):
    loose = barrier(1, CheckpointingMode.AT_LEAST_ONCE)
    assert alignment.barrier("a", loose, 1.0) == []
    assert alignment.barrier("b", loose, 2.0) == []
    assert alignment.barrier("c", loose, 3.0) == [Complete(loose, 1.0)]


def test_several_loose_barriers_are_in_flight_at_once(alignment):
    loose = [barrier(n, CheckpointingMode.AT_LEAST_ONCE) for n in (1, 2)]
    for channel in "ab":
        for each in loose:
            alignment.barrier(channel, each, 0.0)
    assert alignment.in_flight == (1, 2)
    assert alignment.barrier("c", loose[0], 0.0) == [Complete(loose[0], 0.0)]
    assert alignment.barrier("c", loose[1], 0.0) == [Complete(loose[1], 0.0)]


def test_a_skipped_checkpoint_is_aborted_and_its_channels_continue(alignment):
    alignment.barrier("a", barrier(1), 0.0)
    assert alignment.barrier("b", barrier(2), 0.0) == [
        Abort(1, "channel b brought 2 before it"),
        Release(("a",)),
        Block("b"),
    ]


def test_the_end_of_the_last_channel_that_owes_the_barrier_completes_it(alignment):
    alignment.barrier("a", barrier(1), 0.0)
    assert alignment.ended("b") == []
    assert alignment.ended("c") == [Complete(barrier(1), 0.0), Release(("a",))]


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


def test_a_barrier_that_comes_late_on_an_ended_channel_does_not_revive_an_aborted_checkpoint():
    alignment = Alignment("ab")
    alignment.ended("a")
    alignment.abort(2)
    assert alignment.barrier("b", barrier(2), 0.0) == []
    alignment.ended("b")
    assert alignment.barrier("a", barrier(2), 0.0) == []
