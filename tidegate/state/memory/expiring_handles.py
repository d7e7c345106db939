"""State handles whose values expire: each has the time of its last write, or read.

A list has a time for each element and a map one for each entry, as in Flink.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidegate.core.clock import Clock
from tidegate.core.durations import as_milliseconds
from tidegate.state.backend import PlaceHolder
from tidegate.state.descriptors import AggregatingStateDescriptor, ReducingStateDescriptor
from tidegate.state.handles import AggregatingState, ListState, ReducingState, ValueState
from tidegate.state.keys.key_bytes import key_in
from tidegate.state.memory.handles import Handle, HashMapMapState
from tidegate.state.memory.tables import StateTable
from tidegate.state.ttl import StateTtlConfig, StateVisibility, UpdateType
from tidegate.types.privacy import ATOMIC

Timed = tuple[Any, int]
"""A value, and the last restart of its life in milliseconds since the epoch."""


class Lifetime:
    """Decides by a clock what has expired."""

    __slots__ = ("_clock", "cleanup_size", "milliseconds", "read_prolongs", "shows_expired")

    def __init__(self, config: StateTtlConfig, clock: Clock) -> None:
        self._clock = clock
        self.milliseconds = as_milliseconds(config.ttl)
        self.read_prolongs = config.update_type is UpdateType.OnReadAndWrite
        self.shows_expired = config.state_visibility is StateVisibility.ReturnExpiredIfNotCleanedUp
        cleanup = config.cleanup_strategies.get_incremental_cleanup_strategy()
        self.cleanup_size = 0 if cleanup is None else cleanup.cleanup_size
        """How many keys are checked for expiry per record."""

    def now(self) -> int:
        return int(self._clock.time() * 1000)

    def is_over(self, timed: Timed, now: int) -> bool:
        return timed[1] + self.milliseconds <= now

    def living(self, stored: Any, now: int) -> Any:
        """The unexpired part of a stored value, list or map; None if nothing is left."""
        if isinstance(stored, tuple):
            return None if self.is_over(stored, now) else stored
        if isinstance(stored, list):
            return [timed for timed in stored if not self.is_over(timed, now)] or None
        return {k: timed for k, timed in stored.items() if not self.is_over(timed, now)} or None


class _TtlHandle(Handle):
    __slots__ = ("_lifetime",)

    def __init__(self, holder: PlaceHolder, table: StateTable, lifetime: Lifetime) -> None:
        super().__init__(holder, table)
        self._lifetime = lifetime


class _TtlSingle(_TtlHandle):
    """One timed value per key."""

    __slots__ = ()

    def _read(self) -> Any:
        timed = self._owned()
        if timed is None:
            return None
        now = self._lifetime.now()
        if self._lifetime.is_over(timed, now):
            self.clear()
            return timed[0] if self._lifetime.shows_expired else None
        if self._lifetime.read_prolongs:
            self._values[self._holder.place] = timed[0], now
        return timed[0]

    def _read_living(self) -> Any:
        """The value to add to: an expired one counts as none, even if it may be visible."""
        timed = self._owned()
        if timed is None or self._lifetime.is_over(timed, self._lifetime.now()):
            return None
        return timed[0]

    def _write(self, value: Any) -> None:
        place = self._holder.place
        stored = self._values[place]
        if type(value) not in ATOMIC and not (stored and stored[0] is value):
            value = self._private(value)
        self._values[place] = value, self._lifetime.now()


class TtlValueState(_TtlSingle, ValueState[Any]):
    """One value per key."""

    __slots__ = ()

    def value(self) -> Any:
        return self._read()

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            self._write(value)


class TtlReducingState(_TtlSingle, ReducingState[Any]):
    """One value per key, into which added values are reduced."""

    __slots__ = ("_reduce",)

    def __init__(
        self,
        holder: PlaceHolder,
        table: StateTable,
        lifetime: Lifetime,
        descriptor: ReducingStateDescriptor,
    ) -> None:
        super().__init__(holder, table, lifetime)
        self._reduce = descriptor.reduce

    def get(self) -> Any:
        return self._read()

    def add(self, value: Any) -> None:
        stored = self._read_living()
        self._write(value if stored is None else self._reduce(stored, value))


class TtlAggregatingState(_TtlSingle, AggregatingState[Any, Any]):
    """One accumulator per key."""

    __slots__ = ("_function",)

    def __init__(
        self,
        holder: PlaceHolder,
        table: StateTable,
        lifetime: Lifetime,
        descriptor: AggregatingStateDescriptor,
    ) -> None:
        super().__init__(holder, table, lifetime)
        self._function = descriptor.get_agg_function()

    def get(self) -> Any:
        accumulator = self._read()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        accumulator = self._read_living()
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        self._write(self._function.add(value, accumulator))


class TtlListState(_TtlHandle, ListState[Any]):
    """A list per key; its elements expire one by one."""

    __slots__ = ()

    def get(self) -> list[Any]:
        stored = self._owned()
        if stored is None:
            return []
        now = self._lifetime.now()
        living = self._lifetime.living(stored, now) or []
        shown = stored if self._lifetime.shows_expired else living
        self._store([(v, now) for v, _ in living] if self._lifetime.read_prolongs else living)
        return [value for value, _ in shown]

    def add(self, value: Any) -> None:
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        now = self._lifetime.now()
        timed = [(value, now) for value in self._all_private(values)]
        stored = self._owned()
        if stored is None:
            self._store(timed)
        else:
            stored.extend(timed)

    def update(self, values: Iterable[Any]) -> None:
        now = self._lifetime.now()
        known = (value for value, _ in self._owned() or ())
        self._store([(value, now) for value in self._all_private(values, known)])

    def _store(self, timed: list[Timed]) -> None:
        if timed:
            self._values[self._holder.place] = timed
        else:
            self.clear()


class TtlMapState(_TtlHandle, HashMapMapState):
    """A map per key; its entries expire one by one."""

    __slots__ = ()

    def get(self, key: Any) -> Any:
        timed = self._timed(key)
        return None if timed is None else timed[0]

    def contains(self, key: Any) -> bool:
        return self._timed(key) is not None

    def put(self, key: Any, value: Any) -> None:
        self.put_all({key: value})

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        now = self._lifetime.now()
        stored = self._owned()
        timed = {} if stored is None else stored
        for given, value in dict_value.items():
            key = key_in(timed, given)
            before = timed.get(key)
            if type(value) not in ATOMIC and not (before and before[0] is value):
                value = self._private(value)
            timed[key] = value, now
        if timed:
            self._values[self._holder.place] = timed

    def items(self) -> Iterable[tuple[Any, Any]]:
        found = ((key, self._timed(key)) for key in list(self._owned() or ()))
        return [(key, timed[0]) for key, timed in found if timed is not None]

    def keys(self) -> Iterable[Any]:
        return [key for key, _ in self.items()]

    def values(self) -> Iterable[Any]:
        return [value for _, value in self.items()]

    def is_empty(self) -> bool:
        return not self.items()

    def _timed(self, key: Any) -> Timed | None:
        """The entry of a key in the map, if visible; an expired one is removed."""
        stored = self._owned()
        if stored is None:
            return None
        key = key_in(stored, key)
        timed: Timed | None = stored.get(key)
        if timed is None:
            return None
        now = self._lifetime.now()
        if self._lifetime.is_over(timed, now):
            self.remove(key)
            return timed if self._lifetime.shows_expired else None
        if self._lifetime.read_prolongs:
            stored[key] = timed[0], now
        return timed
