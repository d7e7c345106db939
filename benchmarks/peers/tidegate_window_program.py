"""The parts of Tidegate's window benchmarks that run in slots: source and functions."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.peers.rule import EPOCH, Timeline
from benchmarks.peers.tidegate_program import Records
from tidegate.common import Types
from tidegate.datastream.functions import AggregateFunction, WindowFunction

TIMED = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])


class TimedRecords(Records):
    """The stream of the rule with the time of each record."""

    def __init__(self, keys: int, times: Timeline) -> None:
        super().__init__(keys)
        self._times = times

    @cached_property
    def _steps(self) -> Any:
        return np.arange(1 << 18, dtype=np.int64)

    def __call__(self, start: int, count: int) -> pa.RecordBatch:
        times, columns = self._times, super().__call__(start, count)
        place = start % times.part + self._steps[:count]
        at = EPOCH + place // times.per_reader
        if times.pause:
            at += place // (times.block // times.readers) * times.pause
        return columns.append_column("f2", pa.array(at))


class WindowSum(AggregateFunction):
    """A Python function per record."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + value[1]

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class WithKey(WindowFunction[Any, Any, str, Any]):
    def apply(self, key: str, window: Any, inputs: Any) -> Any:
        return [(key, total) for total in inputs]
