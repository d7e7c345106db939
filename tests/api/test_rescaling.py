"""A running job gets another parallelism, and no record is lost or counted twice."""

from collections import Counter
from pathlib import Path

import pytest

from tests.programs import PATIENCE, wait_until
from tests.taps import Tap
from tidegate.core.errors import GraphError
from tidegate.datastream.connectors.file_system import CsvEncoding, Encoder, FileSink
from tidegate.testing.environments import mini_environment

RECORDS = [(f"key {n % 7}", 1) for n in range(120)]
EXPECTED = sorted(
    f"{key},{count + 1}"
    for key, total in Counter(k for k, _ in RECORDS).items()
    for count in range(total)
)


@pytest.fixture(params=["memory", "files"])
def storage(request, tmp_path):
    if request.param == "memory":
        return {"execution.checkpointing.storage": "jobmanager"}
    return {"execution.checkpointing.dir": str(tmp_path / "checkpoints")}


def start(tap, output, settings, backend="hashmap"):
    env = mini_environment(
        {"execution.checkpointing.interval": "100 ms", "state.backend.type": backend, **settings},
        parallelism=2,
    )
    source = env.from_source(tap, type_info=None).uid("source")
    counts = source.key_by(lambda pair: pair[0]).sum(1).uid("counts")
    counts.sink_to(FileSink(str(output), CsvEncoding(header=False))).uid("files")
    return env.execute_async("rescaled")


def lines_in(output):
    return sorted(line for file in output.glob("part-*") for line in file.read_text().splitlines())


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_every_record_counts_once_over_several_rescalings(storage, backend, tmp_path):
    tap = Tap(RECORDS)
    job = start(tap, tmp_path / "out", storage, backend)
    for reached, parallelism in [(30, 3), (60, 1), (90, 4)]:
        tap.let_pass(reached)
        job.rescale(parallelism).result(PATIENCE)
    tap.let(len(RECORDS))
    job.wait(PATIENCE)
    assert lines_in(tmp_path / "out") == EXPECTED


def test_a_subtask_whose_senders_had_ended_gets_records_from_others(storage, tmp_path):
    tap = Tap(RECORDS)
    env = mini_environment({"execution.checkpointing.interval": "100 ms", **storage}, parallelism=4)
    source = env.from_source(tap).uid("source")
    # Of four readers one has something to read, so the second of two subtasks soon has no input.
    lines = source.rescale().map(lambda pair: f"{pair[0]},{pair[1]}").uid("lines")
    lines.set_parallelism(2).sink_to(FileSink(str(tmp_path / "out"), Encoder())).uid("files")
    job = env.execute_async("rescaled")
    tap.let_pass(20)
    job.rescale(1).result(PATIENCE)
    tap.let(len(RECORDS))
    job.wait(PATIENCE)
    assert lines_in(tmp_path / "out") == sorted(f"{key},{number}" for key, number in RECORDS)


def test_the_job_keeps_its_id(storage, tmp_path):
    tap = Tap(RECORDS)
    job = start(tap, tmp_path / "out", storage)
    before = str(job.get_job_id())
    tap.let_pass(20)
    job.rescale(1).result(PATIENCE)
    assert str(job.get_job_id()) == before
    job.cancel_and_wait()


def test_the_checkpoint_in_between_is_one_as_others_and_goes_when_the_next_is_there(tmp_path):
    tap = Tap(RECORDS)
    directory = tmp_path / "checkpoints"
    job = start(tap, tmp_path / "out", {"execution.checkpointing.dir": str(directory)})
    tap.let_pass(20)
    between = Path(job.rescale(1).result(PATIENCE))
    wait_until(lambda: not between.exists() and any(between.parent.glob("chk-*/_metadata")))
    assert job._job.checkpoints.latest_savepoint is None
    job.cancel_and_wait()


def test_more_subtasks_than_key_groups_are_refused_and_the_job_runs_on(storage, tmp_path):
    tap = Tap(RECORDS)
    job = start(tap, tmp_path / "out", storage)
    with pytest.raises(GraphError, match="max parallelism of its state is 128 and cannot change"):
        job.rescale(200)
    tap.let(len(RECORDS))
    job.wait(PATIENCE)
    assert lines_in(tmp_path / "out") == EXPECTED
