"""Going back past a checkpoint that cannot be read: never unasked where sinks have committed."""

import pytest

from tests.jobs import RESTARTS, checkpoint_after, on_disk, pairs, summed
from tests.programs import apply, read, wait_until
from tests.taps import Tap
from tidegate.connectors.files.encodings import Encoder
from tidegate.connectors.files.sink import FileSink
from tidegate.core.errors import JobCanceled, RepeatsCommitted
from tidegate.operators.endpoints.operators import SinkOperator

RECORDS = pairs(60)
GO_BACK = "tidegate.recovery.skip-damaged-checkpoints"


@pytest.fixture
def settings(tmp_path):
    more = {**RESTARTS, "execution.checkpointing.num-retained": 2}
    return on_disk(tmp_path / "checkpoints", **more)


@pytest.fixture
def begin(start, watch, settings, tmp_path):
    """Starts a job that sums, and writes what it reads to files."""

    def create(tap, **more):
        source = read(tap, uid="source")
        sink = SinkOperator(FileSink(str(tmp_path / "out"), Encoder()))
        files = apply(sink, source, name="files", uid="files", is_sink=True)
        sinks = summed(watch, source), files
        return start(*sinks, settings={**settings, **more}, parallelism=1)

    return create


@pytest.fixture
def running(begin, watch, settings, tmp_path):
    """A job with the checkpoints of 20 and of 30 records, both of which it has committed."""
    tap = Tap(RECORDS)
    job = begin(tap)
    kept = [checkpoint_after(job, watch, tap, number) for number in (20, 30)]
    wait_until(lambda: len(committed(tmp_path)) == 30)
    job.tap, job.directory = tap, tmp_path / "checkpoints" / job.master.job_id
    job.second = job.directory / f"chk-{kept[1]}"
    return job


def committed(tmp_path):
    files = [path for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")]
    return sorted(line for path in files for line in path.read_text().splitlines())


def lines(records):
    return sorted(map(str, records))


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
    begin, watch, tmp_path, caplog
):
    tap = Tap(RECORDS)
    job = begin(tap, **{GO_BACK: True})
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
    running, begin, tmp_path, from_where
):
    cancelled(running)
    damage_metadata(running.second)
    path = {"latest": "latest", "the directory": str(running.directory)}[from_where]
    with pytest.raises(
        RepeatsCommitted, match=f"{running.second.name} cannot be restored.*'files'"
    ):
        begin(Tap(RECORDS), **{"execution.state-recovery.path": path})


def test_a_job_may_start_from_before_a_damaged_checkpoint(running, begin, watch, tmp_path, caplog):
    cancelled(running)
    watch.actions.clear()
    damage_metadata(running.second)
    settings = {"execution.state-recovery.path": "latest", GO_BACK: True}
    begin(Tap(RECORDS, is_open=True), **settings).result()
    assert committed(tmp_path) == lines(RECORDS + RECORDS[20:30])
    assert "'files'" in caplog.text


def test_an_older_checkpoint_that_is_damaged_is_in_nobodys_way(running, begin, watch, tmp_path):
    cancelled(running)
    watch.actions.clear()
    complete = [path.parent for path in running.directory.glob("chk-*/_metadata")]
    older = [path for path in complete if path != running.second]
    assert len(older) == 1
    damage_metadata(older[0])
    begin(Tap(RECORDS, is_open=True), **{"execution.state-recovery.path": "latest"}).result()
    assert committed(tmp_path) == lines(RECORDS)
