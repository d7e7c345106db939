"""Checkpoints that cannot be read: they are named, and the one before them is used."""

from pathlib import Path

import pytest

from tests.effort import some
from tests.jobs import (
    RESTARTS,
    checkpoint_after,
    checkpoints_in,
    on_disk,
    summed,
    take_checkpoint,
    totals,
)
from tests.programs import read, wait_until
from tests.taps import Tap
from tests.unit.driver.conftest import RECORDS
from tidegate.checkpoint.locate import open_checkpoint
from tidegate.core.errors import CorruptCheckpoint
from tidegate.state.snapshot.reader import location_of


@pytest.fixture(params=some("hashmap", "rocksdb"))
def settings(request, tmp_path):
    return on_disk(
        tmp_path,
        **RESTARTS,
        **{
            "state.backend.type": request.param,
            "execution.checkpointing.incremental": True,
            "execution.checkpointing.num-retained": 2,
        },
    )


def flip_a_byte(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def delete(path):
    path.unlink()


def put_something_else(path):
    path.write_bytes(b"something else")


def own_files(directory, number, others=()):
    """The files of state that a checkpoint has and these others have not."""

    def files(each):
        found = open_checkpoint(str(directory / f"chk-{each}"))
        return {location_of(file, found.resolver()) for file in found.metadata.files}

    return sorted(files(number).difference(*map(files, others)))


@pytest.fixture
def job_with_two(begun, watch, settings, tmp_path):
    """A job that keeps the checkpoints of 20 and of 30 records, and is 10 records further."""
    job, tap = begun(settings=settings, parallelism=1)
    first = take_checkpoint(job, watch, "sums")
    second = checkpoint_after(job, watch, tap, 30)
    tap.let(40)
    wait_until(lambda: watch.count("sums", "map") == 40)
    job.directory = tmp_path / job.master.job_id
    wait_until(lambda: checkpoints_in(job.directory) == [first, second])
    return job, tap, first, second


def recovers(job, watch, tap):
    watch.actions.clear()
    job.cluster.kill(0)
    tap.open()
    job.result()
    assert dict(job.records()) == totals(RECORDS)


@pytest.mark.parametrize("damage", [flip_a_byte, truncate, delete, put_something_else])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    job_with_two, watch, caplog, damage
):
    job, tap, first, second = job_with_two
    damaged = own_files(job.directory, second, [first])[0]
    damage(Path(damaged))
    recovers(job, watch, tap)
    assert watch.values("sums", "map") == RECORDS[:40] + RECORDS[20:]
    assert f"checkpoint {second} cannot be restored, resuming from {first}" in caplog.text
    assert f"{damaged} is corrupt" in caplog.text


def test_an_intact_checkpoint_is_used_whatever_became_of_the_one_before_it(job_with_two, watch):
    job, tap, first, second = job_with_two
    flip_a_byte(Path(own_files(job.directory, first, [second])[0]))
    recovers(job, watch, tap)
    assert watch.values("sums", "map") == RECORDS[:40] + RECORDS[30:]


def test_a_job_with_no_checkpoint_left_fails_and_does_not_start_fresh(job_with_two, watch):
    job, _, first, second = job_with_two
    damaged = {own_files(job.directory, number)[0] for number in (first, second)}
    for file in damaged:
        flip_a_byte(Path(file))
    job.cluster.kill(0)
    failure = job.fails(CorruptCheckpoint)
    assert failure.args[0] in damaged
    assert watch.count("sums", "map") == 40, "nothing is processed from the beginning"


def test_in_two_slots_a_damage_is_found_once(start, watch, settings, tmp_path, caplog):
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap, parallelism=1)), settings=settings)
    first = checkpoint_after(job, watch, tap, 20)
    second = checkpoint_after(job, watch, tap, 30)
    for file in own_files(tmp_path / job.master.job_id, second, [first]):
        flip_a_byte(Path(file))
    recovers(job, watch, tap)
    assert job.history.counts.restored == 2
