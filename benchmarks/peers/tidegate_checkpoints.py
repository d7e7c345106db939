"""Tidegate: what hundreds of completed checkpoints do to the cost of a record and to the driver."""

from __future__ import annotations

import gc
import os
import time
from itertools import pairwise
from pathlib import Path

import tidegate
from benchmarks.peers.protocol import Order, Result, leave, report
from benchmarks.peers.tidegate_peer import environment, start
from benchmarks.peers.tidegate_program import PAIR, Records, TallySink
from tidegate.connectors.datagen import DataGeneratorSource

CHECKPOINTS = 400
WARM = 50


def main() -> None:
    order = Order.from_arguments()
    env = environment(order, **{"execution.checkpointing.interval": "20 ms"})
    source = DataGeneratorSource(Records(order.keys), type_info=PAIR, columnar=True)
    records = env.from_source(source, source_name="records")
    records.key_by(lambda pair: pair[0]).sum(1).sink_to(TallySink())
    job = start(env)
    marks: dict[int, tuple[float, int, float]] = {}
    quarter = CHECKPOINTS // 4
    wanted = [WARM + i * quarter for i in range(5)]
    while len(marks) < len(wanted):
        completed = job.checkpoints.counts.completed
        mark = wanted[len(marks)]
        if completed >= mark:
            marks[mark] = (time.time(), job.progress().records_in, memory_mb())
        time.sleep(0.02)
    job.cancel()
    points = list(marks.values())
    costs = [(end[0] - begin[0]) / (end[1] - begin[1]) * 1e6 for begin, end in pairwise(points)]
    report(
        Result(
            records=0,
            checks=[],
            bounded=False,
            measures={
                "first_us": costs[0],
                "last_us": costs[-1],
                "last_over_first_cost": costs[-1] / costs[0],
                "driver_growth_mb": points[-1][2] - points[0][2],
            },
            notes=[f"{CHECKPOINTS} checkpoints"],
            versions={"tidegate": tidegate.__version__},
        )
    )
    leave()


def memory_mb() -> float:
    """The resident memory of this process, the driver's."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
