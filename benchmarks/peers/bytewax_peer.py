"""Bytewax: `stateful_map` (and `map`) with a Python function per record, one process.

The source hands out ready tuples from a prepared list, so it costs next to nothing; epochs of the
asked length with a recovery store in SQLite are Bytewax's checkpoints. How many records the source
hands out at once is the option `batch`. It decides the speed: `stateful_map` does its own work once
per key and batch, and something for every known key in every batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as windowing
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import run_main

from benchmarks.peers.protocol import Check, Meter, Order, Pace, Result, report
from benchmarks.peers.rule import (
    EPOCH,
    WINDOW,
    WINDOWED,
    Timeline,
    key_cycle,
    mapped,
    timeline,
)

Record = tuple[str, int]
START = datetime.fromtimestamp(EPOCH / 1000, UTC)
PATIENCE = timedelta(minutes=1)


class Tally:
    """What the sink has seen; shared by source and sink, which run in one thread."""

    def __init__(self, meter: Meter) -> None:
        self.count = 0
        self.total = 0
        self.read = 0
        self.meter = meter


class CyclePartition(StatefulSourcePartition[Record, int]):
    """The endless stream of the rule, cut from a list that holds one round of it."""

    def __init__(
        self,
        keys: int,
        batch: int,
        resume: int | None,
        pace: Pace,
        tally: Tally,
        times: Timeline | None,
    ) -> None:
        rounds = -(-max(keys, batch * 10) // keys)
        self._records: list[Any] = [(key, 1) for key in key_cycle(keys)] * rounds
        self._times = times
        self._batch = batch
        self._position = resume or 0
        self._pace = pace
        self._tally = tally

    def next_batch(self) -> Iterable[Record]:
        # Of windows, what was read counts: results come when they are over.
        count = self._tally.count if self._times is None else self._position
        if self._pace.enough(count):
            self._tally.read = self._position
            raise StopIteration()
        start = self._position % len(self._records)
        batch = self._records[start : start + self._batch]
        if self._times is not None:
            self._tally.meter.mark(self._position)
            batch = self._timed(batch)
        self._position += len(batch)
        return batch

    def _timed(self, batch: list[Record]) -> list[tuple[str, datetime]]:
        """With the time of each record in place of its value, which windows count."""
        assert self._times is not None
        first, per_millisecond = self._position, self._times.per_reader
        at = [
            START + timedelta(milliseconds=n)
            for n in range(
                first // per_millisecond, (first + len(batch) - 1) // per_millisecond + 1
            )
        ]
        base = first // per_millisecond
        return [
            (key, at[(first + place) // per_millisecond - base])
            for place, (key, _) in enumerate(batch)
        ]

    def next_awake(self) -> datetime | None:
        return None

    def snapshot(self) -> int:
        return self._position


class CycleSource(FixedPartitionedSource[Record, int]):
    def __init__(self, order: Order, tally: Tally) -> None:
        self._order = order
        self._tally = tally

    def list_parts(self) -> list[str]:
        return ["only"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> CyclePartition:
        batch = int(self._order.options["batch"])
        pace = Pace(self._order)
        times = timeline(self._order.workload, 0) if self._order.workload in WINDOWED else None
        return CyclePartition(self._order.keys, batch, resume_state, pace, self._tally, times)


class CountingPartition(StatelessSinkPartition[Any]):
    def __init__(self, tally: Tally, is_windowed: bool) -> None:
        self._tally = tally
        self._is_windowed = is_windowed

    def write_batch(self, items: list[Any]) -> None:
        self._tally.count += len(items)
        if self._is_windowed:
            self._tally.total += sum([total for _, (_, total) in items])
            return
        self._tally.total += sum([value for _, value in items])
        self._tally.meter.mark(self._tally.count)


class CountingSink(DynamicSink[Any]):
    def __init__(self, tally: Tally, is_windowed: bool) -> None:
        self._tally = tally
        self._is_windowed = is_windowed

    def build(self, step_id: str, worker_index: int, worker_count: int) -> CountingPartition:
        return CountingPartition(self._tally, self._is_windowed)


def add(total: int | None, value: int) -> tuple[int, int]:
    total = (total or 0) + value
    return total, total


def map_record(record: Record) -> Record:
    return record[0], mapped(record[1])


def flow_of(order: Order, tally: Tally) -> Dataflow:
    flow = Dataflow("benchmark")
    stream: Any = op.input("source", flow, CycleSource(order, tally))
    is_windowed = order.workload in WINDOWED
    if is_windowed:
        # Its watermark moves with the clock: without patience, a slow machine makes records late.
        clock = windowing.EventClock(lambda at: at, wait_for_system_duration=PATIENCE)
        windower = windowing.TumblingWindower(align_to=START, length=timedelta(milliseconds=WINDOW))
        stream = windowing.fold_window(
            "sum", stream, clock, windower, int, lambda total, at: total + 1, lambda a, b: a + b
        ).down
    elif order.workload == "map":
        stream = op.map("map", stream, map_record)
    else:
        stream = op.stateful_map("sum", stream, add)
    op.output("sink", stream, CountingSink(tally, is_windowed))
    return flow


def main() -> None:
    order = Order.from_arguments()
    store = Path(order.scratch) / "recovery"
    store.mkdir(parents=True)
    init_db_dir(store, 1)
    meter = Meter()
    tally = Tally(meter)
    begun = time.time()
    run_main(
        flow_of(order, tally),
        epoch_interval=timedelta(seconds=order.commit_seconds),
        recovery_config=RecoveryConfig(str(store), timedelta(seconds=0)),
    )
    took = time.time() - begun
    report(
        Result(
            records=tally.read or tally.count,
            emitted=tally.count,
            checks=[Check("sum of all emitted results", tally.read or tally.count, tally.total)],
            samples=meter.samples,
            bounded=False,
            commit_interval=order.commit_seconds,
            notes=[f"whole run {took:.1f} s"],
            versions={"bytewax": version("bytewax")},
        )
    )


if __name__ == "__main__":
    main()
