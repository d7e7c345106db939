"""What the Spark peers share: the session, the source, and a streaming query run to a steady state.

The source is Spark's `rate-micro-batch`: it counts, in the JVM, and gives every micro-batch the
same number of rows. A micro-batch is Spark's commit, so its size is set such that one takes about
as long as the commit interval asked for: trial queries find the size, which warms the JVM as well.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import sleep

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.peers.protocol import Order, Pace
from benchmarks.peers.rule import sql_key, sql_value

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
TRIALS = 4
TRIAL_BATCHES = 5
FEW_KEYS = 10_000
RECORDS_PER_KEY = 20
SMALLEST_BATCH = 1_000

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "4g",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    # Commits write the changes of a batch instead of uploading whole SST files.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Keeping count of the rows costs a read for every write.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


@dataclass(frozen=True)
class Batch:
    """One micro-batch as Spark's own progress report tells it."""

    number: int
    started: float
    ended: float
    rows: int
    emitted: int
    total: int


@dataclass(frozen=True)
class Run:
    """A finished query: its batches, the rows per batch, and where its state lies."""

    batches: list[Batch]
    batch_rows: int
    checkpoint: Path

    @property
    def records(self) -> int:
        return sum(batch.rows for batch in self.batches)

    @property
    def emitted(self) -> int:
        return sum(batch.emitted for batch in self.batches)

    @property
    def samples(self) -> list[tuple[float, int]]:
        done, samples = 0, [(self.batches[0].started, 0)]
        for batch in self.batches:
            done += batch.rows
            samples.append((batch.ended, done))
        return samples

    @property
    def commit_interval(self) -> float:
        later = self.batches[len(self.batches) // 2 :]
        return (later[-1].ended - later[0].started) / len(later)


def session(order: Order, settings: dict[str, str] | None = None) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master(f"local[{order.parallelism}]").appName("benchmark")
    chosen = {
        **SETTINGS,
        "spark.sql.shuffle.partitions": str(order.parallelism),
        "spark.local.dir": f"{order.scratch}/local",
        **(settings or {}),
        **order.options.get("settings", {}),
    }
    for key, value in chosen.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


Program = Callable[[DataFrame], DataFrame]


def records(
    spark: SparkSession, order: Order, batch_rows: int, time: str | None = None
) -> DataFrame:
    """The stream of the rule, as columns `key` and `value`, and `ts` where `time` gives it."""
    counter = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", batch_rows)
        .option("numPartitions", order.parallelism)
        .load()
    )
    key, value = sql_key("value", order.keys), sql_value("value")
    times = [] if time is None else [f"{time} as ts"]
    return counter.selectExpr(f"{key} as key", f"{value} as value", *times)


def run(
    spark: SparkSession,
    order: Order,
    program: Program,
    mode: str = "update",
    time: str | None = None,
) -> Run:
    """Run a program on the stream until it has been steady for long enough.

    The program's frame must be observed as "out" with `emitted` and `total`.
    """

    # The Python ways pay per key and batch: with few keys a batch must not get so small that this
    # is all they do, even if the commits then come less often than asked.
    def query(rows: int, name: str, enough: Callable[[int, int], bool]) -> Run:
        stream = program(records(spark, order, rows, time)).writeStream.outputMode(mode)
        return _query(stream, rows, Path(order.scratch) / name, enough)

    few = order.keys <= FEW_KEYS
    least = max(SMALLEST_BATCH, order.keys * RECORDS_PER_KEY if few else 0)
    rows = max(least, order.batch_records)
    for trial in range(TRIALS):
        tried = query(rows, f"trial-{trial}", _after(TRIAL_BATCHES))
        last = min(batch.ended - batch.started for batch in tried.batches[-2:])
        ratio = order.commit_seconds / last
        if 0.75 <= ratio <= 1.33:
            break
        if ratio < 1 and rows == least:
            break
        # A batch that is far too small tells little about a large one, so growth is damped.
        rows = max(least, int(rows * min(ratio, 8.0)))
    pace = Pace(order)
    return query(rows, "measured", lambda _, count: pace.enough(count))


def _after(batches: int) -> Callable[[int, int], bool]:
    return lambda done, _: done >= batches


def _query(
    stream: DataStreamWriter, rows: int, checkpoint: Path, enough: Callable[[int, int], bool]
) -> Run:
    query = stream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    done = 0
    while query.isActive and not enough(done, done * rows):
        sleep(0.1)
        progress = query.lastProgress
        done = progress.batchId + 1 if progress is not None else 0
    error = query.exception()
    if error is not None:
        raise error
    query.stop()
    return Run(_batches(query), rows, checkpoint)


def _batches(query: StreamingQuery) -> list[Batch]:
    batches = []
    for progress in query.recentProgress:
        started = datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00")).timestamp()
        out = progress.observedMetrics.get("out")
        batches.append(
            Batch(
                number=progress.batchId,
                started=started,
                ended=started + progress.durationMs["triggerExecution"] / 1000,
                rows=progress.numInputRows,
                emitted=out["emitted"] if out is not None else 0,
                total=(out["total"] or 0) if out is not None else 0,
            )
        )
    return [batch for batch in batches if batch.rows > 0]
