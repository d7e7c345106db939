"""Source functions over checkpoints: the function is ahead, and nothing is lost or repeated."""

import math
import pickle
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tidegate.connectors.source import InputStatus
from tidegate.core.errors import UserFunctionError
from tidegate.operators.checkpointed import CheckpointedFunction, CheckpointListener
from tidegate.operators.endpoints.operators import SourceOperator
from tidegate.operators.endpoints.source_function import FunctionRun, SourceFunctionSource
from tidegate.operators.functions import ProcessFunction, SourceFunction
from tidegate.state.descriptors import ListStateDescriptor
from tidegate.testing.environments import mini_environment
from tidegate.testing.harness import OperatorHarness


class Numbers(SourceFunction, CheckpointedFunction, CheckpointListener):
    """The numbers from 0, each emitted together with the change of the position behind it."""

    def __init__(self, end, timestamps=False):
        self.end = end
        self.timestamps = timestamps

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.positions = store.get_list_state(ListStateDescriptor("position"))
        self.next = sum(self.positions)
        self.told = []

    def snapshot_state(self, context):
        self.positions.update([self.next])

    def open(self, runtime_context):
        self.is_canceled = threading.Event()

    def run(self, ctx):
        while self.next < self.end and not self.is_canceled.is_set():
            with ctx.get_checkpoint_lock():
                # The position first: a snapshot in between would lose the record.
                self.next += 1
                self.emit(ctx, self.next - 1)

    def emit(self, ctx, number):
        if self.timestamps:
            ctx.collect_with_timestamp(number, number * 10)
        else:
            ctx.collect(number)

    def cancel(self):
        self.is_canceled.set()

    def notify_checkpoint_complete(self, checkpoint_id):
        self.told.append(f"complete {checkpoint_id}")

    def notify_checkpoint_aborted(self, checkpoint_id):
        self.told.append(f"aborted {checkpoint_id}")


def harness_of(function, **settings):
    harness = OperatorHarness(SourceOperator(SourceFunctionSource(function)), **settings)
    harness.assign_all_splits()
    return harness


def read(harness, records):
    """Run slices until so many records are there."""
    while len(harness.output) < records:
        harness.run_slice(max_records=records - len(harness.output))


def drain(harness):
    """Run slices until the source ends."""
    while harness.run_slice().status is not InputStatus.END_OF_INPUT:
        harness.operator._reader._ended.wait(0.001)


@examples(15)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=4), st.integers(120, 200))
def test_records_over_any_checkpoints_are_those_of_an_undisturbed_run(slices, end):
    harness = harness_of(Numbers(end))
    delivered = []
    for records in slices:
        read(harness, records)
        snapshot = pickle.loads(pickle.dumps(harness.snapshot()))
        delivered += harness.output
        harness.run_slice()  # is lost with the failure
        harness.close()
        harness = harness.restore(snapshot)
        harness.operator.no_more_splits()
    drain(harness)
    delivered += harness.output
    harness.close()
    assert delivered == list(range(end))


def test_a_snapshot_is_taken_while_the_queue_is_full():
    end = 25_000
    with harness_of(Numbers(end)) as harness:
        read(harness, 5_000)
        reader = harness.operator._reader
        while len(reader._mailing) < 10_000:
            reader._ended.wait(0.001)
        snapshot = harness.snapshot()
    (run,) = snapshot.source_splits
    assert [number for number, _ in run.queued] == list(range(5_000, 5_000 + len(run.queued)))
    with harness.restore(snapshot) as restored:
        restored.operator.no_more_splits()
        drain(restored)
        assert restored.output == list(range(5_000, end))


def test_a_function_that_has_returned_is_not_run_again():
    with harness_of(Numbers(10)) as harness:
        harness.operator._reader._thread.join()
        harness.run_slice(max_records=4)
        snapshot = harness.snapshot()
        (run,) = snapshot.source_splits
        assert run.is_over
    with harness.restore(snapshot) as restored:
        assert restored.operator._reader._thread is None
        drain(restored)
        assert restored.output == [4, 5, 6, 7, 8, 9]
        assert restored.snapshot().source_splits == ()


def test_timestamps_of_queued_records_are_kept():
    with harness_of(Numbers(5, timestamps=True)) as harness:
        harness.operator._reader._thread.join()
        harness.run_slice(max_records=3)
        snapshot = harness.snapshot()
    with harness.restore(snapshot) as restored:
        drain(restored)
        assert [time for batch in restored.batches for time in batch.timestamps] == [30, 40]


class Mixed(SourceFunction):
    """Every second number has a timestamp."""

    def run(self, ctx):
        for number in range(4):
            if number % 2:
                ctx.collect_with_timestamp(number, number * 10)
            else:
                ctx.collect(number)

    def cancel(self): ...


class Times(ProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp()


@pytest.mark.parametrize("step", [1, 4])
def test_records_keep_their_timestamps_beside_records_without(step):
    with mini_environment({"tidegate.step.max-records": step}) as env:
        found = env.add_source(Mixed()).process(Times()).execute_and_collect(limit=10)
    assert found == [(0, None), (1, 10), (2, None), (3, 30)]


def test_a_source_function_listens_to_checkpoints():
    with harness_of(Numbers(3)) as harness:
        harness.snapshot()
        harness.complete_checkpoint()
        harness.snapshot()
        harness.abort_checkpoint()
        assert harness.operator.source.function.told == ["complete 1", "aborted 2"]


class Plain(SourceFunction):
    """No CheckpointedFunction."""

    def run(self, ctx):
        for number in range(5):
            ctx.collect(number)

    def cancel(self):
        """Ends by itself."""


def test_a_function_without_state_starts_fresh():
    with harness_of(Plain()) as harness:
        harness.operator._reader._thread.join()
        harness.run_slice(max_records=2)
        snapshot = harness.snapshot()
    with harness.restore(snapshot) as restored:
        restored.operator.no_more_splits()
        drain(restored)
        assert restored.output == [0, 1, 2, 3, 4]


def test_records_and_the_end_of_a_function_wake_the_slot():
    with harness_of(Plain()) as harness:
        harness.operator._reader._thread.join()
        assert harness.operator.available_in() == math.inf
        assert harness.wakes == 6


class Failing(Plain):
    def run(self, ctx):
        raise OSError("gone")


class Waiting(Plain):
    """Returns when it is canceled."""

    def open(self, runtime_context):
        self.is_canceled = threading.Event()

    def run(self, ctx):
        self.is_canceled.wait()

    def cancel(self):
        self.is_canceled.set()


class Endless(Waiting):
    def run(self, ctx):
        while True:
            ctx.collect(0)


@pytest.mark.parametrize("function", [Failing(), Waiting(), Endless()])
def test_a_function_that_has_not_returned_by_itself_is_run_again(function):
    with harness_of(function) as harness:
        reader = harness.operator._reader
        reader.close()
        reader._mailing.take(len(reader._mailing))
        assert reader._ended.is_set()
        assert reader.snapshot() == [FunctionRun()]


class Broken(Numbers):
    def run(self, ctx):
        with ctx.get_checkpoint_lock():
            self.next += 1
            raise OSError("gone")


def test_a_failed_function_has_no_state_to_resume_from():
    with harness_of(Broken(5)) as harness:
        harness.operator._reader._thread.join()
        with pytest.raises(UserFunctionError, match="OSError: gone"):
            harness.snapshot()


class StateInTheLoop(Numbers):
    """Changes its state itself under the lock, and so while the snapshot is still being taken."""

    def snapshot_state(self, context):
        """The state is always up to date."""

    def run(self, ctx):
        while self.next < self.end and not self.is_canceled.is_set():
            with ctx.get_checkpoint_lock(), ctx.get_checkpoint_lock():
                self.positions.update([self.next + 1])
                ctx.collect(self.next)
                self.next += 1


def test_state_that_the_loop_changes_itself_is_that_of_the_same_moment():
    end = 3_000
    harness = harness_of(StateInTheLoop(end))
    delivered = []
    for _ in range(5):
        read(harness, 100)
        snapshot = harness.snapshot()
        delivered += harness.output
        harness.close()
        harness = harness.restore(snapshot)
        harness.operator.no_more_splits()
    drain(harness)
    harness.close()
    assert delivered + harness.output == list(range(end))


class AlwaysInTheLock(SourceFunction, CheckpointedFunction):
    """Lets the lock go for no longer than it takes to ask for it again."""

    def initialize_state(self, context):
        self.is_canceled = False
        self.snapshots = 0

    def run(self, ctx):
        lock = ctx.get_checkpoint_lock()
        while not self.is_canceled:
            with lock:
                sum(range(1_000))

    def snapshot_state(self, context):
        self.snapshots += 1

    def cancel(self):
        self.is_canceled = True


def test_a_snapshot_does_not_starve_beside_a_busy_function():
    with harness_of(AlwaysInTheLock()) as harness:
        for _ in range(20):
            harness.snapshot()
        assert harness.operator.source.function.snapshots == 20
