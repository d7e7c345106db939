"""Which windows a record belongs to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from tidegate.core.durations import DurationLike, as_milliseconds
from tidegate.core.errors import ConfigError
from tidegate.operators.runtime_context import RuntimeContext
from tidegate.operators.windows.triggers import (
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
)
from tidegate.operators.windows.windows import CountWindow, GlobalWindow, TimeWindow
from tidegate.state.descriptors import ValueStateDescriptor
from tidegate.types.typeinfo import Types

T = TypeVar("T")
W = TypeVar("W")
W2 = TypeVar("W2")
Times = npt.NDArray[np.int64]


class WindowAssigner(ABC, Generic[T, W]):
    """Assigns any number of windows to each record."""

    class WindowAssignerContext(ABC):
        """What an assigner can use besides the record."""

        @abstractmethod
        def get_current_processing_time(self) -> int: ...

        @abstractmethod
        def get_runtime_context(self) -> RuntimeContext:
            """With the state of the record's key."""

    @abstractmethod
    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[W]:
        """The windows that a record belongs to."""

    @abstractmethod
    def get_default_trigger(self, env: Any) -> Trigger[T, W]:
        """The trigger that is used unless the program sets another."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Whether windows end in event time."""

    def get_window_serializer(self) -> Any:
        """For compatibility only: windows are stored as `Window.parts`."""
        return None


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows can merge."""

    class MergeCallback(ABC, Generic[W2]):
        """Notified of windows that are merged."""

        @abstractmethod
        def merge(self, to_be_merged: Iterable[W2], merge_result: W2) -> None: ...

    @abstractmethod
    def merge_windows(
        self, windows: Iterable[W], callback: MergingWindowAssigner.MergeCallback[W]
    ) -> None:
        """Call `callback.merge` for each group of windows to merge."""


class SlicedWindows(WindowAssigner[Any, TimeWindow]):
    """Windows of one size at regular intervals, determined by time alone.

    A record belongs to `windows_per_slice` windows: the one that starts at its slice, and earlier
    ones.
    """

    def __init__(self, size: DurationLike, slide: DurationLike, offset: DurationLike = 0) -> None:
        self.size = as_milliseconds(size)
        self.slide = as_milliseconds(slide)
        self.offset = as_milliseconds(offset)
        if self.size <= 0 or self.slide <= 0:
            raise ConfigError(
                type(self).__name__, (size, slide), "give a size and a slide above zero"
            )
        if abs(self.offset) >= self.slide:
            raise ConfigError(
                f"offset of {type(self).__name__}", offset, "give less than the size or slide"
            )

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        time = timestamp if self.is_event_time() else context.get_current_processing_time()
        last = time - (time - self.offset) % self.slide
        starts = range(last, time - self.size, -self.slide)
        return [TimeWindow(start, start + self.size) for start in starts]

    def last_starts(self, times: Times) -> Times:
        """The start of the last window that contains each time."""
        return times - (times - self.offset) % self.slide

    def get_default_trigger(self, env: Any) -> Trigger[Any, TimeWindow]:
        return EventTimeTrigger() if self.is_event_time() else ProcessingTimeTrigger()

    def __repr__(self) -> str:
        slide = "" if self.slide == self.size else f", {self.slide}"
        return f"{type(self).__name__}({self.size}{slide}, {self.offset})"


class _ByTimestamps:
    def is_event_time(self) -> bool:
        """True: windows end when event time has passed them."""
        return True


class _ByClock:
    def is_event_time(self) -> bool:
        """False: windows follow the clock of the machine."""
        return False


class _TumblingWindows(SlicedWindows):
    def __init__(self, size: DurationLike, offset: DurationLike = 0) -> None:
        super().__init__(size, size, offset)

    @classmethod
    def of(cls, size: DurationLike, offset: DurationLike | None = None) -> Self:
        """Windows of this size, one after the other."""
        return cls(size, offset or 0)


class _SlidingWindows(SlicedWindows):
    @classmethod
    def of(
        cls, size: DurationLike, slide: DurationLike, offset: DurationLike | None = None
    ) -> Self:
        """Windows of this size, one every `slide`."""
        return cls(size, slide, offset or 0)


class TumblingEventTimeWindows(_ByTimestamps, _TumblingWindows):
    """One window after the other, by the timestamps of the records."""


class TumblingProcessingTimeWindows(_ByClock, _TumblingWindows):
    """One window after the other, by the clock of the machine."""


class SlidingEventTimeWindows(_ByTimestamps, _SlidingWindows):
    """Windows that overlap, or leave gaps, by the timestamps of the records."""


class SlidingProcessingTimeWindows(_ByClock, _SlidingWindows):
    """Windows that overlap, or leave gaps, by the clock of the machine."""


class SessionWindowTimeGapExtractor(ABC):
    """Determines how long after a record its session ends, if no other record follows."""

    @abstractmethod
    def extract(self, element: Any) -> int:
        """The gap in milliseconds, above zero."""


class SessionWindows(MergingWindowAssigner[Any, TimeWindow]):
    """Windows that end when no record has arrived for some time."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        time = timestamp if self.is_event_time() else context.get_current_processing_time()
        return [TimeWindow(time, time + self.gap_of(element))]

    @abstractmethod
    def gap_of(self, element: Any) -> int:
        """Milliseconds from a record to the end of its session."""

    def merge_windows(
        self,
        windows: Iterable[TimeWindow],
        callback: MergingWindowAssigner.MergeCallback[TimeWindow],
    ) -> None:
        TimeWindow.merge_windows(windows, callback)

    def get_default_trigger(self, env: Any) -> Trigger[Any, TimeWindow]:
        return EventTimeTrigger() if self.is_event_time() else ProcessingTimeTrigger()


class _FixedGap(SessionWindows):
    _dynamic: ClassVar[type[_DynamicGap]]

    def __init__(self, session_gap: DurationLike) -> None:
        self.gap = as_milliseconds(session_gap)
        if self.gap <= 0:
            raise ConfigError("session gap", session_gap, "give a duration above zero")

    @classmethod
    def with_gap(cls, size: DurationLike) -> Self:
        """Windows that end after a pause of this length."""
        return cls(size)

    @classmethod
    def with_dynamic_gap(
        cls, extractor: SessionWindowTimeGapExtractor | Callable[[Any], int]
    ) -> _DynamicGap:
        """Windows that end after a pause whose length each record determines."""
        return cls._dynamic(extractor)

    def gap_of(self, element: Any) -> int:
        return self.gap

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.gap})"


class _DynamicGap(SessionWindows):
    def __init__(
        self,
        session_window_time_gap_extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> None:
        given: Any = session_window_time_gap_extractor
        self._extract: Callable[[Any], int] = getattr(given, "extract", given)
        if not callable(self._extract):
            raise TypeError(f"expected a gap extractor or a function, got {given!r}")

    @classmethod
    def with_dynamic_gap(
        cls, extractor: SessionWindowTimeGapExtractor | Callable[[Any], int]
    ) -> Self:
        """Windows that end after a pause whose length each record determines."""
        return cls(extractor)

    def gap_of(self, element: Any) -> int:
        gap = self._extract(element)
        if gap <= 0:
            raise ConfigError("dynamic session gap", gap, "return milliseconds above zero")
        return gap

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class DynamicEventTimeSessionWindows(_ByTimestamps, _DynamicGap):
    """Sessions whose gap each record determines, by the timestamps of the records."""


class DynamicProcessingTimeSessionWindows(_ByClock, _DynamicGap):
    """Sessions whose gap each record determines, by the clock of the machine."""


class EventTimeSessionWindows(_ByTimestamps, _FixedGap):
    """Sessions with a fixed gap, by the timestamps of the records."""

    _dynamic = DynamicEventTimeSessionWindows


class ProcessingTimeSessionWindows(_ByClock, _FixedGap):
    """Sessions with a fixed gap, by the clock of the machine."""

    _dynamic = DynamicProcessingTimeSessionWindows


class GlobalWindows(_ByClock, WindowAssigner[Any, GlobalWindow]):
    """All records of a key in one window, which never fires unless a trigger is set."""

    @staticmethod
    def create() -> GlobalWindows:
        """One window for all records of a key."""
        return GlobalWindows()

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[GlobalWindow]:
        return [GlobalWindow.get()]

    def get_default_trigger(self, env: Any) -> Trigger[Any, GlobalWindow]:
        return NeverTrigger()

    def __repr__(self) -> str:
        return "GlobalWindows()"


class _CountWindows(_ByClock, WindowAssigner[Any, CountWindow]):
    """Windows with a fixed number of records; each is removed when it is full and has fired."""

    def __init__(self, state: str, window_size: int, window_slide: int) -> None:
        for what, count in (("size", window_size), ("slide", window_slide)):
            if type(count) is not int or count <= 0:
                raise ConfigError(f"{what} of a count window", count, "give 1 or more records")
        self.size = window_size
        self.slide = window_slide
        self._seen = ValueStateDescriptor(state, Types.LONG())

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[CountWindow]:
        seen = context.get_runtime_context().get_state(self._seen)
        number = seen.value() or 0
        seen.update(number + 1)
        first = max(0, (number - self.size) // self.slide + 1)
        return [CountWindow(id) for id in range(number // self.slide, first - 1, -1)]

    def get_default_trigger(self, env: Any) -> Trigger[Any, CountWindow]:
        return PurgingTrigger.of(CountTrigger.of(self.size))


class CountTumblingWindowAssigner(_CountWindows):
    """Consecutive windows, each with `window_size` records of its key."""

    def __init__(self, window_size: int) -> None:
        super().__init__("tumble-count-assigner", window_size, window_size)

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        """Windows of this many records."""
        return CountTumblingWindowAssigner(window_size)

    def __repr__(self) -> str:
        return f"CountTumblingWindowAssigner({self.size})"


class CountSlidingWindowAssigner(_CountWindows):
    """A window of `window_size` records starts every `window_slide` records of the key."""

    def __init__(self, window_size: int, window_slide: int) -> None:
        super().__init__("slide-count-assigner", window_size, window_slide)

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """Windows of `window_size` records; one starts every `window_slide` records."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def __repr__(self) -> str:
        return f"CountSlidingWindowAssigner({self.size}, {self.slide})"
