"""Which records leave a window before or after it is evaluated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from tidegate.core.durations import DurationLike, as_milliseconds
from tidegate.core.errors import ConfigError
from tidegate.operators.metrics import MetricGroup

T = TypeVar("T")
W = TypeVar("W")


class TimestampedValue(NamedTuple):
    """A record in a window, and its timestamp."""

    value: Any
    timestamp: int | None
    """None on a stream without event time."""

    def get_value(self) -> Any:
        """The record."""
        return self.value

    def get_timestamp(self) -> int | None:
        """The timestamp of the record, in milliseconds since the epoch."""
        return self.timestamp

    def has_timestamp(self) -> bool:
        """Whether the record has a timestamp."""
        return self.timestamp is not None


class Evictor(ABC, Generic[T, W]):
    """Removes records from a firing window: `del elements[...]`, in order of arrival."""

    class EvictorContext(ABC):
        """The time as the operator sees it."""

        @abstractmethod
        def get_current_processing_time(self) -> int: ...

        @abstractmethod
        def get_metric_group(self) -> MetricGroup: ...

        @abstractmethod
        def get_current_watermark(self) -> int: ...

    @abstractmethod
    def evict_before(
        self,
        elements: list[TimestampedValue],
        size: int,
        window: W,
        evictor_context: Evictor.EvictorContext,
    ) -> None:
        """Called before the window function; `size` is the number of elements."""

    @abstractmethod
    def evict_after(
        self,
        elements: list[TimestampedValue],
        size: int,
        window: W,
        evictor_context: Evictor.EvictorContext,
    ) -> None:
        """Called after the window function, with the remaining elements."""


class _OneTimeEvictor(Evictor[Any, Any]):
    """Evicts either before or after the window function."""

    def __init__(self, do_evict_after: bool) -> None:
        self.do_evict_after = do_evict_after

    def evict_before(
        self,
        elements: list[TimestampedValue],
        size: int,
        window: Any,
        evictor_context: Evictor.EvictorContext,
    ) -> None:
        if elements and not self.do_evict_after:
            self._evict(elements)

    def evict_after(
        self,
        elements: list[TimestampedValue],
        size: int,
        window: Any,
        evictor_context: Evictor.EvictorContext,
    ) -> None:
        if elements and self.do_evict_after:
            self._evict(elements)

    @abstractmethod
    def _evict(self, elements: list[TimestampedValue]) -> None:
        """Remove elements; there is at least one."""


class CountEvictor(_OneTimeEvictor):
    """Keeps the last `max_count` records."""

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        if type(max_count) is not int or max_count < 0:
            raise ConfigError("count of CountEvictor", max_count, "give 0 or more records")
        super().__init__(do_evict_after)
        self.max_count = max_count

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:
        """Keep the last `max_count` records."""
        return CountEvictor(max_count, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        del elements[: max(0, len(elements) - self.max_count)]

    def __repr__(self) -> str:
        return f"CountEvictor({self.max_count})"


class TimeEvictor(_OneTimeEvictor):
    """Keeps the records of the last `window_size` before the latest one."""

    def __init__(self, window_size: DurationLike, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self.window_size = as_milliseconds(window_size)

    @staticmethod
    def of(window_size: DurationLike, do_evict_after: bool = False) -> TimeEvictor:
        """Keep the records within this time before the latest one."""
        return TimeEvictor(window_size, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        if elements[0].timestamp is None:
            return
        times = [e.timestamp for e in elements if e.timestamp is not None]
        cutoff = max(times) - self.window_size
        elements[:] = [e for e in elements if e.timestamp is None or e.timestamp > cutoff]

    def __repr__(self) -> str:
        return f"TimeEvictor({self.window_size})"


class DeltaEvictor(_OneTimeEvictor):
    """Keeps the records that differ by less than a threshold from the last one."""

    def __init__(
        self,
        threshold: float,
        delta_function: Callable[[Any, Any], float],
        do_evict_after: bool = False,
    ) -> None:
        if not callable(delta_function):
            raise TypeError(f"DeltaEvictor needs a function of two records, got {delta_function!r}")
        super().__init__(do_evict_after)
        self.threshold = threshold
        self.delta_function = delta_function

    @staticmethod
    def of(
        threshold: float,
        delta_function: Callable[[Any, Any], float],
        do_evict_after: bool = False,
    ) -> DeltaEvictor:
        """Keep the records whose delta to the last one is below the threshold."""
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        last, delta = elements[-1].value, self.delta_function
        elements[:] = [e for e in elements if not delta(e.value, last) >= self.threshold]

    def __repr__(self) -> str:
        return f"DeltaEvictor({self.delta_function!r}, {self.threshold})"
