"""A file sink on a disk that is full for a while: nothing is lost, nothing is there twice."""

import hashlib

import pytest

from tests.programs import wait_until
from tidegate.common import RestartStrategies, Types
from tidegate.core.errors import UnwritableOutput
from tidegate.datastream.connectors.file_system import (
    Encoder,
    FileSink,
    FileSource,
    ParquetEncoding,
    ParquetFormat,
    TextLineFormat,
)
from tidegate.testing.environments import mini_environment
from tidegate.types.arrow import arrow_format

LAST = 8_000
TEXT = Types.STRING()
ENCODINGS = {
    "text": (Encoder(), TextLineFormat()),
    "parquet": (ParquetEncoding(arrow_format(TEXT).schema), ParquetFormat(TEXT)),
}


def digest(number):
    return hashlib.sha256(str(number).encode()).hexdigest()


def start(disk, encoding, restarts):
    """A job that writes half a megabyte where there are 300 kilobytes left."""
    (disk / "ballast").write_bytes(bytes(700 << 10))
    env = mini_environment({"tidegate.step.max-records": 500}, parallelism=2)
    env.enable_checkpointing("10 ms")
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(restarts, 20))
    sink = FileSink(str(disk / "out"), encoding)
    env.from_sequence(1, LAST).map(digest, TEXT).sink_to(sink)
    return env.execute_async()


@pytest.mark.parametrize("name", ENCODINGS)
def test_when_there_is_space_again_the_job_continues_and_every_record_is_there_once(
    disk, caplog, name
):
    encoding, format = ENCODINGS[name]
    job = start(disk, encoding, restarts=10_000)
    wait_until(lambda: "cannot be written: the disk is full" in caplog.text)
    (disk / "ballast").unlink()
    job.wait(120)
    assert [path.name for path in (disk / "out").iterdir() if path.name.startswith(".")] == []
    env = mini_environment()
    with env.from_source(FileSource(str(disk / "out"), format)).execute_and_collect() as records:
        assert sorted(records) == sorted(map(digest, range(1, LAST + 1)))


def test_a_job_that_does_not_restart_says_what_to_do(disk):
    with pytest.raises(UnwritableOutput, match="the disk is full; free some space"):
        start(disk, Encoder(), restarts=0).wait(120)
