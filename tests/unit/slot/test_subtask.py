import pickle
from dataclasses import replace
from typing import ClassVar

import pytest

from tests.programs import apply, collected, graph_of, keyed, mapped, read
from tidegate.connectors.collection import RangeSplit
from tidegate.connectors.source import InputStatus
from tidegate.core.errors import ExternalError, UserFunctionError
from tidegate.core.ids import CheckpointId
from tidegate.core.modes import CheckpointingMode
from tidegate.exchange.spill import SpillStore
from tidegate.graph.logical import Upstream
from tidegate.graph.partitioning import Rebalance
from tidegate.operators.base import Operator, OperatorSnapshot
from tidegate.operators.stateless import MapOperator
from tidegate.protocol.input_gate import REQUESTS, InputGate
from tidegate.protocol.messages import SourceReport, SplitAssignment
from tidegate.protocol.packet import Channel
from tidegate.slot.outbox import ChannelWriter, Outbox, channels_into
from tidegate.slot.subtask import Subtask
from tidegate.stream.batch import Batch
from tidegate.stream.elements import (
    FINAL_WATERMARK,
    Barrier,
    BarrierKind,
    EndOfInput,
    SnapshotRequest,
    Watermark,
)
from tidegate.testing.harness import OperatorHarness

ALL_RECORDS = (1000, 1 << 20, ())


class Noting(Operator):
    """Notes what happens to it, in one list for all of them, and passes records on."""

    notes: ClassVar = []

    def __init__(self, name, *, fails=()):
        self.name = name
        self.fails = fails

    def note(self, what):
        self.notes.append(f"{self.name} {what}")
        if what in self.fails:
            raise self.fails[what] if isinstance(self.fails, dict) else ValueError(what)

    def open(self, context, output):
        super().open(context, output)
        self.note("open")

    def process(self, batch, input_index=0):
        for record in batch.records:
            self.note(record)
        self.output.emit(batch)

    def flush(self):
        self.note("flush")

    def snapshot(self, barrier):
        self.note("snapshot")
        return OperatorSnapshot(source_splits=(self.name,))

    def finish(self, input_index=0):
        self.note(f"finish {input_index}")

    def close(self):
        self.note("close")


@pytest.fixture(autouse=True)
def notes():
    Noting.notes = []
    return Noting.notes


class Subject:
    """The subtask of one vertex of a job, with the channels that leave it."""

    def __init__(self, job, directory, vertex=0, *, has_ended=False):
        self.vertex = job.vertices[vertex]
        self.outbox = Outbox(0, 1, SpillStore(directory, 1 << 20))
        self.outbox.begin_step(1)
        self.snapshots = []
        self.skipped = []
        contexts = [
            replace(
                OperatorHarness(MapOperator(abs), name=chained.name, uid=chained.uid).context,
                operator_id=chained.operator_id,
                has_ended=has_ended,
            )
            for chained in self.vertex.chain
        ]
        writers = [
            (
                edge.source_operator,
                edge.side_tag,
                ChannelWriter(edge, 0, self.vertex, job.vertices[edge.target], self.outbox),
            )
            for edge in job.edges_from(self.vertex.id)
        ]
        self.channels = {
            channel: edge.input_index
            for edge in job.edges_into(self.vertex.id)
            for channel in channels_into(edge, 0, 1, 1)
        }
        self.subtask = Subtask(
            self.vertex,
            [chained.operator for chained in self.vertex.chain],
            contexts,
            writers,
            InputGate(self.channels or {REQUESTS: 0}),
            self,
        )

    def write(self, frozen):
        self.snapshots.append(frozen)

    def decline(self, subtask, checkpoint_id, error, *, is_skipped):
        assert is_skipped
        self.skipped.append((checkpoint_id, str(error)))

    def sent(self, vertex=1):
        elements = self.outbox.take_local(vertex)
        return [
            element.records if isinstance(element, Batch) else element
            for channel in sorted(elements)
            for element in elements[channel]
        ]

    def run(self, records, barriers=()):
        assignment = SplitAssignment(splits=(RangeSplit(0, records),), no_more=True)
        return self.subtask.run_slice(1000, 1 << 20, barriers, assignment)


@pytest.fixture
def tested(tmp_path):
    def build(*sinks, vertex=0, parallelism=1):
        return Subject(graph_of(*sinks, parallelism=parallelism), tmp_path, vertex)

    return build


def chain_of_notes(*operators, records=(1, 2)):
    stream = read(records)
    for operator in operators:
        stream = apply(operator, stream, name=operator.name)
    return stream


def test_operators_are_opened_from_the_last_to_the_first_and_closed_the_other_way(tested, notes):
    subtask = tested(chain_of_notes(Noting("a"), Noting("b"))).subtask
    subtask.open()
    subtask.close()
    assert notes == ["b open", "a open", "a close", "b close"]


def test_closing_twice_closes_once(tested, notes):
    subtask = tested(chain_of_notes(Noting("a"))).subtask
    subtask.open()
    subtask.close()
    subtask.close()
    assert notes == ["a open", "a close"]


def test_what_was_opened_can_be_closed_when_opening_fails(tested, notes):
    subtask = tested(chain_of_notes(Noting("a", fails=["open"]), Noting("b"))).subtask
    with pytest.raises(UserFunctionError, match="ValueError: open"):
        subtask.open()
    subtask.close()
    assert notes == ["b open", "a open", "a close", "b close"]


def test_a_failure_while_closing_does_not_keep_the_others_open(tested, notes):
    subtask = tested(chain_of_notes(Noting("a", fails=["close"]), Noting("b"))).subtask
    subtask.open()
    failure = subtask.close()
    assert notes[-2:] == ["a close", "b close"]
    assert failure.cause == "ValueError: close"


def test_a_slice_runs_through_the_whole_chain(tested, notes):
    subject = tested(collected(Upstream(chain_of_notes(Noting("a"), Noting("b")), Rebalance())))
    subject.subtask.open()
    report = subject.run(2)
    assert report == SourceReport(2, InputStatus.END_OF_INPUT, None)
    assert notes[2:6] == ["a 1", "a 2", "b 1", "b 2"]
    assert subject.sent() == [[1, 2], Watermark(FINAL_WATERMARK), EndOfInput()]
    assert subject.subtask.records_in == 2
    assert subject.subtask.records_out == 2


def test_the_end_of_input_finishes_the_chain_from_its_head(tested, notes):
    subject = tested(chain_of_notes(Noting("a"), Noting("b"), records=[]))
    subject.subtask.open()
    subject.run(0)
    assert notes[2:] == ["a finish 0", "b finish 0"]
    assert subject.subtask.is_finished


def test_an_ended_source_reads_no_more(tested, notes):
    subject = tested(chain_of_notes(Noting("a")))
    subject.subtask.open()
    subject.run(2)
    del notes[:]
    again = subject.subtask.run_slice(*ALL_RECORDS, None)
    assert again == SourceReport(0, InputStatus.END_OF_INPUT, None)
    assert notes == []
    assert not subject.subtask.is_available()


def test_a_failure_ends_the_slice_and_everything_after_it(tested, notes):
    failing = chain_of_notes(Noting("a", fails=[2]), records=[1, 2, 3])
    subject = tested(collected(Upstream(failing, Rebalance())))
    subject.subtask.open()
    subject.run(3)
    assert notes == ["a open", "a 1", "a 2"]
    assert subject.subtask.failure.cause == "ValueError: 2"
    assert not subject.subtask.is_finished
    subject.run(3)
    subject.subtask.end_slice(0.0)
    assert notes == ["a open", "a 1", "a 2"]
    assert subject.sent() == []


@pytest.mark.parametrize("error", [SystemExit(3), KeyError("k")])
def test_whatever_user_code_raises_is_a_failure_of_the_subtask(tested, error):
    subject = tested(chain_of_notes(Noting("a", fails={1: error})))
    subject.subtask.open()
    subject.run(1)
    assert isinstance(subject.subtask.failure, UserFunctionError)


def test_a_failure_of_the_surroundings_stays_one(tested):
    subject = tested(chain_of_notes(Noting("a", fails={1: ExternalError("disk full")})))
    subject.subtask.open()
    subject.run(1)
    assert subject.subtask.failure.args == ("disk full",)


def test_a_barrier_comes_before_the_records_of_its_slice(tested, notes):
    subject = tested(collected(Upstream(chain_of_notes(Noting("a"), Noting("b")), Rebalance())))
    subject.subtask.open()
    barrier = Barrier(CheckpointId(1), 0.0)
    subject.subtask.run_slice(1, 1 << 20, [barrier], SplitAssignment(splits=(RangeSplit(0, 2),)))
    assert notes[2:] == ["a flush", "b flush", "a snapshot", "b snapshot", "a 1", "b 1"]
    assert subject.sent() == [barrier, [1]]
    (frozen,) = subject.snapshots
    assert frozen.barrier == barrier
    splits = [[pickle.loads(split) for split in each.source_splits] for each in frozen.operators]
    assert splits == [[RangeSplit(0, 2)], ["a"], ["b"]]


def test_a_subtask_whose_snapshot_fails_fails_and_sends_nothing_more(tested, notes):
    failing = Noting("a", fails=["snapshot"])
    subject = tested(collected(Upstream(chain_of_notes(failing), Rebalance())))
    subject.subtask.open()
    barrier = Barrier(CheckpointId(1), 0.0)
    subject.subtask.run_slice(1, 1 << 20, [barrier], SplitAssignment(splits=(RangeSplit(0, 2),)))
    assert subject.sent() == []
    assert subject.snapshots == []
    assert "ValueError: snapshot" in str(subject.subtask.failure)


def test_what_had_ended_with_nothing_left_is_not_opened_but_ends_again(tmp_path, notes):
    job = graph_of(collected(Upstream(chain_of_notes(Noting("a")), Rebalance())), parallelism=1)
    subject = Subject(job, tmp_path, has_ended=True)
    subject.subtask.open({})
    barrier = Barrier(CheckpointId(1), 0.0)
    subject.subtask.run_slice(10, 1 << 20, [barrier], SplitAssignment(no_more=True))
    assert subject.sent() == [EndOfInput(), barrier]
    assert notes == []
    (frozen,) = subject.snapshots
    assert (frozen.operators, frozen.is_finished) == ((), True)


def test_of_what_had_ended_only_those_are_opened_that_have_something_left(tmp_path, notes):
    chain = chain_of_notes(Noting("a"), Noting("b"))
    job = graph_of(collected(Upstream(chain, Rebalance())), parallelism=1)
    subject = Subject(job, tmp_path, has_ended=True)
    *_, last = subject.vertex.chain
    subject.subtask.open({last.operator_id: []})
    subject.subtask.run_slice(10, 1 << 20, [Barrier(CheckpointId(1), 0.0)], None)
    subject.subtask.close()
    (frozen,) = subject.snapshots
    assert [each.operator_id for each in frozen.operators] == [last.operator_id]
    assert notes == ["b open", "b flush", "b snapshot", "b close"]


def test_a_source_that_had_ended_reads_nothing_and_keeps_what_it_left_unread(tmp_path):
    job = graph_of(collected(Upstream(chain_of_notes(Noting("a")), Rebalance())), parallelism=1)
    subject = Subject(job, tmp_path, has_ended=True)
    head = subject.vertex.chain[0].operator_id
    unread = RangeSplit(7, 9)
    subject.subtask.open({head: [OperatorSnapshot(source_splits=(unread,))]})
    report = subject.run(10, [Barrier(CheckpointId(1), 0.0)])
    assert (report.records, subject.subtask.records_in) == (0, 0)
    (frozen,) = subject.snapshots
    assert [pickle.loads(each) for each in frozen.operators[0].source_splits] == [unread]


def test_a_finished_source_still_forwards_barriers(tested):
    subject = tested(collected(Upstream(chain_of_notes(Noting("a")), Rebalance())))
    subject.subtask.open()
    subject.run(2)
    subject.sent()
    barrier = Barrier(CheckpointId(1), 0.0)
    subject.subtask.run_slice(1000, 1 << 20, [barrier], None)
    assert subject.sent() == [barrier]


@pytest.fixture
def joined(tested):
    """A vertex with two inputs: edges 0 and 1 of the job lead to it."""
    left, right = read([], name="left"), read([], name="right")
    both = apply(Noting("both"), Upstream(left), Upstream(right, input_index=1), name="both")
    subject = tested(collected(Upstream(both, Rebalance())), vertex=2)
    subject.subtask.open()
    subject.left, subject.right = Channel(0, 0), Channel(1, 0)
    assert subject.channels == {subject.left: 0, subject.right: 1}
    return subject


def test_records_wait_after_a_barrier_that_others_owe(joined, notes):
    barrier = Barrier(CheckpointId(1), 0.0)
    joined.subtask.feed(
        [(joined.left, [Batch.of_records(["l1"]), barrier, Batch.of_records(["l2"])])]
    )
    joined.subtask.feed([(joined.right, [Batch.of_records(["r1"])])])
    assert notes == ["both open", "both l1", "both r1"]
    joined.subtask.feed([(joined.right, [barrier, Batch.of_records(["r2"])])])
    assert notes[3:] == ["both flush", "both snapshot", "both l2", "both r2"]
    assert joined.sent(3) == [["l1"], ["r1"], barrier, ["l2"], ["r2"]]


def test_nobody_waits_at_barriers_that_allow_repetition(joined, notes):
    barrier = Barrier(CheckpointId(1), 0.0, mode=CheckpointingMode.AT_LEAST_ONCE)
    joined.subtask.feed([(joined.left, [barrier, Batch.of_records(["l"])])])
    joined.subtask.feed([(joined.right, [barrier])])
    assert notes == ["both open", "both l", "both flush", "both snapshot"]


def test_small_batches_of_an_input_are_processed_at_once_up_to_a_barrier(joined):
    barrier = Barrier(CheckpointId(1), 0.0)
    one, two, three, four = (Batch.of_records([name]) for name in ("1", "2", "3", "4"))
    joined.subtask.feed([(joined.left, [one, two]), (joined.right, [three, barrier, four])])
    assert joined.sent(3) == [["1", "2"], ["3"]]
    joined.subtask.feed([(joined.left, [barrier])])
    assert joined.sent(3) == [barrier, ["4"]]


def test_large_batches_are_not_joined(joined):
    small, large = Batch.of_records(["s"]), Batch.of_records(["l"] * 1025)
    joined.subtask.feed([(joined.left, [small, small, large, small])])
    assert [len(batch) for batch in joined.sent(3)] == [2, 1025, 1]
    assert joined.subtask.records_in == 1028


def unreadable(*batches):
    yield from batches
    raise ValueError("cannot be unpickled")


def test_records_before_one_that_cannot_be_read_are_processed(joined):
    joined.subtask.feed(
        [
            (joined.left, [Batch.of_records(["1"])]),
            (joined.left, unreadable(Batch.of_records(["2"]))),
            (joined.right, [Batch.of_records(["3"])]),
        ]
    )
    assert "cannot be unpickled" in str(joined.subtask.failure)
    assert joined.sent(3) == [["1", "2"]]


def test_an_aborted_checkpoint_releases_what_waited_for_it(joined, notes):
    joined.subtask.feed([(joined.left, [Barrier(CheckpointId(1), 0.0), Batch.of_records(["l"])])])
    joined.subtask.abort(CheckpointId(1))
    assert notes == ["both open", "both l"]
    assert joined.snapshots == []


def test_inputs_end_one_by_one_and_the_subtask_with_the_last(joined, notes):
    joined.subtask.feed([(joined.left, [EndOfInput()])])
    assert notes == ["both open", "both finish 0"]
    assert not joined.subtask.is_finished
    joined.subtask.feed([(joined.right, [Batch.of_records(["r"]), EndOfInput()])])
    assert notes[2:] == ["both r", "both finish 1"]
    assert joined.subtask.is_finished
    assert joined.sent(3) == [["r"], Watermark(FINAL_WATERMARK), EndOfInput()]


def test_the_slower_input_sets_the_watermark(joined):
    joined.subtask.feed([(joined.left, [Watermark(10)])])
    joined.subtask.feed([(joined.right, [Watermark(4), Watermark(7)])])
    assert joined.sent(3) == [Watermark(4), Watermark(7)]


def test_a_key_selector_fails_the_operator_that_emits(tested):
    keyed_stream = keyed(lambda record: record.missing, mapped(abs, read([1]), name="emits"))
    subject = tested(collected(mapped(abs, keyed_stream)), parallelism=2)
    subject.subtask.open()
    subject.run(1)
    assert subject.subtask.failure.args[0] == "emits"
    assert subject.subtask.failure.args[3] == "1"


def test_a_source_that_cannot_say_whether_it_has_records_fails_in_the_next_step(tested):
    subject = tested(chain_of_notes(Noting("a")))
    subject.subtask.open()

    def broken():
        raise OSError("no broker")

    subject.subtask.source._reader.is_available = broken
    assert subject.subtask.is_available(), "a step is needed to tell"
    assert subject.subtask.failure.cause == "OSError: no broker"
    assert not subject.subtask.is_available()


class Timed(Noting):
    """Has one timer, which is due at once."""

    due = 0.0

    def next_timer(self):
        return self.due

    def fire_timers(self, now):
        self.due = None
        self.note("timer")


def test_after_a_stop_no_timer_fires_until_it_is_aborted(tested, notes):
    subject = tested(chain_of_notes(Timed("timed")))
    subject.subtask.open()
    subject.run(1, [Barrier(7, 0.0, SnapshotRequest(BarrierKind.STOP))])
    subject.subtask.end_slice(1.0)
    assert "timed timer" not in notes
    assert subject.subtask.next_timer() is None
    subject.subtask.abort(7)
    assert subject.subtask.next_timer() == 0.0
    subject.subtask.end_slice(1.0)
    assert "timed timer" in notes
