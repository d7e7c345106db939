"""What the driver waits for that never comes: every wait has an end, and says what hung."""

import queue
import re
import threading

import pytest

from tests.checkpoint_store_contract import metadata_of
from tests.jobs import RESTARTS, on_disk, pairs, summed, totals
from tests.memory_store import MemoryStore
from tests.programs import PATIENCE, read
from tests.taps import Tap
from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.checkpoint.store import CheckpointStore
from tidegate.connectors.splits import KnownSplits
from tidegate.core.clock import ManualClock
from tidegate.core.errors import DirectoryTaken, ExternalError, JobCanceled, StorageError
from tidegate.core.ids import CheckpointId
from tidegate.core.workers import Threads
from tidegate.driver.checkpoints import store_thread
from tidegate.driver.checkpoints.store_thread import StoreThread
from tidegate.protocol.checkpoints.instructions import Abandon, Publish, TriggerCheckpoint
from tidegate.storage.local import LocalStore
from tidegate.stream.elements import Barrier
from tidegate.testing.mini_cluster import MiniCluster

RECORDS = pairs(60)
SOON = {"execution.checkpointing.timeout": "200 ms", "task.cancellation.timeout": "50 ms"}
OFTEN = {"restart-strategy.fixed-delay.attempts": 10**6}
"""A slow machine may not complete what does not hang in time."""


@pytest.fixture
def settings(tmp_path):
    return {**on_disk(tmp_path), **RESTARTS}


@pytest.fixture
def gate():
    """Nothing passes it before the test has ended."""
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.fixture
def hung_publication(monkeypatch, gate):
    """The storage takes the metadata of a checkpoint and does not answer."""
    begun = threading.Event()

    def publish(self, metadata):
        begun.set()
        gate.wait(PATIENCE)
        raise StorageError("metadata", "no answer", "wait")

    monkeypatch.setattr(CheckpointStore, "publish", publish)
    return begun


def test_a_job_whose_storage_hangs_fails_and_says_so(start, watch, settings, hung_publication):
    job = start(summed(watch, read(Tap(RECORDS))), settings={**settings, **SOON})
    failure = job.fails(StorageError)
    assert re.search(r"has not confirmed for 0\.2 s that checkpoint \d+ is written", str(failure))


@pytest.mark.slow
def test_a_job_whose_storage_hangs_can_be_cancelled(start, watch, settings, hung_publication):
    at_once = {"task.cancellation.timeout": "50 ms"}
    job = start(summed(watch, read(Tap(RECORDS))), settings={**settings, **at_once})
    assert hung_publication.wait(PATIENCE)
    job.master.cancel()
    job.fails(JobCanceled)


def test_a_job_whose_storage_hangs_while_it_deletes_ends_all_the_same(
    start, watch, settings, gate, monkeypatch
):
    monkeypatch.setattr(CheckpointStore, "discard", lambda self, number: gate.wait(PATIENCE))
    job = start(summed(watch, read(RECORDS)), settings={**settings, **SOON, **OFTEN})
    job.result()
    assert dict(job.records()) == totals(RECORDS)


@pytest.mark.slow
def test_a_commit_that_hangs_at_the_end_is_a_failure_that_names_it(start, watch, settings, gate):
    watch.on("sums", "complete", lambda _: gate.wait(PATIENCE))
    rarely = {"execution.checkpointing.interval": "1 h", "restart-strategy": "none"}
    job = start(summed(watch, read(RECORDS)), settings={**settings, **SOON, **rarely})
    failure = job.fails(ExternalError)
    # A slow machine may not complete the first one in time.
    assert re.search(r"slot 0, slot 1: .* after checkpoint \d+", str(failure))


def test_a_commit_that_hangs_at_the_end_once_is_repeated(start, watch, settings, gate):
    hangs = iter([gate])

    def hang_once(_):
        for each in hangs:
            each.wait(PATIENCE)

    watch.on("sums", "complete", hang_once)
    rarely = {"execution.checkpointing.interval": "1 h"}
    job = start(
        summed(watch, read(RECORDS)),
        settings={**settings, **SOON, **OFTEN, **rarely},
        cluster=MiniCluster(closing_seconds=0.05),
    )
    job.result()
    assert dict(job.records()) == totals(RECORDS)


def test_an_enumerator_that_does_not_close_holds_up_nobody(start, watch, gate, monkeypatch):
    monkeypatch.setattr(KnownSplits, "close", lambda self: gate.wait(PATIENCE))
    job = start(summed(watch, read(RECORDS)), settings=SOON)
    job.result()
    assert dict(job.records()) == totals(RECORDS)


# --- the store thread ---------------------------------------------------------------------------


class Forgetful(MemoryStore):
    """Creates the metadata of a checkpoint, and does not say so before it was replaced."""

    def create_if_absent(self, path, data):
        created = super().create_if_absent(path, data)
        if path.endswith("_metadata"):
            CheckpointStore(self)
            raise StorageError(path, "no answer", "wait")
        return created


def test_what_was_published_when_another_driver_had_taken_over_is_not_announced():
    events = queue.SimpleQueue()
    store = CheckpointStore(Forgetful())
    thread = StoreThread(store, PATIENCE)
    thread.start(events.put, Threads())
    thread.carry_out(Publish(Checkpoint(metadata_of(1), None), Barrier(CheckpointId(1), 0.0)))
    assert isinstance(events.get(timeout=PATIENCE).error, DirectoryTaken)
    thread.close()


def test_what_a_subtask_writes_to_a_deleted_checkpoint_goes_when_a_later_one_is_published(tmp_path):
    events = queue.SimpleQueue()
    thread = StoreThread(CheckpointStore(LocalStore(tmp_path)), PATIENCE)
    thread.start(events.put, Threads())
    late, later = CheckpointId(1), Barrier(CheckpointId(2), 0.0)
    thread.carry_out(Abandon(late, (), is_whole=True))
    thread.carry_out(TriggerCheckpoint(later, frozenset(), 0))
    events.get(timeout=PATIENCE)
    (tmp_path / "chk-1").mkdir()
    thread.carry_out(Publish(Checkpoint(metadata_of(2), None), later))
    events.get(timeout=PATIENCE)
    assert not (tmp_path / "chk-1").exists()
    thread.close()


def test_a_store_that_had_nothing_to_do_for_long_is_still_waited_for(monkeypatch):
    clock = ManualClock()
    monkeypatch.setattr(store_thread, "time", clock)
    blobs = MemoryStore()
    thread = StoreThread(CheckpointStore(blobs), patience=10.0)
    thread.start(queue.SimpleQueue().put, Threads())
    clock.advance(100.0)
    thread.remove([])
    thread.close()
    assert not list(blobs.list())
