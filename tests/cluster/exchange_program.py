"""Sums by key on a given master, and tells which executors the slots were in."""

import json
import sys

import psutil
from pyspark.sql import SparkSession

from tidegate.common import Types
from tidegate.datastream import StreamExecutionEnvironment
from tidegate.datastream.functions import MapFunction, RuntimeContext

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


class WithExecutor(MapFunction):
    """Adds the JVM that the slot's Python worker belongs to."""

    def open(self, runtime_context: RuntimeContext) -> None:
        parents = psutil.Process().parents()
        self.executor = next(process.pid for process in parents if "java" in process.name())

    def map(self, value: tuple[str, int]) -> tuple[str, int, int]:
        return (*value, self.executor)


def main(master: str, records: int) -> None:
    conf = {
        "spark.executor.cores": "1",
        "spark.cores.max": "4",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.task.maxFailures": "1",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(master)
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    env = StreamExecutionEnvironment.get_execution_environment(spark=spark)
    env.set_parallelism(2)
    numbers = env.from_sequence(1, records)
    sums = (
        numbers.map(lambda i: (f"k{i % 10}", i), PAIR)
        .key_by(lambda pair: pair[0])
        .sum(1)
        .map(WithExecutor())
    )
    with sums.execute_and_collect() as results:
        totals: dict[str, int] = {}
        executors = set()
        for key, total, pid in results:
            totals[key] = max(total, totals.get(key, 0))
            executors.add(pid)
    print(json.dumps({"totals": totals, "executors": sorted(executors)}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
