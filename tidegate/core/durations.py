"""Durations as users write them, and PyFlink's `Duration` and `Time`."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import Enum
from typing import TypeAlias

_MICROSECONDS = {
    **dict.fromkeys(("d", "day", "days"), 86_400_000_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000_000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000_000),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000_000),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1_000),
    **dict.fromkeys(("µs", "us", "micro", "micros", "microsecond", "microseconds"), 1),
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 0.001),
}
_AMOUNT = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([^\W\d]*)")
_ISO = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)


class Duration(timedelta):
    """A `timedelta` under PyFlink's name; both are accepted wherever a duration is expected."""

    @staticmethod
    def of_days(days: int) -> Duration:
        """A duration of this many days."""
        return Duration(days=days)

    @staticmethod
    def of_hours(hours: int) -> Duration:
        """A duration of this many hours."""
        return Duration(hours=hours)

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        """A duration of this many minutes."""
        return Duration(minutes=minutes)

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        """A duration of this many seconds."""
        return Duration(seconds=seconds)

    @staticmethod
    def of_millis(millis: int) -> Duration:
        """A duration of this many milliseconds."""
        return Duration(milliseconds=millis)

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        """Rounded to whole microseconds, the resolution of a `timedelta`."""
        return Duration(microseconds=nanos / 1000)


class TimeUnit(Enum):
    """Units of `Time.of`, under Java's names."""

    NANOSECONDS = 1e-6
    MICROSECONDS = 1e-3
    MILLISECONDS = 1
    SECONDS = 1000
    MINUTES = 60_000
    HOURS = 3_600_000
    DAYS = 86_400_000


class Time:
    """A duration in milliseconds, PyFlink's older form."""

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds

    def to_milliseconds(self) -> int:
        """The duration in milliseconds."""
        return self._milliseconds

    @staticmethod
    def of(size: int, unit: TimeUnit) -> Time:
        """Like `Time.of(5, TimeUnit.SECONDS)`."""
        return Time(int(size * unit.value))

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        """A duration of this many milliseconds."""
        return Time(milliseconds)

    @staticmethod
    def seconds(seconds: int) -> Time:
        """A duration of this many seconds."""
        return Time(seconds * 1000)

    @staticmethod
    def minutes(minutes: int) -> Time:
        """A duration of this many minutes."""
        return Time.seconds(minutes * 60)

    @staticmethod
    def hours(hours: int) -> Time:
        """A duration of this many hours."""
        return Time.minutes(hours * 60)

    @staticmethod
    def days(days: int) -> Time:
        """A duration of this many days."""
        return Time.hours(days * 24)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Time) and other._milliseconds == self._milliseconds

    def __hash__(self) -> int:
        return hash(self._milliseconds)

    def __repr__(self) -> str:
        return f"{self._milliseconds} ms"


DurationLike: TypeAlias = timedelta | Time | int | float | str
"""A timedelta, PyFlink's Duration or Time, a number of milliseconds, or text like "5 min"."""


def as_timedelta(value: object) -> timedelta:
    """Convert a `DurationLike`.

    Raises:
        ValueError: the value is not a duration; the message says what to write instead.
    """
    if isinstance(value, timedelta):
        return value
    if isinstance(value, Time):
        return timedelta(milliseconds=value.to_milliseconds())
    if isinstance(value, str):
        return _parse(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return timedelta(milliseconds=value)
    raise ValueError("give a timedelta, a number of milliseconds, or text like '5 s'")


def as_milliseconds(value: DurationLike) -> int:
    """The duration in whole milliseconds."""
    return as_timedelta(value) // timedelta(milliseconds=1)


def format_duration(value: timedelta) -> str:
    """Text that `as_timedelta` parses, in the largest unit without a fraction."""
    microseconds = value // timedelta(microseconds=1)
    for unit in ("d", "h", "min", "s", "ms"):
        size = int(_MICROSECONDS[unit])
        if microseconds % size == 0 and (microseconds or unit == "ms"):
            return f"{microseconds // size} {unit}"
    return f"{microseconds} µs"


def _parse(text: str) -> timedelta:
    stripped = text.strip()
    amount = _AMOUNT.fullmatch(stripped)
    if amount is not None and (size := _MICROSECONDS.get(amount[2].lower())) is not None:
        return timedelta(microseconds=float(amount[1]) * size)
    iso = _ISO.fullmatch(stripped)
    if iso is not None and any(iso.groups()):
        days, hours, minutes, seconds = (float(part or 0) for part in iso.groups())
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    raise ValueError("give a number and a unit, like '500 ms', '10s', '5 min', '1 h' or '2 d'")
