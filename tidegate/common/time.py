"""PyFlink's times: `Duration`, `Time` and `Instant`."""

from tidegate.core.durations import Duration, Time, TimeUnit
from tidegate.types.instant import Instant

__all__ = ["Duration", "Instant", "Time", "TimeUnit"]
