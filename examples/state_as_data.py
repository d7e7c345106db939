"""State as data: a job goes on with totals that a table holds; then a state is changed by Spark."""

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from tidegate import (
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    state_reader,
    state_writer,
)

TOTAL = ValueStateDescriptor("total", Types.LONG())
ORDER = Types.TUPLE([Types.STRING(), Types.LONG()])
ORDERS = [("ada", 5), ("bob", 7), ("ada", 20), ("cleo", 1)]


class Totals(MapFunction):
    """What every customer has spent so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(TOTAL)

    def map(self, value: tuple[str, int]) -> tuple[str, int]:
        customer, amount = value
        total = (self.total.value() or 0) + amount
        self.total.update(total)
        return customer, total


def totals(spark: SparkSession, savepoint: str) -> dict[str, int]:
    """Run the job from a savepoint; the last total of every customer."""
    settings = {"execution.state-recovery.path": savepoint}
    env = StreamExecutionEnvironment.get_execution_environment(settings, spark=spark)
    env.set_parallelism(2)
    orders = env.from_collection(ORDERS, ORDER)
    running = orders.key_by(lambda order: order[0]).map(Totals(), ORDER).uid("totals")
    found: dict[str, int] = {}
    for customer, total in running.execute_and_collect(limit=100):
        found[customer] = max(total, found.get(customer, 0))
    return found


def main() -> None:
    builder = SparkSession.builder.master("local[6]").appName("state as data")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    past = spark.createDataFrame([("ada", 1000), ("bob", 500)], "customer string, spent long")
    with tempfile.TemporaryDirectory() as directory:
        savepoint = (
            state_writer(max_parallelism=128)
            .with_keyed_state("totals", TOTAL, past, key="customer", value="spent")
            .write(Path(directory) / "from-table")
        )
        print("from a table:", sorted(totals(spark, savepoint).items()))
        reader = state_reader(savepoint)
        forgotten = reader.keyed_state("totals", "total").where("key <> 'ada'")
        edited = reader.edit().with_keyed_state("totals", "total", forgotten)
        savepoint = edited.write(Path(directory) / "without-ada")
        print("without ada:", sorted(totals(spark, savepoint).items()))
    spark.stop()


if __name__ == "__main__":
    main()
