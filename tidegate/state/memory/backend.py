"""Keyed state as Python objects in memory, with snapshots that share unchanged values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tidegate.core.clock import Clock
from tidegate.state.backend import (
    FrozenState,
    KeyedStateImage,
    StateChunk,
    StateMetadata,
    check_max_parallelism_unchanged,
)
from tidegate.state.chunks import as_column, table_chunks, timer_chunks, unpickled
from tidegate.state.evolution import Conversion
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.keys.key_rows import KeySnapshot, ObjectKeys
from tidegate.state.keys.selection import KeyColumns
from tidegate.state.memory.expiring_handles import Lifetime
from tidegate.state.memory.row_backend import EVENT_TIMERS, PROCESSING_TIMERS, TableBackend
from tidegate.state.memory.tables import StateTable, filled_places
from tidegate.state.timers import Timer, TimerQueue

_FEW_PLACES: Final = 1 << 12
"""How many keys may keep their number after they became empty."""


class HashMapBackend(TableBackend):
    """All keys and values in memory. Key groups are computed only when a snapshot is read."""

    def __init__(
        self, key_groups: KeyGroupRange, max_parallelism: int, clock: Clock | None = None
    ) -> None:
        super().__init__(key_groups, max_parallelism, clock)
        self._timers = {
            PROCESSING_TIMERS: self.processing_timers,
            EVENT_TIMERS: self.event_timers,
        }
        self._swept: dict[str, _Sweep] = {}
        self._roomy = _FEW_PLACES

    def _new_table(self, metadata: StateMetadata) -> StateTable:
        return StateTable(metadata, self._places())

    def _convert(self, table: StateTable, conversion: Conversion) -> None:
        for place, value in enumerate(table.values):
            if value is not None:
                table.values[place] = conversion(table.owned(place, value))

    def keys(self, state: str) -> Iterable[Any]:
        table = self._tables.get(state)
        if table is None or self._keys is None:
            return []
        keys = self._keys.values()
        return [keys[place] for place in filled_places(table.values).tolist()]

    def freeze(self) -> FrozenState:
        parts: list[FrozenTable | FrozenTimers] = [
            FrozenTable(table, self._lifetime(table)) for table in self._tables.values()
        ]
        for name, timers in self._timers.items():
            if timers:
                parts.append(FrozenTimers(name, timers))
        keys = ObjectKeys() if self._keys is None else self._keys
        frozen = FrozenHashMap(parts, keys.freeze(), self.key_groups, self.max_parallelism)
        frozen.descriptors = self._descriptors.copy()
        return frozen

    def restore(self, images: Iterable[KeyedStateImage]) -> None:
        for image in images:
            check_max_parallelism_unchanged(image.max_parallelism, self.max_parallelism)
            stored = [each for each in image.metadata if each.name not in self._timers]
            conversions = {each.name: self._expect(each) for each in stored}
            for chunk in image.chunks(self.key_groups):
                self._restore_chunk(chunk, conversions)

    def _known(self, stored: StateMetadata) -> StateMetadata:
        table = self._tables.setdefault(stored.name, self._new_table(stored))
        return table.metadata

    def _restore_chunk(
        self, chunk: StateChunk, conversions: Mapping[str, Conversion | None]
    ) -> None:
        stored, values = unpickled(chunk)
        start, stop = chunk.span_in(self.key_groups)
        columns = stored.slice(start, stop) if isinstance(stored, KeyColumns) else None
        timers = self._timers.get(chunk.state)
        keys: list[Any] = []
        if isinstance(stored, list):
            keys = stored[start:stop]
        elif columns is not None and (timers is not None or not self._takes(columns)):
            keys = columns.values()
        places = self.places_of(keys, columns)
        if timers is not None:
            timers.add_all(map(Timer, values[start:stop], keys, places))
            return
        held = self._tables[chunk.state].values
        restored: Iterable[Any] = values[start:stop]
        if (conversion := conversions[chunk.state]) is not None:
            restored = map(conversion, restored)
        for place, value in zip(places, restored, strict=True):
            held[place] = value

    def clean_up(self, records: int) -> None:
        for table in self._tables.values():
            lifetime = self._lifetime(table)
            if lifetime is not None and lifetime.cleanup_size:
                self._sweep(table, lifetime, records * lifetime.cleanup_size)
        # Places of outstanding snapshots must keep referring to the same keys.
        if self._places() > self._roomy and not any(t.frozen for t in self._tables.values()):
            self._forget_empty_places()

    def _sweep(self, table: StateTable, lifetime: Lifetime, places: int) -> None:
        """Remove expired values from some places; the next call continues from there."""
        now = lifetime.now()
        sweep = self._swept.setdefault(table.metadata.name, _Sweep())
        if sweep.next_place >= len(table.values):
            # Values expire over time: checking all of them more often finds no more.
            if now < sweep.next_start:
                return
            sweep.next_place = 0
        if sweep.next_place == 0:
            sweep.next_start = now + lifetime.milliseconds // 4
        start, stop = sweep.next_place, min(sweep.next_place + places, len(table.values))
        for place, stored in enumerate(table.values[start:stop], start):
            if stored is not None and lifetime.living(stored, now) is None:
                table.values[place] = None
        sweep.next_place = stop

    def _forget_empty_places(self) -> None:
        """Renumber the keys that have state, if they are less than half of all."""
        assert self._keys is not None
        timers = (timer.place for queue in self._timers.values() for timer in queue.timers())
        in_use = np.zeros(len(self._keys), np.bool_)
        in_use[np.fromiter(timers, np.intp)] = True
        for table in self._tables.values():
            in_use[filled_places(table.values)] = True
        old = np.flatnonzero(in_use)
        self._roomy = max(2 * len(old), _FEW_PLACES)
        if 2 * len(old) > len(in_use):
            return
        self._keys, new = self._keys.only(old)
        places = np.zeros(len(in_use), np.intp)
        places[old] = new
        for table in self._tables.values():
            table.renumber(old, new)
        for queue in self._timers.values():
            queue.move(lambda place: int(places[place]))
        self._swept.clear()


@dataclass(slots=True)
class _Sweep:
    """The progress of removing expired values."""

    next_place: int = 0
    next_start: int = 0
    """The earliest start of the next sweep, in milliseconds since the epoch."""


class FrozenTable:
    """The values of one state that have not expired."""

    def __init__(self, table: StateTable, lifetime: Lifetime | None) -> None:
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


class FrozenTimers:
    """The times of the timers of one clock, at the places of their keys."""

    def __init__(self, name: str, timers: TimerQueue) -> None:
        self.metadata = StateMetadata(name, "timers")
        self._timers = timers.timers()

    def chunks(
        self, keys: KeySnapshot, max_parallelism: int, key_groups: KeyGroupRange | None
    ) -> Iterator[StateChunk]:
        places = np.array([timer.place for timer in self._timers], np.intp)
        times = [timer.timestamp for timer in self._timers]
        return timer_chunks(self.metadata.name, keys, places, times, max_parallelism, key_groups)

    def release(self) -> None:
        """Nothing is shared."""


class FrozenHashMap(FrozenState):
    """All states and timers of a backend."""

    def __init__(
        self,
        parts: list[FrozenTable | FrozenTimers],
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
