"""Savepoints of running jobs: taken, stopped with, cancelled with, and started from."""

import os
import shutil
from pathlib import Path

import pytest

from tests.effort import some
from tests.jobs import (
    checkpoints_in,
    fail_once,
    hold_checkpoints,
    on_disk,
    state_files,
    take_checkpoint,
    totals,
)
from tests.programs import PATIENCE, wait_until
from tests.taps import Tap
from tests.unit.driver.conftest import RECORDS
from tidegate.checkpoint.savepoints import dispose
from tidegate.core.errors import JobCanceled, NoCheckpoint, SavepointFailed
from tidegate.core.modes import SavepointFormat
from tidegate.protocol.job_status import JobStatus
from tidegate.stream.elements import BarrierKind

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
    return tmp_path / "savepoints", format


def savepoint(job, target, **more):
    return job.order(BarrierKind.SAVEPOINT, *target, **more).result(PATIENCE)


def stop(job, target, **more):
    return job.order(BarrierKind.STOP, *target, **more).result(PATIENCE)


def goes_on(begun, tap, settings, path, parallelism=2):
    """Start from a savepoint, read all the rest, and see that every record has counted once."""
    job, _ = begun(60, tap, settings={**settings, PATH: path}, parallelism=parallelism)
    job.result()
    assert dict(job.records("sums")) == totals(RECORDS)


def test_a_job_runs_on_after_its_savepoint(begun, settings, target):
    job, tap = begun(settings=settings)
    path = savepoint(job, target)
    assert Path(path, "_metadata").is_file()
    tap.open()
    job.result()
    assert dict(job.records("sums")) == totals(RECORDS)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_another_job_resumes_from_it(begun, settings, target, parallelism):
    job, tap = begun(settings=settings)
    path = savepoint(job, target)
    job.cancel()
    goes_on(begun, tap, settings, path, parallelism)


def test_a_savepoint_is_whole_and_can_be_moved(begun, watch, settings, target, tmp_path):
    job, tap = begun(settings=settings)
    take_checkpoint(job, watch, "sums")
    watch.on("sums", "snapshot", lambda _: None)
    path = savepoint(job, target)
    job.cancel()
    shutil.rmtree(tmp_path / "checkpoints")
    moved = tmp_path / "elsewhere" / "renamed"
    shutil.copytree(path, moved)
    shutil.rmtree(tmp_path / "savepoints")
    goes_on(begun, tap, settings, str(moved))


def test_a_job_that_is_stopped_emits_nothing_after_its_savepoint(begun, settings, target):
    job, tap = begun(settings=settings)
    path = stop(job, target)
    job.result()
    assert job.status is JobStatus.FINISHED
    assert dict(job.records("sums")) == totals(RECORDS[:20])
    assert not state_files(Path(settings["execution.checkpointing.dir"]))
    goes_on(begun, tap, settings, path)


def test_a_stop_that_fails_lets_the_job_run_on(begun, watch, settings, target, tmp_path):
    job, tap = begun(settings=settings)
    hold_checkpoints(job, watch, "sums")
    with pytest.raises(SavepointFailed, match="the savepoint was not taken: sums"):
        stop(job, target)
    watch.on("sums", "snapshot", lambda _: None)
    tap.open()
    job.result()
    assert dict(job.records("sums")) == totals(RECORDS)
    # What a subtask wrote after the stop had failed goes with the next checkpoint, or at the end.
    wait_until(lambda: not any(files for _, _, files in os.walk(tmp_path / "savepoints")))


def test_a_failure_between_savepoint_and_end_does_not_bring_the_job_back(
    begun, watch, settings, target
):
    job, tap = begun(settings={**settings, "execution.checkpointing.interval": "1 h"})
    fail_once(watch, "sums", "complete")
    path = stop(job, target)
    job.result()
    assert job.status is JobStatus.FINISHED
    assert dict(job.records("sums")) == totals(RECORDS[:20])
    goes_on(begun, tap, settings, path)


def test_a_stop_that_drains_ends_the_inputs_first(begun, settings, target):
    job, _ = begun(settings=settings)
    stop(job, target, drains=True)
    job.result()
    assert dict(job.records("sums")) == totals(RECORDS[:20])


def test_a_drained_job_looks_for_no_input_when_it_is_started_again(
    begun, settings, target, monkeypatch
):
    job, tap = begun(settings=settings)
    path = stop(job, target, drains=True)
    job.result()

    def create_enumerator(source):
        raise OSError("there is no such topic any more")

    monkeypatch.setattr(Tap, "create_enumerator", create_enumerator)
    job, _ = begun(20, tap, settings={**settings, PATH: path})
    job.result()
    assert job.status is JobStatus.FINISHED


def test_a_job_is_cancelled_when_its_savepoint_is_there(begun, settings, target):
    job, tap = begun(settings=settings)
    path = savepoint(job, target, cancels=True)
    job.fails(JobCanceled)
    goes_on(begun, tap, settings, path)


def test_a_checkpoint_can_be_asked_for(begun, settings):
    job, _ = begun(settings={**settings, "execution.checkpointing.interval": "1 h"})
    path = job.order(BarrierKind.CHECKPOINT).result(PATIENCE)
    assert path == job.history.latest_completed.path


def test_a_job_without_checkpoints_has_savepoints(begun, target, settings):
    del settings["execution.checkpointing.interval"]
    job, tap = begun(settings=settings)
    path = stop(job, target)
    job.result()
    goes_on(begun, tap, settings, path)


def test_a_savepoint_is_not_what_a_failed_job_goes_back_to(begun, watch, settings, target):
    job, tap = begun(settings={**settings, "execution.checkpointing.interval": "1 h"})
    job.order(BarrierKind.CHECKPOINT).result(PATIENCE)
    number = job.latest
    tap.let_pass(40)
    savepoint(job, target)
    fail_once(watch, "sums")
    tap.let(60)
    job.result()
    assert job.history.latest_restored.checkpoint_id == number
    assert watch.values("sums", "complete")[0] == number
    assert dict(job.records("sums")) == totals(RECORDS)


def test_two_savepoints_asked_for_at_once_are_both_taken(begun, settings, tmp_path):
    job, _ = begun(settings=settings)
    answers = [job.order(BarrierKind.SAVEPOINT, tmp_path / "savepoints") for _ in range(2)]
    assert len({answer.result(PATIENCE) for answer in answers}) == 2


def test_a_directory_that_cannot_be_written_is_named_and_the_job_runs_on(begun, target):
    job, tap = begun()
    target[0].write_text("a file")
    with pytest.raises(SavepointFailed, match="savepoints"):
        savepoint(job, target)
    tap.open()
    job.result()
    assert dict(job.records("sums")) == totals(RECORDS)


def test_a_savepoint_is_disposed_of(begun, settings, target, tmp_path):
    job, _ = begun(settings=settings)
    path = savepoint(job, target)
    dispose(path)
    assert not Path(path).exists()
    with pytest.raises(NoCheckpoint, match="there is no savepoint"):
        dispose(path)


def test_a_job_without_checkpoints_is_drained(begun, target):
    job, _ = begun()
    path = stop(job, target, drains=True)
    job.result()
    assert Path(path, "_metadata").is_file()
    assert dict(job.records("sums")) == totals(RECORDS[:20])


@pytest.mark.parametrize("mode", ["CLAIM", "NO_CLAIM"])
def test_a_job_deletes_what_it_was_started_from_only_if_it_claims_it(begun, settings, target, mode):
    job, tap = begun(settings=settings)
    path = stop(job, target)
    job.result()
    claiming = {**settings, PATH: path, "execution.state-recovery.claim-mode": mode}
    job, _ = begun(20, tap, settings=claiming)
    job.wait_for_checkpoint()
    if mode == "CLAIM":
        wait_until(lambda: not Path(path).exists())
    tap.open()
    job.result()
    assert dict(job.records("sums")) == totals(RECORDS)
    assert Path(path).exists() == (mode == "NO_CLAIM")


def test_disposing_of_a_checkpoint_spares_what_others_share(begun, tmp_path):
    values = {"state.backend.type": "rocksdb", "execution.checkpointing.incremental": "true"}
    more = {"execution.checkpointing.num-retained": 2, **values}
    settings = on_disk(tmp_path / "checkpoints", **more)
    job, tap = begun(settings=settings)
    job.wait_for_checkpoints(3)
    job.cancel()
    directory = tmp_path / "checkpoints" / job.master.job_id
    older, newer = (directory / f"chk-{number}" for number in checkpoints_in(directory))
    dispose(str(older))
    assert not older.exists()
    goes_on(begun, tap, settings, str(newer))
    dispose(str(newer))
    assert not state_files(directory)
