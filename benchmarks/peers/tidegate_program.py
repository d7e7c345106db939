"""The parts of Tidegate's benchmark that run in slots: source, functions, sinks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import cache, cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.peers.rule import MULTIPLIER, key_of, mapped
from tidegate.common import Types
from tidegate.connectors.sink import Sink, SinkWriter, WriterContext
from tidegate.datastream.functions import KeyedProcessFunction, RuntimeContext
from tidegate.datastream.state import ValueStateDescriptor
from tidegate.stream.batch import Batch

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
_LARGEST_BATCH = 1 << 18
"""No more records are asked for at once."""


def keys_in_order(keys: int) -> pa.Array[Any]:
    """The keys of records 0 to `keys - 1`, made without a Python object for each."""
    numbers = np.arange(keys, dtype=np.uint64) * np.uint64(MULTIPLIER) % np.uint64(keys)
    return pc.binary_join_element_wise("k", pa.array(numbers).cast(pa.string()), "")


@cache
def _round_and_more(keys: int) -> pa.Array[Any]:
    """The keys of a round and a batch more; a process prepares them once for all attempts."""
    once = keys_in_order(keys)
    length = len(once) + _LARGEST_BATCH
    return pa.concat_arrays([once] * -(-length // len(once))).slice(0, length)


class Records:
    """The stream of the rule, cut from a column that holds a round of it and a batch more."""

    def __init__(self, keys: int) -> None:
        self._number_of_keys = keys

    @cached_property
    def _keys(self) -> pa.Array[Any]:
        return _round_and_more(self._number_of_keys)

    @cached_property
    def _ones(self) -> pa.Array[Any]:
        return pa.array(np.ones(_LARGEST_BATCH, np.int64))

    def __call__(self, start: int, count: int) -> pa.RecordBatch:
        place = start % self._number_of_keys
        columns = [self._keys.slice(place, count), self._ones.slice(0, count)]
        return pa.RecordBatch.from_arrays(columns, names=["f0", "f1"])


class FewChanges:
    """Every key once, then again and again a hundredth of them."""

    def __init__(self, keys: int) -> None:
        self._number_of_keys = keys

    @cached_property
    def _keys(self) -> pa.Array[Any]:
        return keys_in_order(self._number_of_keys)

    def __call__(self, start: int, count: int) -> pa.RecordBatch:
        numbers = np.arange(start, start + count)
        few = self._number_of_keys // 100
        places = np.where(numbers < self._number_of_keys, numbers, numbers % few)
        columns = [self._keys.take(places), pa.array(np.ones(count, np.int64))]
        return pa.RecordBatch.from_arrays(columns, names=["f0", "f1"])


class FailsOnDemand:
    """Raises once for each file that appears, and notes when."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        order = self._directory / "fail"
        if order.exists():
            order.unlink()
            (self._directory / "failed").write_text(str(time.time()))
            raise RuntimeError("asked to fail")
        return batch


class FirstResultSink(Sink):
    """Notes which process it runs in, and when the first result of an attempt arrives.

    With `keys`, each subtask also notes when it has seen as many results.
    """

    def __init__(self, directory: str, keys: int = 0) -> None:
        self._directory = directory
        self._keys = keys

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _FirstResultWriter(Path(self._directory), context.subtask, self._keys)


class _FirstResultWriter(SinkWriter):
    def __init__(self, directory: Path, subtask: int, keys: int) -> None:
        self._first = directory / f"first-result-{subtask}"
        self._all = directory / f"all-keys-{subtask}"
        self._keys = keys
        self._count = 0

    def write(self, batch: Batch) -> None:
        if self._count == 0:
            fresh = self._first.with_suffix(".new")
            fresh.write_text(f"{time.time()} {os.getpid()}")
            fresh.rename(self._first)
        if self._count < self._keys <= self._count + len(batch):
            self._all.touch()
        self._count += len(batch)


class AnnouncedRecords:
    """Makes the records that a line of the feeder announces."""

    def __init__(self, keys: int) -> None:
        self._keys = keys

    def __call__(self, line: str) -> Iterator[tuple[str, int]]:
        first, last = map(int, line.split(","))
        for number in range(first, last + 1):
            yield key_of(number, self._keys), 1


class RunningSum(KeyedProcessFunction):
    """A Python function per record with keyed state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        total = (self._total.value() or 0) + value[1]
        self._total.update(total)
        yield value[0], total


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
        if batch.is_columnar:
            self._total += pc.sum(batch.columns.column(1)).as_py()
        else:
            self._total += sum(map(itemgetter(1), batch.records))

    def flush(self, end_of_input: bool = False) -> None:
        if end_of_input:
            assert self._context.deliver is not None
            self._context.deliver("tally", Batch.of_records([(self._count, self._total)]))


class ArrivalSink(Sink):
    """Notes every result and when it arrived."""

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _ArrivalWriter(context)


class _ArrivalWriter(SinkWriter):
    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._arrivals: list[tuple[float, str, int]] = []

    def write(self, batch: Batch) -> None:
        now = time.time()
        self._arrivals += [(now, key, total) for key, total in batch.records]

    def flush(self, end_of_input: bool = False) -> None:
        if end_of_input:
            assert self._context.deliver is not None
            self._context.deliver("arrivals", Batch.of_records(self._arrivals))
