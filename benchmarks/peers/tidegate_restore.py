"""Tidegate: how long a job takes to restore all keys, at the parallelism of the savepoint and not.

Both start the same job with the same parallelism, from a savepoint that a job of that, and one
that a job of another parallelism has left. Measured from the moment at which the driver tells
the slots what to restore to the first result of the last of them.
"""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path
from statistics import median

import tidegate
from benchmarks.peers.protocol import Order, Result, leave, report
from benchmarks.peers.tidegate_peer import end, environment, start
from benchmarks.peers.tidegate_program import PAIR, FirstResultSink, Records, RunningSum
from tidegate.connectors.datagen import DataGeneratorSource
from tidegate.core.modes import SavepointFormat
from tidegate.driver.job_handle import JobHandle

BACKENDS = ("hashmap", "rocksdb")
REPEATS = 5
MAX_PARALLELISM = 128


def main() -> None:
    order = Order.from_arguments()
    measures: dict[str, float] = {}
    ratios: list[float] = []
    for backend in BACKENDS:
        same = savepoints(order, backend, order.parallelism)
        other = savepoints(order, backend, order.parallelism + 1)
        for format in SavepointFormat:
            took: dict[str, list[float]] = {same[format]: [], other[format]: []}
            for _, path in product(range(REPEATS), took):
                took[path].append(restore(order, backend, path))
            seconds = [median(times) for times in took.values()]
            ratios.append(seconds[1] / seconds[0])
            name = f"{backend}_{format.value}"
            measures |= {f"{name}_s": seconds[0], f"{name}_other_over_same": ratios[-1]}
    report(
        Result(
            records=0,
            checks=[],
            bounded=False,
            measures={"other_over_same": max(ratios), **measures},
            versions={"tidegate": tidegate.__version__},
        )
    )
    leave()


def savepoints(order: Order, backend: str, parallelism: int) -> dict[SavepointFormat, str]:
    """One of each format, of a job that has seen every key."""
    job = run(order, backend, parallelism)
    while job.progress().records_in < 2 * order.keys:
        time.sleep(0.05)
    directory = str(Path(order.scratch) / f"{backend}-{parallelism}")
    taken = {format: job.take_savepoint(directory, format).result() for format in SavepointFormat}
    end(job)
    return taken


def restore(order: Order, backend: str, savepoint: str) -> float:
    for marker in Path(order.scratch).glob("first-result-*"):
        marker.unlink()
    job = run(order, backend, order.parallelism, savepoint)
    marks = [Path(order.scratch) / f"first-result-{slot}" for slot in range(order.parallelism)]
    while not all(mark.exists() for mark in marks):
        if job.status().is_terminal:
            job.result()
        time.sleep(0.001)
    last = max(float(mark.read_text().split()[0]) for mark in marks)
    begun = job.checkpoints.latest_restored
    assert begun is not None
    end(job)
    return last - begun.restored_at


def run(order: Order, backend: str, parallelism: int, savepoint: str | None = None) -> JobHandle:
    settings = {"state.backend.type": backend}
    if savepoint is not None:
        settings["execution.savepoint.path"] = savepoint
    env = environment(order, **settings)
    env.set_parallelism(parallelism).set_max_parallelism(MAX_PARALLELISM)
    source = DataGeneratorSource(Records(order.keys), type_info=PAIR, columnar=True)
    records = env.from_source(source, source_name="records").uid("records")
    sums = records.key_by(lambda pair: pair[0]).process(RunningSum(), PAIR).uid("sums")
    sums.sink_to(FirstResultSink(order.scratch)).uid("results")
    return start(env)


if __name__ == "__main__":
    main()
