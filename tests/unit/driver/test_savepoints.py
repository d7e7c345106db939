"""Savepoints of running jobs: taken, stopped with, cancelled with, and started from."""

import os
import shutil
from pathlib import Path

import pytest

from tests.effort import some
from tests.jobs import (
    checkpoint_after,
    checkpoints_in,
    fail_once,
    hold_checkpoints,
    on_disk,
    pairs,
    state_files,
    summed,
    totals,
)
from tests.programs import PATIENCE, read, wait_until
from tests.taps import Tap
from tidegate.checkpoint.savepoints import dispose, new_savepoint
from tidegate.core.errors import JobCanceled, NoCheckpoint, NotNow, SavepointFailed
from tidegate.core.modes import SavepointFormat
from tidegate.driver.checkpoints.snapshot_orders import SnapshotOrder
from tidegate.protocol.job_status import JobStatus
from tidegate.stream.elements import BarrierKind

RECORDS = pairs(60)
PATH = "execution.state-recovery.path"


@pytest.fixture(params=some("hashmap", "rocksdb"))
def settings(request, tmp_path):
    values = {"state.backend.type": request.param, "execution.checkpointing.incremental": "true"}
    return on_disk(tmp_path / "checkpoints", **values)


@pytest.fixture(params=list(SavepointFormat), ids=lambda format: format.value)
def format(request):
    return request.param


@pytest.fixture
def target(tmp_path, format):
    return new_savepoint(str(tmp_path / "savepoints"), "a" * 32, format)


def order(job, kind, target=None, **more):
    return job.master.order(SnapshotOrder.of(kind, target, **more))


def savepoint(job, target, **more):
    return order(job, BarrierKind.SAVEPOINT, target, **more).result(PATIENCE)


def stop(job, target, **more):
    return order(job, BarrierKind.STOP, target, **more).result(PATIENCE)


def let(tap, records):
    tap.let(records)
    wait_until(lambda: tap.reached() == records)


def goes_on(start, watch, tap, settings, path, parallelism=2):
    """Start from a savepoint, read all the rest, and see that every record has counted once."""
    tap.let(len(RECORDS))
    job = start(
        summed(watch, read(tap)), settings={**settings, PATH: path}, parallelism=parallelism
    )
    job.result()
    assert dict(job.records("sums")) == totals(RECORDS)
    return job


def test_a_job_runs_on_after_its_savepoint(start, watch, settings, target):
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap)), settings=settings)
    let(tap, 20)
    path = savepoint(job, target)
    assert Path(path, "_metadata").is_file()
    let(tap, 60)
    job.result()
    assert dict(job.records("sums")) == totals(RECORDS)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_another_job_resumes_from_it(start, watch, settings, target, parallelism):
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap)), settings=settings)
    let(tap, 20)
    path = savepoint(job, target)
    job.cancel()
    goes_on(start, watch, tap, settings, path, parallelism)


def test_a_savepoint_is_whole_and_can_be_moved(start, watch, settings, target, tmp_path):
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap)), settings=settings)
    checkpoint_after(job, watch, tap, 20)
    watch.on("sums", "snapshot", lambda _: None)
    path = savepoint(job, target)
    job.cancel()
    shutil.rmtree(tmp_path / "checkpoints")
    moved = tmp_path / "elsewhere" / "renamed"
    shutil.copytree(path, moved)
    shutil.rmtree(tmp_path / "savepoints")
    goes_on(start, watch, tap, settings, str(moved))


def test_a_job_that_is_stopped_emits_nothing_after_its_savepoint(start, watch, settings, target):
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap)), settings=settings)
    let(tap, 20)
    path = stop(job, target)
    job.result()
    assert job.status is JobStatus.FINISHED
    assert dict(job.records("sums")) == totals(RECORDS[:20])
    assert not state_files(Path(settings["execution.checkpointing.dir"]))
    goes_on(start, watch, tap, settings, path)


def test_a_stop_that_fails_lets_the_job_run_on(start, watch, settings, target, tmp_path):
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap)), settings=settings)
    let(tap, 20)
    hold_checkpoints(job, watch, "sums")
    with pytest.raises(SavepointFailed, match="the savepoint was not taken: sums"):
        stop(job, target)
    watch.on("sums", "snapshot", lambda _: None)
    let(tap, 60)
    job.result()
    assert dict(job.records("sums")) == totals(RECORDS)
    # What a subtask wrote after the stop had failed goes with the next checkpoint, or at the end.
    wait_until(lambda: not any(files for _, _, files in os.walk(tmp_path / "savepoints")))


def test_a_failure_between_savepoint_and_end_does_not_bring_the_job_back(
    start, watch, settings, target
):
    tap = Tap(RECORDS)
    slow = {**settings, "execution.checkpointing.interval": "1 h"}
    job = start(summed(watch, read(tap)), settings=slow)
    let(tap, 20)
    fail_once(watch, "sums", "complete")
    path = stop(job, target)
    job.result()
    assert job.status is JobStatus.FINISHED
    assert dict(job.records("sums")) == totals(RECORDS[:20])
    goes_on(start, watch, tap, settings, path)


def test_a_stop_that_drains_ends_the_inputs_first(start, watch, settings, target):
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap)), settings=settings)
    let(tap, 20)
    stop(job, target, drains=True)
    job.result()
    assert dict(job.records("sums")) == totals(RECORDS[:20])


def test_a_job_is_cancelled_when_its_savepoint_is_there(start, watch, settings, target):
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap)), settings=settings)
    let(tap, 20)
    path = savepoint(job, target, cancels=True)
    job.fails(JobCanceled)
    goes_on(start, watch, tap, settings, path)


def test_a_checkpoint_can_be_asked_for(start, watch, settings):
    tap = Tap(RECORDS)
    slow = {**settings, "execution.checkpointing.interval": "1 h"}
    job = start(summed(watch, read(tap)), settings=slow)
    let(tap, 20)
    path = order(job, BarrierKind.CHECKPOINT).result(PATIENCE)
    assert path == job.history.latest_completed.path


def test_a_job_without_checkpoints_has_savepoints(start, watch, target, settings):
    tap = Tap(RECORDS)
    del settings["execution.checkpointing.interval"]
    job = start(summed(watch, read(tap)), settings=settings)
    let(tap, 20)
    path = stop(job, target)
    job.result()
    goes_on(start, watch, tap, settings, path)


def test_a_savepoint_is_not_what_a_failed_job_goes_back_to(start, watch, settings, target):
    tap = Tap(RECORDS)
    slow = {**settings, "execution.checkpointing.interval": "1 h"}
    job = start(summed(watch, read(tap)), settings=slow)
    let(tap, 20)
    order(job, BarrierKind.CHECKPOINT).result(PATIENCE)
    number = job.latest
    let(tap, 40)
    savepoint(job, target)
    fail_once(watch, "sums")
    tap.let(60)
    job.result()
    assert job.history.latest_restored.checkpoint_id == number
    assert watch.values("sums", "complete")[0] == number
    assert dict(job.records("sums")) == totals(RECORDS)


def test_two_savepoints_asked_for_at_once_are_both_taken(start, watch, settings, tmp_path):
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap)), settings=settings)
    let(tap, 20)
    places = [
        new_savepoint(str(tmp_path / "savepoints"), "a" * 32, SavepointFormat.NATIVE)
        for _ in range(2)
    ]
    answers = [order(job, BarrierKind.SAVEPOINT, place) for place in places]
    for place, answer in zip(places, answers, strict=True):
        assert answer.result(PATIENCE).endswith(place.name)


def test_a_job_that_has_ended_says_so(start, watch, settings, target):
    tap = Tap(RECORDS)
    tap.let(60)
    job = start(summed(watch, read(tap)), settings=settings)
    job.result()
    with pytest.raises(NotNow, match="no savepoint now: the job is finished"):
        savepoint(job, target)


def test_a_directory_that_cannot_be_written_is_named_and_the_job_runs_on(
    start, watch, settings, tmp_path
):
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap)), settings=settings)
    let(tap, 20)
    (tmp_path / "savepoints").write_text("a file")
    target = new_savepoint(str(tmp_path / "savepoints"), "a" * 32, SavepointFormat.NATIVE)
    with pytest.raises(SavepointFailed, match="savepoints"):
        savepoint(job, target)
    let(tap, 60)
    job.result()
    assert dict(job.records("sums")) == totals(RECORDS)


def test_a_savepoint_is_disposed_of(start, watch, settings, target, tmp_path):
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap)), settings=settings)
    let(tap, 20)
    path = savepoint(job, target)
    dispose(path)
    assert not Path(path).exists()
    with pytest.raises(NoCheckpoint, match="there is no savepoint"):
        dispose(path)


def test_a_savepoint_that_cannot_be_written_does_not_harm_the_job(start, watch, tmp_path, format):
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap)))
    let(tap, 20)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SavepointFailed):
        savepoint(job, new_savepoint(str(tmp_path / "file"), "a" * 32, format))
    let(tap, 60)
    job.result()
    assert dict(job.records("sums")) == totals(RECORDS)


def test_a_job_without_checkpoints_is_drained(start, watch, target):
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap)))
    let(tap, 20)
    path = stop(job, target, drains=True)
    job.result()
    assert Path(path, "_metadata").is_file()
    assert dict(job.records("sums")) == totals(RECORDS[:20])


@pytest.mark.parametrize("mode", ["CLAIM", "NO_CLAIM"])
def test_a_job_deletes_what_it_was_started_from_only_if_it_claims_it(
    start, watch, settings, target, mode
):
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap)), settings=settings)
    let(tap, 20)
    path = stop(job, target)
    job.result()
    claiming = {**settings, PATH: path, "execution.state-recovery.claim-mode": mode}
    job = start(summed(watch, read(tap)), settings=claiming)
    job.wait_for_checkpoint()
    if mode == "CLAIM":
        wait_until(lambda: not Path(path).exists())
    let(tap, 60)
    job.result()
    assert dict(job.records("sums")) == totals(RECORDS)
    assert Path(path).exists() == (mode == "NO_CLAIM")


def test_disposing_of_a_checkpoint_spares_what_others_share(start, watch, tmp_path):
    values = {"state.backend.type": "rocksdb", "execution.checkpointing.incremental": "true"}
    more = {"execution.checkpointing.num-retained": 2, **values}
    settings = on_disk(tmp_path / "checkpoints", **more)
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap)), settings=settings)
    let(tap, 20)
    job.wait_for_checkpoints(3)
    job.cancel()
    directory = tmp_path / "checkpoints" / job.master.job_id
    older, newer = (directory / f"chk-{number}" for number in checkpoints_in(directory))
    dispose(str(older))
    assert not older.exists()
    goes_on(start, watch, tap, settings, str(newer))
    dispose(str(newer))
    assert not state_files(directory)
