"""The contexts of keyed functions: state of the current key, timers, time."""

from __future__ import annotations

from typing import Any

from tidegate.core.clock import Clock
from tidegate.operators.functions import (
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeyedStateStore,
    TimeDomain,
    TimerService,
)
from tidegate.state.backend import KeyedStateBackend, NoKey, PlaceHolder
from tidegate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidegate.state.handles import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
    ValueStateWithDefault,
)
from tidegate.state.keys.key_bytes import with_one_nan
from tidegate.state.timers import timer_time
from tidegate.stream.batch import NO_TIMESTAMP
from tidegate.stream.elements import NO_WATERMARK


class KeyedStates(KeyedStateStore):
    """State by descriptor, from a backend: of the current key, or at the place of a holder."""

    def __init__(self, backend: KeyedStateBackend, holder: PlaceHolder | None = None) -> None:
        self._backend = backend
        self._holder = holder

    def of(self, state_descriptor: StateDescriptor) -> State:
        """The state for a descriptor of any kind."""
        match state_descriptor:
            case ValueStateDescriptor():
                return self.get_state(state_descriptor)
            case ListStateDescriptor():
                return self.get_list_state(state_descriptor)
            case MapStateDescriptor():
                return self.get_map_state(state_descriptor)
            case ReducingStateDescriptor():
                return self.get_reducing_state(state_descriptor)
            case AggregatingStateDescriptor():
                return self.get_aggregating_state(state_descriptor)
        raise TypeError(f"expected a descriptor of keyed state, got {state_descriptor!r}")

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        state = self._backend.value_state(state_descriptor, self._holder)
        default = state_descriptor.default_value
        return state if default is None else ValueStateWithDefault(state, default)

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        return self._backend.list_state(state_descriptor, self._holder)

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        return self._backend.map_state(state_descriptor, self._holder)

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        return self._backend.reducing_state(state_descriptor, self._holder)

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any, Any]:
        return self._backend.aggregating_state(state_descriptor, self._holder)


class KeyedTimers(TimerService):
    """Timers of the backend's current key."""

    def __init__(
        self, backend: KeyedStateBackend, clock: Clock, watermark: int = NO_WATERMARK
    ) -> None:
        self._backend = backend
        self._clock = clock
        self.watermark = watermark

    def current_processing_time(self) -> int:
        return int(self._clock.time() * 1000)

    def current_watermark(self) -> int:
        return self.watermark

    def register_processing_time_timer(self, timestamp: int) -> None:
        time = timer_time(timestamp)
        self._backend.processing_timers.register(time, self._key(), self._backend.place)

    def register_event_time_timer(self, timestamp: int) -> None:
        time = timer_time(timestamp)
        self._backend.event_timers.register(time, self._key(), self._backend.place)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._backend.processing_timers.delete(timer_time(timestamp), self._key())

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._backend.event_timers.delete(timer_time(timestamp), self._key())

    def _key(self) -> Any:
        place = self._backend.place
        if isinstance(place, NoKey):
            place.refuse()
        return with_one_nan(self._backend.current_key)


class KeyedContext(KeyedProcessFunction.Context, KeyedCoProcessFunction.Context):
    """The context of the current record."""

    def __init__(self, backend: KeyedStateBackend, timers: KeyedTimers) -> None:
        self._backend = backend
        self._timers = timers
        self.current: int | None = None
        """The timestamp of the record, or the time of the timer, in milliseconds."""

    def get_current_key(self) -> Any:
        return self._backend.current_key

    def timer_service(self) -> TimerService:
        return self._timers

    def timestamp(self) -> int | None:
        return None if self.current == NO_TIMESTAMP else self.current


class KeyedTimerContext(
    KeyedContext, KeyedProcessFunction.OnTimerContext, KeyedCoProcessFunction.OnTimerContext
):
    """The context of a firing timer."""

    domain = TimeDomain.PROCESSING_TIME

    def time_domain(self) -> TimeDomain:
        return self.domain
