"""Keyed state as Python objects in memory, with snapshots that share what does not change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Final

from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import StateTypeChanged
from tidegate.state.backend import (
    FrozenState,
    KeyedStateBackend,
    KeyedStateImage,
    StateChunk,
    StateMetadata,
    check_declaration,
    check_max_parallelism_unchanged,
)
from tidegate.state.chunks import pickled_chunks, unpickled_entries
from tidegate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidegate.state.handles import AggregatingState, ListState, MapState, ReducingState, ValueState
from tidegate.state.hashmap_handles import (
    HashMapAggregatingState,
    HashMapListState,
    HashMapMapState,
    HashMapReducingState,
    HashMapValueState,
)
from tidegate.state.hashmap_ttl import (
    Lifetime,
    TtlAggregatingState,
    TtlListState,
    TtlMapState,
    TtlReducingState,
    TtlValueState,
)
from tidegate.state.key_groups import KeyGroupRange
from tidegate.state.tables import Table
from tidegate.state.timers import TimerQueue

PROCESSING_TIMERS: Final = "_timers/processing-time"
EVENT_TIMERS: Final = "_timers/event-time"


class HashMapBackend(KeyedStateBackend):
    """A dict for each state; the key groups of keys are computed only when a snapshot is read."""

    def __init__(
        self, key_groups: KeyGroupRange, max_parallelism: int, clock: Clock | None = None
    ) -> None:
        self.key_groups = key_groups
        self.max_parallelism = max_parallelism
        self.current_key: Any = None
        self.processing_timers = TimerQueue()
        self.event_timers = TimerQueue()
        self._clock = clock or SystemClock()
        self._tables: dict[str, Table] = {}
        self._timers = {
            PROCESSING_TIMERS: self.processing_timers,
            EVENT_TIMERS: self.event_timers,
        }
        self._unswept: dict[str, tuple[list[Any], int]] = {}
        """By state: keys that the clean-up has yet to look at, and when it may begin anew."""

    def value_state(self, descriptor: ValueStateDescriptor) -> ValueState[Any]:
        table = self.table(descriptor)
        if table.ttl is not None:
            return TtlValueState(self, table, Lifetime(table.ttl, self._clock))
        return HashMapValueState(self, table)

    def list_state(self, descriptor: ListStateDescriptor) -> ListState[Any]:
        table = self.table(descriptor)
        if table.ttl is not None:
            return TtlListState(self, table, Lifetime(table.ttl, self._clock))
        return HashMapListState(self, table)

    def map_state(self, descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        table = self.table(descriptor)
        if table.ttl is not None:
            return TtlMapState(self, table, Lifetime(table.ttl, self._clock))
        return HashMapMapState(self, table)

    def reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        table = self.table(descriptor)
        if table.ttl is not None:
            return TtlReducingState(self, table, Lifetime(table.ttl, self._clock), descriptor)
        return HashMapReducingState(self, table, descriptor)

    def aggregating_state(
        self, descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any, Any]:
        table = self.table(descriptor)
        if table.ttl is not None:
            return TtlAggregatingState(self, table, Lifetime(table.ttl, self._clock), descriptor)
        return HashMapAggregatingState(self, table, descriptor)

    def table(self, descriptor: StateDescriptor) -> Table:
        """The entries of a state, for operators that loop over records by themselves."""
        table = self._tables.get(descriptor.name)
        if table is None:
            table = Table(StateMetadata(descriptor.name, descriptor.declaration))
            self._tables[descriptor.name] = table
        check_declaration(table.metadata, descriptor)
        table.ttl = descriptor.ttl_config
        return table

    def keys(self, state: str) -> Iterable[Any]:
        table = self._tables.get(state)
        return [] if table is None else list(table.entries)

    def freeze(self) -> FrozenState:
        parts: list[_FrozenPart] = [
            _FrozenTable(table, self._lifetime(table)) for table in self._tables.values()
        ]
        for metadata, timers in self._timers.items():
            if timers:
                parts.append(_FrozenTimers(metadata, timers))
        return _FrozenHashMap(parts, self.max_parallelism)

    def restore(self, images: Iterable[KeyedStateImage]) -> None:
        for image in images:
            check_max_parallelism_unchanged(image.max_parallelism, self.max_parallelism)
            for metadata in image.metadata:
                self._expect(metadata)
            for chunk in image.chunks(self.key_groups):
                entries = unpickled_entries(chunk, self.key_groups)
                timers = self._timers.get(chunk.state)
                if timers is not None:
                    timers.add_all((timestamp, key) for key, timestamp in entries)
                else:
                    self._tables[chunk.state].entries.update(entries)

    def clean_up(self, records: int) -> None:
        for table in self._tables.values():
            lifetime = self._lifetime(table)
            if lifetime is not None and lifetime.cleanup_size:
                self._sweep(table, lifetime, records * lifetime.cleanup_size)

    def _expect(self, metadata: StateMetadata) -> None:
        """Make room for a restored state, or see that it is what the user has declared."""
        if metadata.name in self._timers:
            return
        table = self._tables.setdefault(metadata.name, Table(metadata))
        if table.metadata != metadata:
            raise StateTypeChanged(metadata.name, metadata.declaration, table.metadata.declaration)

    def _lifetime(self, table: Table) -> Lifetime | None:
        return None if table.ttl is None else Lifetime(table.ttl, self._clock)

    def _sweep(self, table: Table, lifetime: Lifetime, keys: int) -> None:
        """Look at some keys; the next call goes on where this one stops."""
        now = lifetime.now()
        waiting, next_pass = self._unswept.get(table.metadata.name, ([], 0))
        if not waiting:
            # Values expire as time goes by: looking at all of them more often finds no more.
            if now < next_pass:
                return
            waiting = list(table.entries)
            self._unswept[table.metadata.name] = waiting, now + lifetime.milliseconds // 4
        for key in waiting[-keys:]:
            stored = table.entries.get(key)
            if stored is not None and lifetime.living(stored, now) is None:
                del table.entries[key]
        del waiting[-keys:]


class _FrozenPart(ABC):
    """One state of a snapshot."""

    metadata: StateMetadata

    @abstractmethod
    def entries(self) -> tuple[list[Any], list[Any]]:
        """The keys and what they hold."""

    def release(self) -> None:
        """Nobody will read it any more."""


class _FrozenTable(_FrozenPart):
    def __init__(self, table: Table, lifetime: Lifetime | None) -> None:
        self.metadata = table.metadata
        self._table = table
        self._entries = table.freeze()
        self._lifetime = lifetime
        self._now = 0 if lifetime is None else lifetime.now()

    def entries(self) -> tuple[list[Any], list[Any]]:
        if self._lifetime is None:
            return list(self._entries), list(self._entries.values())
        left = ((k, self._lifetime.living(v, self._now)) for k, v in self._entries.items())
        living = [(key, value) for key, value in left if value is not None]
        return [key for key, _ in living], [value for _, value in living]

    def release(self) -> None:
        self._table.release(self._entries)


class _FrozenTimers(_FrozenPart):
    def __init__(self, name: str, timers: TimerQueue) -> None:
        self.metadata = StateMetadata(name, "timers")
        self._timers = timers.timers()

    def entries(self) -> tuple[list[Any], list[Any]]:
        return [key for _, key in self._timers], [timestamp for timestamp, _ in self._timers]


class _FrozenHashMap(FrozenState):
    def __init__(self, parts: list[_FrozenPart], max_parallelism: int) -> None:
        self.metadata = tuple(part.metadata for part in parts)
        self.max_parallelism = max_parallelism
        self._parts = parts

    def chunks(self, key_groups: KeyGroupRange | None = None) -> Iterator[StateChunk]:
        for part in self._parts:
            keys, values = part.entries()
            yield from pickled_chunks(
                part.metadata.name, keys, values, self.max_parallelism, key_groups
            )

    def release(self) -> None:
        for part in self._parts:
            part.release()
