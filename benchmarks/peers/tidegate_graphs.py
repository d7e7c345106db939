"""Tidegate: from `execute()` to the first results of large graphs, once Spark runs."""

from __future__ import annotations

import time
from pathlib import Path

import tidegate
from benchmarks.peers.protocol import Order, Result, leave, report
from benchmarks.peers.tidegate_peer import end, environment, start
from benchmarks.peers.tidegate_program import PAIR, FirstResultSink, Records, map_record
from tidegate.connectors.datagen import DataGeneratorSource

GRAPHS = {"with_spark": (1, 1), "small": (1, 1), "operators": (1, 200), "pipelines": (50, 1)}
"""Numbers of pipelines, and of operators in a chain of each. The first graph starts Spark, too."""
MASTER = "local[256]"
"""All pumps of all pipelines run at once; most of them wait."""


def main() -> None:
    order = Order.from_arguments()
    report(
        Result(
            records=0,
            checks=[],
            bounded=False,
            measures={f"{name}_s": first_results(order, name) for name in GRAPHS},
            versions={"tidegate": tidegate.__version__},
        )
    )
    leave()


def first_results(order: Order, name: str) -> float:
    """Seconds until every subtask of every sink has its first result."""
    pipelines, operators = GRAPHS[name]
    env = environment(order, **{"tidegate.spark.master": MASTER})
    directories = [Path(order.scratch) / name / str(number) for number in range(pipelines)]
    for directory in directories:
        directory.mkdir(parents=True)
        source = DataGeneratorSource(Records(order.keys), type_info=PAIR, rate=1000, columnar=True)
        results = env.from_source(source).key_by(lambda pair: pair[0]).sum(1)
        for _ in range(operators):
            results = results.map(map_record, PAIR)
        results.sink_to(FirstResultSink(str(directory)))
    began = time.time()
    job = start(env)
    marks = [each / f"first-result-{n}" for each in directories for n in range(order.parallelism)]
    while not all(mark.exists() for mark in marks):
        if job.status().is_terminal:
            job.result()
        time.sleep(0.01)
    took = max(float(mark.read_text().split()[0]) for mark in marks) - began
    end(job)
    return took


if __name__ == "__main__":
    main()
