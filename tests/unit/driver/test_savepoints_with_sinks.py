"""Savepoints of jobs whose sinks commit: what a savepoint holds to be committed is never lost."""

import threading

import pytest

from tests.jobs import RESTARTS, NotNow, on_disk, raise_
from tests.programs import PATIENCE, wait_until
from tests.taps import Tap
from tests.unit.driver.conftest import RECORDS, committed, lines
from tidegate.core.errors import JobCanceled, JobStopped, SavepointFailed
from tidegate.protocol.job_status import JobStatus
from tidegate.stream.elements import BarrierKind


@pytest.fixture
def settings(tmp_path):
    """Checkpoints only when asked."""
    never = {"execution.checkpointing.interval": "1 h"}
    return on_disk(tmp_path / "checkpoints", **RESTARTS, **never)


def savepoint_of(job, tmp_path, kind=BarrierKind.SAVEPOINT, **more):
    return job.order(kind, tmp_path / "savepoints", **more)


def goes_on(writing, watch, path, tmp_path):
    watch.actions.clear()
    writing(Tap(RECORDS, is_open=True), **{"execution.state-recovery.path": path}).result()
    assert committed(tmp_path) == lines(RECORDS)


def test_a_job_resumes_from_a_savepoint_even_if_the_job_that_took_it_failed_afterwards(
    writing, watch, tmp_path
):
    tap = Tap(RECORDS)
    job = writing(tap)
    tap.let_pass(20)
    job.order(BarrierKind.CHECKPOINT).result(PATIENCE)
    tap.let_pass(30)
    path = savepoint_of(job, tmp_path).result(PATIENCE)
    job.cluster.kill(0)
    wait_until(lambda: job.history.counts.restored == 1 and watch.count("sums", "open") == 2)
    job.master.cancel()
    job.fails(JobCanceled)
    goes_on(writing, watch, path, tmp_path)


def test_a_savepoint_is_not_there_before_a_checkpoint_after_it_is(writing, watch, tmp_path):
    tap = Tap(RECORDS)
    job = writing(tap)
    tap.let_pass(20)
    job.order(BarrierKind.CHECKPOINT).result(PATIENCE)
    savepoint = job.newest + 1
    watch.on("sums", "snapshot", lambda number: number == savepoint or raise_(NotNow()))
    answer = savepoint_of(job, tmp_path)
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
    writing, watch, tmp_path
):
    tap = Tap(RECORDS)
    job = writing(tap)
    tap.let_pass(30)
    path = savepoint_of(job, tmp_path, cancels=True).result(PATIENCE)
    job.fails(JobCanceled)
    assert committed(tmp_path) == []
    goes_on(writing, watch, path, tmp_path)


def hold_first_snapshot(watch):
    """Let nothing behind the next checkpoint be taken before the gate is open."""
    gate = threading.Event()
    watch.on("sums", "snapshot", lambda _: gate.wait(PATIENCE))
    return gate


def test_a_job_is_handed_over_although_a_savepoint_is_published_after_the_checkpoint_for_it(
    writing, watch, tmp_path
):
    tap = Tap(RECORDS)
    job = writing(tap)
    tap.let_pass(20)
    gate = hold_first_snapshot(watch)
    job.order(BarrierKind.CHECKPOINT)
    wait_until(lambda: watch.count("sums", "snapshot"))
    savepoint = savepoint_of(job, tmp_path)
    plan = job.master.checkpoints.graph
    job.order(BarrierKind.STOP, successor=plan)
    wait_until(lambda: job.newest == 3)
    gate.set()
    savepoint.result(PATIENCE)
    job.result()
    assert job.master.checkpoints.successor is plan
    assert job.status is JobStatus.RESTARTING


def test_a_savepoint_asked_for_during_the_last_checkpoint_is_refused_when_the_job_ends(
    writing, watch, tmp_path
):
    gate = hold_first_snapshot(watch)
    job = writing(Tap(RECORDS, is_open=True))
    wait_until(lambda: watch.count("sums", "snapshot"))
    answer = savepoint_of(job, tmp_path)
    gate.set()
    job.result()
    with pytest.raises(SavepointFailed, match="the job has ended"):
        answer.result(PATIENCE)
    assert job.newest == 1
    assert not any((tmp_path / "savepoints").glob("*"))
    assert committed(tmp_path) == lines(RECORDS)


def test_a_driver_that_takes_over_a_job_that_is_being_stopped_does_not_go_back_before_the_savepoint(
    writing, watch, tmp_path
):
    tap, committing, gate = Tap(RECORDS), threading.Event(), threading.Event()
    job = writing(tap)
    tap.let_pass(20)
    job.order(BarrierKind.CHECKPOINT).result(PATIENCE)
    tap.let_pass(30)
    watch.on("sums", "complete", lambda _: committing.set() or gate.wait(PATIENCE))
    path = savepoint_of(job, tmp_path, BarrierKind.STOP).result(PATIENCE)
    assert committing.wait(PATIENCE)
    with pytest.raises(JobStopped, match=path):
        writing(Tap(RECORDS), **{"execution.state-recovery.path": "latest"})
    gate.set()
    job.result()
    goes_on(writing, watch, path, tmp_path)
