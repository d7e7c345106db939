"""The aggregates of one slice by key, and of runs of slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from tidegate.operators.aggregations.accumulators import Accumulators, Arrays, Columns
from tidegate.operators.aggregations.running import Segments
from tidegate.state.columnar.keyed_rows import KeptChunks, KeptRoom
from tidegate.state.keys.word_index import Places

_DENSE_SHARE: Final = 8
"""A slice is dense, with a place for each key, if more than one in this many keys occurs."""
_MOST_RUNS: Final = 16


class SliceEntries(NamedTuple):
    """The rows of the keys that occur, and their values."""

    rows: Places
    values: Arrays

    def __len__(self) -> int:
        return len(self.rows)


class FrozenSlice(NamedTuple):
    """A slice at one moment. May be read on another thread."""

    dense: Arrays | None
    """Places of all keys."""
    run: SliceEntries | None
    """If it is not dense."""
    kept: KeptChunks | None = None
    """Of a slice that will not change soon."""

    def entries(self) -> SliceEntries:
        if self.run is not None:
            return self.run
        assert self.dense is not None
        return entries_of(self.dense)


class Slice:
    """Aggregates by key: a place for every key, or runs of the keys that occur.

    A run contains each key at most once.
    """

    __slots__ = ("_accumulators", "_dense", "_is_frozen", "_runs", "kept")

    def __init__(self, accumulators: Accumulators) -> None:
        self._accumulators = accumulators
        self._dense: Arrays | None = None
        self._runs: list[SliceEntries] = []
        self._is_frozen = False
        """Whether a snapshot still reads the places."""
        self.kept: KeptChunks | None = None

    def add(self, rows: Places, values: Arrays, columns: Columns, capacity: int) -> None:
        if self._dense is None and self._fits_runs(len(rows), capacity):
            self.merge(reduced(self._accumulators, rows, values, columns), capacity)
        else:
            self._accumulators.scatter(self._places(capacity), rows, values, columns)

    def merge(self, entries: SliceEntries, capacity: int) -> None:
        """Merge entries; each key occurs once."""
        if self._dense is None and self._fits_runs(len(entries), capacity):
            self._runs.append(entries)
            if len(self._runs) > _MOST_RUNS:
                self._runs = [self._joined()]
            return
        self._accumulators.merge(self._places(capacity), entries.rows, entries.values)

    def _fits_runs(self, more: int, capacity: int) -> bool:
        return _DENSE_SHARE * (sum(map(len, self._runs)) + more) < capacity

    def _places(self, capacity: int) -> Arrays:
        """All places, to be changed."""
        places = self._dense
        if places is None:
            places = self._accumulators.empty(capacity)
            for run in self._runs:
                self._accumulators.merge(places, run.rows, run.values)
            self._runs = []
        elif len(places[0]) < capacity:
            room = self._accumulators.empty(capacity)
            for array, held in zip(room, places, strict=True):
                array[: len(held)] = held
            places = room
        elif self._is_frozen:
            places = [array.copy() for array in places]
        self._dense = places
        self._is_frozen = False
        self.kept = None
        return places

    def _joined(self) -> SliceEntries:
        if len(self._runs) == 1:
            return self._runs[0]
        rows = np.concatenate([run.rows for run in self._runs])
        values = [
            np.concatenate(arrays) for arrays in zip(*(r.values for r in self._runs), strict=True)
        ]
        return reduced(self._accumulators, rows, values)

    def merged_with(self, places: Arrays) -> Arrays:
        """New places of all keys that combine its values with others."""
        if self._dense is not None and len(self._dense[0]) == len(places[0]):
            return self._accumulators.merged(places, self._dense)
        merged = [array.copy() for array in places]
        self.merge_into(merged)
        return merged

    def merge_into(self, places: Arrays) -> None:
        """Merge its values into places of all keys."""
        if self._dense is not None:
            self._accumulators.merge(places, slice(0, len(self._dense[0])), self._dense)
        for run in self._runs:
            self._accumulators.merge(places, run.rows, run.values)

    def entries(self) -> SliceEntries:
        """Its entries by key, ascending."""
        if self._dense is None:
            self._runs = [self._joined()]
            return self._runs[0]
        found = entries_of(self._dense)
        if found.values[0] is self._dense[0]:
            return SliceEntries(found.rows, [array.copy() for array in found.values])
        return found

    def at(self, rows: Places) -> Arrays:
        """The values of keys; initial values where there are none."""
        found = self._accumulators.empty(len(rows))
        if self._dense is not None:
            within = np.flatnonzero(rows < len(self._dense[0]))
            for array, held in zip(found, self._dense, strict=True):
                array[within] = held[rows[within]]
        for run in self._runs:
            places = np.minimum(np.searchsorted(run.rows, rows), len(run) - 1)
            hits = np.flatnonzero(run.rows[places] == rows)
            taken = [array[places[hits]] for array in run.values]
            self._accumulators.merge(found, hits, taken)
        return found

    def freeze(self, room: KeptRoom | None) -> FrozenSlice:
        """Freeze it; with `room`, keep what is stored of it if it is dense, for later snapshots."""
        if self._dense is None:
            rows, values = self.entries()
            return FrozenSlice(None, SliceEntries(rows, list(values)))
        self._is_frozen = True
        if room is not None and self.kept is None:
            self.kept = KeptChunks(room)
        return FrozenSlice(list(self._dense), None, self.kept)

    def close(self) -> None:
        """Free memory if few keys occur: no more records are expected."""
        if self._dense is not None and not self._is_frozen:
            occurring = np.count_nonzero(self._dense[0])
            if _DENSE_SHARE * occurring < len(self._dense[0]):
                self._runs, self._dense, self.kept = [entries_of(self._dense)], None, None

    def replace(self, entries: SliceEntries) -> None:
        """Replace its entries, given by key, ascending."""
        self._dense, self._runs, self._is_frozen, self.kept = None, [entries], False, None

    @property
    def living(self) -> list[Arrays]:
        runs = [run.values for run in self._runs]
        return runs if self._dense is None else [self._dense]


def reduced(
    accumulators: Accumulators, rows: Places, values: Arrays, columns: Columns | None = None
) -> SliceEntries:
    """Combine records, or entries with repeated keys, by key."""
    segments = Segments(rows, int(rows.max(initial=0)) + 1)
    return SliceEntries(segments.places, accumulators.reduce(segments, values, columns))


def entries_of(places: Arrays) -> SliceEntries:
    """The entries present among places of all keys: the places themselves if all are present."""
    rows = np.flatnonzero(places[0])
    if len(rows) == len(places[0]):
        return SliceEntries(rows, places)
    return SliceEntries(rows, [array.take(rows) for array in places])


class SlidingRun:
    """Aggregates of a moving run of slices, without combining all slices each time.

    Before `middle`, aggregates from some slices up to `middle` are kept: at first from every start
    of a block, and within the current block from each slice. After it, there is one aggregate, to
    which slices are added.

        from here up to middle: ├──────┼──────┼──────┤ middle ┤ added up ├ end
                                block
    """

    def __init__(
        self, accumulators: Accumulators, find: Callable[[int], Slice | None], capacity: int
    ) -> None:
        self._accumulators = accumulators
        self._find = find
        self._capacity = capacity
        self._middle = self._end = 0
        self._block = 1
        self._begins: dict[int, Arrays] = {}
        self._within: dict[int, Arrays] = {}
        self._added = accumulators.empty(0)

    def combined(self, first: int, end: int) -> Arrays:
        """New places of all keys with the values of the slices from `first` up to `end`."""
        if not self._begins or first < min(self._begins) or first >= self._middle:
            self._turn(first, end)
        for number in range(self._end, end):
            self._merge(number, self._added)
        self._end = max(self._end, end)
        return self._accumulators.merged(self._from(first), self._added)

    def late(self, number: int, entries: SliceEntries) -> None:
        """Add late entries to a slice that was already combined."""
        if self._middle <= number < self._end:
            self._accumulators.merge(self._added, entries.rows, entries.values)
        if number < self._middle:
            for kept in (self._begins, self._within):
                for first, values in kept.items():
                    if first <= number:
                        self._accumulators.merge(values, entries.rows, entries.values)

    def covers(self, number: int) -> bool:
        """Whether a slice was already combined."""
        return bool(self._begins) and min(self._begins) <= number < self._end

    def _merge(self, number: int, places: Arrays) -> None:
        found = self._find(number)
        if found is not None:
            found.merge_into(places)

    def _merged(self, number: int, places: Arrays) -> Arrays:
        found = self._find(number)
        return [array.copy() for array in places] if found is None else found.merged_with(places)

    def _turn(self, first: int, end: int) -> None:
        self._middle = self._end = end
        self._added = self._accumulators.empty(self._capacity)
        self._begins, self._within = {}, {}
        self._block = max(int((end - first) ** 0.5), 1)
        running = self._accumulators.empty(self._capacity)
        for number in range(end - 1, first - 1, -1):
            self._merge(number, running)
            if (number - first) % self._block == 0:
                self._begins[number] = [array.copy() for array in running]

    def _from(self, first: int) -> Arrays:
        if first in self._begins:
            # Earlier blocks are no longer needed.
            for number in [number for number in self._begins if number < first]:
                del self._begins[number]
            return self._begins[first]
        if first not in self._within:
            stop = min((n for n in self._begins if n > first), default=self._middle)
            running = self._accumulators.empty(self._capacity)
            if stop < self._middle:
                running = self._begins[stop]
            self._within = {}
            for number in range(stop - 1, first - 1, -1):
                running = self._within[number] = self._merged(number, running)
        return self._within[first]
