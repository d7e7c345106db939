"""The windows of a subtask by key: the contract, and the keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.operators.aggregations.accumulators import Accumulators, Arrays, Columns
from tidegate.state.columnar.keyed_rows import KeyedRows, RowPerKey
from tidegate.state.keys.key_index import FrozenKeys, KeyIndex
from tidegate.state.keys.word_index import Places

Times = npt.NDArray[np.int64]
_FEWEST_KEYS: Final = 1 << 10
NO_RECORDS: Final[Places] = np.arange(0)


class Fired(NamedTuple):
    """Windows with results, in the order of emission."""

    keys: Places
    starts: Times
    ends: Times
    values: Arrays


class Added(NamedTuple):
    """The outcome for added records."""

    late: Places = NO_RECORDS
    """The records that were too late."""
    fired: tuple[Fired, ...] = ()
    """Results of windows that had already fired, one for each record added to them."""


class WindowTable(ABC):
    """The windows of all keys. Time is that of a watermark, or of a clock.

    A window fires when time reaches its last millisecond, and is dropped `lateness` later.
    """

    def __init__(self, keys: KeyIndex, accumulators: Accumulators, lateness: int, now: int) -> None:
        self._index = keys
        self._accumulators = accumulators
        self._lateness = lateness
        self.now = now
        """The time up to which windows have fired."""
        self._capacity = _FEWEST_KEYS
        """The number of keys there is room for."""
        self._living_keys = 0
        """How many keys had windows when they were last counted."""

    @abstractmethod
    def add(
        self, keys: Columns, times: Times, columns: Columns, values: Arrays | None = None
    ) -> Added:
        """Add at least one record, or `values` that each stand for several records."""

    @abstractmethod
    def advance(self, now: int) -> Iterator[Fired]:
        """Advance to this time; returns what fires."""

    @abstractmethod
    def next_end(self) -> int | None:
        """The first end of the windows that have not fired."""

    @abstractmethod
    def freeze(self, many: int) -> Callable[[], Iterable[KeyedRows | RowPerKey]]:
        """A function for all current windows; may be called on another thread.

        Args:
            many: slices with this many keys become parts of their own.
        """

    @abstractmethod
    def _restore(self, keys: Places, starts: Times, ends: Times, values: Arrays) -> None: ...

    @abstractmethod
    def _occurring(self) -> npt.NDArray[np.bool_]:
        """Which keys have windows."""

    @abstractmethod
    def _renumber(self, new: Places) -> None:
        """Renumber the keys; those with a negative number have no windows."""

    @property
    @abstractmethod
    def _living(self) -> Sequence[Arrays]:
        """All values of the accumulators, in lists that may be changed."""

    def _most_together(self) -> int:
        """How many values of the same list may be combined into one."""
        return 1

    def _on_moved(self) -> None:
        """Values were replaced: drop what was derived from them."""

    def key_columns(self, keys: Places) -> Columns:
        """The columns of some keys; there is at least one."""
        return self._index.take(keys)

    @property
    def keys(self) -> FrozenKeys:
        return self._index.keys()

    def restore(self, rows: pa.RecordBatch) -> None:
        """Restore frozen windows."""
        width = self._index.width
        starts, ends, *values = rows.columns[width:]
        self._restore(
            self._numbers_of(rows.columns[:width]),
            starts.to_numpy(),
            ends.to_numpy(),
            self._accumulators.restored(values, rows.num_rows),
        )

    def _numbers_of(self, keys: Sequence[pa.Array[Any]]) -> Places:
        numbers = self._index.find_or_add(keys)
        while self._capacity < len(self._index):
            self._capacity *= 2
        return numbers

    def clean_up(self) -> None:
        """Free memory; called between batches."""
        self._accumulators.relax(lambda: (self._living, self._most_together()))
        if self._accumulators.forget(self._living):
            self._on_moved()
        if len(self._index) > max(2 * self._living_keys, _FEWEST_KEYS):
            occurring = np.flatnonzero(self._occurring())
            self._living_keys = len(occurring)
            if 2 * len(occurring) < len(self._index):
                new = np.full(len(self._index), -1, np.intp)
                self._index, new[occurring] = self._index.only(occurring)
                self._capacity = _FEWEST_KEYS
                while self._capacity < len(self._index):
                    self._capacity *= 2
                self._renumber(new)
