"""Spark at both ends: files that it streams in, state in between, a table that it queries."""

import json
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from tidegate import StreamExecutionEnvironment

ORDERS = [
    ("ada", "uk", 10),
    ("enzo", "it", 20),
    ("ada", "uk", 5),
    ("mary", "uk", 7),
    ("enzo", "it", 2),
]


def totals(spark: SparkSession, inbox: Path) -> list[tuple[str, str, int]]:
    orders = spark.readStream.schema("customer string, country string, amount long").json(
        str(inbox)
    )
    checkpoints = {"execution.checkpointing.dir": str(inbox.with_name("checkpoints"))}
    env = StreamExecutionEnvironment.get_execution_environment(checkpoints, spark=spark)
    env.enable_checkpointing("500 ms")
    stream = env.from_streaming_dataframe(orders, bounded=True)
    stream.key_by("customer").sum("amount").sink_to_table("totals", partition_by="country")
    env.execute("running totals of customers")
    latest = spark.sql(
        "SELECT country, customer, max(amount) AS total FROM totals GROUP BY ALL ORDER BY ALL"
    )
    return [(row.country, row.customer, row.total) for row in latest.collect()]


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        inbox = Path(directory, "inbox")
        inbox.mkdir()
        for number, (customer, country, amount) in enumerate(ORDERS):
            order = {"customer": customer, "country": country, "amount": amount}
            (inbox / f"{number}.json").write_text(json.dumps(order))
        spark = (
            SparkSession.builder.master("local[4]")
            .appName("spark_table")
            .config("spark.sql.warehouse.dir", f"{directory}/warehouse")
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        for country, customer, total in totals(spark, inbox):
            print(f"{country}: {customer} {total}")
        spark.stop()


if __name__ == "__main__":
    main()
