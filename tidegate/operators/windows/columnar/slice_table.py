"""Tumbling and sliding windows, stored as slices."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from tidegate.operators.aggregations.accumulators import Accumulators, Arrays, Columns, Stored
from tidegate.operators.aggregations.running import Segments
from tidegate.operators.windows.columnar.slices import (
    FrozenSlice,
    Slice,
    SliceEntries,
    SlidingRun,
    entries_of,
    reduced,
)
from tidegate.operators.windows.columnar.slicing import Slicing
from tidegate.operators.windows.columnar.table import (
    NO_RECORDS,
    Added,
    Fired,
    Times,
    WindowTable,
)
from tidegate.state.columnar.keyed_rows import KeptRoom, KeyedRows, RowPerKey
from tidegate.state.columnar.window_rows import WindowRows
from tidegate.state.columns import repeated
from tidegate.state.keys.key_index import KeyIndex
from tidegate.state.keys.word_index import Places

_KEPT_BYTES: Final = 64 << 20
"""For stored slices: the next snapshots write them as they are."""


class SliceTable(WindowTable):
    """Slices of time, each with the aggregates of its keys; windows are runs of slices."""

    def __init__(
        self,
        keys: KeyIndex,
        accumulators: Accumulators,
        lateness: int,
        now: int,
        slicing: Slicing,
    ) -> None:
        super().__init__(keys, accumulators, lateness, now)
        self._slicing = slicing
        self._slices: dict[int, Slice] = {}
        self._run: SlidingRun | None = None
        self._room = KeptRoom()

    def add(
        self, keys: Columns, times: Times, columns: Columns, values: Arrays | None = None
    ) -> Added:
        slicing = self._slicing
        slices = slicing.slices_of(times)
        late, wanted = self._sorted_out(slices, times)
        if wanted is not None:
            keys = [column.take(wanted) for column in keys]
            columns = [column.take(wanted) for column in columns]
            slices = slices[wanted]
            if values is not None:
                values = [array[wanted] for array in values]
            if not len(slices):
                return Added(late)
        capacity = self._capacity
        rows = self._numbers_of(keys)
        if self._capacity != capacity:
            self._run = None
        if values is None:
            values = self._accumulators.lift(columns)
        fired = self._late_firings(slices, rows, values, columns)
        first, last = int(slices.min()), int(slices.max())
        if first == last:
            self._add_to(first, rows, values, columns)
        else:
            parts = Segments((slices - first).astype(np.intp), last - first + 1)
            rows = parts.ordered(rows)
            values = [parts.ordered(array) for array in values]
            bounds = zip(parts.starts, parts.starts + parts.lengths, strict=True)
            for number, (start, stop) in zip(parts.places.tolist(), bounds, strict=True):
                part = [array[start:stop] for array in values]
                self._add_to(first + number, rows[start:stop], part, columns)
        return Added(late, fired)

    def _sorted_out(self, slices: Times, times: Times) -> tuple[Places, Places | None]:
        """The records that are too late, and the others; None: all of them."""
        slicing = self._slicing
        gone = slicing.passed(self.now - self._lateness)
        has_gaps = slicing.slide > slicing.size
        if not has_gaps and slicing.last_window(int(slices.min())) > gone:
            return NO_RECORDS, None
        last = slicing.last_window(slices)
        unwanted = last <= gone
        if has_gaps:
            unwanted |= slicing.first_window(slices) > last
        late = unwanted & (times <= self.now - self._lateness)
        return np.flatnonzero(late), np.flatnonzero(~unwanted)

    def _add_to(self, number: int, rows: Places, values: Arrays, columns: Columns) -> None:
        found = self._slices.get(number)
        if found is None:
            found = self._slices[number] = Slice(self._accumulators)
        if self._run is not None and self._run.covers(number):
            entries = reduced(self._accumulators, rows, values, columns)
            self._run.late(number, entries)
            found.merge(entries, self._capacity)
        else:
            found.add(rows, values, columns, self._capacity)

    def _late_firings(
        self, slices: Times, rows: Places, values: Arrays, columns: Columns
    ) -> tuple[Fired, ...]:
        slicing = self._slicing
        passed = slicing.passed(self.now)
        if slicing.first_window(int(slices.min())) > passed:
            return ()
        gone = slicing.passed(self.now - self._lateness)
        last = np.minimum(slicing.last_window(slices), passed)
        counts = last - np.maximum(slicing.first_window(slices), gone + 1) + 1
        counts = np.maximum(counts, 0)
        records = np.repeat(np.arange(len(rows)), counts)
        if not len(records):
            return ()
        before = np.repeat(np.cumsum(counts) - counts, counts)
        windows = last[records] - (np.arange(len(records)) - before)
        kept = self._accumulators.keep([array[records] for array in values], columns)
        return (self._running(rows[records], windows, kept),)

    def _running(self, rows: Places, windows: Times, values: Arrays) -> Fired:
        """The result of its window after each record, in the order of the records."""
        first = int(windows.min())
        pairs = (windows - first) * self._capacity + rows
        found, owners = np.unique(pairs, return_inverse=True)
        running = self._accumulators.empty(len(found))
        of_window = found // self._capacity + first
        for window in np.unique(of_window).tolist():
            places = np.flatnonzero(of_window == window)
            start = self._slicing.first_slice(window)
            for number in range(start, start + self._slicing.per_window):
                if number in self._slices:
                    held = self._slices[number].at(found[places] % self._capacity)
                    self._accumulators.merge(running, places, held)
        results = self._accumulators.empty(len(rows))
        segments = Segments(owners, len(found))
        turns = segments.restored(np.arange(len(rows)) - segments.spread(segments.starts))
        order = Segments(turns, int(turns.max()) + 1)
        for start, length in zip(order.starts, order.lengths, strict=True):
            turn = order.ordered(np.arange(len(rows)))[start : start + length]
            self._accumulators.merge(running, owners[turn], [array[turn] for array in values])
            for result, array in zip(results, running, strict=True):
                result[turn] = array[owners[turn]]
        starts = self._slicing.window_start(windows)
        return Fired(rows, starts, starts + self._slicing.size, results)

    def advance(self, now: int) -> Iterator[Fired]:
        if now <= self.now:
            return
        before, self.now = self._slicing.passed(self.now), now
        yield from self._fire(before + 1, self._slicing.passed(now))
        gone = self._slicing.passed(now - self._lateness)
        for number in [n for n in self._slices if self._slicing.last_window(n) <= gone]:
            del self._slices[number]

    def _fire(self, window: int, last: int) -> Iterator[Fired]:
        """The non-empty windows in a range."""
        slicing = self._slicing
        numbers = sorted(self._slices)
        while numbers:
            start = slicing.first_slice(window)
            place = bisect_left(numbers, start)
            if place == len(numbers):
                return
            if numbers[place] >= start + slicing.per_window:
                window = max(slicing.first_window(numbers[place]), window + 1)
                continue
            if window > last:
                return
            entries = self._entries(start)
            starts = np.full(len(entries), slicing.window_start(window), np.int64)
            yield Fired(entries.rows, starts, starts + slicing.size, entries.values)
            window += 1

    def _entries(self, first: int) -> SliceEntries:
        if self._slicing.per_window == 1:
            return self._slices[first].entries()
        end = first + self._slicing.per_window
        if end - 1 in self._slices:
            self._slices[end - 1].close()
        if self._run is None:
            self._run = SlidingRun(self._accumulators, self._slices.get, self._capacity)
        combined = self._run.combined(first, end)
        return entries_of([array[: len(self._index)] for array in combined])

    def next_end(self) -> int | None:
        slicing = self._slicing
        window = slicing.passed(self.now) + 1
        first = min((n for n in self._slices if slicing.last_window(n) >= window), default=None)
        if first is None:
            return None
        end: int = slicing.window_end(max(window, slicing.first_window(first)))
        return end

    def freeze(self, many: int) -> Callable[[], Iterable[KeyedRows | RowPerKey]]:
        slices = list(self._frozen())
        stored = self._accumulators.freeze()

        def rows() -> Iterator[KeyedRows | RowPerKey]:
            few: list[tuple[int, SliceEntries]] = []
            for number, frozen in slices:
                if frozen.dense is None or np.count_nonzero(frozen.dense[0]) < many:
                    few.append((number, frozen.entries()))
                else:
                    taken = partial(self._taken, number, frozen.dense, stored)
                    yield RowPerKey(frozen.dense[0], taken, frozen.kept)
            yield self._joined(few, stored).keyed()

        return rows

    def _frozen(self) -> Iterator[tuple[int, FrozenSlice]]:
        """Slices whose time is over are kept as they are stored, while there is room."""
        kept = [each.kept for each in self._slices.values() if each.kept is not None]
        self._room.measure(_KEPT_BYTES, kept)
        for number in sorted(self._slices):
            is_over = self._slicing.slice_end(number) <= self.now
            yield number, self._slices[number].freeze(self._room if is_over else None)

    def _taken(self, number: int, dense: Arrays, stored: Stored, places: Places) -> Columns:
        bounds = self._slicing.slice_start(number), self._slicing.slice_end(number)
        times = [repeated(each, len(places)) for each in bounds]
        all_true = np.ones(len(places), np.bool_)
        present, *others = dense
        taken = [
            all_true
            if array.dtype == np.bool_ and np.array_equal(array, present)
            else array.take(places)
            for array in others
        ]
        return [*times, *stored([all_true, *taken])]

    def _joined(self, slices: Sequence[tuple[int, SliceEntries]], stored: Stored) -> WindowRows:
        counts = [len(each) for _, each in slices]
        starts = [self._slicing.slice_start(number) for number, _ in slices]
        ends = [self._slicing.slice_end(number) for number, _ in slices]
        values = [each.values for _, each in slices]
        return WindowRows(
            np.concatenate([NO_RECORDS, *(each.rows for _, each in slices)]),
            np.repeat(np.array(starts, np.int64), counts),
            np.repeat(np.array(ends, np.int64), counts),
            stored([np.concatenate(arrays) for arrays in zip(*values, strict=True)])
            if values
            else [],
        )

    def drain(self) -> WindowRows:
        """All that it holds, by slice; nothing remains but the keys."""
        slices = [(number, self._slices[number].entries()) for number in sorted(self._slices)]
        self._slices, self._run = {}, None
        return self._joined(slices, self._accumulators.freeze())

    def _restore(self, keys: Places, starts: Times, ends: Times, values: Arrays) -> None:
        slices = self._slicing.slices_of(starts)
        for number in np.unique(slices).tolist():
            places = np.flatnonzero(slices == number)
            entries = reduced(self._accumulators, keys[places], [a[places] for a in values])
            found = self._slices.setdefault(number, Slice(self._accumulators))
            found.merge(entries, self._capacity)

    def _occurring(self) -> npt.NDArray[np.bool_]:
        occurring = np.zeros(self._capacity, np.bool_)
        for each in self._slices.values():
            occurring[each.entries().rows] = True
        return occurring[: len(self._index)]

    def _renumber(self, new: Places) -> None:
        self._run = None
        for each in self._slices.values():
            rows, values = each.entries()
            order = np.argsort(new[rows])
            each.replace(SliceEntries(new[rows][order], [array[order] for array in values]))

    def _on_moved(self) -> None:
        self._run = None

    @property
    def _living(self) -> Sequence[Arrays]:
        return [arrays for each in self._slices.values() for arrays in each.living]
