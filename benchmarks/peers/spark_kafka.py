"""Spark's own Kafka reader: a topic of JSON messages, `from_json`, and `groupBy().sum()`."""

from __future__ import annotations

import pyspark
from pyspark.sql import DataFrame, SparkSession

from benchmarks.peers import spark_stream, topic
from benchmarks.peers.protocol import Check, Order, Result, leave, report, steady_window
from benchmarks.peers.spark_native import checksum_of_state, running_sum
from services.maven import Artifact, fetch

CONNECTOR = "4.2.0"
"""The newest there is for Spark 4."""
JARS = (
    Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR),
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", CONNECTOR),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.1"),
    Artifact("org.apache.commons", "commons-pool2", "2.12.1"),
)


def main() -> None:
    order = Order.from_arguments()
    place = topic.prepared(order)
    libs = fetch(JARS, topic.HOME.parent / "spark-kafka", alone=True)
    jars = ",".join(map(str, libs.glob("*.jar")))
    spark = spark_stream.session(order, {"spark.jars": jars})

    def messages(spark: SparkSession, order: Order, batch_rows: int) -> DataFrame:
        stream = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", place.brokers)
            .option("subscribe", place.name)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", batch_rows - batch_rows % order.parallelism)
            .load()
        )
        parsed = stream.selectExpr(
            "from_json(cast(value as string), 'key string, value bigint') as row"
        )
        return parsed.select("row.key", "row.value")

    run = spark_stream.run(spark, order, running_sum, messages)
    checksum = checksum_of_state(spark, run.checkpoint)
    window = steady_window(run.samples, order=order, total=run.records, bounded=False)
    report(
        Result(
            records=run.records,
            emitted=run.emitted,
            checks=[Check("totals in the state store", run.records, checksum)],
            samples=run.samples,
            bounded=False,
            commits=len(run.batches),
            commit_interval=run.commit_interval,
            measures={"us_per_record": 1e6 / window.rate},
            notes=[f"{run.batch_rows:,} rows a micro-batch"],
            versions={"pyspark": pyspark.__version__, "spark-sql-kafka": CONNECTOR},
        )
    )
    leave()


if __name__ == "__main__":
    main()
