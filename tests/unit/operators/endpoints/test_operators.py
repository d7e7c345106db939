import threading

import pytest

from tidegate.connectors.collection import CollectionSource
from tidegate.connectors.driver_side import PrintSink
from tidegate.connectors.sequence import NumberSequenceSource
from tidegate.connectors.sink import (
    Committer,
    CommittingWriter,
    Sink,
    SinkWriter,
    SupportsCommitter,
)
from tidegate.connectors.source import InputStatus, Poll, Source, SourceReader
from tidegate.connectors.splits import KnownSplits
from tidegate.core.errors import InternalError, UserFunctionError
from tidegate.core.modes import SavepointFormat
from tidegate.operators.endpoints.operators import (
    SinkFunctionOperator,
    SinkOperator,
    SourceOperator,
    size_of,
)
from tidegate.operators.endpoints.source_function import FunctionRun, SourceFunctionSource
from tidegate.operators.functions import SinkFunction, SourceFunction
from tidegate.stream.batch import Batch
from tidegate.stream.elements import Barrier, BarrierKind, SavepointTarget, SnapshotRequest
from tidegate.testing.harness import OperatorHarness, as_batch
from tidegate.types.arrow import arrow_format
from tidegate.types.typeinfo import Types


def source_harness(source, **settings):
    harness = OperatorHarness(SourceOperator(source), **settings)
    harness.assign_all_splits()
    return harness


def test_a_slice_ends_at_its_number_of_records():
    harness = source_harness(NumberSequenceSource(0, 9))
    report = harness.run_slice(max_records=4)
    assert (report.records, report.status) == (4, InputStatus.MORE_AVAILABLE)
    assert harness.take_output() == [0, 1, 2, 3]
    report = harness.run_slice()
    assert (report.records, report.status) == (6, InputStatus.END_OF_INPUT)
    assert harness.take_output() == [4, 5, 6, 7, 8, 9]


def test_a_slice_ends_at_about_its_number_of_bytes():
    harness = source_harness(CollectionSource([f"{i:01000}" for i in range(10_000)]))
    first = harness.run_slice(max_bytes=200_000)
    later = harness.run_slice(max_bytes=200_000)
    assert first.records == 1024
    assert 150 <= later.records <= 250
    assert later.status is InputStatus.MORE_AVAILABLE


def test_size_is_exact_for_columns_and_near_for_objects():
    records = [("word", i) for i in range(1000)]
    format = arrow_format(Types.TUPLE([Types.STRING(), Types.LONG()]))
    columns = as_batch(records, format)
    assert size_of(columns) == columns.columns.nbytes
    assert 5_000 < size_of(Batch.of_records(records)) < 30_000


def test_a_source_without_splits_waits_for_them():
    harness = OperatorHarness(SourceOperator(NumberSequenceSource(0, 9)))
    assert harness.run_slice().status is InputStatus.NOTHING_AVAILABLE
    assert not harness.operator.is_available()
    harness.operator.no_more_splits()
    assert harness.operator.is_available()
    assert harness.run_slice().status is InputStatus.END_OF_INPUT


def test_a_snapshot_continues_after_the_last_record():
    harness = source_harness(NumberSequenceSource(0, 9))
    harness.run_slice(max_records=3)
    restored = OperatorHarness(
        SourceOperator(NumberSequenceSource(0, 9)), restore_from=[harness.snapshot()]
    )
    assert restored.operator.pending_records() is None
    restored.operator.no_more_splits()
    restored.run_slice()
    assert restored.output == [3, 4, 5, 6, 7, 8, 9]


def test_restoring_several_snapshots_reads_the_splits_of_all():
    source = NumberSequenceSource(0, 9)
    halves = [source_harness(source, parallelism=2, subtask=subtask) for subtask in (0, 1)]
    for half in halves:
        half.run_slice(max_records=2)
    assert [half.output for half in halves] == [[0, 1], [5, 6]]
    whole = OperatorHarness(
        SourceOperator(source), restore_from=[half.snapshot() for half in halves]
    )
    whole.run_slice()
    assert whole.output == [2, 3, 4, 7, 8, 9]


class Told(Source):
    """A source whose reader notes what it is told."""

    def create_enumerator(self):
        return KnownSplits(lambda parallelism: ["s"])

    def create_reader(self, context):
        return ToldReader()


class ToldReader(SourceReader):
    def __init__(self):
        self.told = []
        self.position = 0

    def add_splits(self, splits):
        self.told.append(("add", list(splits)))

    def poll(self, max_records):
        self.position += 1
        if self.position == 3:
            raise ValueError("lost the broker")
        return Poll(Batch.of_records([self.position]), InputStatus.NOTHING_AVAILABLE)

    def snapshot(self):
        return [self.position]

    def notify_complete(self, checkpoint_id, splits):
        self.told.append((checkpoint_id, list(splits)))

    def close(self):
        self.told.append("close")


def test_a_reader_is_notified_of_a_checkpoint_with_the_splits_it_had_then():
    harness = OperatorHarness(SourceOperator(Told()))
    harness.run_slice()
    harness.snapshot()
    harness.run_slice()
    harness.snapshot()
    reader = harness.operator._reader
    harness.complete_checkpoint()
    harness.operator.notify_complete(1)
    harness.close()
    assert reader.told == [(2, [2]), "close"]


class FilingReader(ToldReader):
    """Keeps files, and deletes them as it hears of checkpoints."""

    def files_of(self, splits):
        return {f"log/{split}": f"/job/taskowned/op/log/{split}" for split in splits}

    def halt(self):
        self.told.append("halt")

    def go_on(self):
        self.told.append("go on")


@pytest.fixture
def filing(monkeypatch):
    monkeypatch.setattr(Told, "create_reader", lambda self, context: FilingReader())
    harness = OperatorHarness(SourceOperator(Told()))
    yield harness.operator
    harness.close()


def barrier(number, kind=BarrierKind.CHECKPOINT):
    target = SavepointTarget("/savepoints", "one", SavepointFormat.NATIVE)
    is_savepoint = kind is not BarrierKind.CHECKPOINT
    return Barrier(number, 0.0, SnapshotRequest(kind, target if is_savepoint else None))


def test_a_reader_hears_of_no_checkpoint_while_its_files_are_copied(filing):
    needed = filing.snapshot(barrier(1, BarrierKind.SAVEPOINT)).files
    assert needed.urls == {"log/0": "/job/taskowned/op/log/0"}
    assert filing.snapshot(barrier(2)).files is None
    filing.notify_complete(2)
    assert filing._reader.told == []
    needed.release()
    filing.snapshot(barrier(3))
    filing.notify_complete(3)
    assert filing._reader.told == [(3, [0])]


def test_a_reader_is_halted_before_the_snapshot_that_the_job_ends_with(filing):
    filing.snapshot(barrier(1, BarrierKind.SAVEPOINT)).files.release()
    filing.snapshot(barrier(2, BarrierKind.STOP))
    filing.notify_aborted(1)
    assert filing._reader.told == ["halt"]
    filing.notify_aborted(2)
    assert filing._reader.told == ["halt", "go on"]


def test_what_a_reader_of_the_user_raises_is_the_users():
    harness = OperatorHarness(SourceOperator(Told()), name="Broker")
    harness.run_slice()
    harness.run_slice()
    with pytest.raises(UserFunctionError, match="ValueError: lost the broker") as failure:
        harness.run_slice()
    assert failure.value.args[0] == "Broker"
    assert harness.output == [1, 2]


def test_a_source_takes_no_input():
    with pytest.raises(InternalError, match="a source has no input"):
        OperatorHarness(SourceOperator(Told())).process([1])


class Lines(SourceFunction):
    def open(self, runtime_context):
        self.name = runtime_context.get_task_name()
        self.running = True

    def run(self, ctx):
        for i in range(5):
            ctx.collect(f"{self.name} {i}")

    def cancel(self):
        self.running = False


class Endless(Lines):
    """Emits for ever, as fast as the job takes it."""

    def run(self, ctx):
        i = 0
        while self.running:
            ctx.collect(i)
            i += 1

    def close(self):
        self.closed_by = threading.current_thread().name


class FailsInTheMiddle(Lines):
    def run(self, ctx):
        ctx.collect_with_timestamp("first", 10)
        ctx.collect_with_timestamp("second", 20)
        raise OSError("gone")


def drain(harness):
    """Run slices until the source ends."""
    while harness.run_slice().status is not InputStatus.END_OF_INPUT:
        harness.operator._reader._ended.wait(0.01)


def test_a_source_function_runs_to_its_end():
    with source_harness(SourceFunctionSource(Lines()), name="Lines") as harness:
        drain(harness)
        assert harness.output == [f"Lines {i}" for i in range(5)]
        assert harness.snapshot().source_splits == ()


def test_a_source_function_waits_while_nobody_reads_and_stops_when_closed():
    harness = source_harness(SourceFunctionSource(Endless()))
    while len(harness.output) < 15_000:
        harness.run_slice(max_records=5_000)
    assert harness.output == list(range(len(harness.output)))
    assert harness.snapshot().source_splits == (FunctionRun(),)
    reader = harness.operator._reader
    harness.close()
    assert not reader._thread.is_alive()
    assert harness.operator.source.function.closed_by == threading.current_thread().name


def test_records_before_the_failure_of_a_source_function_are_emitted():
    with source_harness(SourceFunctionSource(FailsInTheMiddle()), name="Feed") as harness:
        with pytest.raises(UserFunctionError, match="OSError: gone") as failure:
            drain(harness)
        assert harness.output == ["first", "second"]
        assert [t for b in harness.batches for t in b.timestamps] == [10, 20]
    assert failure.value.args[0] == "Feed"


class FailsToOpen(Lines):
    def open(self, runtime_context):
        raise OSError("no database")

    def close(self):
        raise AssertionError("closed what was never open")


def test_a_source_function_that_fails_to_open_is_not_closed():
    operator = SourceOperator(SourceFunctionSource(FailsToOpen()))
    with pytest.raises(UserFunctionError, match="OSError: no database"):
        OperatorHarness(operator, copy=False)
    operator.close()


def test_a_source_function_has_one_reader():
    assert SourceFunctionSource(Lines()).max_readers() == 1
    with source_harness(SourceFunctionSource(Lines()), parallelism=2, subtask=1) as other:
        assert other.run_slice().status is InputStatus.END_OF_INPUT
    with pytest.raises(TypeError, match="expected a SourceFunction"):
        SourceFunctionSource(len)


class Journal(Sink):
    def create_writer(self, context):
        return JournalWriter()


class JournalWriter(SinkWriter):
    def __init__(self):
        self.journal = []

    def open(self):
        self.journal.append("open")

    def write(self, batch):
        if "bad" in batch.records:
            raise ValueError("bad record")
        self.journal.append(batch.records)

    def flush(self, end_of_input=False):
        self.journal.append("end" if end_of_input else "flush")

    def close(self):
        self.journal.append("close")


def test_a_sink_is_flushed_before_a_snapshot_and_at_the_end():
    with OperatorHarness(SinkOperator(Journal())) as harness:
        harness.process([1, 2])
        harness.snapshot()
        harness.process([3])
        harness.finish()
    assert harness.operator._writer.journal == ["open", [1, 2], "flush", [3], "end", "close"]


def test_what_a_writer_of_the_user_raises_is_the_users():
    harness = OperatorHarness(SinkOperator(Journal()), name="Journal")
    with harness, pytest.raises(UserFunctionError, match="ValueError: bad record"):
        harness.process(["bad"])


class Unclosable(SupportsCommitter):
    """Its writer and its committer raise when they are closed."""

    def __init__(self):
        self.closed = []

    def create_writer(self, context):
        return self.create("writer", CommittingWriter)

    def create_committer(self, context):
        return self.create("committer", Committer)

    def create(self, name, kind):
        def close(part):
            self.closed.append(name)
            raise ValueError(f"the {name} does not close")

        methods = dict.fromkeys(kind.__abstractmethods__, lambda *arguments: ())
        return type(name, (kind,), {**methods, "close": close})()


def test_a_committer_is_closed_even_if_its_writer_cannot_be():
    sink = Unclosable()
    operator = SinkOperator(sink)
    OperatorHarness(operator, copy=False)
    with pytest.raises(UserFunctionError, match="does not close"):
        operator.close()
    assert sink.closed == ["writer", "committer"]


def test_sinks_reach_the_console():
    with OperatorHarness(SinkOperator(PrintSink())) as harness:
        harness.process(["a", "b"])
    assert harness.console == ["a", "b"]


class Remember(SinkFunction):
    def open(self, runtime_context):
        self.seen = []

    def invoke(self, value, context):
        self.seen.append((value, context.current_processing_time(), 1 // value))


def test_a_sink_function_is_invoked_for_every_record_up_to_a_failure():
    with OperatorHarness(SinkFunctionOperator(Remember())) as harness:
        harness.clock.advance(1)
        with pytest.raises(UserFunctionError) as failure:
            harness.process([1, 2, 0, 3])
    assert harness.operator.function.seen == [(1, 1000, 1), (2, 1000, 0)]
    assert failure.value.args[3] == "0"


def test_a_callable_is_a_sink():
    seen = []
    with OperatorHarness(SinkFunctionOperator(seen.append), copy=False) as harness:
        harness.process([1, 2])
    assert seen == [1, 2]
