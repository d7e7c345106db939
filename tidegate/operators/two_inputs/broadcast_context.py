"""The contexts of broadcast functions, with readable or writable broadcast state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from tidegate.core.clock import Clock
from tidegate.core.errors import StateMisuse, StateTypeChanged
from tidegate.operators.functions import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedStateFunction,
    bound_method,
)
from tidegate.operators.keyed_context import (
    KeyedContext,
    KeyedStates,
    KeyedTimerContext,
    KeyedTimers,
)
from tidegate.state.backend import KeyedStateBackend, NoKey
from tidegate.state.descriptors import MapStateDescriptor, StateDescriptor
from tidegate.state.handles import BroadcastState, ReadOnlyBroadcastState
from tidegate.state.operator_state import OperatorStateStore
from tidegate.stream.batch import NO_TIMESTAMP

_KEYS_AT_ONCE: Final = 10_000
"""How many states are in memory at once while all are changed."""


class ReadOnlyView(ReadOnlyBroadcastState[Any, Any]):
    """A read-only broadcast state."""

    __slots__ = ("_state",)

    def __init__(self, state: BroadcastState[Any, Any]) -> None:
        self._state = state

    def get(self, key: Any) -> Any:
        return self._state.get(key)

    def contains(self, key: Any) -> bool:
        return self._state.contains(key)

    def items(self) -> Iterable[tuple[Any, Any]]:
        return self._state.items()

    def keys(self) -> Iterable[Any]:
        return self._state.keys()

    def values(self) -> Iterable[Any]:
        return self._state.values()

    def is_empty(self) -> bool:
        return self._state.is_empty()

    def clear(self) -> None:
        raise StateMisuse(
            "only broadcast records can change broadcast state, so that it stays the same in "
            "every subtask: clear it in process_broadcast_element()"
        )


class BroadcastStates:
    """The broadcast states that a program has declared, by descriptor."""

    def __init__(
        self, store: OperatorStateStore, descriptors: Sequence[MapStateDescriptor]
    ) -> None:
        self._states = {found.name: store.get_broadcast_state(found) for found in descriptors}
        self._views = {name: ReadOnlyView(state) for name, state in self._states.items()}
        self._descriptors = {found.name: found for found in descriptors}

    def writable(self, descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        return self._states[self._declared(descriptor)]

    def readable(self, descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
        return self._views[self._declared(descriptor)]

    def _declared(self, descriptor: MapStateDescriptor) -> str:
        """The name of the state; called for every record, usually with the same descriptor."""
        name = descriptor.name
        known = self._descriptors.get(name)
        if known is descriptor:
            return name
        if known is None:
            raise StateMisuse(
                f"there is no broadcast state {name!r}, only {', '.join(self._descriptors)}; pass "
                "its descriptor to broadcast() as well"
            )
        if known.declaration != descriptor.declaration:
            raise StateTypeChanged(name, known.declaration, descriptor.declaration)
        self._descriptors[name] = descriptor
        return name


class _Times:
    """The time for records without timers."""

    def __init__(self, clock: Clock, watermark: int) -> None:
        self._clock = clock
        self.current: int | None = None
        """Event time of the record, in milliseconds."""
        self.watermark = watermark

    def timestamp(self) -> int | None:
        return None if self.current == NO_TIMESTAMP else self.current

    def current_processing_time(self) -> int:
        return int(self._clock.time() * 1000)

    def current_watermark(self) -> int:
        return self.watermark


class ReadingContext(_Times, BroadcastProcessFunction.ReadOnlyContext):
    """For the records of a stream without keys."""

    def __init__(self, clock: Clock, states: BroadcastStates, watermark: int) -> None:
        super().__init__(clock, watermark)
        self._states = states

    def get_broadcast_state(
        self, state_descriptor: MapStateDescriptor
    ) -> ReadOnlyBroadcastState[Any, Any]:
        return self._states.readable(state_descriptor)


class WritingContext(_Times, BroadcastProcessFunction.Context):
    """For broadcast records."""

    def __init__(self, clock: Clock, states: BroadcastStates, watermark: int) -> None:
        super().__init__(clock, watermark)
        self._states = states

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        return self._states.writable(state_descriptor)


class KeyedReadingContext(KeyedContext, KeyedBroadcastProcessFunction.ReadOnlyContext):
    """For the records of a keyed stream."""

    def __init__(
        self, backend: KeyedStateBackend, timers: KeyedTimers, states: BroadcastStates
    ) -> None:
        super().__init__(backend, timers)
        self._states = states

    def current_processing_time(self) -> int:
        return self._timers.current_processing_time()

    def current_watermark(self) -> int:
        return self._timers.current_watermark()

    def get_broadcast_state(
        self, state_descriptor: MapStateDescriptor
    ) -> ReadOnlyBroadcastState[Any, Any]:
        return self._states.readable(state_descriptor)


class KeyedReadingTimerContext(
    KeyedReadingContext, KeyedTimerContext, KeyedBroadcastProcessFunction.OnTimerContext
):
    """For the timers of a keyed stream."""


class KeyedWritingContext(WritingContext, KeyedBroadcastProcessFunction.Context):
    """For broadcast records next to a keyed stream: they have no key of their own."""

    def __init__(
        self,
        clock: Clock,
        states: BroadcastStates,
        backend: KeyedStateBackend,
        watermark: int,
    ) -> None:
        super().__init__(clock, states, watermark)
        self._backend = backend

    def leave_key(self) -> None:
        """Leave the key: the next records have none."""
        self._backend.leave_key(_NO_KEY)

    def apply_to_keyed_state(
        self,
        state_descriptor: StateDescriptor,
        function: KeyedStateFunction | Callable[[Any, Any], None],
    ) -> None:
        apply = bound_method(function, KeyedStateFunction, "process")
        backend = self._backend
        state = KeyedStates(backend).of(state_descriptor)
        all_keys = list(backend.keys(state_descriptor.name))
        try:
            for start in range(0, len(all_keys), _KEYS_AT_ONCE):
                keys = all_keys[start : start + _KEYS_AT_ONCE]
                for key, place in zip(keys, backend.places_of(keys), strict=True):
                    backend.current_key, backend.place = key, place
                    apply(key, state)
                backend.clean_up(len(keys))
        finally:
            self.leave_key()


_NO_KEY: Final = NoKey(
    "broadcast records have no key: change the state of all keys with "
    "ctx.apply_to_keyed_state(descriptor, function)"
)
