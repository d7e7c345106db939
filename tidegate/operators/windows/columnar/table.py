"""What all windows of a subtask hold, by key: the contract, and the keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.operators.aggregations.accumulators import Accumulators, Arrays, Columns
from tidegate.state.columnar.keyed_rows import key_names
from tidegate.state.columnar.window_rows import WINDOW_END, WINDOW_START, WindowRows
from tidegate.state.keys.key_index import FrozenKeys, KeyIndex
from tidegate.state.keys.word_index import Places

Times = npt.NDArray[np.int64]
_FEWEST_KEYS: Final = 1 << 10
NO_RECORDS: Final[Places] = np.arange(0)


class Fired(NamedTuple):
    """Windows that have a result, in the order in which it is emitted."""

    keys: Places
    starts: Times
    ends: Times
    values: Arrays


class Added(NamedTuple):
    """What has become of records."""

    late: Places = NO_RECORDS
    """Those for which it was too late."""
    fired: tuple[Fired, ...] = ()
    """The results of windows that had fired before, one for each record that they have got."""


class WindowTable(ABC):
    """The windows of all keys. Time is that of a watermark, or of a clock.

    A window fires when time comes to its last millisecond, and is forgotten `lateness` later.
    """

    def __init__(self, keys: KeyIndex, accumulators: Accumulators, lateness: int, now: int) -> None:
        self._index = keys
        self._accumulators = accumulators
        self._lateness = lateness
        self.now = now
        """Up to when windows have fired."""
        self._capacity = _FEWEST_KEYS
        """How many keys there is room for."""
        self._living_keys = 0
        """How many of the keys had windows when they were last counted."""

    @abstractmethod
    def add(
        self, keys: Columns, times: Times, columns: Columns, values: Arrays | None = None
    ) -> Added:
        """Take records, of which there is at least one, or values that stand for several each."""

    @abstractmethod
    def advance(self, now: int) -> Iterator[Fired]:
        """It has come to this time."""

    @abstractmethod
    def next_end(self) -> int | None:
        """When the first of the windows ends that have not fired."""

    @abstractmethod
    def freeze(self) -> Callable[[], WindowRows]:
        """All windows as they are now; may be called on another thread."""

    @abstractmethod
    def _restore(self, keys: Places, starts: Times, ends: Times, values: Arrays) -> None: ...

    @abstractmethod
    def _occurring(self) -> npt.NDArray[np.bool_]:
        """Which of the keys have windows."""

    @abstractmethod
    def _renumber(self, new: Places) -> None:
        """Each key has a new number; those with a negative one have no windows."""

    @property
    @abstractmethod
    def _living(self) -> Sequence[Arrays]:
        """All values of the accumulators, in lists that may be changed."""

    def _on_moved(self) -> None:
        """Values were replaced: forget what was derived from them."""

    @property
    def keys(self) -> FrozenKeys:
        return self._index.keys()

    def restore(self, rows: pa.RecordBatch) -> None:
        """Take over windows that were frozen."""
        keys = [rows.column(name) for name in key_names(self._index.width)]
        first = len(keys) + 2
        self._restore(
            self._numbers_of(keys),
            rows.column(WINDOW_START).to_numpy(),
            rows.column(WINDOW_END).to_numpy(),
            self._accumulators.restored(rows.columns[first:], rows.num_rows),
        )

    def _numbers_of(self, keys: Sequence[pa.Array[Any]]) -> Places:
        numbers = self._index.find_or_add(keys)
        while self._capacity < len(self._index):
            self._capacity *= 2
        return numbers

    def clean_up(self) -> None:
        """Give back room; called between batches."""
        self._accumulators.relax(lambda: self._living)
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
