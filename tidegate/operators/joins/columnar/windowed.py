"""Joins of typed streams in tumbling and sliding event-time windows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegate.operators.joins.columnar.buffer import (
    NO_ROWS,
    PAIRS_AT_ONCE,
    JoinBuffer,
    JoinRecords,
    Times,
    in_turns,
)
from tidegate.operators.joins.columnar.operator import ColumnarJoin
from tidegate.operators.joins.selection import ColumnarSelection
from tidegate.operators.windows.columnar.choice import columnar_windowing
from tidegate.operators.windows.columnar.operator import SlicedWindowing
from tidegate.operators.windows.columnar.slicing import Slicing
from tidegate.operators.windows.operator import WindowSettings
from tidegate.operators.windows.windows import without_window
from tidegate.state.keys.word_index import Places
from tidegate.stream.elements import FINAL_WATERMARK, NO_WATERMARK
from tidegate.types.arrow import ArrowFormat

_NEVER: Final = FINAL_WATERMARK


class ColumnarWindowJoin(ColumnarJoin):
    """Pairs all records of a key in the same window, when the window ends."""

    def __init__(
        self,
        windowing: SlicedWindowing,
        selection: ColumnarSelection,
        late_tag: str | None,
        side_formats: dict[str, ArrowFormat | None],
    ) -> None:
        super().__init__(selection, (late_tag, late_tag), side_formats)
        self.windowing = windowing
        self._slicing = Slicing(windowing.size, windowing.slide, windowing.offset)
        self._first_end: int | None = None
        """A lower bound for the ends of windows that have not fired; None: unknown."""

    def _kind(self) -> str:
        return str(self.windowing)

    def _unfit(self, times: Times | None) -> tuple[int, str] | None:
        return without_window(times)

    def _sorted_out(self, times: Times) -> tuple[Places, Places | None]:
        slicing = self._slicing
        passed = slicing.passed(self._watermark)
        slices = slicing.slices_of(times)
        last = slicing.last_window(slices)
        unwanted = (last <= passed) | (slicing.first_window(slices) > last)
        if not unwanted.any():
            return NO_ROWS, None
        late = unwanted & (times <= self._watermark)
        return np.flatnonzero(late), np.flatnonzero(~unwanted)

    def _needed_since(self, side: int) -> int:
        start = int(self._slicing.window_start(self._slicing.passed(self._watermark) + 1))
        return min(max(start, NO_WATERMARK), FINAL_WATERMARK)

    def _take(self, records: JoinRecords, side: int) -> None:
        self._buffers[side].add(records)
        self._first_end = None

    def _advance(self, watermark: int) -> None:
        slicing = self._slicing
        if self._first_end is not None and self._first_end - 1 > watermark:
            return
        last = slicing.passed(watermark)
        window = self._next_window(slicing.passed(self._watermark) + 1)
        while window is not None and window <= last:
            self._fire(window)
            window = self._next_window(window + 1)
        self._first_end = _NEVER if window is None else slicing.window_end(window)

    def _next_window(self, window: int) -> int | None:
        """The first window from this one on with records."""
        slicing = self._slicing
        firsts = [buffer.first_from(slicing.window_start(window)) for buffer in self._buffers]
        times = [time for time in firsts if time is not None]
        if not times:
            return None
        (number,) = slicing.slices_of(np.array([min(times)])).tolist()
        return max(window, int(slicing.first_window(number)))

    def _fire(self, window: int) -> None:
        start, end = self._slicing.window_start(window), self._slicing.window_end(window)
        ours, theirs = (_Contents(buffer, start, end) for buffer in self._buffers)
        if not len(ours.keys) or not len(theirs.keys):
            return
        starts = theirs.keys.searchsorted(ours.keys)
        counts = theirs.keys.searchsorted(ours.keys, side="right") - starts
        for first, stop in in_turns(counts, PAIRS_AT_ONCE):
            number = counts[first:stop]
            asking = np.repeat(np.arange(first, stop), number)
            within = np.arange(len(asking)) - np.repeat(np.cumsum(number) - number, number)
            found = starts[asking] + within
            sides = [
                lambda place, rows=asking: ours.column(place).take(rows),
                lambda place, rows=found: theirs.column(place).take(rows),
            ]
            self._emit(sides, np.full(len(asking), end - 1, np.int64))


class _Contents:
    """The records of one side in a window, by key and order of arrival."""

    def __init__(self, buffer: JoinBuffer, start: int, end: int) -> None:
        keys, self._parts = buffer.between(start, end)
        self._order = np.argsort(keys, kind="stable")
        self.keys = keys[self._order]
        self._columns: dict[int, pa.Array[Any]] = {}

    def column(self, place: int) -> pa.Array[Any]:
        if place not in self._columns:
            taken = [records.columns[place].take(rows) for records, rows in self._parts]
            self._columns[place] = pa.concat_arrays(taken).take(self._order)
        return self._columns[place]


def columnar_window_join(
    settings: WindowSettings,
    selection: ColumnarSelection,
    side_formats: dict[str, ArrowFormat | None],
) -> ColumnarWindowJoin | None:
    """The operator of a join that only fires at the end of its windows; None: it runs by record."""
    windowing = columnar_windowing(settings)
    if not isinstance(windowing, SlicedWindowing) or settings.allowed_lateness:
        return None
    if not settings.assigner.is_event_time():
        return None
    return ColumnarWindowJoin(windowing, selection, settings.late_tag, side_formats)
