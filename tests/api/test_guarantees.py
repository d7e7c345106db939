"""How often a record counts after a failure: exactly once, at least once, at most once."""

from dataclasses import dataclass

import pytest

from tidegate.common import RestartStrategies, Types
from tidegate.connectors.splits import KnownSplits
from tidegate.datastream import CheckpointingMode, CheckpointListener, MapFunction
from tidegate.datastream.connectors.base import InputStatus, Poll, Source, SourceReader
from tidegate.stream.batch import Batch
from tidegate.testing.environments import mini_environment

LAST = 400
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


class FailBehindACheckpoint(MapFunction, CheckpointListener):
    """Raises at the first record behind the first completed checkpoint, once."""

    def open(self, runtime_context):
        self.is_first = runtime_context.get_attempt_number() == 0
        self.is_complete = False

    def notify_checkpoint_complete(self, checkpoint_id):
        self.is_complete = True

    def map(self, value):
        if self.is_first and self.is_complete:
            raise RuntimeError("behind a checkpoint")
        return "sum", value


def last_sum(mode, settings=None):
    """The sum of two streams that are joined after a failure, in steps of one record each."""
    env = mini_environment({"tidegate.step.max-records": 1, **(settings or {})}, parallelism=1)
    env.enable_checkpointing("10 ms", mode)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    left, right = env.from_sequence(1, LAST), env.from_sequence(1, LAST)
    numbers = left.map(lambda n: ("sum", n), PAIR).union(right.map(FailBehindACheckpoint(), PAIR))
    with numbers.key_by(lambda pair: pair[0]).sum(1).execute_and_collect() as sums:
        return max(total for _, total in sums)


EXACT = LAST * (LAST + 1)


def test_exactly_once_inputs_wait_for_each_other_and_every_record_counts_once():
    assert last_sum(CheckpointingMode.EXACTLY_ONCE) == EXACT


def test_unaligned_barriers_wait_for_nobody_and_every_record_counts_once():
    unaligned = {"execution.checkpointing.unaligned.enabled": True}
    assert last_sum(CheckpointingMode.EXACTLY_ONCE, unaligned) == EXACT


def test_at_least_once_what_was_processed_before_the_last_barrier_counts_twice():
    assert last_sum(CheckpointingMode.AT_LEAST_ONCE) > EXACT


# --- at most once --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Queue:
    """The only split of a `QueueSource`: it has no position."""


class QueueSource(Source):
    """Like a queue on a server that forgets what it has given out."""

    def create_enumerator(self):
        return KnownSplits(lambda parallelism: [Queue()])

    def create_reader(self, context):
        return QueueReader()


class QueueReader(SourceReader):
    waiting: list[int]
    """Of the class: it outlives every reader."""

    def add_splits(self, splits):
        pass

    def poll(self, max_records):
        taken, QueueReader.waiting = self.waiting[:3], self.waiting[3:]
        if not taken:
            return Poll(None, InputStatus.END_OF_INPUT)
        return Poll(Batch.of_records(taken), InputStatus.MORE_AVAILABLE)

    def snapshot(self):
        return []


class FailOnce(MapFunction):
    def open(self, runtime_context):
        self.is_first = runtime_context.get_attempt_number() == 0

    def map(self, value):
        if self.is_first and value == 5:
            raise RuntimeError("once")
        return "count", 1


@pytest.fixture
def waiting_queue():
    QueueReader.waiting = list(range(1, 10))


def test_at_most_once_without_checkpoints_a_job_continues_where_its_source_is(waiting_queue):
    env = mini_environment(parallelism=1)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    counted = env.from_source(QueueSource()).map(FailOnce(), PAIR).key_by(lambda pair: pair[0])
    with counted.sum(1).execute_and_collect() as counts:
        found = [count for _, count in counts]
    before_the_failure, behind_it = [1, 2, 3, 4], [1, 2, 3]
    assert found == before_the_failure + behind_it, "the state and the records 5 and 6 are lost"
