"""Tidegate: the CPU time of a job that has nothing to do, and of one with little to do.

All processes of the job count: driver, JVM, slots and workers. What an idle job takes is not
counted again for a job that moves records.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import psutil

import tidegate
from benchmarks.peers.protocol import Order, Result, leave, report
from benchmarks.peers.tidegate_peer import end, environment, start
from benchmarks.peers.tidegate_program import PAIR, Records, TallySink
from tidegate.connectors.datagen import DataGeneratorSource
from tidegate.connectors.source import ReaderContext, SourceReader

NEVER = 1e-9
"""Records per second."""


def main() -> None:
    order = Order.from_arguments()
    plain = replace(order, options={"checkpoints": False})
    usage(plain, order.rate)  # for the JVM, which would compile most of its code meanwhile
    idle = usage(plain, NEVER)
    busy = usage(plain, order.rate)
    measures = {
        "idle_percent": idle.percent,
        "idle_polled_percent": usage(plain, NEVER, Polled).percent,
        "idle_with_checkpoints_percent": usage(order, NEVER).percent,
        "transport_percent": busy.percent - idle.percent,
        "steps_per_second": busy.steps,
        "records_per_second": busy.records,
    }
    report(
        Result(
            records=0,
            checks=[],
            bounded=False,
            measures=measures,
            versions={"tidegate": tidegate.__version__},
        )
    )
    leave()


class Usage(NamedTuple):
    percent: float
    """Of a core."""
    steps: float
    """Per second."""
    records: float


class Polled(DataGeneratorSource):
    """Does not know when it has the next record, like Kafka and sockets."""

    def create_reader(self, context: ReaderContext) -> SourceReader:
        reader = super().create_reader(context)
        reader.available_in = lambda: 0.0  # type: ignore[method-assign]
        return reader


def usage(
    order: Order, rate: float, kind: type[DataGeneratorSource] = DataGeneratorSource
) -> Usage:
    env = environment(order)
    source = kind(Records(order.keys), type_info=PAIR, rate=rate, columnar=True)
    records = env.from_source(source, source_name="records")
    records.key_by(lambda pair: pair[0]).sum(1).sink_to(TallySink())
    job = start(env)
    time.sleep(order.warm_seconds)
    first, cpu, began = job.progress(), cpu_seconds(), time.monotonic()
    time.sleep(order.seconds)
    last, used, seconds = job.progress(), cpu_seconds() - cpu, time.monotonic() - began
    end(job)
    steps, records = last.steps - first.steps, last.records_out - first.records_out
    return Usage(100 * used / seconds, steps / seconds, records / seconds)


def cpu_seconds() -> float:
    """Of this process and all that it has started, by the scheduler's own count.

    What processes are charged otherwise is counted in ticks, which threads that sleep most of the
    time, but wake up regularly, hit too often.
    """
    this = psutil.Process()
    return sum(
        int(path.read_text().split()[0]) / 1e9
        for each in (this, *this.children(recursive=True))
        for path in Path(f"/proc/{each.pid}/task").glob("*/schedstat")
    )


if __name__ == "__main__":
    main()
