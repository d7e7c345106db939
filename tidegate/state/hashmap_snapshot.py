"""State in memory as it was at one moment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np

from tidegate.state.backend import FrozenState, StateChunk, StateMetadata
from tidegate.state.chunks import as_column, table_chunks, timer_chunks
from tidegate.state.hashmap_ttl import Lifetime
from tidegate.state.key_groups import KeyGroupRange
from tidegate.state.key_slots import KeySnapshot
from tidegate.state.tables import Table
from tidegate.state.timers import TimerQueue


class FrozenPart(ABC):
    """One state of a snapshot."""

    metadata: StateMetadata

    @abstractmethod
    def chunks(
        self, keys: KeySnapshot, max_parallelism: int, key_groups: KeyGroupRange | None
    ) -> Iterator[StateChunk]:
        """The entries of these key groups, all by default."""

    def release(self) -> None:
        """Nobody will read it any more."""


class FrozenTable(FrozenPart):
    """The values of one state that have not expired."""

    def __init__(self, table: Table, lifetime: Lifetime | None) -> None:
        self.metadata = table.metadata
        self._table = table
        self._values = table.freeze()
        self._lifetime = lifetime
        self._now = 0 if lifetime is None else lifetime.now()

    def chunks(
        self, keys: KeySnapshot, max_parallelism: int, key_groups: KeyGroupRange | None
    ) -> Iterator[StateChunk]:
        values = self._values
        if self._lifetime is not None:
            living, now = self._lifetime.living, self._now
            values = [None if value is None else living(value, now) for value in values]
        return table_chunks(
            self.metadata.name, keys, as_column(values), max_parallelism, key_groups
        )

    def release(self) -> None:
        self._table.release(self._values)


class FrozenTimers(FrozenPart):
    """The times of the timers of one clock, at the slots of their keys."""

    def __init__(self, name: str, timers: TimerQueue) -> None:
        self.metadata = StateMetadata(name, "timers")
        self._timers = timers.timers()

    def chunks(
        self, keys: KeySnapshot, max_parallelism: int, key_groups: KeyGroupRange | None
    ) -> Iterator[StateChunk]:
        slots = np.array([timer.place for timer in self._timers], np.intp)
        times = [timer.timestamp for timer in self._timers]
        return timer_chunks(self.metadata.name, keys, slots, times, max_parallelism, key_groups)


class FrozenHashMap(FrozenState):
    """All states and timers of a backend."""

    def __init__(
        self,
        parts: list[FrozenPart],
        keys: KeySnapshot,
        key_groups: KeyGroupRange,
        max_parallelism: int,
    ) -> None:
        self.metadata = tuple(part.metadata for part in parts)
        self.key_groups = key_groups
        self.max_parallelism = max_parallelism
        self._parts = parts
        self._keys = keys

    def chunks(self, key_groups: KeyGroupRange | None = None) -> Iterator[StateChunk]:
        for part in self._parts:
            yield from part.chunks(self._keys, self.max_parallelism, key_groups)

    def release(self) -> None:
        for part in self._parts:
            part.release()
