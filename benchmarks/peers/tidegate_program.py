"""The parts of Tidegate's benchmark that run in slots: source, functions, sinks."""

from __future__ import annotations

import time
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.peers.rule import key_cycle, mapped
from tidegate.common import Types
from tidegate.connectors.sink import Sink, SinkWriter, WriterContext
from tidegate.datastream.functions import KeyedProcessFunction, RuntimeContext
from tidegate.datastream.state import ValueStateDescriptor
from tidegate.stream.batch import Batch

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
STAMPED = Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE()])
_PREPARED = 2_000_000


class Records:
    """The stream of the rule, cut from columns that hold several rounds of it."""

    def __init__(self, keys: int) -> None:
        self._number_of_keys = keys

    @cached_property
    def _keys(self) -> pa.Array:
        rounds = -(-_PREPARED // self._number_of_keys)
        once = pa.array(key_cycle(self._number_of_keys))
        return pa.concat_arrays([once] * rounds)

    @cached_property
    def _ones(self) -> pa.Array:
        return pa.array(np.ones(len(self._keys), np.int64))

    def __call__(self, start: int, count: int) -> pa.RecordBatch:
        place = start % self._number_of_keys
        columns = [self._keys.slice(place, count), self._ones.slice(0, count)]
        return pa.RecordBatch.from_arrays(columns, names=["f0", "f1"])


class StampedRecords(Records):
    """The same with the moment at which each record is due, at a rate per reader."""

    def __init__(self, keys: int, rate: float) -> None:
        super().__init__(keys)
        self._rate = rate
        self._begun: tuple[float, int] | None = None

    def __call__(self, start: int, count: int) -> pa.RecordBatch:
        batch = super().__call__(start, count)
        if self._begun is None:
            self._begun = time.time(), start
        at, first = self._begun
        numbers = np.arange(start, start + batch.num_rows)
        due = pa.array(at + (numbers - first) / self._rate)
        return pa.RecordBatch.from_arrays([*batch.columns, due], names=["f0", "f1", "f2"])


class RunningSum(KeyedProcessFunction):
    """A Python function per record with keyed state; further fields are passed on."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        total = (self._total.value() or 0) + value[1]
        self._total.update(total)
        yield (value[0], total, *value[2:])


def map_record(record: tuple[str, int]) -> tuple[str, int]:
    return record[0], mapped(record[1])


class TallySink(Sink):
    """Counts what arrives and adds it up; the driver is told at the end."""

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _TallyWriter(context)


class _TallyWriter(SinkWriter):
    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._count = 0
        self._total = 0

    def write(self, batch: Batch) -> None:
        self._count += len(batch)
        self._total += pc.sum(batch.columns.column(1)).as_py()

    def flush(self, end_of_input: bool = False) -> None:
        if end_of_input:
            assert self._context.deliver is not None
            self._context.deliver("tally", Batch.of_records([(self._count, self._total)]))


class LatencySink(Sink):
    """Notes for every record when it was due and how long it took to get here."""

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _LatencyWriter(context)


class _LatencyWriter(SinkWriter):
    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._noted: list[tuple[float, float]] = []
        self._total = 0

    def write(self, batch: Batch) -> None:
        now = time.time()
        self._noted += [(due, now - due) for _, _, due in batch.records]
        self._total += sum(total for _, total, _ in batch.records)

    def flush(self, end_of_input: bool = False) -> None:
        if end_of_input:
            assert self._context.deliver is not None
            self._context.deliver("tally", Batch.of_records([(len(self._noted), self._total)]))
            self._context.deliver("latencies", Batch.of_records(self._noted))
