"""What stays on disk and what goes, and what happens when the disk fails."""

import errno
import re
import threading
from contextlib import suppress
from typing import ClassVar

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from tests.effort import some
from tests.jobs import (
    RESTARTS,
    NotNow,
    checkpoint_after,
    checkpoints_in,
    fail_once,
    hold_checkpoints,
    on_disk,
    raise_,
    state_files,
    summed,
    take_checkpoint,
    totals,
)
from tests.programs import PATIENCE, read, wait_until
from tests.taps import Tap
from tests.unit.driver.conftest import RECORDS
from tidegate.checkpoint.statistics import CheckpointStatus
from tidegate.core.errors import CheckpointFailed, JobCanceled, StorageError, UserFunctionError
from tidegate.driver.checkpoints import store_thread

RETENTION = "execution.checkpointing.externalized-checkpoint-retention"
RETAINED = "execution.checkpointing.num-retained"
TOLERABLE = "execution.checkpointing.tolerable-failed-checkpoints"


@pytest.fixture(params=some("hashmap", "rocksdb"))
def settings(request, tmp_path):
    return on_disk(tmp_path, **{"state.backend.type": request.param, "restart-strategy": "none"})


def directory_of(job, tmp_path):
    return tmp_path / job.master.job_id


def test_state_is_on_disk_while_the_job_runs(begun, watch, settings, tmp_path):
    job, _ = begun(settings=settings)
    number = take_checkpoint(job, watch, "sums")
    directory = directory_of(job, tmp_path)
    wait_until(lambda: checkpoints_in(directory) == [number])
    assert job.history.latest_completed.path == str(directory / f"chk-{number}")
    assert state_files(directory)


# --- retention ----------------------------------------------------------------------------------


def canceled(job, watch, tap):
    job.master.cancel()
    job.fails(JobCanceled)


def failed(job, watch, tap):
    watch.on("sums", "map", lambda _: raise_(ValueError("bad")))
    tap.open()
    job.fails(UserFunctionError)


def finished(job, watch, tap):
    tap.open()
    job.result()


@pytest.mark.parametrize(
    ("policy", "end", "stays"),
    [
        ("RETAIN_ON_CANCELLATION", canceled, True),
        ("RETAIN_ON_CANCELLATION", failed, True),
        ("RETAIN_ON_CANCELLATION", finished, False),
        ("DELETE_ON_CANCELLATION", canceled, False),
        ("DELETE_ON_CANCELLATION", failed, True),
        ("DELETE_ON_CANCELLATION", finished, False),
        ("NO_EXTERNALIZED_CHECKPOINTS", canceled, False),
        ("NO_EXTERNALIZED_CHECKPOINTS", failed, False),
        ("NO_EXTERNALIZED_CHECKPOINTS", finished, False),
    ],
)
def test_what_stays_when_a_job_ends(begun, watch, settings, tmp_path, policy, end, stays):
    job, tap = begun(settings={**settings, RETENTION: policy})
    number = take_checkpoint(job, watch, "sums")
    if end is finished:
        watch.actions.clear()
    end(job, watch, tap)
    if stays:
        assert checkpoints_in(directory_of(job, tmp_path)) == [number]
        assert state_files(directory_of(job, tmp_path))
    else:
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("retained", [1, 3])
def test_as_many_checkpoints_stay_as_are_wanted(start, watch, settings, tmp_path, retained):
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap)), settings={**settings, RETAINED: retained})
    numbers = [checkpoint_after(job, watch, tap, n) for n in (10, 20, 30, 40)]
    canceled(job, watch, tap)
    assert checkpoints_in(directory_of(job, tmp_path)) == numbers[-retained:]


def test_what_somebody_else_has_put_there_is_left_alone(start, watch, settings, tmp_path):
    job = start(
        summed(watch, read(RECORDS)),
        settings={**settings, RETENTION: "NO_EXTERNALIZED_CHECKPOINTS"},
    )
    note = directory_of(job, tmp_path) / "note.txt"
    note.write_text("mine")
    job.result()
    assert note.read_text() == "mine"


# --- storage that fails -------------------------------------------------------------------------


def beginning(directory, job):
    """A directory stands where every next checkpoint should be noted."""

    def block():
        for number in range(job.newest + 1, job.newest + 200):
            with suppress(FileExistsError):
                (directory / f"last-id-1-{number}").mkdir()

    def unblock():
        for path in directory.glob("last-id-*"):
            if path.is_dir():
                path.rmdir()

    return block, unblock


def writing(directory, job):
    """A file stands where the directory of every next checkpoint should be."""

    def block():
        for number in range(job.newest + 1, job.newest + 200):
            (directory / f"chk-{number}").write_bytes(b"in the way")

    def unblock():
        for path in directory.glob("chk-*"):
            if path.is_file():
                path.unlink(missing_ok=True)

    return block, unblock


@pytest.mark.parametrize("phase", [beginning, writing])
def test_a_job_continues_while_its_storage_fails_and_then_takes_checkpoints_again(
    begun, watch, settings, tmp_path, phase
):
    job, tap = begun(settings=settings)
    good = take_checkpoint(job, watch, "sums")
    watch.actions.clear()
    hold_checkpoints(job, watch, "sums")
    block, unblock = phase(directory_of(job, tmp_path), job)
    block()
    watch.actions.clear()
    known = job.history.counts.failed
    wait_until(lambda: job.history.counts.failed >= known + 3)
    tap.let(40)
    wait_until(lambda: watch.count("sums", "map") == 40)
    failure = job.history.latest_failed.failure
    assert str(directory_of(job, tmp_path)) in failure
    assert "in place of a" in failure
    unblock()
    later = job.wait_for_checkpoint()
    assert later.checkpoint_id > good
    finished(job, watch, tap)
    assert dict(job.records()) == totals(RECORDS)


def test_a_job_whose_checkpoints_fail_too_often_fails_with_the_reason(
    start, watch, settings, tmp_path
):
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap)), settings={**settings, TOLERABLE: 2})
    job.wait_for_checkpoint()
    block, _ = beginning(directory_of(job, tmp_path), job)
    failed_before = job.history.counts.failed
    block()
    failure = job.fails(CheckpointFailed)
    assert job.history.counts.failed - failed_before == 3
    assert failure.args[2] == 2
    assert re.search(r"last-id-1-\d+: Is a directory", str(failure))


def test_checkpoints_that_fail_too_often_are_a_failure_to_restart_from(
    start, watch, settings, tmp_path
):
    taps = [Tap(RECORDS), Tap(RECORDS)]
    once = {**RESTARTS, "restart-strategy.fixed-delay.attempts": 1}
    job = start(
        *(summed(watch, read(tap), name) for tap, name in zip(taps, "ab", strict=True)),
        settings={**settings, **once, TOLERABLE: 0},
    )
    for tap in taps:
        tap.let(30)
    wait_until(lambda: watch.count("a", "map") == watch.count("b", "map") == 30)
    job.wait_for_checkpoint()
    fail_once(watch, "a", "snapshot", NotNow())
    wait_until(lambda: watch.count("b", "open") == 4)
    for tap in taps:
        tap.open()
    job.result()
    assert dict(job.records("a")) == dict(job.records("b")) == totals(RECORDS)
    assert watch.count("a", "open") == 4, "one failure of the job, whatever its pipelines"


def test_a_publication_of_which_nothing_is_known_is_asked_about_until_it_is(
    begun, watch, settings, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(store_thread, "_READ_BACK_SECONDS", 0.01)
    job, tap = begun(settings=settings)
    job.wait_for_checkpoint()
    directory = directory_of(job, tmp_path)
    number = hold_checkpoints(job, watch, "sums")

    def metadata_of(checkpoint):
        return directory / f"chk-{checkpoint}/_metadata"

    def put_a_directory_in_the_way(checkpoint):
        metadata_of(checkpoint).mkdir(parents=True, exist_ok=True)

    watch.on("sums", "snapshot", put_a_directory_in_the_way)
    [pending] = wait_until(
        lambda: re.findall(r"cannot determine whether checkpoint (\d+)", caplog.text)[:1]
    )
    assert job.latest == number
    watch.actions.clear()
    metadata_of(pending).rmdir()
    wait_until(lambda: job.history.latest_failed.checkpoint_id == int(pending))
    job.wait_for_checkpoint()
    finished(job, watch, tap)


class SmallDisk(LocalFileSystem):
    """A disk that fills up when the test says so, between two checkpoints.

    If it did while one is published, the job would wait for room to note that this one is void.
    """

    protocol = "smalldisk"
    fills_up: ClassVar = False
    has_begun: ClassVar = False
    """Whether a checkpoint has begun since."""

    def __init__(self, **settings):
        super().__init__(auto_mkdir=True, **settings)

    def _open(self, path, mode="rb", **more):
        if "last-id-" in path:  # what a checkpoint writes first
            SmallDisk.has_begun = self.fills_up
        if self.fills_up and self.has_begun and "r" not in mode:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super()._open(path, mode, **more)


@pytest.fixture
def small_disk():
    fsspec.register_implementation("smalldisk", SmallDisk, clobber=True)
    yield SmallDisk
    SmallDisk.fills_up = SmallDisk.has_begun = False


def test_a_full_disk_costs_checkpoints_and_nothing_else(
    begun, watch, settings, tmp_path, small_disk
):
    settings = {**settings, "execution.checkpointing.dir": f"smalldisk://{tmp_path}"}
    job, tap = begun(settings=settings)
    job.wait_for_checkpoint()
    small_disk.fills_up = True
    known = job.history.counts.failed
    wait_until(lambda: job.history.counts.failed >= known + 2)
    tap.let(40)
    wait_until(lambda: watch.count("sums", "map") == 40)
    assert "No space left on device; free space there" in job.history.latest_failed.failure
    small_disk.fills_up = False
    job.wait_for_checkpoint()
    finished(job, watch, tap)
    assert dict(job.records()) == totals(RECORDS)


def test_a_directory_that_cannot_be_written_is_found_before_the_job_starts(
    start, watch, settings, tmp_path
):
    place = tmp_path / "a file"
    place.write_text("not a directory")
    with pytest.raises(StorageError, match="there is a file in place of a directory"):
        start(
            summed(watch, read(RECORDS)),
            settings={**settings, "execution.checkpointing.dir": str(place)},
        )


# --- too slow -----------------------------------------------------------------------------------


def test_all_that_a_checkpoint_wrote_is_gone_when_it_took_too_long(
    begun, watch, settings, tmp_path
):
    settings = {**settings, "execution.checkpointing.timeout": "2 s"}
    job, tap = begun(30, settings=settings)
    job.wait_for_checkpoint()
    gate = threading.Event()
    directory = directory_of(job, tmp_path)
    blocked = []

    def block_once(number):
        blocked.append(number)
        if len(blocked) == 1:
            gate.wait(PATIENCE)

    watch.on("sums", "snapshot", block_once)
    wait_until(lambda: blocked)
    late = blocked[0]
    wait_until(lambda: job.history.record(late).status is CheckpointStatus.FAILED)
    assert "longer than its timeout of 2 s" in job.history.record(late).failure
    gate.set()
    job.wait_for_checkpoint()
    assert late in watch.values("sums", "aborted")
    wait_until(lambda: not (directory / f"chk-{late}").exists())
    canceled(job, watch, tap)
    assert not (directory / f"chk-{late}").exists()
    assert checkpoints_in(directory) == [job.latest]
