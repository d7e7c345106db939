import pytest

from tidegate.core.errors import UserFunctionError
from tidegate.operators.base import Operator
from tidegate.operators.checkpointed import CheckpointedFunction
from tidegate.operators.functions import MapFunction
from tidegate.operators.stateless import MapOperator
from tidegate.state.descriptors import ListStateDescriptor
from tidegate.stream.batch import Batch
from tidegate.testing.harness import OperatorHarness
from tidegate.types.typeinfo import Types


class Ticker(Operator):
    """Emits the time at every timer, which it sets a second after the last, and counts records."""

    count = 0
    due = 1.0

    def process(self, batch, input_index=0):
        self.count += len(batch)

    def next_timer(self):
        return self.due

    def fire_timers(self, now):
        self.output.emit(Batch.of_records([now]))
        self.due = now + 1.0


def test_time_stops_at_every_timer_on_its_way():
    harness = OperatorHarness(Ticker())
    harness.advance(2.5)
    assert harness.output == [1.0, 2.0]
    assert harness.clock.time() == 2.5
    harness.advance(0.5)
    assert harness.take_output() == [1.0, 2.0, 3.0]
    assert harness.output == []


class Counter(MapFunction, CheckpointedFunction):
    """How many records there were."""

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.counts = store.get_list_state(ListStateDescriptor("counts"))
        self.count = sum(self.counts)

    def map(self, value):
        self.count += 1
        return self.count

    def snapshot_state(self, context):
        self.counts.update([self.count])


def test_a_snapshot_is_restored_into_a_new_harness():
    with OperatorHarness(MapOperator(Counter()), name="Counter", uid="c") as harness:
        harness.process(["a", "b"])
        snapshot = harness.snapshot()
        harness.process(["c"])
    with harness.restore(snapshot) as restored:
        restored.process(["d"])
        assert (harness.output, restored.output) == ([1, 2, 3], [3])
        assert (restored.context.name, restored.context.uid) == ("Counter", "c")
        assert restored.context.attempt == 2


def test_snapshots_of_several_subtasks_are_restored_together():
    first, second = (
        OperatorHarness(MapOperator(Counter()), parallelism=2, subtask=i) for i in (0, 1)
    )
    first.process(["a", "b"])
    second.process(["c"])
    both = [first.snapshot(), second.snapshot()]
    assert first.restore(*both, parallelism=1).operator.function.count == 3
    assert first.restore(*both, subtask=1).operator.function.count == 1
    again = OperatorHarness(MapOperator(Counter()), restore_from=both)
    assert again.operator.function.count == 3


def test_an_operator_that_was_not_copied_cannot_start_again():
    with OperatorHarness(MapOperator(Counter()), copy=False) as harness:
        snapshot = harness.snapshot()
        with pytest.raises(AssertionError, match="starts only once"):
            harness.restore(snapshot)


def test_the_operator_is_a_copy_unless_asked_otherwise():
    seen = []
    with OperatorHarness(MapOperator(seen.append)) as harness:
        harness.process([1])
    assert seen == []
    with OperatorHarness(MapOperator(seen.append), copy=False) as harness:
        harness.process([1])
    assert seen == [1]


def test_records_with_a_type_arrive_as_columns():
    harness = OperatorHarness(Ticker(), copy=False)
    batches = []
    harness.operator.process = lambda batch, input_index: batches.append(batch)
    harness.process([1, 2], type_info=Types.LONG())
    assert batches[0].is_columnar
    assert batches[0].records == [1, 2]


def test_the_subtask_has_its_key_groups():
    context = OperatorHarness(Ticker(), parallelism=4, subtask=1, max_parallelism=8).context
    assert list(context.key_groups) == [2, 3]


def test_leaving_the_block_closes_the_operator_after_a_failure_too():
    class Closing(Ticker):
        closed = False

        def close(self):
            self.closed = True

    harness = OperatorHarness(Closing())
    with pytest.raises(UserFunctionError), harness:
        raise UserFunctionError("x", None, "(1/1)", None, "ValueError\n")
    assert harness.operator.closed
