"""State in memory as it was at one moment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.state.backend import FrozenState, StateChunk, StateMetadata
from tidegate.state.chunks import as_column, pickled_chunks
from tidegate.state.hashmap_ttl import Lifetime
from tidegate.state.key_groups import KeyGroupRange, key_groups_of
from tidegate.state.key_slots import KeySnapshot
from tidegate.state.tables import Table, filled_slots
from tidegate.state.timers import TimerQueue
from tidegate.state.word_index import Slots


class FrozenPart(ABC):
    """One state of a snapshot."""

    metadata: StateMetadata

    @abstractmethod
    def entries(self) -> tuple[Slots, list[Any]]:
        """Slots and what stands there."""

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

    def entries(self) -> tuple[Slots, list[Any]]:
        values = self._values
        if self._lifetime is not None:
            living, now = self._lifetime.living, self._now
            values = [None if value is None else living(value, now) for value in values]
        slots = filled_slots(values)
        if len(slots) == len(values):
            return slots, values
        return slots, [values[slot] for slot in slots.tolist()]

    def release(self) -> None:
        self._table.release(self._values)


class FrozenTimers(FrozenPart):
    """The times of the timers of one clock, at the slots of their keys."""

    def __init__(self, name: str, timers: TimerQueue) -> None:
        self.metadata = StateMetadata(name, "timers")
        self._timers = timers.timers()

    def entries(self) -> tuple[Slots, list[Any]]:
        slots = np.array([timer.place for timer in self._timers], np.intp)
        return slots, [timer.timestamp for timer in self._timers]


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
            slots, values = part.entries()
            yield from pickled_chunks(
                part.metadata.name, self._keys, self._groups, slots, as_column(values), key_groups
            )

    def release(self) -> None:
        for part in self._parts:
            part.release()

    @cached_property
    def _groups(self) -> npt.NDArray[np.uint16]:
        return key_groups_of(self._keys.hashes(), self.max_parallelism)
