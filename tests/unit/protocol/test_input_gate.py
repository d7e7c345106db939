import pytest

from tidegate.core.errors import ProtocolViolation
from tidegate.core.modes import CheckpointingMode
from tidegate.protocol.input_gate import (
    AdvanceWatermark,
    ChangeStatus,
    InFlight,
    InputEnded,
    InputGate,
    Records,
    SnapshotAborted,
    TakeSnapshot,
)
from tidegate.protocol.packet import Channel
from tidegate.stream.batch import Batch
from tidegate.stream.elements import (
    FINAL_WATERMARK,
    Barrier,
    EndOfInput,
    Watermark,
    WatermarkStatus,
)

A, B, C = Channel(0, 0), Channel(0, 1), Channel(1, 0)
FINAL = AdvanceWatermark(Watermark(FINAL_WATERMARK))


def batch(*records):
    return Batch.of_records(list(records))


def barrier(number, mode=CheckpointingMode.EXACTLY_ONCE):
    return Barrier(number, 0.0, mode=mode)


def loose(number):
    return barrier(number, CheckpointingMode.AT_LEAST_ONCE)


def names(deliveries):
    """Deliveries in short: records as lists, everything else by its name."""
    return [
        delivery.batch.records if isinstance(delivery, Records) else delivery
        for delivery in deliveries
    ]


def snapshot(number, seconds=0.0, buffered=0, mode=CheckpointingMode.EXACTLY_ONCE, ended=()):
    return TakeSnapshot(barrier(number, mode), seconds, buffered, frozenset(ended))


@pytest.fixture
def gate():
    return InputGate({A: 0, B: 0})


def test_batches_of_an_open_channel_are_delivered_to_the_input_it_feeds():
    gate = InputGate({A: 0, C: 1})
    one = batch("a")
    assert gate.feed(C, one, 0.0) == [Records(1, one)]
    assert (gate.open_input(A), gate.open_input(C)) == (0, 1)


def test_a_single_channel_snapshots_at_its_barrier():
    gate = InputGate({A: 0})
    assert gate.feed(A, barrier(1), 5.0) == [snapshot(1)]
    assert gate.open_input(A) == 0


def test_records_after_the_barrier_wait_until_it_has_come_on_all_channels(gate):
    assert gate.feed(A, barrier(1), 0.0) == []
    assert gate.open_input(A) is None
    assert gate.feed(A, batch("after"), 0.0, size=7) == []
    assert names(gate.feed(B, batch("before"), 0.0)) == [["before"]]
    assert gate.bytes_waiting == 7
    assert names(gate.feed(B, barrier(1), 2.5)) == [snapshot(1, 2.5, 7), ["after"]]
    assert (gate.open_input(A), gate.open_input(B), gate.bytes_waiting) == (0, 0, 0)


def test_a_waiting_channel_is_drained_up_to_its_next_barrier_only(gate):
    for element in (barrier(1), batch("a1"), barrier(2), batch("a2")):
        gate.feed(A, element, 0.0, size=3)
    assert names(gate.feed(B, barrier(1), 1.0)) == [snapshot(1, 1.0, 9), ["a1"]]
    assert gate.open_input(A) is None
    assert names(gate.feed(B, batch("b1"), 1.0)) == [["b1"]]
    assert names(gate.feed(B, barrier(2), 4.0)) == [snapshot(2, 3.0, 3), ["a2"]]


def test_two_barriers_that_wait_on_both_channels_complete_one_after_the_other():
    gate = InputGate({A: 0, B: 0, C: 0})
    for channel in (A, B):
        for element in (barrier(1), batch(f"{channel.source}1"), barrier(2), batch("later")):
            gate.feed(channel, element, 0.0)
    assert names(gate.feed(C, barrier(1), 0.0)) == [snapshot(1), ["01"], ["11"]]
    assert names(gate.feed(C, barrier(2), 0.0)) == [snapshot(2), ["later"], ["later"]]


def test_without_blocking_the_snapshot_is_taken_at_the_last_barrier(gate):
    assert gate.feed(A, loose(1), 0.0) == []
    assert names(gate.feed(A, batch("after"), 0.0)) == [["after"]]
    assert names(gate.feed(B, batch("before"), 0.0)) == [["before"]]
    assert gate.feed(B, loose(1), 1.0) == [snapshot(1, 1.0, mode=CheckpointingMode.AT_LEAST_ONCE)]


def test_a_savepoint_aligns_in_a_job_that_does_not(gate):
    gate.feed(A, loose(1), 0.0)
    gate.feed(A, barrier(2), 0.0)
    assert gate.feed(A, batch("after both"), 0.0) == []
    assert gate.feed(B, loose(1), 0.0) == [snapshot(1, mode=CheckpointingMode.AT_LEAST_ONCE)]
    assert names(gate.feed(B, barrier(2), 0.0)) == [snapshot(2), ["after both"]]


def test_a_higher_barrier_on_a_channel_that_owes_a_lower_one_aborts_that(gate):
    gate.feed(A, barrier(1), 0.0)
    gate.feed(A, batch("a"), 0.0)
    assert names(gate.feed(B, barrier(2), 0.0)) == [
        SnapshotAborted(1, f"channel {B} brought 2 before it"),
        ["a"],
    ]
    assert gate.feed(A, barrier(2), 0.0) == [snapshot(2)]


def test_a_barrier_that_another_channel_has_passed_by_is_aborted_when_it_comes(gate):
    gate.feed(A, barrier(2), 0.0)
    assert gate.feed(B, barrier(1), 0.0) == [SnapshotAborted(1, f"channel {A} skipped it")]
    assert gate.open_input(B) == 0
    assert gate.feed(B, barrier(2), 0.0) == [snapshot(2)]


def test_an_aborted_checkpoint_releases_what_waits_for_it_and_its_barriers_are_ignored(gate):
    gate.feed(A, barrier(1), 0.0)
    gate.feed(A, batch("a"), 0.0)
    assert names(gate.abort(1, 0.0)) == [["a"]]
    assert gate.feed(B, barrier(1), 0.0) == []
    assert (gate.open_input(A), gate.open_input(B)) == (0, 0)
    gate.feed(A, barrier(2), 0.0)
    assert gate.feed(B, barrier(2), 0.0) == [snapshot(2)]


def test_a_checkpoint_aborted_before_its_first_barrier_blocks_nothing(gate):
    assert gate.abort(3, 0.0) == []
    assert gate.feed(A, barrier(3), 0.0) == []
    assert gate.open_input(A) == 0


def test_aborting_a_newer_checkpoint_leaves_the_older_one_alone(gate):
    gate.feed(A, barrier(1), 0.0)
    assert gate.abort(2, 0.0) == []
    assert gate.feed(B, barrier(1), 0.0) == [snapshot(1)]


def test_aborting_releases_up_to_the_next_barrier_in_line(gate):
    for element in (barrier(1), batch("a1"), barrier(2), batch("a2")):
        gate.feed(A, element, 0.0)
    assert names(gate.abort(1, 0.0)) == [["a1"]]
    gate.feed(B, barrier(1), 0.0)
    assert names(gate.feed(B, barrier(2), 0.0)) == [snapshot(2), ["a2"]]


def test_a_barrier_that_comes_again_changes_nothing(gate):
    gate.feed(A, loose(1), 0.0)
    assert gate.feed(A, loose(1), 0.0) == []
    assert len(gate.feed(B, loose(1), 0.0)) == 1
    assert gate.feed(B, loose(1), 0.0) == []


def test_an_input_ends_with_its_last_channel():
    gate = InputGate({A: 0, B: 0, C: 1})
    assert gate.feed(A, EndOfInput(), 0.0) == []
    assert gate.feed(C, EndOfInput(), 0.0) == [InputEnded(1)]
    assert gate.feed(B, EndOfInput(), 0.0) == [FINAL, InputEnded(0, is_last=True)]


def test_a_channel_that_has_ended_owes_no_barrier(gate):
    gate.feed(A, EndOfInput(), 0.0)
    assert gate.feed(B, barrier(1), 0.0) == [snapshot(1)]
    assert gate.feed(A, barrier(1), 0.0) == []


def test_the_end_of_a_channel_may_be_what_an_alignment_waited_for(gate):
    gate.feed(A, barrier(1), 0.0)
    gate.feed(A, batch("a"), 0.0)
    assert names(gate.feed(B, EndOfInput(), 3.0)) == [snapshot(1, 3.0), ["a"]]


def test_the_end_of_an_input_is_delivered_before_the_snapshot_it_allows():
    gate = InputGate({A: 0, C: 1})
    gate.feed(A, barrier(1), 0.0)
    assert gate.feed(C, EndOfInput(), 0.0) == [InputEnded(1), snapshot(1, ended={1})]


def test_an_end_after_a_barrier_waits_like_a_record(gate):
    gate.feed(A, barrier(1), 0.0)
    gate.feed(A, EndOfInput(), 0.0)
    assert gate.feed(B, EndOfInput(), 0.0) == [snapshot(1), FINAL, InputEnded(0, is_last=True)]
    assert gate.feed(A, barrier(2), 0.0) == [snapshot(2, ended={0})]


def test_inputs_that_end_while_waiting_channels_are_drained_end_at_their_own_places():
    gate = InputGate({A: 0, C: 1, B: 2})
    for channel in (A, C):
        for element in (barrier(1), batch(f"edge {channel.edge}"), EndOfInput()):
            gate.feed(channel, element, 0.0)
    assert names(gate.feed(B, EndOfInput(), 0.0)) == [
        InputEnded(2),
        snapshot(1, ended={2}),
        ["edge 0"],
        InputEnded(0),
        ["edge 1"],
        FINAL,
        InputEnded(1, is_last=True),
    ]


def test_a_barrier_of_an_ended_channel_counts_when_the_others_end_without_it(gate):
    gate.feed(A, EndOfInput(), 0.0)
    assert gate.feed(A, barrier(1), 0.0) == []
    assert names(gate.feed(B, batch("b"), 0.0)) == [["b"]]
    assert gate.feed(B, EndOfInput(), 2.0) == [
        FINAL,
        InputEnded(0, is_last=True),
        snapshot(1, 2.0, ended={0}),
    ]


def test_a_late_barrier_of_an_ended_channel_does_not_bring_an_aborted_checkpoint_back(gate):
    gate.feed(A, EndOfInput(), 0.0)
    gate.abort(1, 0.0)
    gate.feed(B, barrier(1), 0.0)
    assert gate.feed(A, barrier(1), 0.0) == []
    assert gate.feed(B, EndOfInput(), 0.0) == [FINAL, InputEnded(0, is_last=True)]


def test_barriers_pass_when_all_channels_have_ended(gate):
    gate.feed(A, EndOfInput(), 0.0)
    gate.feed(B, EndOfInput(), 0.0)
    assert gate.feed(A, barrier(1), 0.0) == [snapshot(1, ended={0})]
    assert gate.feed(B, barrier(1), 0.0) == []
    assert gate.feed(B, barrier(2), 0.0) == [snapshot(2, ended={0})]


def test_an_input_that_had_ended_before_a_restore_does_not_end_again():
    gate = InputGate({A: 0, C: 1}, ended_inputs={1})
    assert gate.feed(C, EndOfInput(), 0.0) == []
    assert gate.feed(A, barrier(1), 0.0) == [snapshot(1, ended={1})]
    assert gate.feed(A, EndOfInput(), 0.0) == [FINAL, InputEnded(0, is_last=True)]


def test_records_after_the_end_of_their_channel_are_a_violation(gate):
    gate.feed(A, EndOfInput(), 0.0)
    with pytest.raises(ProtocolViolation, match="after its end of input"):
        gate.feed(A, batch("ghost"), 0.0)


def test_a_channel_that_does_not_exist_is_a_violation(gate):
    with pytest.raises(ProtocolViolation, match="is not among the channels"):
        gate.feed(C, batch("stray"), 0.0)


def test_event_time_is_that_of_the_slowest_channel(gate):
    assert gate.feed(A, Watermark(10), 0.0) == []
    assert gate.feed(B, Watermark(4), 0.0) == [AdvanceWatermark(Watermark(4))]
    assert gate.feed(B, Watermark(3), 0.0) == []
    assert gate.feed(B, Watermark(12), 0.0) == [AdvanceWatermark(Watermark(10))]


def test_a_channel_that_has_ended_does_not_hold_event_time_back(gate):
    gate.feed(A, Watermark(10), 0.0)
    gate.feed(B, Watermark(4), 0.0)
    assert gate.feed(B, EndOfInput(), 0.0) == [AdvanceWatermark(Watermark(10))]


def test_an_idle_channel_does_not_hold_event_time_back(gate):
    gate.feed(A, Watermark(10), 0.0)
    gate.feed(B, Watermark(4), 0.0)
    assert gate.feed(B, WatermarkStatus.IDLE, 0.0) == [AdvanceWatermark(Watermark(10))]
    assert gate.feed(A, WatermarkStatus.IDLE, 0.0) == [ChangeStatus(WatermarkStatus.IDLE)]


def test_a_watermark_after_a_barrier_waits_with_the_records(gate):
    gate.feed(A, Watermark(1), 0.0)
    gate.feed(B, Watermark(5), 0.0)
    gate.feed(A, barrier(1), 0.0)
    assert gate.feed(A, Watermark(4), 0.0) == []
    taken, advanced = gate.feed(B, barrier(1), 0.0)
    assert advanced == AdvanceWatermark(Watermark(4))
    assert taken.time.received == 1
    assert {(c.source, c.watermark) for c in taken.time.channels} == {(0, 1), (1, 5)}


def test_what_is_logged_stays_as_it_came_while_it_is_processed(gate):
    unaligned = Barrier(1, 0.0, is_unaligned=True)
    gate.feed(A, unaligned, 0.0)
    [delivered] = gate.feed(B, batch({"n": 1}), 0.0)
    delivered.batch.records[0]["n"] = "changed"
    [logged] = gate.feed(B, unaligned, 0.0)
    assert isinstance(logged, InFlight)
    assert [found.records for _, found in logged.elements] == [[{"n": 1}]]


def test_event_time_does_not_move_on_a_channel_that_has_ended(gate):
    gate.feed(A, EndOfInput(), 0.0)
    assert gate.feed(A, Watermark(7), 0.0) == []
