"""The contexts of assigners, triggers, evictors and window functions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from tidegate.core.clock import Clock
from tidegate.core.errors import StateMisuse
from tidegate.operators.keyed_context import KeyedStates
from tidegate.operators.metrics import MetricGroup
from tidegate.operators.runtime_context import KeyedStateStore, RuntimeContext
from tidegate.operators.windows.assigners import WindowAssigner
from tidegate.operators.windows.evictors import Evictor
from tidegate.operators.windows.functions import ProcessAllWindowFunction, ProcessWindowFunction
from tidegate.operators.windows.triggers import Trigger
from tidegate.operators.windows.windows import Window
from tidegate.state.backend import NO_KEY, NoKey
from tidegate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidegate.state.handles import AggregatingState, ListState, MapState, ReducingState, ValueState
from tidegate.state.keys.window_keys import WindowKey
from tidegate.state.memory.row_backend import TableBackend
from tidegate.state.timers import timer_time

OF_TRIGGER: Final = "trigger/"
"""Prefix of trigger state names, which separates them from those of the window function."""
OF_WINDOW_FUNCTION: Final = "window/"

_Descriptor = TypeVar("_Descriptor", bound=StateDescriptor)


class KeyScope:
    """The place of the current key; looked up on demand."""

    def __init__(self, backend: TableBackend) -> None:
        self._backend = backend
        self.private: Callable[[Any], Any] = backend.private
        self._key: Any = None
        self._place: Any = NO_KEY

    def enter(self, key: Any) -> None:
        self._key, self._place = key, None

    def leave(self) -> None:
        """Forbid the use of state until the next key is entered."""
        self._place = NO_KEY

    @property
    def place(self) -> Any:
        place = self._place
        if place is None:
            place = self._place = self._backend.places_of([self._key])[0]
        return place


class WindowScope:
    """The window that state and timers belong to, and the place of its state."""

    def __init__(self, backend: TableBackend) -> None:
        self.private: Callable[[Any], Any] = backend.private
        self.key: WindowKey = ()
        self.window: Any = None
        self.place: Any = NO_KEY

    def enter(self, key: WindowKey, window: Window | None, place: Any) -> None:
        self.key, self.window, self.place = key, window, place

    def leave(self) -> None:
        self.enter((), None, NO_KEY)


class WindowTime(Evictor.EvictorContext, WindowAssigner.WindowAssignerContext):
    """Time, as seen by evictors and assigners."""

    def __init__(self, clock: Clock, watermark: int, runtime_context: RuntimeContext) -> None:
        self._clock = clock
        self._runtime = runtime_context
        self.watermark = watermark

    def get_current_processing_time(self) -> int:
        return int(self._clock.time() * 1000)

    def get_current_watermark(self) -> int:
        return self.watermark

    def get_metric_group(self) -> MetricGroup:
        return self._runtime.get_metrics_group()

    def get_runtime_context(self) -> RuntimeContext:
        return self._runtime


class WindowTimers(Trigger.OnMergeContext):
    """Timers and state of the trigger, for the window of the scope."""

    def __init__(self, backend: TableBackend, scope: WindowScope, time: WindowTime) -> None:
        self._backend = backend
        self._scope = scope
        self._time = time
        self._states = KeyedStates(backend, scope)
        self._handles: dict[str, Any] = {}
        self.merged: Sequence[int] = ()
        """The places of the windows merged into this one."""

    def get_current_processing_time(self) -> int:
        return self._time.get_current_processing_time()

    def get_metric_group(self) -> MetricGroup:
        return self._time.get_metric_group()

    def get_current_watermark(self) -> int:
        return self._time.watermark

    def register_processing_time_timer(self, time: int) -> None:
        timers, place = self._backend.processing_timers, self._place()
        timers.register(timer_time(time), self._scope.key, place)

    def register_event_time_timer(self, time: int) -> None:
        timers, place = self._backend.event_timers, self._place()
        timers.register(timer_time(time), self._scope.key, place)

    def delete_processing_time_timer(self, time: int) -> None:
        self._backend.processing_timers.delete(timer_time(time), self._scope.key)

    def delete_event_time_timer(self, time: int) -> None:
        self._backend.event_timers.delete(timer_time(time), self._scope.key)

    def _place(self) -> Any:
        place = self._scope.place
        if isinstance(place, NoKey):
            place.refuse()
        return place

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        handle = self._handles.get(state_descriptor.name)
        if handle is None:
            handle = self._states.of(named(OF_TRIGGER, state_descriptor))
            self._handles[state_descriptor.name] = handle
        return handle

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        merge = _merge_of(state_descriptor)
        self.get_partitioned_state(state_descriptor)
        table = self._backend.table(named(OF_TRIGGER, state_descriptor))
        target, values = self._place(), table.values
        merged = table.owned(target, values[target])
        for place in self.merged:
            if place == target or values[place] is None:
                continue
            found = table.owned(place, values[place])
            values[place] = None
            merged = found if merged is None else merge(merged, found)
        values[target] = merged


def _merge_of(descriptor: StateDescriptor) -> Callable[[Any, Any], Any]:
    if descriptor.ttl_config is None:
        match descriptor:
            case ReducingStateDescriptor():
                return descriptor.reduce
            case AggregatingStateDescriptor():
                merge: Callable[[Any, Any], Any] = descriptor.get_agg_function().merge
                return merge
            case ListStateDescriptor():
                return lambda one, other: one + other
    raise StateMisuse(
        f"state {descriptor.name!r} of a trigger cannot be merged: declare a reducing, aggregating "
        "or list state without a time to live"
    )


def named(prefix: str, descriptor: _Descriptor) -> _Descriptor:
    """The same state under a name with a prefix."""
    renamed = copy.copy(descriptor)
    renamed.name = prefix + descriptor.name
    return renamed


class WindowStates(KeyedStates):
    """The states that a window function has for each window."""

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        return super().get_state(named(OF_WINDOW_FUNCTION, state_descriptor))

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        return super().get_list_state(named(OF_WINDOW_FUNCTION, state_descriptor))

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        return super().get_map_state(named(OF_WINDOW_FUNCTION, state_descriptor))

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        return super().get_reducing_state(named(OF_WINDOW_FUNCTION, state_descriptor))

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any, Any]:
        return super().get_aggregating_state(named(OF_WINDOW_FUNCTION, state_descriptor))


class FiringContext(ProcessWindowFunction.Context[Any], ProcessAllWindowFunction.Context[Any]):
    """The context of window functions."""

    def __init__(
        self,
        scope: WindowScope,
        time: WindowTime,
        window_states: WindowStates | None,
        key_states: KeyedStates,
    ) -> None:
        self._scope = scope
        self._time = time
        self._window_states = window_states
        self._key_states = key_states

    def window(self) -> Any:
        return self._scope.window

    def current_processing_time(self) -> int:
        return self._time.get_current_processing_time()

    def current_watermark(self) -> int:
        return self._time.watermark

    def window_state(self) -> KeyedStateStore:
        if self._window_states is None:
            raise StateMisuse(
                "merging windows have no state of their own, because it could not be merged: keep "
                "it in context.global_state(), or in the accumulator of an AggregateFunction"
            )
        return self._window_states

    def global_state(self) -> KeyedStateStore:
        return self._key_states
