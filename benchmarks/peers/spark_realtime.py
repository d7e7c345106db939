"""Spark's real-time mode at a fixed rate, with its native aggregation.

Of its sources only Kafka's and one in memory exist, and the package of the former does not for this
version. The source in memory has no name by which PySpark could find it, so it is made through
Py4J, and filled by the feeder's lines. Each result is stamped by an expression after the
aggregation, when it reaches the memory sink; the sink is not on Spark's list for this mode, because
it shows results only at the end of a batch.
"""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from benchmarks.peers import spark_stream
from benchmarks.peers.feeder import Feeder
from benchmarks.peers.protocol import Check, Order, Result, latency_measures, leave, report
from benchmarks.peers.rule import key_cycle, sql_key, sql_value

WARM_SECONDS = 30.0
BATCH_SECONDS = 5
"""The time between two commits."""


def main() -> None:
    order = Order.from_arguments()
    # The stages of a batch run at once, and the tasks of the batch before may still be ending.
    cores = f"local[{4 * order.parallelism + 2}]"
    settings = {"spark.sql.streaming.realTimeMode.allowlistCheck": "false"}
    spark = spark_stream.session(order, {"spark.master": cores, **settings})
    feeder = Feeder(order.rate)
    jvm: Any = spark.sparkContext._jvm
    sources = jvm.org.apache.spark.sql.execution.streaming.sources
    source = sources.LowLatencyMemoryStream.apply(
        spark._jsparkSession, 1, jvm.org.apache.spark.sql.Encoders.STRING()
    )
    numbers = (
        DataFrame(source.toDF(), spark)
        .selectExpr("cast(split(value, ',') as array<bigint>) as due")
        .selectExpr("explode(sequence(due[0], due[1])) as i")
    )
    records = numbers.selectExpr(f"{sql_key('i', order.keys)} as key", f"{sql_value('i')} as value")
    sums = records.groupBy("key").agg(sf.sum("value").alias("total"))
    stamped = sums.selectExpr(
        "key", "total", "cast(reflect('java.lang.System', 'currentTimeMillis') as bigint) as at"
    )
    query = (
        stamped.writeStream.format("memory")
        .queryName("results")
        .outputMode("update")
        .option("checkpointLocation", str(Path(order.scratch) / "realtime"))
        .trigger(realTime=f"{BATCH_SECONDS} seconds")
        .start()
    )
    threading.Thread(target=hand_on, args=(feeder.port, source, jvm), daemon=True).start()
    feeder.wait_for_client(60)

    def lines() -> int:
        return sum(each.numInputRows for each in query.recentProgress)

    def done() -> int:
        # Spark reports a batch when it is over; in between, it is as far as it can be.
        return int(feeder.ends[lines()] + BATCH_SECONDS * order.rate)

    seconds = max(order.warm_seconds, WARM_SECONDS)
    warm_at = feeder.warm_up(done, seconds, max(order.warm_limit, 2 * seconds))
    time.sleep(order.seconds)
    lateness = feeder.stop()
    # No query of ours meanwhile: the next batch would find no room for its tasks, and fail.
    while lines() < len(feeder.ends) - 1:
        if query.exception() is not None:
            raise RuntimeError(query.exception())
        time.sleep(0.2)
    query.stop()
    results = spark.table("results").toPandas()
    position = {key: number for number, key in enumerate(key_cycle(order.keys))}
    number = (results["total"] - 1) * order.keys + results["key"].map(position)
    due = feeder.start + number / order.rate
    # A stamp is cut to milliseconds.
    took = ((results["at"] + 1) / 1000 - due)[due >= warm_at]
    report(
        Result(
            records=len(results),
            checks=[Check("sum of all results", len(results), int(results["total"].sum()))],
            bounded=False,
            measures=latency_measures(took),
            notes=[lateness],
            versions={"pyspark": pyspark.__version__},
        )
    )
    leave()


def hand_on(port: int, source: Any, jvm: Any) -> None:
    """Put the feeder's lines into the source in memory."""
    with socket.create_connection(("127.0.0.1", port)) as line, line.makefile() as lines:
        for text in lines:
            source.addData(jvm.scala.jdk.CollectionConverters.ListHasAsScala([text]).asScala())


if __name__ == "__main__":
    main()
