"""Spark's own window aggregation: `groupBy(window, key).sum()` with a watermark, in append mode.

A result appears when its window is over. Totals are verified by what was emitted together with what
the state store still holds.
"""

from __future__ import annotations

from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks.peers import spark_stream
from benchmarks.peers.protocol import Check, Order, Result, leave, report
from benchmarks.peers.rule import SESSION_GAP, SLIDE, WINDOW, timeline


def program(order: Order) -> spark_stream.Program:
    size = f"{WINDOW} milliseconds"
    if order.workload == "session":
        window = sf.session_window("ts", f"{SESSION_GAP} milliseconds")
    elif order.workload == "sliding":
        window = sf.window("ts", size, f"{SLIDE} milliseconds")
    else:
        window = sf.window("ts", size)

    def sums(stream: DataFrame) -> DataFrame:
        timed = stream.withWatermark("ts", "1 millisecond")
        totals = timed.groupBy(window, "key").agg(sf.sum("value").alias("total"))
        emitted = sf.count(sf.lit(1)).alias("emitted")
        return totals.observe("out", emitted, sf.sum("total").alias("total"))

    return sums


def held(spark: SparkSession, checkpoint: Path) -> int:
    """The sum of what is in the state store."""
    totals = spark.read.format("statestore").load(str(checkpoint)).selectExpr("value.sum as t")
    row = totals.selectExpr("sum(t) as held").first()
    assert row is not None
    return int(row["held"] or 0)


def main() -> None:
    order = Order.from_arguments()
    spark = spark_stream.session(order)
    times = timeline(order.workload, order.records)
    run = spark_stream.run(
        spark, order, program(order), mode="append", time=f"timestamp_millis({times.sql('value')})"
    )
    total = sum(batch.total for batch in run.batches) + held(spark, run.checkpoint)
    report(
        Result(
            records=run.records,
            emitted=run.emitted,
            checks=[Check("results and totals in the state store", run.records, total)],
            samples=run.samples,
            bounded=False,
            commits=len(run.batches),
            commit_interval=run.commit_interval,
            notes=[f"{run.batch_rows:,} rows a micro-batch"],
            versions={"pyspark": pyspark.__version__},
        )
    )
    leave()


if __name__ == "__main__":
    main()
