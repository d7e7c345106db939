"""Functions with operator state, driven over checkpoints by hand."""

import pytest

from tidegate.connectors.sink import Sink, SinkWriter
from tidegate.connectors.source import InputStatus, Poll, Source, SourceReader
from tidegate.connectors.splits import KnownSplits
from tidegate.core.errors import UserFunctionError
from tidegate.operators.checkpointed import CheckpointedFunction, CheckpointListener
from tidegate.operators.endpoints.operators import (
    SinkFunctionOperator,
    SinkOperator,
    SourceOperator,
)
from tidegate.operators.functions import (
    CoFlatMapFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    SinkFunction,
)
from tidegate.operators.keyed import KeyedProcessOperator
from tidegate.operators.stateless import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    ProcessOperator,
)
from tidegate.operators.two_inputs.co import CoFlatMapOperator
from tidegate.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from tidegate.state.keys.selection import KeySelection
from tidegate.stream.batch import Batch
from tidegate.testing.harness import OperatorHarness
from tidegate.types.typeinfo import Types

BY_FIRST = KeySelection(lambda pair: pair[0])


class Buffering(CheckpointedFunction):
    """Keeps all values it was given, and puts them into a list state at a checkpoint."""

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.stored = store.get_list_state(ListStateDescriptor("buffer", Types.LONG()))
        self.buffer = list(self.stored)
        self.was_restored = context.is_restored()

    def snapshot_state(self, context):
        self.stored.update(self.buffer)

    def take(self, value):
        self.buffer.append(value)
        return tuple(self.buffer)


class BufferingMap(MapFunction, Buffering):
    def map(self, value):
        return self.take(value)


class BufferingFlatMap(FlatMapFunction, Buffering):
    def flat_map(self, value):
        yield self.take(value)


class BufferingFilter(FilterFunction, Buffering):
    def filter(self, value):
        return len(self.take(value)) > 2


class BufferingProcess(ProcessFunction, Buffering):
    def process_element(self, value, ctx):
        yield self.take(value)


class BufferingCoFlatMap(CoFlatMapFunction, Buffering):
    def flat_map1(self, value):
        yield self.take(value)

    flat_map2 = flat_map1


@pytest.mark.parametrize(
    "operator",
    [
        MapOperator(BufferingMap()),
        FlatMapOperator(BufferingFlatMap()),
        ProcessOperator(BufferingProcess()),
        CoFlatMapOperator(BufferingCoFlatMap()),
    ],
    ids=lambda operator: type(operator).__name__,
)
def test_a_function_continues_with_what_it_put_into_its_state(operator):
    with OperatorHarness(operator) as harness:
        harness.process([1, 2])
        snapshot = harness.snapshot()
        harness.process([3])
        assert harness.output[-1] == (1, 2, 3)
    with harness.restore(snapshot) as restored:
        restored.process([4])
        assert restored.output == [(1, 2, 4)]


def test_a_filter_continues_with_what_it_put_into_its_state():
    with OperatorHarness(FilterOperator(BufferingFilter())) as harness:
        harness.process([1, 2])
        snapshot = harness.snapshot()
    with harness.restore(snapshot) as restored:
        restored.process([3])
        assert (harness.output, restored.output) == ([], [3])


def test_state_is_as_it_was_at_the_barrier():
    with OperatorHarness(MapOperator(BufferingMap())) as harness:
        harness.process([1])
        first = harness.snapshot()
        harness.process([2])
        second = harness.snapshot()
    for snapshot, expected in ((first, [1]), (second, [1, 2])):
        with harness.restore(snapshot) as restored:
            assert restored.operator.function.buffer == expected


def test_a_function_knows_whether_it_resumes_from_a_checkpoint():
    with OperatorHarness(MapOperator(BufferingMap())) as harness:
        assert not harness.operator.function.was_restored
        with harness.restore(harness.snapshot()) as restored:
            assert restored.operator.function.was_restored


def test_a_list_is_dealt_out_to_another_parallelism():
    with OperatorHarness(MapOperator(BufferingMap())) as harness:
        harness.process([1, 2, 3, 4, 5])
        snapshot = harness.snapshot()
    shares = []
    for subtask in range(2):
        with harness.restore(snapshot, parallelism=2, subtask=subtask) as restored:
            shares.append(restored.operator.function.buffer)
    assert shares == [[1, 2], [3, 4, 5]]


class EveryStore(MapFunction, CheckpointedFunction):
    """One state of each kind, changed with every record."""

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.split = store.get_list_state(ListStateDescriptor("split"))
        self.union = store.get_union_list_state(ListStateDescriptor("union"))
        self.all = store.get_broadcast_state(MapStateDescriptor("all"))

    def map(self, value):
        self.split.add(value)
        self.union.add(value)
        self.all[value] = True
        return list(self.split), list(self.union), list(self.all)

    def snapshot_state(self, context):
        """The states are always up to date."""


def test_each_kind_of_state_is_redistributed_in_its_own_way():
    harnesses = [
        OperatorHarness(MapOperator(EveryStore()), parallelism=2, subtask=i) for i in (0, 1)
    ]
    for subtask, harness in enumerate(harnesses):
        harness.process([subtask, subtask])
    snapshots = [harness.snapshot() for harness in harnesses]
    with harnesses[0].restore(*snapshots, parallelism=4, subtask=3) as restored:
        function = restored.operator.function
        assert list(function.split) == [1]
        assert list(function.union) == [0, 0, 1, 1]
        assert list(function.all) == [1]


class Keeping(KeyedProcessFunction, CheckpointedFunction):
    """State by key from the initialization, and a number of records of the subtask."""

    def initialize_state(self, context):
        self.total = context.get_keyed_state_store().get_state(ValueStateDescriptor("total"))
        store = context.get_operator_state_store()
        self.records = store.get_list_state(ListStateDescriptor("records"))
        self.count = sum(self.records)

    def snapshot_state(self, context):
        self.records.update([self.count])

    def process_element(self, value, ctx):
        self.count += 1
        self.total.update((self.total.value() or 0) + value[1])
        yield value[0], self.total.value(), self.count


def test_a_keyed_function_has_state_of_both_sorts():
    with OperatorHarness(KeyedProcessOperator(Keeping(), [BY_FIRST])) as harness:
        harness.process([("a", 1), ("b", 2)])
        snapshot = harness.snapshot()
    with harness.restore(snapshot) as restored:
        restored.process([("a", 10)])
        assert restored.output == [("a", 11, 3)]


class Journal(SinkFunction, CheckpointedFunction, CheckpointListener):
    def open(self, runtime_context):
        self.journal.append("open")

    def initialize_state(self, context):
        self.journal = ["initialize"]

    def invoke(self, value, context):
        self.journal.append(value)

    def snapshot_state(self, context):
        self.journal.append((context.get_checkpoint_id(), context.get_checkpoint_timestamp()))

    def notify_checkpoint_complete(self, checkpoint_id):
        self.journal.append(f"complete {checkpoint_id}")

    def notify_checkpoint_aborted(self, checkpoint_id):
        self.journal.append(f"aborted {checkpoint_id}")


def test_the_life_of_a_sink_function_over_two_checkpoints():
    with OperatorHarness(SinkFunctionOperator(Journal())) as harness:
        harness.process(["one"])
        harness.advance(1.5)
        harness.snapshot()
        harness.complete_checkpoint()
        harness.process(["two"])
        harness.snapshot()
        harness.abort_checkpoint()
    assert harness.operator.function.journal == [
        "initialize",
        "open",
        "one",
        (1, 1500),
        "complete 1",
        "two",
        (2, 1500),
        "aborted 2",
    ]


class Failing(MapFunction, CheckpointedFunction, CheckpointListener):
    def __init__(self, at):
        self.at = at

    def fail_at(self, moment):
        if moment == self.at:
            raise OSError(f"no disk at {moment}")

    def initialize_state(self, context):
        self.fail_at("initialize")

    def map(self, value):
        return value

    def snapshot_state(self, context):
        self.fail_at("snapshot")

    def notify_checkpoint_complete(self, checkpoint_id):
        self.fail_at("complete")

    def notify_checkpoint_aborted(self, checkpoint_id):
        self.fail_at("aborted")


@pytest.mark.parametrize("moment", ["initialize", "snapshot", "complete", "aborted"])
def test_what_fails_around_a_checkpoint_comes_with_the_users_traceback(moment):
    with pytest.raises(UserFunctionError) as failure:  # noqa: PT012 - each moment fails elsewhere
        harness = OperatorHarness(MapOperator(Failing(moment)), name="Fragile", uid="f")
        harness.snapshot()
        harness.complete_checkpoint()
        harness.abort_checkpoint()
    lines = str(failure.value).splitlines()
    assert any("fail_at" in line for line in lines[:-2])
    assert lines[-2:] == [
        f"OSError: no disk at {moment}",
        "in operator 'Fragile' (uid 'f'), subtask (1/1)",
    ]


class WithoutKey(MapFunction, CheckpointedFunction):
    def initialize_state(self, context):
        context.get_keyed_state_store().get_state(ValueStateDescriptor("count"))

    def map(self, value):
        return value

    def snapshot_state(self, context):
        """Not reached."""


def test_state_by_key_on_a_stream_without_keys_is_refused():
    with pytest.raises(UserFunctionError, match=r"'count', but its stream has no key: call key_by"):
        OperatorHarness(MapOperator(WithoutKey()))


class Countdown(Source):
    """Its reader remembers in operator state how often it was polled."""

    def create_enumerator(self):
        return KnownSplits(lambda parallelism: [3])

    def create_reader(self, context):
        return CountdownReader(context)


class CountdownReader(SourceReader):
    def __init__(self, context):
        self.polls = context.operator_state.get_list_state(ListStateDescriptor("polls"))
        self.polled = sum(self.polls)
        self.left = 0
        self.aborted = []

    def add_splits(self, splits):
        self.left = sum(splits)

    def poll(self, max_records):
        self.polled += 1
        self.left -= 1
        ended = self.left == 0
        status = InputStatus.END_OF_INPUT if ended else InputStatus.NOTHING_AVAILABLE
        return Poll(Batch.of_records([self.polled]), status)

    def snapshot(self):
        self.polls.update([self.polled])
        return [self.left]

    def notify_aborted(self, checkpoint_id):
        self.aborted.append(checkpoint_id)


def test_a_reader_of_the_user_has_operator_state():
    with OperatorHarness(SourceOperator(Countdown())) as harness:
        harness.assign_all_splits()
        harness.run_slice()
        snapshot = harness.snapshot()
        harness.abort_checkpoint()
        assert harness.operator._reader.aborted == [1]
    with harness.restore(snapshot) as restored:
        assert restored.run_slice().status is InputStatus.NOTHING_AVAILABLE
        assert restored.run_slice().status is InputStatus.END_OF_INPUT
        assert (harness.output, restored.output) == ([1], [2, 3])


class Ledger(Sink):
    """Prepares at the barrier what was written, and commits it when the checkpoint is durable."""

    def create_writer(self, context):
        return LedgerWriter(context)


class LedgerWriter(SinkWriter):
    def __init__(self, context):
        descriptor = ListStateDescriptor("prepared")
        self.state = context.operator_state.get_list_state(descriptor)
        self.console = context.console
        self.written = []
        self.prepared = dict(self.state)

    def open(self):
        self.commit_up_to(max(self.prepared, default=0))

    def write(self, batch):
        self.written += batch.records

    def snapshot(self, checkpoint_id):
        self.prepared[checkpoint_id], self.written = self.written, []
        self.state.update(self.prepared.items())

    def notify_complete(self, checkpoint_id):
        self.commit_up_to(checkpoint_id)

    def notify_aborted(self, checkpoint_id):
        self.written = self.prepared.pop(checkpoint_id) + self.written

    def commit_up_to(self, checkpoint_id):
        for known in sorted(known for known in self.prepared if known <= checkpoint_id):
            self.console(f"{known}: {self.prepared.pop(known)}")


def test_a_writer_commits_when_the_checkpoint_is_durable():
    with OperatorHarness(SinkOperator(Ledger())) as harness:
        harness.process([1, 2])
        harness.snapshot()
        harness.process([3])
        assert harness.console == []
        harness.complete_checkpoint()
        assert harness.console == ["1: [1, 2]"]


def test_a_writer_commits_on_restore_what_the_checkpoint_names():
    with OperatorHarness(SinkOperator(Ledger())) as harness:
        harness.process([1])
        snapshot = harness.snapshot()
        harness.process([2])
    with harness.restore(snapshot) as restored:
        restored.process([2])
        assert restored.console == ["1: [1]"]


def test_what_an_aborted_checkpoint_prepared_belongs_to_the_next():
    with OperatorHarness(SinkOperator(Ledger())) as harness:
        harness.process([1])
        harness.snapshot()
        harness.process([2])
        harness.abort_checkpoint()
        harness.snapshot()
        harness.complete_checkpoint()
        assert harness.console == ["2: [1, 2]"]
