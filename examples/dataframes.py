"""A Spark DataFrame in, a stateful stream in between, a Spark DataFrame out."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tidegate import StreamExecutionEnvironment


def longest_trips(spark: SparkSession) -> list[tuple[str, int]]:
    trips = spark.createDataFrame(
        [("Berlin", 4), ("Rome", 9), ("Berlin", 11), ("Rome", 2), ("Berlin", 7)],
        "city string, kilometres long",
    )
    env = StreamExecutionEnvironment.get_execution_environment(spark=spark)
    running = env.from_dataframe(trips).key_by("city").max("kilometres").to_dataframe()
    longest = running.groupBy("city").agg(f.max("kilometres").alias("longest")).orderBy("city")
    return [(row.city, row.longest) for row in longest.collect()]


def main() -> None:
    builder = SparkSession.builder.master("local[4]").appName("dataframes")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    for city, kilometres in longest_trips(spark):
        print(f"{city}: {kilometres} km")
    spark.stop()


if __name__ == "__main__":
    main()
