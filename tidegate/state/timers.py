"""Timers of keys: one per key and time, however often it is registered."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import count
from typing import Any

Timer = tuple[int, Any]
"""(time in milliseconds since the epoch, key)"""


class TimerQueue:
    """The timers of one clock, in the order of their times, then of registration.

    A deleted timer stays in the heap until its time comes or too many have gathered.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Any]] = []
        self._registered: dict[Timer, int] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._registered)

    def register(self, timestamp: int, key: Any) -> None:
        """Add a timer; nothing happens where the key has one for this time already."""
        timer = (timestamp, key)
        if timer in self._registered:
            return
        number = next(self._numbers)
        self._registered[timer] = number
        heapq.heappush(self._heap, (timestamp, number, key))

    def delete(self, timestamp: int, key: Any) -> None:
        """Remove the timer of the key at exactly this time, if there is one."""
        if self._registered.pop((timestamp, key), None) is None:
            return
        if len(self._heap) > 2 * len(self._registered) + 64:
            self._rebuild()

    def next_due(self) -> int | None:
        """The time of the next timer; None where there is none."""
        heap = self._heap
        while heap:
            timestamp, number, key = heap[0]
            if self._registered.get((timestamp, key)) == number:
                return timestamp
            heapq.heappop(heap)
        return None

    def pop_due(self, now: int) -> Timer | None:
        """Take the first timer at or before `now`; ask again, for it may register another."""
        due = self.next_due()
        if due is None or due > now:
            return None
        timestamp, _, key = heapq.heappop(self._heap)
        del self._registered[timestamp, key]
        return timestamp, key

    def timers(self) -> list[Timer]:
        """All timers, in the order of registration."""
        return list(self._registered)

    def add_all(self, timers: Iterable[Timer]) -> None:
        """Register many at once, as after a restore."""
        for timer in timers:
            if timer not in self._registered:
                self._registered[timer] = next(self._numbers)
        self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [(timer[0], number, timer[1]) for timer, number in self._registered.items()]
        heapq.heapify(self._heap)
