"""Going back past a checkpoint that cannot be read: never unasked where sinks have committed."""

import pytest

from tests.jobs import RESTARTS, checkpoint_after, on_disk
from tests.programs import wait_until
from tests.taps import Tap
from tests.unit.driver.conftest import RECORDS, committed, lines
from tidegate.core.errors import JobCanceled, RepeatsCommitted

GO_BACK = "tidegate.recovery.skip-damaged-checkpoints"


@pytest.fixture
def settings(tmp_path):
    more = {**RESTARTS, "execution.checkpointing.num-retained": 2}
    return on_disk(tmp_path / "checkpoints", **more)


@pytest.fixture
def running(writing, watch, settings, tmp_path):
    """A job with the checkpoints of 20 and of 30 records, both of which it has committed."""
    tap = Tap(RECORDS)
    job = writing(tap)
    kept = [checkpoint_after(job, watch, tap, number) for number in (20, 30)]
    wait_until(lambda: len(committed(tmp_path)) == 30)
    job.tap, job.directory = tap, tmp_path / "checkpoints" / job.master.job_id
    job.second = job.directory / f"chk-{kept[1]}"
    return job


def damage_state(checkpoint):
    (file, *_) = (path for path in checkpoint.iterdir() if path.name != "_metadata")
    file.write_bytes(b"something else")


def damage_metadata(checkpoint):
    (checkpoint / "_metadata").write_bytes(b"something else")


def cancelled(job):
    job.master.cancel()
    job.fails(JobCanceled)


def test_a_job_whose_sinks_have_committed_does_not_go_back_further(running, tmp_path):
    damage_state(running.second)
    running.cluster.kill(0)
    failure = str(running.fails(RepeatsCommitted))
    for part in (str(running.second), "is corrupt", "'files'", GO_BACK, "savepoint"):
        assert part in failure
    assert committed(tmp_path) == lines(RECORDS[:30])


def test_a_job_may_skip_a_damaged_checkpoint_and_says_what_is_duplicated(
    writing, watch, tmp_path, caplog
):
    tap = Tap(RECORDS)
    job = writing(tap, **{GO_BACK: True})
    kept = [checkpoint_after(job, watch, tap, number) for number in (20, 30)]
    wait_until(lambda: len(committed(tmp_path)) == 30)
    damage_state(tmp_path / "checkpoints" / job.master.job_id / f"chk-{kept[1]}")
    job.cluster.kill(0)
    watch.actions.clear()
    tap.open()
    job.result()
    assert committed(tmp_path) == lines(RECORDS + RECORDS[20:30])
    assert "'files'" in caplog.text


@pytest.mark.parametrize("from_where", ["latest", "the directory"])
def test_a_job_does_not_start_from_before_a_damaged_checkpoint(
    running, writing, tmp_path, from_where
):
    cancelled(running)
    damage_metadata(running.second)
    path = {"latest": "latest", "the directory": str(running.directory)}[from_where]
    with pytest.raises(
        RepeatsCommitted, match=f"{running.second.name} cannot be restored.*'files'"
    ):
        writing(Tap(RECORDS), **{"execution.state-recovery.path": path})


def test_a_job_may_start_from_before_a_damaged_checkpoint(
    running, writing, watch, tmp_path, caplog
):
    cancelled(running)
    watch.actions.clear()
    damage_metadata(running.second)
    settings = {"execution.state-recovery.path": "latest", GO_BACK: True}
    writing(Tap(RECORDS, is_open=True), **settings).result()
    assert committed(tmp_path) == lines(RECORDS + RECORDS[20:30])
    assert "'files'" in caplog.text


def test_an_older_checkpoint_that_is_damaged_is_in_nobodys_way(running, writing, watch, tmp_path):
    cancelled(running)
    watch.actions.clear()
    complete = [path.parent for path in running.directory.glob("chk-*/_metadata")]
    older = [path for path in complete if path != running.second]
    assert len(older) == 1
    damage_metadata(older[0])
    writing(Tap(RECORDS, is_open=True), **{"execution.state-recovery.path": "latest"}).result()
    assert committed(tmp_path) == lines(RECORDS)
