"""Stops and drains that come to nothing: told to who asked, and the job has its whole result."""

import threading

import pytest

from tests.jobs import RESTARTS, TOLERANT, NotNow, fail_once, on_disk, summed, totals
from tests.programs import PATIENCE, read, wait_until
from tests.taps import Tap
from tests.unit.driver.conftest import RECORDS
from tidegate.core.errors import JobCanceled, SavepointFailed
from tidegate.protocol.job_status import JobStatus
from tidegate.stream.elements import BarrierKind

NO_RESTARTS = {"restart-strategy": "none"}
RARELY = {"execution.checkpointing.interval": "1 h", **NO_RESTARTS}


@pytest.fixture
def full(tmp_path):
    """Where no savepoint can be written."""
    (tmp_path / "file").write_text("in the way")
    return tmp_path / "file"


def order_stop(job, directory, *, drains=False):
    return job.order(BarrierKind.STOP, directory, drains=drains)


def is_refused(answer, reason=""):
    with pytest.raises(SavepointFailed, match=f"the savepoint was not taken: .*{reason}"):
        answer.result(PATIENCE)


def checkpoint(job):
    job.order(BarrierKind.CHECKPOINT).result(PATIENCE)
    return job.latest


def has_whole_result(job, name, tap):
    tap.open()
    job.result()
    assert job.status is JobStatus.FINISHED
    assert dict(job.records(name)) == totals(RECORDS)


def test_a_drain_that_fails_goes_back_to_the_last_checkpoint(begun, tmp_path, full):
    job, tap = begun(settings=on_disk(tmp_path / "checkpoints", **RARELY))
    number = checkpoint(job)
    tap.let_pass(30)
    is_refused(order_stop(job, full, drains=True), "the job resumes from its last checkpoint")
    has_whole_result(job, "sums", tap)
    assert job.history.latest_restored.checkpoint_id == number
    assert tap.reads == 60 + 10, "what was read after the checkpoint is read again"


@pytest.mark.parametrize("settings", [{}, {**TOLERANT, **RARELY}], ids=["off", "on"])
def test_a_drain_that_fails_before_any_checkpoint_starts_fresh(begun, full, settings):
    job, tap = begun(settings={**NO_RESTARTS, **settings})
    is_refused(order_stop(job, full, drains=True), "the job resumes from its start")
    has_whole_result(job, "sums", tap)
    assert job.history.latest_restored is None


def test_a_drain_that_fails_goes_back_to_the_savepoint_that_the_job_was_started_from(
    begun, tmp_path, full
):
    job, tap = begun()
    path = order_stop(job, tmp_path / "savepoints").result(PATIENCE)
    job.result()
    settings = {**NO_RESTARTS, "execution.state-recovery.path": path}
    job, _ = begun(30, tap, settings=settings)
    is_refused(order_stop(job, full, drains=True), "the job resumes from its start")
    has_whole_result(job, "sums", tap)
    assert job.history.counts.restored == 2


def test_drains_that_fail_again_and_again_are_no_failures_of_the_job(begun, tmp_path, full):
    job, tap = begun(settings=on_disk(tmp_path / "checkpoints", **RARELY))
    for records in (20, 30, 40):
        tap.let_pass(records)
        is_refused(order_stop(job, full, drains=True))
        wait_until(lambda: job.status is JobStatus.RUNNING)
    has_whole_result(job, "sums", tap)


def held_up(watch, name):
    """Let a function wait at a gate with its record, and fail once there is a failure for it."""
    gate, failures = threading.Event(), []

    def wait_at_the_gate(value):
        gate.wait(PATIENCE)
        if failures:
            raise failures.pop()
        return value

    watch.on(name, "map", wait_at_the_gate)
    return gate, failures


def test_a_drain_goes_back_when_another_part_of_the_job_fails_under_it(start, watch, tmp_path):
    drained, failing = Tap(RECORDS), Tap(RECORDS)
    job = start(
        summed(watch, read(drained), "drained"),
        summed(watch, read(failing), "failing"),
        settings={
            **on_disk(tmp_path / "checkpoints", **{**RARELY, **RESTARTS}),
            "jobmanager.execution.failover-strategy": "region",
        },
    )
    drained.let_pass(20)
    gate, failures = held_up(watch, "failing")
    failing.let(20)
    wait_until(lambda: watch.count("failing", "map"))
    answer = order_stop(job, tmp_path / "savepoints", drains=True)
    wait_until(lambda: watch.count("drained", "snapshot") == 2)
    failures.append(ValueError("once"))
    gate.set()
    is_refused(answer, "a region failed; the job resumes from its start")
    drained.open()
    failing.open()
    job.result()
    for name in ("drained", "failing"):
        assert dict(job.records(name)) == totals(RECORDS)


@pytest.mark.parametrize("drains", [False, True], ids=["stop", "drain"])
def test_a_stop_that_fails_sends_no_barrier_to_a_pipeline_that_is_behind(
    start, watch, tmp_path, full, drains
):
    fast, slow = Tap(RECORDS), Tap(RECORDS)
    job = start(
        summed(watch, read(fast), "fast"),
        summed(watch, read(slow), "slow"),
        settings=on_disk(tmp_path / "checkpoints", **RARELY),
    )
    fast.let_pass(20)
    gate, _ = held_up(watch, "slow")
    slow.let(20)
    wait_until(lambda: watch.count("slow", "map"))
    is_refused(order_stop(job, full, drains=drains))
    gate.set()
    fast.open()
    slow.open()
    job.result()
    for name in ("fast", "slow"):
        assert dict(job.records(name)) == totals(RECORDS)


@pytest.mark.parametrize("drains", [False, True], ids=["stop", "drain"])
def test_a_stop_that_the_store_begins_too_late_is_void(begun, watch, tmp_path, drains):
    job, tap = begun(settings=on_disk(tmp_path / "checkpoints", **{**RARELY, **RESTARTS}))
    store = job.master.checkpoints.home.store
    begin, is_asked, gate = store.begin, threading.Event(), threading.Event()

    def begin_late(*args):
        is_asked.set()
        gate.wait(PATIENCE)
        begin(*args)

    store.begin = begin_late
    answer = order_stop(job, tmp_path / "savepoints", drains=drains)
    assert is_asked.wait(PATIENCE)
    fail_once(watch, "sums")
    tap.let(30)
    is_refused(answer, "a region failed")
    wait_until(lambda: job.status is JobStatus.RUNNING and watch.count("sums", "open") == 4)
    gate.set()
    checkpoint(job)
    has_whole_result(job, "sums", tap)


@pytest.mark.parametrize("drains", [False, True], ids=["stop", "drain"])
def test_of_two_stops_the_second_is_taken_or_refused(begun, tmp_path, full, drains):
    job, tap = begun(settings=on_disk(tmp_path / "checkpoints", **RARELY))
    first = order_stop(job, full, drains=drains)
    second = order_stop(job, tmp_path / "savepoints")
    is_refused(first)
    if drains:
        is_refused(second, "ask again when it runs")
        has_whole_result(job, "sums", tap)
    else:
        assert second.result(PATIENCE)
        job.result()
        assert dict(job.records("sums")) == totals(RECORDS[:20])


def test_a_job_is_cancelled_while_its_drain_is_under_way(begun, watch, tmp_path):
    job, _ = begun(settings=on_disk(tmp_path / "checkpoints", **RARELY))
    gate = threading.Event()
    watch.on("sums", "snapshot", lambda _: gate.wait(PATIENCE))
    answer = order_stop(job, tmp_path / "savepoints", drains=True)
    wait_until(lambda: watch.count("sums", "snapshot"))
    job.master.cancel()
    gate.set()
    is_refused(answer)
    job.fails(JobCanceled)


def test_a_drain_that_fails_leaves_pipelines_alone_that_have_finished(start, watch, tmp_path, full):
    done, tap = Tap(RECORDS, is_open=True), Tap(RECORDS)
    job = start(
        summed(watch, read(done), "done"),
        summed(watch, read(tap)),
        settings=on_disk(tmp_path / "checkpoints", **RARELY),
    )
    wait_until(lambda: watch.count("done", "close") == 2)
    tap.let_pass(20)
    is_refused(order_stop(job, full, drains=True))
    has_whole_result(job, "sums", tap)
    assert dict(job.records("done")) == totals(RECORDS)
    assert done.reads == 60


def test_a_rescaling_whose_checkpoint_fails_is_no_failure_of_the_job(begun, watch, tmp_path):
    settings = {**on_disk(tmp_path / "checkpoints", **RARELY)}
    settings["execution.checkpointing.tolerable-failed-checkpoints"] = 0
    job, tap = begun(settings=settings)
    fail_once(watch, "sums", "snapshot", NotNow())
    plan = job.master.checkpoints.graph
    answer = job.order(BarrierKind.STOP, successor=plan)
    with pytest.raises(SavepointFailed, match="the checkpoint to rescale from was not taken"):
        answer.result(PATIENCE)
    has_whole_result(job, "sums", tap)


def test_a_stop_that_cannot_begin_does_not_keep_the_job_from_finishing(start, watch, tmp_path):
    short, tap = Tap(RECORDS, is_open=True), Tap(RECORDS)
    no_more = {"execution.checkpointing.checkpoints-after-tasks-finish": "false"}
    job = start(
        summed(watch, read(short), "short"),
        summed(watch, read(tap), "long"),
        settings={**on_disk(tmp_path / "checkpoints", **RARELY), **no_more},
    )
    wait_until(lambda: watch.count("short", "close") == 2)
    stopped = order_stop(job, tmp_path / "savepoints")
    tap.open()
    job.result()
    is_refused(stopped, "the job has ended")
