"""Savepoints under PyFlink's names."""

from collections import Counter

import pytest

from tests.programs import PATIENCE
from tests.taps import Tap
from tidegate.core.errors import ConfigError, JobCanceled
from tidegate.datastream.connectors.file_system import CsvEncoding, FileSink
from tidegate.testing.environments import mini_environment

RECORDS = [(f"key {n % 7}", 1) for n in range(90)]
EXPECTED = sorted(
    f"{key},{count + 1}"
    for key, total in Counter(key for key, _ in RECORDS).items()
    for count in range(total)
)


def start(tap, output, parallelism=2, **settings):
    env = mini_environment(
        {"execution.checkpointing.interval": "100 ms", **settings}, parallelism=parallelism
    )
    counts = env.from_source(tap).uid("source").key_by(lambda pair: pair[0]).sum(1).uid("counts")
    counts.sink_to(FileSink(str(output), CsvEncoding(header=False))).uid("files")
    return env.execute_async("counts")


def lines_in(output):
    return sorted(line for file in output.glob("part-*") for line in file.read_text().splitlines())


def test_a_job_is_stopped_and_carried_on_until_it_ends(tmp_path):
    tap = Tap(RECORDS)
    settings = {}
    for reached, parallelism in [(20, 1), (40, 3), (60, 2)]:
        job = start(tap, tmp_path / "out", parallelism, **settings)
        tap.let_pass(reached)
        path = job.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(PATIENCE)
        job.wait(PATIENCE)
        settings = {"execution.state-recovery.path": path}
    tap.let(len(RECORDS))
    start(tap, tmp_path / "out", 4, **settings).wait(PATIENCE)
    assert lines_in(tmp_path / "out") == EXPECTED


def test_the_directory_of_savepoints_can_be_set(tmp_path):
    tap = Tap(RECORDS)
    where = {"execution.checkpointing.savepoint-dir": str(tmp_path / "savepoints")}
    job = start(tap, tmp_path / "out", **where)
    tap.let_pass(20)
    path = job.trigger_savepoint().result(PATIENCE)
    assert path.startswith(f"{tmp_path}/savepoints/savepoint-")
    other = job.cancel_with_savepoint().result(PATIENCE)
    assert other != path
    with pytest.raises(JobCanceled):
        job.wait(PATIENCE)


def test_without_a_directory_it_says_what_to_set(tmp_path):
    job = start(Tap(RECORDS), tmp_path / "out")
    with pytest.raises(ConfigError, match="savepoint-dir"):
        job.trigger_savepoint()
    job.cancel_and_wait()
