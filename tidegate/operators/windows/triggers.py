"""When windows fire."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Any, Generic, Self, TypeVar

from tidegate.core.durations import DurationLike, as_milliseconds
from tidegate.core.errors import ConfigError
from tidegate.operators.metrics import MetricGroup
from tidegate.state.descriptors import (
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidegate.types.typeinfo import TypeInformation, Types

T = TypeVar("T")
W = TypeVar("W")


class TriggerResult(Enum):
    """What happens to a window: (it is evaluated, its contents are dropped)."""

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        return self.value[0]

    def is_purge(self) -> bool:
        return self.value[1]


class Trigger(ABC, Generic[T, W]):
    """Decides when a window is evaluated. It stores what it needs in the state of its context."""

    class TriggerContext(ABC):
        """The time, and timers and state of the current window."""

        @abstractmethod
        def get_current_processing_time(self) -> int: ...

        @abstractmethod
        def get_metric_group(self) -> MetricGroup: ...

        @abstractmethod
        def get_current_watermark(self) -> int: ...

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None: ...

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None: ...

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None: ...

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None: ...

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
            """The window's state of this name."""

    class OnMergeContext(TriggerContext):
        """The context of the window that results from a merge."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Merge this state of the merged windows into that of the result."""

    @abstractmethod
    def on_element(
        self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """A record was added to the window."""

    @abstractmethod
    def on_processing_time(
        self, time: int, window: W, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """A processing-time timer of the window is due."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """An event-time timer of the window is due."""

    def can_merge(self) -> bool:
        """Whether it supports windows that merge; then `on_merge` must be implemented."""
        return False

    @abstractmethod
    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Several windows have been merged into this one."""

    @abstractmethod
    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """The window is removed: clear its state, delete its timers."""


class _QuietTrigger(Trigger[Any, Any]):
    """Does nothing in methods that a trigger does not override."""

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(
        self, time: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        pass

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        pass


class NeverTrigger(_QuietTrigger):
    """Never fires."""


class EventTimeTrigger(_QuietTrigger):
    """Fires when the watermark passes the end of the window, and for every record after that."""

    @staticmethod
    def create() -> EventTimeTrigger:
        """Fire when the watermark has passed the end of the window."""
        return EventTimeTrigger()

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        is_end = time == window.max_timestamp()
        return TriggerResult.FIRE if is_end else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        # A window that has already ended fires with the record that caused the merge.
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())

    def __repr__(self) -> str:
        return "EventTimeTrigger()"


class ProcessingTimeTrigger(_QuietTrigger):
    """Fires when the clock passes the end of the window."""

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        """Fire when the clock has passed the end of the window."""
        return ProcessingTimeTrigger()

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(
        self, time: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())

    def __repr__(self) -> str:
        return "ProcessingTimeTrigger()"


class _ContinuousTrigger(_QuietTrigger):
    def __init__(self, interval: DurationLike) -> None:
        self.interval = as_milliseconds(interval)
        if self.interval <= 0:
            raise ConfigError(f"interval of {type(self).__name__}", interval, "give more than zero")
        self._next = ReducingStateDescriptor("fire-time", min, Types.LONG())

    def can_merge(self) -> bool:
        return True

    @classmethod
    def of(cls, interval: DurationLike) -> Self:
        """Fire every `interval`."""
        return cls(interval)

    def _register(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> None:
        """Register the next firing after a time."""
        following = min(time + self.interval, window.max_timestamp())
        ctx.get_partitioned_state(self._next).add(following)
        self._timer(following, ctx)

    def _begin(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> None:
        if ctx.get_partitioned_state(self._next).get() is None:
            self._register(time - time % self.interval, window, ctx)

    def _is_due(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> bool:
        state = ctx.get_partitioned_state(self._next)
        if state.get() != time:
            return False
        state.clear()
        self._register(time, window, ctx)
        return True

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._next)
        following = ctx.get_partitioned_state(self._next).get()
        if following is not None:
            self._timer(following, ctx)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        state = ctx.get_partitioned_state(self._next)
        following = state.get()
        if following is not None:
            self._delete(following, ctx)
            state.clear()

    @abstractmethod
    def _timer(self, time: int, ctx: Trigger.TriggerContext) -> None: ...

    @abstractmethod
    def _delete(self, time: int, ctx: Trigger.TriggerContext) -> None: ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.interval})"


class ContinuousEventTimeTrigger(_ContinuousTrigger):
    """Fires each time the watermark has passed an interval, and at the end."""

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        self._begin(timestamp, window, ctx)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        if time == window.max_timestamp() or self._is_due(time, window, ctx):
            return TriggerResult.FIRE
        return TriggerResult.CONTINUE

    def _timer(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.register_event_time_timer(time)

    def _delete(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(time)


class ContinuousProcessingTimeTrigger(_ContinuousTrigger):
    """Fires each time the clock has passed an interval."""

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        self._begin(ctx.get_current_processing_time(), window, ctx)
        return TriggerResult.CONTINUE

    def on_processing_time(
        self, time: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.FIRE if self._is_due(time, window, ctx) else TriggerResult.CONTINUE

    def _timer(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.register_processing_time_timer(time)

    def _delete(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_processing_time_timer(time)


class CountTrigger(_QuietTrigger):
    """Fires whenever this many records have arrived since it last fired."""

    def __init__(self, window_size: int) -> None:
        if type(window_size) is not int or window_size <= 0:
            raise ConfigError("count of CountTrigger", window_size, "give 1 or more records")
        self.count = window_size
        self._seen = ReducingStateDescriptor("count", _sum, Types.LONG())

    @staticmethod
    def of(window_size: int) -> CountTrigger:
        """Fire after every `window_size` records."""
        return CountTrigger(window_size)

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        seen = ctx.get_partitioned_state(self._seen)
        seen.add(1)
        if seen.get() < self.count:
            return TriggerResult.CONTINUE
        seen.clear()
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._seen)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(self._seen).clear()

    def __repr__(self) -> str:
        return f"CountTrigger({self.count})"


class DeltaTrigger(_QuietTrigger):
    """Fires when a record differs by more than a threshold from the one at the last firing."""

    def __init__(
        self,
        threshold: float,
        delta_function: Callable[[Any, Any], float],
        element_type: TypeInformation | None = None,
    ) -> None:
        if not callable(delta_function):
            raise TypeError(f"DeltaTrigger needs a function of two records, got {delta_function!r}")
        self.threshold = threshold
        self.delta_function = delta_function
        self._last = ValueStateDescriptor("last-element", element_type)

    @staticmethod
    def of(
        threshold: float,
        delta_function: Callable[[Any, Any], float],
        element_type: TypeInformation | None = None,
    ) -> DeltaTrigger:
        """Fire when the delta to the record that fired last exceeds the threshold."""
        return DeltaTrigger(threshold, delta_function, element_type)

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        last = ctx.get_partitioned_state(self._last)
        if last.value() is None:
            last.update(element)
            return TriggerResult.CONTINUE
        if self.delta_function(last.value(), element) > self.threshold:
            last.update(element)
            return TriggerResult.FIRE
        return TriggerResult.CONTINUE  # NaN is above nothing

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(self._last).clear()

    def __repr__(self) -> str:
        return f"DeltaTrigger({self.delta_function!r}, {self.threshold})"


class PurgingTrigger(Trigger[Any, Any]):
    """Like another trigger, but drops the contents of the window whenever that one fires."""

    def __init__(self, nested_trigger: Trigger[Any, Any]) -> None:
        self.nested_trigger = nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger[Any, Any]) -> PurgingTrigger:
        """Fire like the given trigger, and then drop the records of the window."""
        return PurgingTrigger(nested_trigger)

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return _purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_processing_time(
        self, time: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return _purging(self.nested_trigger.on_processing_time(time, window, ctx))

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_event_time(time, window, ctx))

    def can_merge(self) -> bool:
        return self.nested_trigger.can_merge()

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        self.nested_trigger.on_merge(window, ctx)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        self.nested_trigger.clear(window, ctx)

    def __repr__(self) -> str:
        return f"PurgingTrigger({self.nested_trigger!r})"


class ProcessingTimeoutTrigger(Trigger[Any, Any]):
    """Wraps a trigger, and also fires when it has not fired for some processing time."""

    def __init__(
        self,
        nested_trigger: Trigger[Any, Any],
        timeout: DurationLike,
        reset_timer_on_new_record: bool = False,
        should_clear_on_timeout: bool = True,
    ) -> None:
        self.nested_trigger = nested_trigger
        self.timeout = as_milliseconds(timeout)
        self.reset_timer_on_new_record = reset_timer_on_new_record
        self.should_clear_on_timeout = should_clear_on_timeout
        self._due = ValueStateDescriptor("timeout", Types.LONG())

    @staticmethod
    def of(
        nested_trigger: Trigger[Any, Any],
        timeout: DurationLike,
        reset_timer_on_new_record: bool = False,
        should_clear_on_timeout: bool = True,
    ) -> ProcessingTimeoutTrigger:
        """Wrap a trigger.

        Args:
            nested_trigger: decides as usual.
            timeout: counted from the first record since the last firing.
            reset_timer_on_new_record: count from the latest record instead.
            should_clear_on_timeout: whether the nested trigger starts fresh after a timeout.
        """
        return ProcessingTimeoutTrigger(
            nested_trigger, timeout, reset_timer_on_new_record, should_clear_on_timeout
        )

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        result = self.nested_trigger.on_element(element, timestamp, window, ctx)
        if result.is_fire():
            self.clear(window, ctx)
            return result
        due = ctx.get_partitioned_state(self._due)
        registered = due.value()
        if registered is not None and self.reset_timer_on_new_record:
            ctx.delete_processing_time_timer(registered)
            registered = None
        if registered is None:
            at = ctx.get_current_processing_time() + self.timeout
            due.update(at)
            ctx.register_processing_time_timer(at)
        return result

    def on_processing_time(
        self, time: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return self._fired(self.nested_trigger.on_processing_time(time, window, ctx), window, ctx)

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return self._fired(self.nested_trigger.on_event_time(time, window, ctx), window, ctx)

    def _fired(
        self, result: TriggerResult, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        if self.should_clear_on_timeout:
            self.clear(window, ctx)
        return TriggerResult.FIRE_AND_PURGE if result.is_purge() else TriggerResult.FIRE

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        raise NotImplementedError("ProcessingTimeoutTrigger does not support windows that merge")

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        due = ctx.get_partitioned_state(self._due)
        registered = due.value()
        if registered is not None:
            ctx.delete_processing_time_timer(registered)
            due.clear()
        self.nested_trigger.clear(window, ctx)

    def __repr__(self) -> str:
        return f"ProcessingTimeoutTrigger({self.nested_trigger!r}, {self.timeout})"


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire() else result


def _sum(one: int, other: int) -> int:
    return one + other
