"""Spark's own streaming aggregation: `groupBy().sum()` in update mode, state in RocksDB.

It emits one result per key and micro-batch, not one per record. Totals are verified by reading the
state back from the checkpoint.
"""

from __future__ import annotations

from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks.peers import spark_stream
from benchmarks.peers.protocol import Check, Order, Result, leave, report


def running_sum(stream: DataFrame) -> DataFrame:
    sums = stream.groupBy("key").agg(sf.sum("value").alias("total"))
    return sums.observe("out", sf.count(sf.lit(1)).alias("emitted"), sf.sum("total").alias("total"))


def checksum_of_state(spark: SparkSession, checkpoint: Path) -> int:
    totals = spark.read.format("statestore").load(str(checkpoint)).selectExpr("value.sum as t")
    row = totals.selectExpr("sum(t * (t + 1) div 2) as checksum").first()
    assert row is not None
    return int(row["checksum"])


def main() -> None:
    order = Order.from_arguments()
    spark = spark_stream.session(order)
    run = spark_stream.run(spark, order, running_sum)
    checksum = checksum_of_state(spark, run.checkpoint)
    report(
        Result(
            records=run.records,
            emitted=run.emitted,
            checks=[Check("totals in the state store", run.records, checksum)],
            samples=run.samples,
            bounded=False,
            commits=len(run.batches),
            commit_interval=run.commit_interval,
            notes=[
                f"{run.batch_rows:,} rows a micro-batch",
                f"{run.emitted / run.records:.3f} results a record",
            ],
            versions={"pyspark": pyspark.__version__},
        )
    )
    leave()


if __name__ == "__main__":
    main()
