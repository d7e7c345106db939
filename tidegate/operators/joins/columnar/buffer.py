"""Records of one stream that wait for those of the other, as columns."""

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
"""Records that nothing can join which are kept before it is worth while to remove them."""
PAIRS_AT_ONCE: Final = 1 << 17
_LARGEST_PART: Final = 1 << 29
"""Bytes beyond which parts are not joined: text of one array must stay below 2 GiB."""
_MOST: Final = int(np.iinfo(np.int64).max)
_LEAST: Final = int(np.iinfo(np.int64).min)
_LARGEST_NUMBER: Final = _MOST


class _Index(NamedTuple):
    """Records in the order of key and time, each as one number."""

    numbers: Times
    order: Places
    """The record of each number."""
    first: int
    span: int
    """A number is a key times this, plus the time since the first."""
    last_key: int

    @classmethod
    def of(cls, keys: Places, times: Times, rows: Places) -> list[_Index]:
        """Several, of consecutive times, where numbers would get too large."""
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
        # Numbers that hold the place are sorted faster than an order is found.
        packed = (numbers << bits) | np.arange(len(numbers))
        packed.sort()
        return [cls(packed >> bits, rows[packed & ((1 << bits) - 1)], first, span, last_key)]

    def find(self, keys: Places, since: Times, until: Times) -> tuple[Places, Places]:
        """Where in the order the records of keys and times begin, and how many there are."""
        least, most = self.first, self.first + self.span - 1
        base = np.minimum(keys, self.last_key + 1) * self.span
        starts = self.numbers.searchsorted(base + (np.clip(since, least, most) - least))
        ends = self.numbers.searchsorted(base + (np.clip(until, least, most) - least))
        return starts, np.maximum(ends - starts, 0)


class Records:
    """Some records, in the order in which they came. Never changed."""

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

    def take(self, rows: Places) -> Records:
        columns = [column.take(rows) for column in self.columns]
        return Records(self.keys[rows], self.times[rows], columns)

    @cached_property
    def indexes(self) -> list[_Index]:
        return _Index.of(self.keys, self.times, np.arange(len(self)))

    @classmethod
    def joined(cls, one: Records, other: Records) -> Records:
        both = cls(
            np.concatenate([one.keys, other.keys]),
            np.concatenate([one.times, other.times]),
            [pa.concat_arrays(pair) for pair in zip(one.columns, other.columns, strict=True)],
        )
        if "indexes" in one.__dict__ and "indexes" in other.__dict__:
            orders = [each.order for each in one.indexes]
            orders += [each.order + len(one) for each in other.indexes]
            rows = np.concatenate(orders)
            # What is ordered in parts already is ordered as a whole by merging.
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
    """Records that ask, in their order, each with one that was found."""

    asking: Places
    times: Times
    """Of the records that were found."""
    parts: list[tuple[Records, Places]]
    """What was found where; laid end to end, and then put into order."""
    order: Places | None

    def column(self, place: int) -> pa.Array[Any]:
        """A column of the records that were found."""
        taken = [records.columns[place].take(rows) for records, rows in self.parts]
        found = taken[0] if len(taken) == 1 else pa.concat_arrays(taken)
        return found if self.order is None else found.take(self.order)


class JoinBuffer:
    """The records of one stream by key and time; those of past times go after a while."""

    def __init__(self) -> None:
        self._parts: list[Records] = []
        """Each at least twice the next, so there are few, and a record moves seldom."""
        self._living = 0
        """How many records were not past when they were last counted."""

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def add(self, records: Records) -> None:
        parts = self._parts
        parts.append(records)
        while len(parts) > 1 and len(parts[-2]) < 2 * len(parts[-1]):
            if parts[-2].nbytes + parts[-1].nbytes > _LARGEST_PART:
                break
            parts[-2:] = [Records.joined(*parts[-2:])]

    def pairs(self, asking: Records, since: Times, until: Times) -> Iterator[Pairs]:
        """Pairs with the records from a time up to another of the same key, in order of time.

        In parts of which no record that asks is in two.
        """
        # One after the other in the order of keys, searches stay near each other.
        turns = np.concatenate([index.order for index in asking.indexes])
        keys, since, until = asking.keys[turns], since[turns], until[turns]
        first, last = int(since.min()), int(until.max())
        found = []
        total = np.zeros(len(asking), np.intp)
        for records in self._parts:
            if records.last < first or records.first >= last:
                continue
            for index in records.indexes:
                starts, counts = (np.empty(len(asking), np.intp) for _ in range(2))
                starts[turns], counts[turns] = index.find(keys, since, until)
                if counts.any():
                    found.append((records, index, starts, counts))
                    total += counts
        for start, stop in in_turns(total, PAIRS_AT_ONCE):
            yield _pairs([(r, i, s[start:stop], c[start:stop]) for r, i, s, c in found], start)

    def between(self, since: int, until: int) -> tuple[Places, list[tuple[Records, Places]]]:
        """The keys of the records from a time up to another as they came, and where they are."""
        found: list[tuple[Records, Places]] = []
        for records in self._parts:
            if records.last >= since and records.first < until:
                times = records.times
                rows = np.flatnonzero((times >= since) & (times < until))
                found.append((records, rows))
        keys = [records.keys[rows] for records, rows in found]
        return np.concatenate([NO_ROWS, *keys]), found

    def first_from(self, since: int) -> int | None:
        """The earliest time from one on of which there are records."""
        found = []
        for records in self._parts:
            if records.first >= since:
                found.append(records.first)
            elif records.last >= since:
                found.append(int(records.times[records.times >= since].min()))
        return min(found, default=None)

    def forget(self, until: int) -> None:
        """Give back the room of records before a time, if there are many."""
        self._parts = [records for records in self._parts if records.last >= until]
        if len(self) <= 2 * self._living + _SPARE_ROWS:
            return
        living = [np.flatnonzero(records.times >= until) for records in self._parts]
        self._living = sum(map(len, living))
        if 2 * self._living < len(self):
            kept = zip(self._parts, living, strict=True)
            self._replace([records.take(rows) for records, rows in kept if len(rows)])

    def _replace(self, parts: list[Records]) -> None:
        self._parts = []
        for part in parts:
            self.add(part)

    def occurring(self, keys: int) -> npt.NDArray[np.bool_]:
        """Which of so many keys occur."""
        occurs = np.zeros(keys, np.bool_)
        for records in self._parts:
            occurs[records.keys] = True
        return occurs

    def renumber(self, new: Places) -> None:
        """Each key has a new number."""
        self._replace([Records(new[r.keys], r.times, r.columns) for r in self._parts])

    def freeze(self, since: int) -> Callable[[], KeyedRows]:
        """The records from a time on, as they are now; may be called on another thread.

        The first column is the time.
        """
        parts = list(self._parts)

        def rows() -> KeyedRows:
            times = np.concatenate([NO_ROWS, *(records.times for records in parts)])
            keys = np.concatenate([NO_ROWS, *(records.keys for records in parts)])
            living = np.flatnonzero(times >= since)
            columns = list(zip(*(records.columns for records in parts), strict=True))

            def taken(wanted: Places) -> Columns:
                places = living[wanted]
                return [pa.array(times[places]), *(take_from(each, places) for each in columns)]

            return KeyedRows(keys[living], taken)

        return rows


def _pairs(found: list[tuple[Records, _Index, Places, Places]], start: int) -> Pairs:
    parts: list[tuple[Records, Places]] = []
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
    """Ranges of records that have about so many pairs together, and at least one."""
    ends = np.cumsum(counts)
    start, before = 0, 0
    while before < ends[-1]:
        stop = max(int(np.searchsorted(ends, before + most, side="right")), start + 1)
        if ends[stop - 1] > before:
            yield start, stop
        start, before = stop, int(ends[stop - 1])


def moved(times: Times, by: int) -> Times:
    """Times that lie so many milliseconds later, or earlier; none beyond the last and first."""
    if by >= 0:
        return np.minimum(times, _MOST - by) + by
    return np.maximum(times, _LEAST - by) + by


NO_ROWS: Final = np.arange(0)
