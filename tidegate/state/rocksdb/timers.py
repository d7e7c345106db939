"""Timers in memory that track their unwritten changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tidegate.state.timers import Timer, TimerQueue

TimerChanges = dict[tuple[int, Any], int | None]
"""Maps (time, key) to the registration number; None: the timer is gone."""


class StoredTimerQueue(TimerQueue):
    """The timers of one clock, and their changes since the last write."""

    def __init__(self) -> None:
        super().__init__()
        self._changed: set[tuple[int, Any]] = set()

    def register(self, timestamp: int, key: Any, place: Any) -> None:
        super().register(timestamp, key, place)
        if (timestamp, key) in self._registered:
            self._changed.add((timestamp, key))

    def delete(self, timestamp: int, key: Any) -> None:
        if (timestamp, key) in self._registered:
            self._changed.add((timestamp, key))
        super().delete(timestamp, key)

    def pop_due(self, now: int) -> Timer | None:
        timer = super().pop_due(now)
        if timer is not None:
            self._changed.add((timer.timestamp, timer.key))
        return timer

    def take_changes(self) -> TimerChanges:
        """Take the unwritten changes; they count as written unless they are put back."""
        taken, self._changed = self._changed, set()
        return {timer: self._registered.get(timer, (None, None))[0] for timer in taken}

    def put_back(self, changes: TimerChanges) -> None:
        self._changed.update(changes)

    def load(self, timers: Iterable[tuple[int, int, Any]]) -> None:
        """Add timers that are already written: registration number, time, key."""
        self.add_all(
            Timer(timestamp, key, None) for _, timestamp, key in sorted(timers, key=_number)
        )

    def due(self, now: int) -> list[tuple[int, Any]]:
        """(time, key) of the timers at or before `now`, in no particular order."""
        found, positions = [], [0]
        while positions:
            position = positions.pop()
            if position < len(self._heap) and self._heap[position][0] <= now:
                timestamp, number, key = self._heap[position]
                if self._registered.get((timestamp, key), (None, None))[0] == number:
                    found.append((timestamp, key))
                positions += 2 * position + 1, 2 * position + 2
        return found

    def put_at(self, timers: Sequence[tuple[int, Any]], places: Sequence[int]) -> None:
        """Set the new places of these timers' keys."""
        for timer, place in zip(timers, places, strict=True):
            self._registered[timer] = self._registered[timer][0], place


def _number(timer: tuple[int, int, Any]) -> int:
    return timer[0]
