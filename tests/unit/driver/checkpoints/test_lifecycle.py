"""Checkpoints of a running job: when they are taken, what they tell, and why they fail."""

import re
import threading
from itertools import pairwise

import pytest

from tests.jobs import (
    CHECKPOINTS,
    RESTARTS,
    TOLERANT,
    Sums,
    WatchedMap,
    fail_once,
    hold_checkpoints,
    key_of,
    on_disk,
    pairs,
    summed,
    totals,
)
from tests.programs import PATIENCE, apply, collected, keyed, read, wait_until
from tests.taps import Tap
from tidegate.checkpoint.statistics import CheckpointStatus
from tidegate.core.errors import CheckpointFailed
from tidegate.graph.logical import Upstream
from tidegate.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from tidegate.state.keys.selection import select_key

RECORDS = pairs(60)
INTERVAL = "execution.checkpointing.interval"
TOLERABLE = "execution.checkpointing.tolerable-failed-checkpoints"
NO_RESTART = {"restart-strategy": "none"}


# --- when they are taken ------------------------------------------------------------------------


def test_without_an_interval_none_is_taken(start, watch):
    job = start(summed(watch, read(RECORDS)))
    job.result()
    assert job.history.counts.triggered == 0
    assert watch.count("sums", "snapshot") == watch.count("sums", "complete") == 0


def test_they_are_taken_again_and_again_also_while_nothing_flows(start, watch):
    job = start(summed(watch, read(Tap(RECORDS))), settings=CHECKPOINTS)
    job.wait_for_checkpoints(5)
    assert job.history.counts.failed == 0
    wait_until(lambda: watch.count("sums", "complete") >= 5)
    events = [event for event in list(watch.events) if event.what == "complete"]
    completed = [event.value for event in events if event.subtask == 0]
    assert completed == sorted(completed)


def test_a_pause_is_kept_between_the_end_of_one_and_the_start_of_the_next(start, watch):
    settings = {**CHECKPOINTS, "execution.checkpointing.min-pause": "60 ms"}
    job = start(summed(watch, read(Tap(RECORDS))), settings=settings)
    job.wait_for_checkpoints(4)
    newest_first = [r for r in job.history.records() if r.status is CheckpointStatus.COMPLETED]
    for later, earlier in pairwise(newest_first):
        assert later.triggered_at - earlier.ended_at >= 0.05


class Slow:
    """A value that takes its time to be written: until the test opens the gate."""

    gate = threading.Event()

    def __init__(self, number):
        self.number = number

    def __add__(self, other):
        return Slow(self.number + other)

    def __reduce__(self):
        if threading.current_thread().name == "tidegate-snapshots":
            self.gate.wait(PATIENCE)
        return Slow, (self.number,)


class SlowSums(Sums):
    descriptor = ValueStateDescriptor("slow sum")

    def map(self, value):
        key, number = self.did("map", value)
        total = (self.sum.value() or Slow(0)) + number
        self.sum.update(total)
        return key, total.number


@pytest.fixture
def gate():
    Slow.gate = threading.Event()
    yield Slow.gate
    Slow.gate.set()


@pytest.mark.parametrize("concurrent", [1, 2, 3])
def test_so_many_may_be_under_way_at_once(start, watch, gate, concurrent):
    tap = Tap(RECORDS)
    settings = {
        **CHECKPOINTS,
        "execution.checkpointing.max-concurrent-checkpoints": concurrent,
    }
    job = start(summed(watch, read(tap), function=SlowSums), settings=settings, parallelism=1)
    tap.let(10)
    wait_until(lambda: watch.count("sums", "map") == 10)
    wait_until(lambda: job.history.counts.in_progress == concurrent)
    known = job.history.counts.triggered
    tap.let(50)
    wait_until(lambda: watch.count("sums", "map") == 50)
    assert job.history.counts.triggered == known, "records flow, but no further one begins"
    gate.set()
    job.wait_for_checkpoints(concurrent + 1)
    assert job.history.counts.failed == 0
    tap.open()
    job.result()
    assert dict(job.records()) == totals(RECORDS)


def test_recovery_is_exact_with_several_barriers_in_flight(start, watch, gate):
    tap = Tap(RECORDS)
    settings = {
        **CHECKPOINTS,
        **RESTARTS,
        "execution.checkpointing.max-concurrent-checkpoints": 3,
    }
    job = start(summed(watch, read(tap), function=SlowSums), settings=settings)
    for records in (10, 20, 30):
        tap.let(records)
        wait_until(lambda known=job.newest: job.newest > known or job.newest >= 3)
    wait_until(lambda: job.history.counts.in_progress == 3)
    gate.set()
    job.wait_for_checkpoint()
    fail_once(watch, "sums")
    tap.open()
    job.result()
    assert dict(job.records()) == totals(RECORDS)


# --- failures of checkpoints --------------------------------------------------------------------


def test_functions_hear_of_a_checkpoint_that_failed_elsewhere(start, watch):
    settings = {**CHECKPOINTS, **TOLERANT}
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap)), settings=settings)
    job.wait_for_checkpoint()
    hold_checkpoints(job, watch, "sums")
    failed = job.history.latest_failed.checkpoint_id
    wait_until(lambda: watch.values("sums", "aborted").count(failed) == 2)
    assert failed not in watch.values("sums", "complete")


class Hoarder(Sums):
    """Keeps what cannot be written, and counts it."""

    descriptor = ListStateDescriptor("hoard")

    def open(self, runtime_context):
        self.hoard = runtime_context.get_list_state(self.descriptor)

    def map(self, value):
        self.hoard.add(threading.Lock())
        return value


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_value_that_cannot_be_written_is_named_with_its_state_and_key(start, watch, backend):
    settings = {**CHECKPOINTS, **NO_RESTART, "state.backend.type": backend}
    job = start(summed(watch, read([("a", 1)]), function=Hoarder), settings=settings)
    with pytest.raises(Exception) as failure:  # noqa: PT011 - RocksDB writes it at once
        job.result()
    text = str(failure.value)
    for part in ("'hoard'", "'a'", "cannot pickle '_thread.lock' object"):
        assert part in text


def test_more_state_than_the_driver_takes_is_refused_with_the_way_out(start, watch):
    settings = {**CHECKPOINTS, **NO_RESTART, "tidegate.checkpoint.max-state-in-memory": "10 b"}
    job = start(summed(watch, read(RECORDS)), settings=settings)
    failure = job.fails(CheckpointFailed)
    for part in (
        "accept 10 per subtask",
        "execution.checkpointing.dir",
        "tidegate.checkpoint.max-state-in-memory",
    ):
        assert part in str(failure)


# --- what is told -------------------------------------------------------------------------------


def two_inputs(watch, *taps):
    operator = WatchedMap(Sums(watch, "sums"), [select_key(key_of)] * 2)
    inputs = [
        Upstream(up.transformation, up.partitioning, input_index=index)
        for index, up in enumerate(keyed(key_of, read(tap)) for tap in taps)
    ]
    return collected(apply(operator, *inputs, is_keyed=True, name="both"))


def test_the_history_tells_of_every_checkpoint_and_each_of_its_subtasks(start, watch, tmp_path):
    taps = [Tap(range_of_pairs(10**6), is_open=True) for _ in range(2)]
    job = start(two_inputs(watch, *taps), settings=on_disk(tmp_path))
    wait_until(lambda: watch.count("sums", "map") > 100)
    record = job.wait_for_checkpoint()
    counts = job.history.counts
    assert counts.triggered - counts.in_progress == counts.completed
    assert record.status is CheckpointStatus.COMPLETED
    assert (record.awaited, len(record.subtasks)) == (6, 6)
    assert 0 < record.duration < PATIENCE
    assert record.path.endswith(f"/chk-{record.checkpoint_id}")
    both = {id: facts for id, facts in record.subtasks.items() if id.vertex == 2}
    assert len(both) == 2
    for facts in both.values():
        assert facts.alignment_bytes > 0, "one input waits for the barrier of the other"
        assert facts.size == facts.incremental_size > 0
        assert facts.alignment >= 0
        assert record.triggered_at <= facts.acknowledged_at <= record.ended_at
        assert 0 <= facts.sync + facts.asynchronous <= record.duration
    assert record.size == sum(facts.size for facts in record.subtasks.values())
    assert record.alignment_bytes == sum(facts.alignment_bytes for facts in both.values())


def range_of_pairs(count):
    return Pairs(range(count))


class Pairs:
    """Endless records that need no memory."""

    def __init__(self, numbers):
        self.numbers = numbers

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, part):
        return [(f"key {number % 5}", number) for number in self.numbers[part]]


def test_the_history_tells_of_failures_and_of_what_was_discarded_and_restored(start, watch):
    tap = Tap(RECORDS)
    job = start(
        summed(watch, read(tap)), settings={**CHECKPOINTS, **TOLERANT, **RESTARTS}, parallelism=1
    )
    first = job.wait_for_checkpoint()
    latest = hold_checkpoints(job, watch, "sums")
    if latest != first.checkpoint_id and (kept := job.history.record(first.checkpoint_id)):
        assert kept.is_discarded
    failed = job.history.latest_failed
    assert failed.status is CheckpointStatus.FAILED
    assert "NotNow" in failed.failure
    job.cluster.kill(0)
    wait_until(lambda: job.history.counts.restored == 1)
    assert job.history.latest_restored.checkpoint_id == latest


def test_the_history_keeps_the_last_ones_only(start, watch):
    job = start(summed(watch, read(Tap(RECORDS))), settings=CHECKPOINTS)
    job.history.limit = 10
    job.wait_for_checkpoints(15)
    numbers = [record.checkpoint_id for record in job.history.records()]
    assert len(numbers) <= 11
    assert numbers == sorted(numbers, reverse=True)


def test_the_log_tells_the_way_of_a_checkpoint_and_of_a_recovery(start, watch, caplog, tmp_path):
    caplog.set_level("INFO", logger="tidegate")
    tap = Tap(RECORDS)
    job = start(
        summed(watch, read(tap, name="numbers")),
        settings={**on_disk(tmp_path), **RESTARTS},
        parallelism=1,
    )
    tap.let(30)
    wait_until(lambda: watch.count("sums", "map") == 30)
    job.wait_for_checkpoint()
    latest = hold_checkpoints(job, watch, "sums")
    watch.actions.clear()
    job.cluster.kill(0)
    tap.open()
    job.result()
    id = job.master.job_id
    restored = job.history.latest_restored.checkpoint_id
    assert restored >= latest
    path = tmp_path / id / f"chk-{restored}"
    for line in (
        rf"Triggering checkpoint {latest} \(type=CHECKPOINT\) @ \d+ for job {id}\.",
        rf"Completed checkpoint {latest} for job {id} \([1-9]\d* bytes, checkpointDuration=\d+ ms",
        rf"Restoring job {id} from Checkpoint {restored} @ \d+ for {id} located at {path}\.",
        r"source 'numbers' \(1/1\) seeks to TapSplit\(stream=0, position=30\)",
        r"pipeline 0 failed, restart 1 of at most 2 in 0.0 s:\nslot 0 was lost",
        r"Checkpoint \d+ of job \w+ was aborted: .*",
    ):
        assert re.search(line, caplog.text), line
