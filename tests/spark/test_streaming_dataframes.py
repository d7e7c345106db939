"""Readers of Structured Streaming as sources: every row once, whatever fails."""

import json
import os
import shutil
import signal
import tempfile
import textwrap
import threading
from collections import Counter
from pathlib import Path

import pytest
from pyarrow import parquet as pq

from tests.api.test_exactly_once_sinks import FailsBehindCheckpoints
from tests.jobs import open_with_barrier
from tests.programs import wait_until
from tests.spark.scripts import PATIENCE, end, output_of, start_script
from tidegate.common import RestartStrategies, Types
from tidegate.connectors.source import EnumeratorContext, ReaderContext
from tidegate.connectors.spark.staging import StagedReader
from tidegate.core.clock import SystemClock
from tidegate.core.errors import ExternalError, GraphError
from tidegate.datastream import MapFunction
from tidegate.datastream.connectors.file_system import Encoder, FileSink
from tidegate.testing.environments import mini_environment
from tidegate.types.arrow import arrow_format

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS_PER_FILE = 20


class Inbox:
    """A directory of JSON lines, each with a number of its own."""

    def __init__(self, directory):
        self.directory = directory
        self.count = 0
        directory.mkdir()

    def add(self, files=1):
        for _ in range(files):
            numbers = range(self.count, self.count + ROWS_PER_FILE)
            hidden = self.directory / f".{self.count}.json"
            hidden.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
            hidden.rename(self.directory / f"{self.count}.json")
            self.count += ROWS_PER_FILE

    def stream(self, spark):
        reader = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1)
        return reader.json(str(self.directory))


@pytest.fixture
def inbox(tmp_path):
    return Inbox(tmp_path / "inbox")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def environment(tmp_path, parallelism=2, **settings):
    directory = tmp_path / "checkpoints"
    env = mini_environment(
        {
            "tidegate.step.max-records": 7,
            "execution.checkpointing.dir": str(directory),
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            **settings,
        },
        parallelism=parallelism,
    )
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(20, 1))
    return (
        env if "execution.checkpointing.interval" in settings else env.enable_checkpointing("30 ms")
    )


def write(stream, out):
    numbers = stream.map(lambda row: row[0]).map(FailsBehindCheckpoints())
    numbers.sink_to(FileSink(str(out), Encoder()))


def numbers_in(out):
    """What readers see, sorted."""
    files = [path for path in out.rglob("part-*") if path.is_file()]
    return sorted(int(line) for path in files for line in path.read_text().split())


def staged(tmp_path):
    """The Parquet files that wait for a reader, or for a checkpoint to do without them."""
    found = os.walk(tmp_path / "checkpoints")  # unlike rglob it does not mind what is deleted
    return {
        Path(directory, name)
        for directory, _, names in found
        for name in names
        if name.endswith(".parquet") and name[0] not in "._" and "_temporary" not in directory
    }


def test_files_that_arrive_while_tasks_fail_are_read_once(spark, inbox, out, tmp_path):
    env = environment(tmp_path)
    inbox.add(3)
    write(env.from_streaming_dataframe(inbox.stream(spark)), out)
    job = env.execute_async("files")
    try:
        for _ in range(3):
            wait_until(lambda: numbers_in(out) == list(range(inbox.count)))
            inbox.add(2)
        wait_until(lambda: numbers_in(out) == list(range(inbox.count)))
        wait_until(lambda: not staged(tmp_path))
    finally:
        job.cancel_and_wait()
    assert numbers_in(out) == list(range(inbox.count))


def test_a_bounded_stream_ends_with_the_rows_that_are_there(spark, inbox, out, tmp_path):
    env = environment(tmp_path)
    inbox.add(8)
    write(env.from_streaming_dataframe(inbox.stream(spark), bounded=True), out)
    env.execute("bounded")
    assert numbers_in(out) == list(range(inbox.count))
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_the_rate_source_gives_the_same_rows_again(spark, out, tmp_path):
    env = environment(tmp_path)
    rate = spark.readStream.format("rate").option("rowsPerSecond", 200).load()
    write(env.from_streaming_dataframe(rate.select("value"), every="200 ms"), out)
    job = env.execute_async("rate")
    try:
        wait_until(lambda: numbers_in(out)[:1000] == list(range(1000)))
    finally:
        job.cancel_and_wait()
    found = numbers_in(out)
    assert sorted(set(found)) == found


@pytest.mark.parametrize("restored", ["latest", "path"])
def test_a_new_job_continues_after_the_checkpoint_of_the_last(
    spark, inbox, out, tmp_path, restored
):
    spark.conf.set("spark.sql.streaming.fileSource.log.compactInterval", 3)
    inbox.add(6)
    env = environment(tmp_path)
    write(env.from_streaming_dataframe(inbox.stream(spark)), out)
    job = env.execute_async("first")
    wait_until(lambda: len(numbers_in(out)) > 3 * ROWS_PER_FILE)
    job.cancel_and_wait()
    before = staged(tmp_path)
    inbox.add(2)
    (home,) = (tmp_path / "checkpoints").iterdir()
    settings = {"execution.state-recovery.path": "latest" if restored == "latest" else str(home)}
    env = environment(tmp_path, parallelism=1, **settings)
    write(env.from_streaming_dataframe(inbox.stream(spark)), out)
    job = env.execute_async("first")
    try:
        wait_until(lambda: numbers_in(out) == list(range(inbox.count)))
        if restored == "latest":
            wait_until(lambda: not staged(tmp_path))
        else:
            wait_until(lambda: staged(tmp_path) <= before)
    finally:
        job.cancel_and_wait()
    assert numbers_in(out) == list(range(inbox.count))
    spark.conf.unset("spark.sql.streaming.fileSource.log.compactInterval")
    if restored == "path":
        assert before <= staged(tmp_path), "they belong to another job"


class Waits(MapFunction):
    """Lets rows pass when the test says so."""

    gate = threading.Event()

    def map(self, value):
        Waits.gate.wait(120)
        return value


@pytest.mark.parametrize("claim", ["CLAIM", "NO_CLAIM"])
def test_a_savepoint_continues_elsewhere_with_rows_that_were_staged(
    spark, inbox, out, tmp_path, claim
):
    """Spark's batches are ahead of what the job has read when it is stopped."""
    Waits.gate.clear()
    inbox.add(6)
    env = environment(tmp_path, **{"execution.checkpointing.interval": "1 h"})
    rows = env.from_streaming_dataframe(inbox.stream(spark)).uid("rows")
    write(rows.map(Waits()).rebalance(), out)
    job = env.execute_async("moved")
    wait_until(lambda: len(staged(tmp_path)) > 1)
    open_with_barrier(job._job._master.checkpoints, Waits.gate)
    path = job.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    job.wait()
    assert len(numbers_in(out)) < inbox.count
    assert list(Path(path).glob("taskowned/*/stream/*/batch-*/*.parquet"))
    shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
    moved = shutil.move(path, tmp_path / "elsewhere")
    inbox.add(2)
    settings = {
        "execution.state-recovery.path": str(moved),
        "execution.state-recovery.claim-mode": claim,
    }
    env = environment(tmp_path, parallelism=3, **settings)
    rows = env.from_streaming_dataframe(inbox.stream(spark)).uid("rows")
    write(rows.map(Waits()).rebalance(), out)
    job = env.execute_async("moved")
    try:
        wait_until(lambda: numbers_in(out) == list(range(inbox.count)))
        wait_until(lambda: not staged(tmp_path))
    finally:
        job.cancel_and_wait()
    assert numbers_in(out) == list(range(inbox.count))
    assert moved.exists() == (claim == "NO_CLAIM")


def test_without_checkpoints_rows_arrive_and_nothing_of_them_stays(spark, inbox, tmp_path):
    inbox.add(5)
    env = mini_environment({"tidegate.spark.exchange-dir": str(tmp_path / "exchange")})
    stream = env.from_streaming_dataframe(inbox.stream(spark), bounded=True)
    with stream.map(lambda row: row[0]).execute_and_collect() as records:
        assert sorted(records) == list(range(inbox.count))
    assert [path for path in (tmp_path / "exchange").rglob("*") if path.is_file()] == []


def marker_of(path):
    return Path(path).with_name(f"_{Path(path).name}.read")


def test_spark_hands_over_no_more_than_the_readers_take(spark, inbox, tmp_path):
    inbox.add(6)
    env = mini_environment()
    source = env.from_streaming_dataframe(inbox.stream(spark))._operator("source").source
    enumerator = source.create_enumerator()
    enumerator.context = EnumeratorContext(
        job_id="job", operator_id="op", is_checkpointed=True, directory=str(tmp_path / "staged")
    )
    reader = StagedReader(
        ReaderContext(0, 1, SystemClock(), arrow_format(source.produced_type()), job_id="job")
    )
    enumerator.open()
    files: set[str] = set()

    def hand_out():
        splits = enumerator.next_splits(1).get(0, [])
        files.update(split.file.path for split in splits)
        reader.add_splits(splits)
        assert len([path for path in files if not marker_of(path).exists()]) <= 2
        return splits

    seen = Counter()
    try:
        while sum(seen.values()) < inbox.count:
            wait_until(lambda: hand_out() or reader.has_splits)
            batch = reader.poll(ROWS_PER_FILE).batch
            seen.update(row.n for row in (batch.records if batch else ()))
    finally:
        enumerator.close()
    assert seen == Counter(range(inbox.count))
    assert len(files) == 6


def test_a_query_that_fails_fails_the_job_with_its_reason(spark, inbox, tmp_path):
    (inbox.directory / "bad.json").write_text("{")
    reader = spark.readStream.schema("n long").option("mode", "FAILFAST")
    env = mini_environment()
    env.from_streaming_dataframe(reader.json(str(inbox.directory))).print()
    with pytest.raises(ExternalError, match=r"the streaming query failed: .*STREAM_FAILED"):
        env.execute()


def test_dataframes_of_the_other_kind_are_sent_where_they_belong(spark, inbox):
    env = mini_environment()
    with pytest.raises(GraphError, match=r"use from_streaming_dataframe\(\)"):
        env.from_dataframe(inbox.stream(spark))
    with pytest.raises(GraphError, match=r"use from_dataframe\(\)"):
        env.from_streaming_dataframe(spark.range(3))


def test_state_in_spark_is_refused_and_what_is_joined_to_a_table_is_not(spark, inbox):
    env = mini_environment()
    stream = inbox.stream(spark)
    table = spark.range(3).withColumnRenamed("id", "n")
    env.from_streaming_dataframe(stream.join(table, "n").where("n > 1"))
    for stateful in (
        stream.groupBy("n").count(),
        stream.dropDuplicates(),
        stream.join(inbox.stream(spark), "n"),
        stream.limit(3),
    ):
        with pytest.raises(GraphError, match="keeps state in Spark"):
            env.from_streaming_dataframe(stateful)


def test_a_source_says_whether_it_can_replay(spark, inbox):
    env = mini_environment()

    def replay(frame):
        return env.from_streaming_dataframe(frame)._operator("source").source.replay()

    assert replay(inbox.stream(spark).where("n > 1")).is_possible
    socket = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", 9)
    assert not replay(socket.load()).is_possible
    assert env.from_streaming_dataframe(inbox.stream(spark)).get_type() == Types.ROW_NAMED(
        ["n"], [Types.LONG()]
    )


KILLED = textwrap.dedent(
    """
    import time
    from pathlib import Path
    from pyspark.sql import SparkSession
    from tidegate import StreamExecutionEnvironment, Types

    ROW = Types.ROW_NAMED(["n", "kind"], [Types.LONG(), Types.STRING()])
    HERE = Path(__file__).parent

    def slowly(row):
        time.sleep(0.01)
        return row

    builder = SparkSession.builder.master("local[3]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    env = StreamExecutionEnvironment.get_execution_environment(
        {
            "tidegate.step.max-records": 20,
            "execution.checkpointing.dir": str(HERE / "checkpoints"),
            "execution.state-recovery.path": "latest",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        },
        spark=spark,
    )
    env.set_parallelism(1).enable_checkpointing("100 ms")
    reader = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1)
    frame = reader.json(str(HERE / "inbox"))
    rows = env.from_streaming_dataframe(
        frame.selectExpr("n", "if(n % 2 = 0, 'even', 'odd') AS kind"), bounded=True
    )
    rows.map(slowly, ROW).sink_to_table(str(HERE / "out"), partition_by="kind")
    env.execute("killed")
    print("finished")
    """
)


def test_a_driver_that_is_killed_is_succeeded_by_one_that_loses_and_repeats_nothing(
    inbox, out, tmp_path
):
    inbox.add(6)
    script = tmp_path / "killed.py"
    script.write_text(KILLED)

    def rows():
        files = [path for path in out.rglob("*.parquet") if not path.name.startswith(".")]
        tables = [pq.ParquetFile(path).read() for path in files]
        return sorted(n for table in tables for n in table["n"].to_pylist())

    with tempfile.TemporaryDirectory(prefix="tg-") as temporary:
        driver = start_script(script, "spark", Path(temporary))
        try:
            wait_until(lambda: rows() or driver.poll() is not None, PATIENCE)
            os.killpg(driver.pid, signal.SIGKILL)
        finally:
            end(driver)
            driver.communicate()
        before = rows()
        assert 0 < len(before) < inbox.count
        assert output_of(script, "spark", Path(temporary)) == "finished\n"
    assert rows() == list(range(inbox.count))
    assert list((tmp_path / "checkpoints").iterdir()) == []
