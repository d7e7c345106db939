"""Spark, map only: a Python function per record as a user-defined function over Arrow batches."""

from __future__ import annotations

import pyspark
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from benchmarks.peers import spark_stream
from benchmarks.peers.protocol import Check, Order, Result, leave, report
from benchmarks.peers.rule import mapped


def map_records(stream: DataFrame) -> DataFrame:
    # Local, so that it reaches the workers by value: they do not know this package.
    def function(value: int) -> int:
        return value * 2 + 1

    assert function(1) == mapped(1)
    python_map = sf.udf(function, "bigint", useArrow=True)
    out = stream.select("key", python_map("value").alias("total"))
    return out.observe("out", sf.count(sf.lit(1)).alias("emitted"), sf.sum("total").alias("total"))


def main() -> None:
    order = Order.from_arguments()
    spark = spark_stream.session(order)
    run = spark_stream.run(spark, order, map_records)
    emitted = sum(batch.total for batch in run.batches)
    report(
        Result(
            records=run.records,
            emitted=run.emitted,
            checks=[Check("sum of all emitted results", run.records, emitted)],
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
