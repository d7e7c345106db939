"""Sums by key on a given master, and tells which executors the slots were in.

Another job of the session, in a pool of its own, counts numbers as often as it can meanwhile.
"""

import json
import os
import sys
import threading

import psutil
from pyspark.sql import SparkSession

from tidegate.common import Configuration, Types
from tidegate.datastream import StreamExecutionEnvironment
from tidegate.datastream.functions import MapFunction, RuntimeContext
from tidegate.exchange.pipelined.requirements import session_settings

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


class WithExecutor(MapFunction):
    """Adds the JVM that the slot's Python worker belongs to."""

    def open(self, runtime_context: RuntimeContext) -> None:
        parents = psutil.Process().parents()
        self.executor = next(process.pid for process in parents if "java" in process.name())

    def map(self, value: tuple[str, int]) -> tuple[str, int, int]:
        return (*value, self.executor)


CORES = {"jobs": ("1", "4"), "pipelined": ("4", "8")}
"""Of an executor, and of all: pumps run all at once."""


def count_beside(spark: SparkSession, is_over: threading.Event, counts: list[int]) -> None:
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "beside")
    while not is_over.is_set():
        counts.append(spark.range(1000).count())


def main(master: str, records: int, exchange: str = "jobs") -> None:
    address = os.environ["SPARK_LOCAL_IP"]
    conf = {
        "spark.executor.cores": CORES[exchange][0],
        "spark.cores.max": CORES[exchange][1],
        "spark.executor.memory": "512m",
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        "spark.task.maxFailures": "1",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.scheduler.mode": "FAIR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **session_settings(),
    }
    builder = SparkSession.builder.master(master)
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    settings = Configuration().set_string("tidegate.exchange", exchange)
    settings.set_string("tidegate.step.max-records", "1000")
    env = StreamExecutionEnvironment.get_execution_environment(settings, spark=spark)
    env.set_parallelism(2)
    numbers = env.from_sequence(1, records)
    sums = (
        numbers.map(lambda i: (f"k{i % 10}", i), PAIR)
        .key_by(lambda pair: pair[0])
        .sum(1)
        .map(WithExecutor())
    )
    is_over, counts = threading.Event(), list[int]()
    beside = threading.Thread(target=count_beside, args=(spark, is_over, counts), daemon=True)
    with sums.execute_and_collect() as results:
        beside.start()
        totals: dict[str, int] = {}
        executors = set()
        for key, total, pid in results:
            totals[key] = max(total, totals.get(key, 0))
            executors.add(pid)
    is_over.set()
    beside.join()
    answer = {"totals": totals, "executors": sorted(executors), "counts": counts}
    print(json.dumps(answer))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
