"""Columnar buffers for the records of one stream that wait for those of the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.state.columnar.keyed_rows import KeyedRows
from tidegate.state.columns import take_from
from tidegate.state.keys.word_index import Places

Times = npt.NDArray[np.int64]
Columns: TypeAlias = "list[pa.Array[Any]]"

_SPARE_ROWS: Final = 1 << 12
"""How many records that nothing can join are kept before they are removed."""
PAIRS_AT_ONCE: Final = 1 << 17
_LARGEST_PART: Final = 1 << 29
"""The size in bytes up to which parts are joined: text in an array must stay below 2 GiB."""
_MOST: Final = int(np.iinfo(np.int64).max)
_LEAST: Final = int(np.iinfo(np.int64).min)
_LARGEST_NUMBER: Final = _MOST


class _Index(NamedTuple):
    """Records ordered by key and time, each represented by one number."""

    numbers: Times
    order: Places
    """The record of each number."""
    first: int
    span: int
    """A number is the key times this, plus the time since the first."""
    last_key: int

    @classmethod
    def of(cls, keys: Places, times: Times, rows: Places) -> list[_Index]:
        """Create several indexes, for consecutive times, if numbers would get too large."""
        first, last, last_key = int(times.min()), int(times.max()), int(keys.max())
        span = last - first + 2
        if (last_key + 2) * span > _LARGEST_NUMBER:
            is_late = times > first + (last - first) // 2
            return [
                index
                for half in (np.flatnonzero(~is_late), np.flatnonzero(is_late))
                for index in cls.of(keys[half], times[half], rows[half])
            ]
        numbers = keys * span + (times - first)
        bits = len(numbers).bit_length()
        if ((last_key + 1) * span).bit_length() + bits > 62:
            order = np.argsort(numbers, kind="stable")
            return [cls(numbers[order], rows[order], first, span, last_key)]
        # Sorting numbers that include the position is faster than an argsort.
        packed = (numbers << bits) | np.arange(len(numbers))
        packed.sort()
        return [cls(packed >> bits, rows[packed & ((1 << bits) - 1)], first, span, last_key)]

    def find(self, keys: Places, since: Times, until: Times) -> tuple[Places, Places]:
        """The position of the first record of each key and time range, and their number.

        A range includes both of its ends.
        """
        least, most = self.first, min(self.first + self.span - 1, _MOST)
        base = np.minimum(keys, self.last_key + 1) * self.span
        starts = self.numbers.searchsorted(base + (np.clip(since, least, most) - least))
        lasts = base + (np.clip(until, least - 1, most) - least)
        return starts, np.maximum(self.numbers.searchsorted(lasts, side="right") - starts, 0)


class JoinRecords:
    """Records in order of arrival. Immutable."""

    def __init__(self, keys: Places, times: Times, columns: Columns) -> None:
        self.keys = keys
        self.times = times
        self.columns = columns
        self.first = int(times.min())
        self.last = int(times.max())

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns)

    def take(self, rows: Places) -> JoinRecords:
        columns = [column.take(rows) for column in self.columns]
        return JoinRecords(self.keys[rows], self.times[rows], columns)

    @cached_property
    def indexes(self) -> list[_Index]:
        return _Index.of(self.keys, self.times, np.arange(len(self)))

    @classmethod
    def joined(cls, one: JoinRecords, other: JoinRecords) -> JoinRecords:
        both = cls(
            np.concatenate([one.keys, other.keys]),
            np.concatenate([one.times, other.times]),
            [pa.concat_arrays(pair) for pair in zip(one.columns, other.columns, strict=True)],
        )
        if "indexes" in one.__dict__ and "indexes" in other.__dict__:
            orders = [each.order for each in one.indexes]
            orders += [each.order + len(one) for each in other.indexes]
            rows = np.concatenate(orders)
            # Parts that are already ordered are merged.
            both.indexes = _merged(both.keys[rows], both.times[rows], rows)
        return both


def _merged(keys: Places, times: Times, rows: Places) -> list[_Index]:
    first, last_key = int(times.min()), int(keys.max())
    span = int(times.max()) - first + 2
    if (last_key + 2) * span > _LARGEST_NUMBER:
        return _Index.of(keys, times, rows)
    numbers = keys * span + (times - first)
    order = np.argsort(numbers, kind="stable")
    return [_Index(numbers[order], rows[order], first, span, last_key)]


class Pairs(NamedTuple):
    """Probing records, in order, each with a matching one."""

    asking: Places
    times: Times
    """The times of the matches."""
    parts: list[tuple[JoinRecords, Places]]
    """The matches by part; to be concatenated and reordered."""
    order: Places | None

    def column(self, place: int) -> pa.Array[Any]:
        """A column of the matches."""
        taken = [records.columns[place].take(rows) for records, rows in self.parts]
        found = taken[0] if len(taken) == 1 else pa.concat_arrays(taken)
        return found if self.order is None else found.take(self.order)


class JoinBuffer:
    """The records of one stream by key and time; past ones are removed eventually."""

    def __init__(self) -> None:
        self._parts: list[JoinRecords] = []
        """Each at least twice as large as the next, so there are few, and records rarely move."""
        self._living = 0
        """How many records were not past when they were last counted."""

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def add(self, records: JoinRecords) -> None:
        parts = self._parts
        parts.append(records)
        while len(parts) > 1 and len(parts[-2]) < 2 * len(parts[-1]):
            if parts[-2].nbytes + parts[-1].nbytes > _LARGEST_PART:
                break
            parts[-2:] = [JoinRecords.joined(*parts[-2:])]

    def pairs(self, asking: JoinRecords, since: Times, until: Times) -> Iterator[Pairs]:
        """Match records with those of the same key in a time range, ordered by time.

        All matches of a probing record are in the same part.
        """
        # In the order of keys, consecutive searches are close to each other.
        turns = np.concatenate([index.order for index in asking.indexes])
        keys, since, until = asking.keys[turns], since[turns], until[turns]
        first, last = int(since.min()), int(until.max())
        found = []
        total = np.zeros(len(asking), np.intp)
        for records in self._parts:
            if records.last < first or records.first > last:
                continue
            for index in records.indexes:
                starts, counts = (np.empty(len(asking), np.intp) for _ in range(2))
                starts[turns], counts[turns] = index.find(keys, since, until)
                if counts.any():
                    found.append((records, index, starts, counts))
                    total += counts
        for start, stop in in_turns(total, PAIRS_AT_ONCE):
            yield _pairs([(r, i, s[start:stop], c[start:stop]) for r, i, s, c in found], start)

    def between(self, since: int, until: int) -> tuple[Places, list[tuple[JoinRecords, Places]]]:
        """The keys of the records in a time range in order of arrival, and where they are."""
        found: list[tuple[JoinRecords, Places]] = []
        for records in self._parts:
            if records.last >= since and records.first < until:
                times = records.times
                rows = np.flatnonzero((times >= since) & (times < until))
                found.append((records, rows))
        keys = [records.keys[rows] for records, rows in found]
        return np.concatenate([NO_ROWS, *keys]), found

    def first_from(self, since: int) -> int | None:
        """The earliest time of a record from `since`."""
        found = []
        for records in self._parts:
            if records.first >= since:
                found.append(records.first)
            elif records.last >= since:
                found.append(int(records.times[records.times >= since].min()))
        return min(found, default=None)

    def forget(self, until: int) -> None:
        """Free the memory of records before a time, if there are many."""
        self._parts = [records for records in self._parts if records.last >= until]
        if len(self) <= 2 * self._living + _SPARE_ROWS:
            return
        living = [np.flatnonzero(records.times >= until) for records in self._parts]
        self._living = sum(map(len, living))
        if 2 * self._living < len(self):
            kept = zip(self._parts, living, strict=True)
            self._replace([records.take(rows) for records, rows in kept if len(rows)])

    def _replace(self, parts: list[JoinRecords]) -> None:
        self._parts = []
        for part in parts:
            self.add(part)

    def occurring(self, keys: int) -> npt.NDArray[np.bool_]:
        """Which of this many keys occur."""
        occurs = np.zeros(keys, np.bool_)
        for records in self._parts:
            occurs[records.keys] = True
        return occurs

    def renumber(self, new: Places) -> None:
        """Renumber the keys."""
        self._replace([JoinRecords(new[r.keys], r.times, r.columns) for r in self._parts])

    def freeze(self, since: int) -> Callable[[], list[KeyedRows]]:
        """A function for the current records from a time; may be called on another thread.

        The first column is the time.
        """
        parts = list(self._parts)

        def rows() -> list[KeyedRows]:
            times = np.concatenate([NO_ROWS, *(records.times for records in parts)])
            keys = np.concatenate([NO_ROWS, *(records.keys for records in parts)])
            living = np.flatnonzero(times >= since)
            columns = list(zip(*(records.columns for records in parts), strict=True))

            def taken(wanted: Places) -> Columns:
                places = living[wanted]
                return [pa.array(times[places]), *(take_from(each, places) for each in columns)]

            return [KeyedRows(keys[living], taken)]

        return rows


def _pairs(found: list[tuple[JoinRecords, _Index, Places, Places]], start: int) -> Pairs:
    parts: list[tuple[JoinRecords, Places]] = []
    askings: list[Places] = []
    for records, index, starts, counts in found:
        asking = np.repeat(np.arange(len(counts)), counts)
        if len(asking):
            within = np.arange(len(asking)) - np.repeat(np.cumsum(counts) - counts, counts)
            parts.append((records, index.order[starts[asking] + within]))
            askings.append(asking)
    times = [records.times[rows] for records, rows in parts]
    if len(parts) == 1:
        return Pairs(askings[0] + start, times[0], parts, None)
    asking, time = np.concatenate(askings), np.concatenate(times)
    order = np.lexsort((time, asking))
    return Pairs(asking[order] + start, time[order], parts, order)


def in_turns(counts: Places, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of records with at most about `most` pairs together, and at least one record."""
    ends = np.cumsum(counts)
    start, before = 0, 0
    while before < ends[-1]:
        stop = max(int(np.searchsorted(ends, before + most, side="right")), start + 1)
        if ends[stop - 1] > before:
            yield start, stop
        start, before = stop, int(ends[stop - 1])


def moved(times: Times, by: int) -> Times:
    """Times moved by this many milliseconds, but not beyond the ends of time."""
    by = min(max(by, -_MOST), _MOST)
    if by >= 0:
        return np.minimum(times, _MOST - by) + by
    return np.maximum(times, _LEAST - by) + by


NO_ROWS: Final = np.arange(0)
