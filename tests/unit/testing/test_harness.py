import pytest

from tidegate.core.errors import UserFunctionError
from tidegate.operators.base import Operator, OperatorSnapshot
from tidegate.operators.stateless import MapOperator
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

    def snapshot(self, barrier):
        return OperatorSnapshot(operator=(barrier.checkpoint_id, self.count))

    def restore(self, snapshots):
        self.count = sum(snapshot.operator[1] for snapshot in snapshots)


def test_time_stops_at_every_timer_on_its_way():
    harness = OperatorHarness(Ticker())
    harness.advance(2.5)
    assert harness.output == [1.0, 2.0]
    assert harness.clock.time() == 2.5
    harness.advance(0.5)
    assert harness.take_output() == [1.0, 2.0, 3.0]
    assert harness.output == []


def test_a_snapshot_is_restored_into_a_new_harness():
    first = OperatorHarness(Ticker())
    first.process([1, 2])
    second = OperatorHarness(Ticker())
    second.process([3])
    snapshots = [first.snapshot(), second.snapshot(), None]
    assert OperatorHarness(Ticker(), restore_from=snapshots).operator.count == 3


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
