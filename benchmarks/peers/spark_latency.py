"""Spark's native aggregation at a fixed rate: how long from a record's due time to the sink.

Records come over Spark's socket source, micro-batches follow each other without a pause (the
default trigger). A batch's offsets tell which records were in it and Spark's own progress report
when its write had ended: no code of ours runs in between.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyspark

from benchmarks.peers import spark_native, spark_stream
from benchmarks.peers.feeder import Feeder
from benchmarks.peers.protocol import Check, Order, Result, latency_measures, leave, report
from benchmarks.peers.rule import sql_key, sql_value

WARM_SECONDS = 20.0


def arrivals(progress: Any, feeder: Feeder) -> tuple[range, float]:
    """The records of a batch, and when their results were at the sink."""
    source = progress.sources[0]
    before = -1 if source.startOffset in (None, "null") else int(source.startOffset)
    numbers = range(feeder.ends[before + 1], feeder.ends[int(source.endOffset) + 1])
    started = datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00")).timestamp()
    durations = progress.durationMs
    written = durations["triggerExecution"] - durations.get("commitOffsets", 0)
    return numbers, started + written / 1000


def main() -> None:
    order = Order.from_arguments()
    spark = spark_stream.session(order)
    feeder = Feeder(order.rate)
    numbers = (
        spark.readStream.format("socket")
        .option("host", "127.0.0.1")
        .option("port", feeder.port)
        .load()
        .selectExpr("cast(split(value, ',') as array<bigint>) as due")
        .selectExpr("explode(sequence(due[0], due[1])) as i")
    )
    stream = numbers.selectExpr(f"{sql_key('i', order.keys)} as key", f"{sql_value('i')} as value")
    checkpoint = Path(order.scratch) / "latency"
    query = (
        spark_native.running_sum(stream)
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    feeder.wait_for_client(60)

    def done() -> int:
        progress = query.lastProgress
        return 0 if progress is None else arrivals(progress, feeder)[0].stop

    seconds = max(order.warm_seconds, WARM_SECONDS)
    warm_at = feeder.warm_up(done, seconds, max(order.warm_limit, 2 * seconds))
    time.sleep(order.seconds)
    query.stop()
    lateness = feeder.stop()

    batches = [progress for progress in query.recentProgress if progress.numInputRows > 0]

    def latencies() -> Iterator[float]:
        for progress in batches:
            numbers, at = arrivals(progress, feeder)
            yield from (at - feeder.due(i) for i in numbers if feeder.due(i) >= warm_at)

    done = arrivals(batches[-1], feeder)[0].stop
    written = [at for at in (arrivals(p, feeder)[1] for p in batches) if at >= warm_at]
    between = (written[-1] - written[0]) / (len(written) - 1) if len(written) > 1 else None
    report(
        Result(
            records=done,
            checks=[
                Check(
                    "totals in the state store",
                    done,
                    spark_native.checksum_of_state(spark, checkpoint),
                )
            ],
            bounded=False,
            commits=len(batches),
            commit_interval=between,
            measures=latency_measures(latencies()),
            notes=[lateness],
            versions={"pyspark": pyspark.__version__},
        )
    )
    leave()


if __name__ == "__main__":
    main()
