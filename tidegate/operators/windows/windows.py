"""Windows as values, and the keys of their state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import total_ordering
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidegate.state.keys.key_bytes import with_one_nan
from tidegate.state.keys.window_keys import OF_WINDOW, WindowKey, parts_of
from tidegate.stream.batch import NO_TIMESTAMP
from tidegate.types.privacy import declare_immutable

MAX_TIMESTAMP: Final = 2**63 - 1
"""The end of time: the final watermark, and the end of unbounded windows."""
_FARTHEST: Final = 2**62
"""The windows of times from here on might reach beyond the ends of time."""


def without_window(times: npt.NDArray[np.int64] | None) -> tuple[int, str] | None:
    """The position of the first record without an event-time window, and the reason."""
    if times is None:
        return 0, _NO_TIMESTAMP
    if int(times.min()) > -_FARTHEST and int(times.max()) < _FARTHEST:
        return None
    place = int(np.argmax((times <= -_FARTHEST) | (times >= _FARTHEST)))
    found = int(times[place])
    return place, _NO_TIMESTAMP if found == NO_TIMESTAMP else _NO_TIME.format(found)


_NO_TIMESTAMP: Final = (
    "an event-time window needs records with timestamps, but this one has none: call "
    "assign_timestamps_and_watermarks() before the window, or use processing-time windows"
)
_NO_TIME: Final = (
    "a record has the timestamp {}, which is too close to the end of time for windows: assign "
    "milliseconds since the epoch"
)


class Window(ABC):
    """A finite group of the records of a key.

    User-defined windows need `__eq__` and `__hash__`, and attributes that can be keys, because
    their state is found by them.
    """

    __slots__ = ()

    @abstractmethod
    def max_timestamp(self) -> int:
        """The last millisecond that belongs to the window."""

    def parts(self) -> tuple[Any, ...]:
        """What identifies the window among those of its key; `window_of` rebuilds it."""
        return type(self), *getattr(self, "__dict__", {}).items()


@total_ordering
class TimeWindow(Window):
    """The time from `start` up to, not including, `end`; milliseconds since the epoch."""

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end

    def max_timestamp(self) -> int:
        return self.end - 1

    def parts(self) -> tuple[Any, ...]:
        if type(self) is TimeWindow:
            return self.start, self.end
        return type(self), ("start", self.start), ("end", self.end), *super().parts()[1:]

    def intersects(self, other: TimeWindow) -> bool:
        """Whether the windows overlap, or one ends where the other starts."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """The smallest window that contains both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """The start of the window of this size that contains a timestamp."""
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(windows: Iterable[TimeWindow], callback: Any) -> None:
        """Call `callback.merge(windows, result)` for each group of intersecting windows."""
        merged: list[tuple[TimeWindow, list[TimeWindow]]] = []
        for window in sorted(windows):
            if merged and merged[-1][0].intersects(window):
                result, parts = merged[-1]
                merged[-1] = result.cover(window), [*parts, window]
            else:
                merged.append((window, [window]))
        for result, parts in merged:
            if len(parts) > 1:
                callback.merge(parts, result)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return False
        return self.start == other.start and self.end == other.end

    def __hash__(self) -> int:
        return hash((self.start, self.end))

    def __lt__(self, other: TimeWindow) -> bool:
        if not isinstance(other, TimeWindow):
            return NotImplemented
        return (self.start, self.end) < (other.start, other.end)

    def __repr__(self) -> str:
        return f"TimeWindow(start={self.start}, end={self.end})"


class CountWindow(Window):
    """The window with this number among those of its key."""

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:
        self.id = id

    def max_timestamp(self) -> int:
        return MAX_TIMESTAMP

    def parts(self) -> tuple[Any, ...]:
        return (self.id,)

    def __eq__(self, other: object) -> bool:
        return type(other) is CountWindow and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"CountWindow(id={self.id})"


class GlobalWindow(Window):
    """The single window that contains everything."""

    __slots__ = ()

    @staticmethod
    def get() -> GlobalWindow:
        """The only window of this kind."""
        return _GLOBAL

    def max_timestamp(self) -> int:
        return MAX_TIMESTAMP

    def parts(self) -> tuple[Any, ...]:
        return ()

    def __eq__(self, other: object) -> bool:
        return type(other) is GlobalWindow

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "GlobalWindow"


_GLOBAL: Final = GlobalWindow()
for _kind in (TimeWindow, CountWindow, GlobalWindow):
    declare_immutable(_kind)


def state_key(key: Any, window: Window) -> WindowKey:
    return OF_WINDOW, with_one_nan(key), *window.parts()


def window_of(key: WindowKey) -> Window:
    return window_of_parts(parts_of(key))


def window_of_parts(parts: tuple[Any, ...]) -> Window:
    if len(parts) == 2 and type(parts[0]) is int:
        return TimeWindow(*parts)
    if not parts:
        return _GLOBAL
    if len(parts) == 1 and type(parts[0]) is int:
        return CountWindow(parts[0])
    kind: type[Window] = parts[0]
    window = kind.__new__(kind)
    for name, value in parts[1:]:
        setattr(window, name, value)
    return window
