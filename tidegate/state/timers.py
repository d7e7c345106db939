"""Timers of keys: one per key and time, however often it is registered."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from itertools import count
from operator import index
from typing import Any, Final, NamedTuple

from tidegate.state.keys.key_bytes import with_one_nan

_END: Final = (1 << 63) - 1
"""The last moment of event time."""


def timer_time(timestamp: Any) -> int:
    """The time of a timer as users give it, such as a NumPy integer."""
    try:
        return int(index(timestamp))
    except TypeError:
        raise TypeError(
            f"a timer at {timestamp!r}: give whole milliseconds since the epoch, as an int"
        ) from None


class Timer(NamedTuple):
    timestamp: int
    """Milliseconds since the epoch."""
    key: Any
    place: Any
    """The place of the key's state."""


class TimerQueue:
    """The timers of one clock, ordered by time, then by registration.

    A deleted timer stays in the heap until its time comes or too many have accumulated.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Any]] = []
        self._registered: dict[tuple[int, Any], tuple[int, Any]] = {}
        """Registration number and place of the key, by time and key."""
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._registered)

    def register(self, timestamp: int, key: Any, place: Any) -> None:
        """Add a timer, unless the key already has one for this time, or time ends before it."""
        if timestamp > _END or (timestamp, key) in self._registered:
            return
        number = next(self._numbers)
        self._registered[timestamp, key] = number, place
        heapq.heappush(self._heap, (timestamp, number, key))

    def delete(self, timestamp: int, key: Any) -> None:
        """Remove the timer of the key at exactly this time, if there is one."""
        if self._registered.pop((timestamp, key), None) is None:
            return
        if len(self._heap) > 2 * len(self._registered) + 64:
            self._rebuild()

    def next_due(self) -> int | None:
        """The time of the next timer; None if there is none."""
        heap = self._heap
        while heap:
            timestamp, number, key = heap[0]
            found = self._registered.get((timestamp, key))
            if found is not None and found[0] == number:
                return timestamp
            heapq.heappop(heap)
        return None

    def last_due(self) -> int | None:
        """The time of the last timer; None if there is none."""
        return max((timestamp for timestamp, _ in self._registered), default=None)

    def pop_due(self, now: int) -> Timer | None:
        """Take the first timer at or before `now`; call it again, as it may register another."""
        due = self.next_due()
        if due is None or due > now:
            return None
        timestamp, _, key = heapq.heappop(self._heap)
        _, place = self._registered.pop((timestamp, key))
        return Timer(timestamp, key, place)

    def timers(self) -> list[Timer]:
        """All timers, in the order of registration."""
        return [Timer(*timer, place) for timer, (_, place) in self._registered.items()]

    def add_all(self, timers: Iterable[Timer]) -> None:
        """Register many timers at once, as after a restore."""
        for timestamp, restored, place in timers:
            key = with_one_nan(restored)
            if (timestamp, key) not in self._registered:
                self._registered[timestamp, key] = next(self._numbers), place
        self._rebuild()

    def move(self, place_of: Callable[[Any], Any]) -> None:
        """Update the places of keys: old place -> new place."""
        for timer, (number, place) in self._registered.items():
            self._registered[timer] = number, place_of(place)

    def _rebuild(self) -> None:
        self._heap = [
            (timestamp, number, key) for (timestamp, key), (number, _) in self._registered.items()
        ]
        heapq.heapify(self._heap)
