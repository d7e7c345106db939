"""Savepoints of jobs whose sinks commit: what a savepoint holds to be committed is never lost."""

import threading

import pytest

from tests.jobs import RESTARTS, NotNow, on_disk, pairs, raise_, summed
from tests.programs import PATIENCE, apply, read, wait_until
from tests.taps import Tap
from tidegate.checkpoint.savepoints import new_savepoint
from tidegate.connectors.files.encodings import Encoder
from tidegate.connectors.files.sink import FileSink
from tidegate.core.errors import JobCanceled, JobStopped, SavepointFailed
from tidegate.core.modes import SavepointFormat
from tidegate.driver.checkpoints.snapshot_orders import SnapshotOrder
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.protocol.job_status import JobStatus
from tidegate.stream.elements import BarrierKind

RECORDS = pairs(60)


@pytest.fixture
def begin(start, watch, tmp_path):
    """Starts a job that sums, and writes what it reads to files; checkpoints only when asked."""

    def create(tap, **more):
        source = read(tap, uid="source")
        sink = SinkOperator(FileSink(str(tmp_path / "out"), Encoder()))
        files = apply(sink, source, name="files", uid="files", is_sink=True)
        never = {"execution.checkpointing.interval": "1 h"}
        settings = on_disk(tmp_path / "checkpoints", **RESTARTS, **never, **more)
        return start(summed(watch, source), files, settings=settings, parallelism=1)

    return create


def take(job, kind, tmp_path, **more):
    target = None
    if kind is not BarrierKind.CHECKPOINT:
        target = new_savepoint(str(tmp_path / "savepoints"), "a" * 32, SavepointFormat.CANONICAL)
    return job.master.order(SnapshotOrder.of(kind, target, **more))


def let(tap, records):
    tap.let(records)
    wait_until(lambda: tap.reached() == records)


def committed(tmp_path):
    files = [path for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")]
    return sorted(line for path in files for line in path.read_text().splitlines())


def lines(records):
    return sorted(map(str, records))


def goes_on(begin, watch, path, tmp_path):
    watch.actions.clear()
    begin(Tap(RECORDS, is_open=True), **{"execution.state-recovery.path": path}).result()
    assert committed(tmp_path) == lines(RECORDS)


def test_a_job_resumes_from_a_savepoint_even_if_the_job_that_took_it_failed_afterwards(
    begin, watch, tmp_path
):
    tap = Tap(RECORDS)
    job = begin(tap)
    let(tap, 20)
    take(job, BarrierKind.CHECKPOINT, tmp_path).result(PATIENCE)
    let(tap, 30)
    path = take(job, BarrierKind.SAVEPOINT, tmp_path).result(PATIENCE)
    job.cluster.kill(0)
    wait_until(lambda: job.history.counts.restored == 1 and watch.count("sums", "open") == 2)
    job.master.cancel()
    job.fails(JobCanceled)
    goes_on(begin, watch, path, tmp_path)


def test_a_savepoint_is_not_there_before_a_checkpoint_after_it_is(begin, watch, tmp_path):
    tap = Tap(RECORDS)
    job = begin(tap)
    let(tap, 20)
    take(job, BarrierKind.CHECKPOINT, tmp_path).result(PATIENCE)
    savepoint = job.newest + 1
    watch.on("sums", "snapshot", lambda number: number == savepoint or raise_(NotNow()))
    answer = take(job, BarrierKind.SAVEPOINT, tmp_path)
    wait_until(lambda: job.history.latest_failed is not None)
    assert job.history.latest_failed.checkpoint_id == savepoint + 1
    assert not answer.done()
    job.cluster.kill(0)
    with pytest.raises(SavepointFailed, match="a region failed"):
        answer.result(PATIENCE)
    wait_until(lambda: not any((tmp_path / "savepoints").glob("*")))
    watch.actions.clear()
    tap.open()
    job.result()
    assert committed(tmp_path) == lines(RECORDS)


def test_a_job_that_is_cancelled_with_a_savepoint_shows_nothing_that_it_does_not_hold(
    begin, watch, tmp_path
):
    tap = Tap(RECORDS)
    job = begin(tap)
    let(tap, 30)
    path = take(job, BarrierKind.SAVEPOINT, tmp_path, cancels=True).result(PATIENCE)
    job.fails(JobCanceled)
    assert committed(tmp_path) == []
    goes_on(begin, watch, path, tmp_path)


def hold_first_snapshot(watch):
    """Let nothing behind the next checkpoint be taken before the gate is open."""
    gate = threading.Event()
    watch.on("sums", "snapshot", lambda _: gate.wait(PATIENCE))
    return gate


def test_a_job_is_handed_over_although_a_savepoint_is_published_after_the_checkpoint_for_it(
    begin, watch, tmp_path
):
    tap = Tap(RECORDS)
    job = begin(tap)
    let(tap, 20)
    gate = hold_first_snapshot(watch)
    take(job, BarrierKind.CHECKPOINT, tmp_path)
    wait_until(lambda: watch.count("sums", "snapshot"))
    savepoint = take(job, BarrierKind.SAVEPOINT, tmp_path)
    plan = job.master.checkpoints.graph
    job.master.order(SnapshotOrder.of(BarrierKind.STOP, None, successor=plan))
    wait_until(lambda: job.newest == 3)
    gate.set()
    savepoint.result(PATIENCE)
    job.result()
    assert job.master.checkpoints.successor is plan
    assert job.status is JobStatus.RESTARTING


def test_a_savepoint_asked_for_during_the_last_checkpoint_is_refused_when_the_job_ends(
    begin, watch, tmp_path
):
    gate = hold_first_snapshot(watch)
    job = begin(Tap(RECORDS, is_open=True))
    wait_until(lambda: watch.count("sums", "snapshot"))
    answer = take(job, BarrierKind.SAVEPOINT, tmp_path)
    gate.set()
    job.result()
    with pytest.raises(SavepointFailed, match="the job has ended"):
        answer.result(PATIENCE)
    assert job.newest == 1
    assert not any((tmp_path / "savepoints").glob("*"))
    assert committed(tmp_path) == lines(RECORDS)


def test_a_driver_that_takes_over_a_job_that_is_being_stopped_does_not_go_back_before_the_savepoint(
    begin, watch, tmp_path
):
    tap, committing, gate = Tap(RECORDS), threading.Event(), threading.Event()
    job = begin(tap)
    let(tap, 20)
    take(job, BarrierKind.CHECKPOINT, tmp_path).result(PATIENCE)
    let(tap, 30)
    watch.on("sums", "complete", lambda _: committing.set() or gate.wait(PATIENCE))
    path = take(job, BarrierKind.STOP, tmp_path).result(PATIENCE)
    assert committing.wait(PATIENCE)
    with pytest.raises(JobStopped, match=path):
        begin(Tap(RECORDS), **{"execution.state-recovery.path": "latest"})
    gate.set()
    job.result()
    goes_on(begin, watch, path, tmp_path)
