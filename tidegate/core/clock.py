"""Time as a dependency, so that everything that waits can be tested without waiting."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Both readings in seconds: `time` is wall-clock, `monotonic` never goes back."""

    def time(self) -> float: ...

    def monotonic(self) -> float: ...

    def sleep_for(self, seconds: float) -> float:
        """How long a thread may sleep until so many seconds have passed; 0: that is unknown."""
        ...


class SystemClock:
    """The machine's clock."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep_for(self, seconds: float) -> float:
        return seconds


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def time(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    def sleep_for(self, seconds: float) -> float:
        return 0.0

    def advance(self, seconds: float) -> None:
        self._now += seconds
