"""Interval joins of typed streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.joins.columnar.buffer import NO_ROWS, JoinRecords, Pairs, Times, moved
from tidegate.operators.joins.columnar.operator import ColumnarJoin
from tidegate.operators.joins.interval_join import IntervalSettings, without_timestamp
from tidegate.operators.joins.selection import ColumnarSelection
from tidegate.state.keys.word_index import Places
from tidegate.stream.elements import NO_WATERMARK
from tidegate.types.arrow import ArrowFormat


class ColumnarIntervalJoin(ColumnarJoin):
    """Pairs each record with those of the other side within an interval."""

    def __init__(
        self,
        settings: IntervalSettings,
        selection: ColumnarSelection,
        side_formats: dict[str, ArrowFormat | None],
    ) -> None:
        super().__init__(selection, settings.late_tags, side_formats)
        self.settings = settings

    def _kind(self) -> str:
        return "an interval join"

    def _unfit(self, times: Times | None) -> tuple[int, str] | None:
        return without_timestamp(times)

    def _sorted_out(self, times: Times) -> tuple[Places, Places | None]:
        if int(times.min()) >= self._watermark:
            return NO_ROWS, None
        late = times < self._watermark
        return np.flatnonzero(late), np.flatnonzero(~late)

    def _needed_since(self, side: int) -> int:
        stays = self.settings.upper if side == 0 else -self.settings.lower
        return max(self._watermark - max(stays, 0), NO_WATERMARK)

    def _take(self, records: JoinRecords, side: int) -> None:
        lower, upper = self.settings.lower, self.settings.upper
        if side == 1:
            lower, upper = -upper, -lower
        other = 1 - side
        since = np.maximum(moved(records.times, lower), self._needed_since(other))
        until = moved(records.times, upper)
        for pairs in self._buffers[other].pairs(records, since, until):
            self._emit_pairs(records, pairs, side)
        self._buffers[side].add(records)

    def _emit_pairs(self, records: JoinRecords, pairs: Pairs, side: int) -> None:
        def asking(place: int) -> pa.Array[Any]:
            return records.columns[place].take(pairs.asking)

        sides = (asking, pairs.column) if side == 0 else (pairs.column, asking)
        self._emit(sides, np.maximum(records.times[pairs.asking], pairs.times))
