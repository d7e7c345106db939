"""Session windows: sorted by gap and running maximum, then merged with open sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.operators.aggregations.accumulators import Accumulators, Arrays, Columns
from tidegate.operators.aggregations.running import Segments
from tidegate.operators.windows.columnar.table import (
    NO_RECORDS,
    Added,
    Fired,
    Times,
    WindowTable,
)
from tidegate.state.columnar.keyed_rows import KeyedRows
from tidegate.state.columnar.window_rows import WindowRows
from tidegate.state.keys.key_index import KeyIndex
from tidegate.state.keys.word_index import Places

_FIRST_ROOM: Final = 1 << 10
_NEVER: Final = np.iinfo(np.int64).max


class Sessions(NamedTuple):
    keys: Places
    starts: Times
    ends: Times

    def take(self, places: Places) -> Sessions:
        return Sessions(self.keys[places], self.starts[places], self.ends[places])


class SessionTable(WindowTable):
    """Open sessions, each at its own place; a key may have several."""

    def __init__(
        self, keys: KeyIndex, accumulators: Accumulators, lateness: int, now: int, gap: int
    ) -> None:
        super().__init__(keys, accumulators, lateness, now)
        self._gap = gap
        self._sessions = _sessions_of(_FIRST_ROOM)
        self._values = accumulators.empty(_FIRST_ROOM)
        """The first array marks the places in use."""
        self._size = 0
        self._free: list[int] = []
        self._first_end: int = _NEVER
        """A lower bound for the ends of sessions that have not fired."""

    def add(
        self, keys: Columns, times: Times, columns: Columns, values: Arrays | None = None
    ) -> Added:
        rows = self._numbers_of(keys)
        if values is None:
            values = self._accumulators.lift(columns)
        # A record whose own session has ended joins another one or is late: order matters.
        behind = times + (self._gap - 1) <= self.now
        if not behind.any():
            self._take(rows, times, values, columns)
            return Added()
        hopeless = self._hopeless(rows, times)
        late: list[int] = []
        fired: list[Fired] = []
        start = 0
        wanted = np.flatnonzero(~hopeless)
        for place in [*np.flatnonzero(behind[wanted]).tolist(), None]:
            between = wanted[start:place]
            if len(between):
                part = [array[between] for array in values]
                self._take(rows[between], times[between], part, columns)
            if place is not None:
                one = wanted[place : place + 1]
                part = [array[one] for array in values]
                found = self._take_one(rows[one], times[one], part, columns)
                if found is None:
                    late.append(int(one[0]))
                elif len(found.keys):
                    fired.append(found)
                start = place + 1
        too_late = np.concatenate([np.flatnonzero(hopeless), np.array(late, np.intp)])
        return Added(np.sort(too_late), tuple(fired))

    def _hopeless(self, rows: Places, times: Times) -> npt.NDArray[np.bool_]:
        """Which records are too late even for the session that all records together would form."""
        order, firsts = _gathered(rows, times, self._gap)
        owners = np.empty(len(rows), np.intp)
        owners[order] = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(rows)))
        made = _sessions(rows, times, order, firsts, self._gap)
        touched = self._of_keys(made.keys)
        both = _joined(made, self._sessions.take(touched))
        grouped, starts = _overlapping(both)
        merged = np.empty(len(both.keys), np.intp)
        merged[grouped] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(grouped)))
        ends = np.maximum.reduceat(both.ends[grouped], starts)
        hopeless: npt.NDArray[np.bool_] = self._is_gone(ends[merged[owners]])
        return hopeless

    def _is_gone(self, ends: Times) -> npt.NDArray[np.bool_]:
        return ends - 1 <= self.now - self._lateness

    def _take_one(self, row: Places, time: Times, values: Arrays, columns: Columns) -> Fired | None:
        """Add a record whose own session has ended; None if it is too late."""
        start, end = int(time[0]), int(time[0]) + self._gap
        touched = self._of_keys(row)
        held = self._sessions.take(touched)
        overlaps = (held.starts <= end) & (held.ends >= start)
        merged_end = max(end, int(held.ends[overlaps].max(initial=end)))
        if self._is_gone(np.array([merged_end]))[0]:
            return None
        self._take(row, time, values, columns)
        if merged_end - 1 > self.now:
            return Fired(NO_RECORDS, NO_RECORDS, NO_RECORDS, [])
        places = self._of_keys(row)
        held = self._sessions.take(places)
        fires = places[(held.starts <= start) & (start < held.ends)]
        return self._fired(fires)

    def _take(self, rows: Places, times: Times, values: Arrays, columns: Columns) -> None:
        """Add records to sessions."""
        order, firsts = _gathered(rows, times, self._gap)
        made = _sessions(rows, times, order, firsts, self._gap)
        owners = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(order)))
        reduced = self._accumulators.reduce(
            Segments(owners, len(firsts)), [array[order] for array in values], columns
        )
        self._merge(made, reduced)

    def _merge(self, made: Sessions, values: Arrays) -> None:
        """Merge new sessions, which do not overlap, with the open ones."""
        touched = self._of_keys(made.keys)
        if len(touched):
            both = _joined(made, self._sessions.take(touched))
            order, firsts = _overlapping(both)
            owners = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(order)))
            made = Sessions(
                both.keys[order][firsts],
                both.starts[order][firsts],
                np.maximum.reduceat(both.ends[order], firsts),
            )
            held = [
                np.concatenate([new, array[touched]])[order]
                for new, array in zip(values, self._values, strict=True)
            ]
            values = self._accumulators.reduce(Segments(owners, len(firsts)), held)
        self._put(made, values, touched)

    def _put(self, sessions: Sessions, values: Arrays, free: Places) -> None:
        """Store sessions at freed places, then at new ones."""
        count = len(sessions.keys)
        places = free[:count]
        self._release(free[count:])
        missing = count - len(places)
        if missing:
            reused = [self._free.pop() for _ in range(min(missing, len(self._free)))]
            stop = self._size + missing - len(reused)
            places = np.concatenate(
                [places, np.array(reused, np.intp), np.arange(self._size, stop)]
            )
            self._size = stop
            self._grow()
        for array, given in zip(self._sessions, sessions, strict=True):
            array[places] = given
        for array, value in zip(self._values, values, strict=True):
            array[places] = value
        ends = sessions.ends[sessions.ends - 1 > self.now]
        self._first_end = min(self._first_end, int(ends.min(initial=_NEVER)))

    def _grow(self) -> None:
        room = len(self._sessions.keys)
        if self._size <= room:
            return
        while room < self._size:
            room *= 2
        sessions, values = _sessions_of(room), self._accumulators.empty(room)
        olds = [*self._sessions, *self._values]
        for new, old in zip([*sessions, *values], olds, strict=True):
            new[: len(old)] = old
        self._sessions, self._values = sessions, values

    def _release(self, places: Places) -> None:
        self._values[0][places] = False
        self._free += places.tolist()

    def _of_keys(self, keys: Places) -> Places:
        wanted = np.zeros(self._capacity, np.bool_)
        wanted[keys] = True
        taken = self._values[0][: self._size]
        return np.flatnonzero(wanted[self._sessions.keys[: self._size]] & taken)

    def advance(self, now: int) -> Iterator[Fired]:
        if now <= self.now:
            return
        before, self.now = self.now, now
        if self._first_end - 1 > now and not self._lateness:
            return
        taken = np.flatnonzero(self._values[0][: self._size])
        last = self._sessions.ends[taken] - 1
        due = taken[(last > before) & (last <= now)]
        if len(due):
            ends = self._sessions.ends[due]
            yield self._fired(due[np.argsort(ends, kind="stable")])
        self._release(taken[self._is_gone(self._sessions.ends[taken])])
        waiting = last[last > now]
        self._first_end = int(waiting.min()) + 1 if len(waiting) else _NEVER

    def _fired(self, places: Places) -> Fired:
        return Fired(*self._sessions.take(places), values=[array[places] for array in self._values])

    def next_end(self) -> int | None:
        return None if self._first_end == _NEVER else self._first_end

    def freeze(self, many: int) -> Callable[[], Iterable[KeyedRows]]:
        taken = np.flatnonzero(self._values[0][: self._size])
        sessions = self._sessions.take(taken)
        values = [array[taken] for array in self._values]
        stored = self._accumulators.freeze()
        return lambda: [WindowRows(*sessions, columns=stored(values) if len(taken) else []).keyed()]

    def _restore(self, keys: Places, starts: Times, ends: Times, values: Arrays) -> None:
        self._put(Sessions(keys, starts, ends), values, NO_RECORDS)

    def _occurring(self) -> npt.NDArray[np.bool_]:
        occurring = np.zeros(len(self._index), np.bool_)
        taken = self._values[0][: self._size]
        occurring[self._sessions.keys[: self._size][taken]] = True
        return occurring

    def _renumber(self, new: Places) -> None:
        keys = self._sessions.keys
        keys[: self._size] = np.maximum(new[keys[: self._size]], 0)

    def _most_together(self) -> int:
        """A record between sessions of a key merges them."""
        taken = self._values[0][: self._size]
        return int(np.bincount(self._sessions.keys[: self._size][taken]).max(initial=0))

    @property
    def _living(self) -> Sequence[Arrays]:
        return [self._values]


def _sessions_of(room: int) -> Sessions:
    return Sessions(np.zeros(room, np.intp), np.zeros(room, np.int64), np.zeros(room, np.int64))


def _joined(one: Sessions, other: Sessions) -> Sessions:
    return Sessions(*(np.concatenate(both) for both in zip(one, other, strict=True)))


def _gathered(rows: Places, times: Times, gap: int) -> tuple[Places, Places]:
    """Records ordered by key and time, and the positions where sessions begin."""
    order = _order(rows, times)
    rows, times = rows[order], times[order]
    begins = (rows[1:] != rows[:-1]) | (times[1:] - times[:-1] > gap)
    return order, np.concatenate([NO_RECORDS[:0], [0], np.flatnonzero(begins) + 1])


def _sessions(rows: Places, times: Times, order: Places, firsts: Places, gap: int) -> Sessions:
    """The sessions that begin at these positions."""
    lasts = np.append(firsts[1:], len(order)) - 1
    return Sessions(rows[order[firsts]], times[order[firsts]], times[order[lasts]] + gap)


def _overlapping(sessions: Sessions) -> tuple[Places, Places]:
    """Sessions ordered by key and start, and the positions where separate ones begin."""
    order = _order(sessions.keys, sessions.starts)
    keys, starts, ends = sessions.take(order)
    new_key = np.append(True, keys[1:] != keys[:-1])
    # Shift each key by more than any distance, so that the running maximum starts over in each.
    base = int(starts.min())
    span = int(ends.max()) - base + 1
    number = np.cumsum(new_key) - 1
    if span * (int(number[-1]) + 1) < _NEVER:
        reach = np.maximum.accumulate(ends - base + number * span) - number * span + base
    else:
        reach = _running_maximum(ends, np.flatnonzero(new_key))
    begins = new_key.copy()
    begins[1:] |= starts[1:] > reach[:-1]
    return order, np.flatnonzero(begins)


def _running_maximum(values: Times, firsts: Places) -> Times:
    return np.concatenate([np.maximum.accumulate(part) for part in np.split(values, firsts[1:])])


def _order(rows: Places, times: Times) -> Places:
    """The order by row, then time, then position."""
    least = int(times.min())
    bits = (int(times.max()) - least).bit_length()
    places = len(rows).bit_length()
    if bits + places + int(rows.max()).bit_length() > 62:
        return np.lexsort((times, rows))
    # Sorting numbers that combine row, time and position is faster than an argsort.
    packed = (rows.astype(np.int64) << (bits + places)) | ((times - least) << places)
    packed |= np.arange(len(rows))
    packed.sort()
    order: Places = packed & ((1 << places) - 1)
    return order
