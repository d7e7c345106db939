"""Keyed state in RocksDB on local disk, with the keys in use in memory."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from tidegate.core.clock import Clock
from tidegate.state.backend import (
    FrozenState,
    KeyedStateImage,
    StateMetadata,
    check_max_parallelism_unchanged,
)
from tidegate.state.evolution import Conversion
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.keys.key_rows import ColumnKeys
from tidegate.state.keys.selection import KeyColumns, KeySchema
from tidegate.state.memory.expiring_handles import Lifetime
from tidegate.state.memory.row_backend import EVENT_TIMERS, PROCESSING_TIMERS, TableBackend
from tidegate.state.memory.tables import StateTable
from tidegate.state.rocksdb.entries import (
    bounds_of,
    head_of,
    is_timer,
    key_of,
    payload_of,
    state_suffix,
    stems_of,
    timer_bounds_of,
    timer_of,
)
from tidegate.state.rocksdb.files import NATIVE_FORM, DatabaseFacts
from tidegate.state.rocksdb.restore import (
    Conversions,
    CopiedChunk,
    CopiedDatabase,
    converted,
    to_take_over,
)
from tidegate.state.rocksdb.snapshot import SnapshotSeries
from tidegate.state.rocksdb.store import DEFAULT_MEMORY, SharedDatabase
from tidegate.state.rocksdb.tables import StoredTable, UnwrittenValues
from tidegate.state.rocksdb.timers import StoredTimerQueue
from tidegate.state.rocksdb.working_set import WorkingSet
from tidegate.state.timers import TimerQueue

_TIMERS: Final = (
    StateMetadata(PROCESSING_TIMERS, "timers"),
    StateMetadata(EVENT_TIMERS, "timers"),
)
"""They have the first numbers in all databases."""
_TIMERS_AT_ONCE: Final = 50_000
_RECORDS_BETWEEN_ESTIMATES: Final = 10_000
_SAMPLE: Final = 64
_PLACE_BYTES: Final = 300
"""The memory for a key besides its values: index, stem, lists."""
_VALUE_BYTES: Final = 48
_FEWEST_PLACES: Final = 1_000


class RocksDBBackend(TableBackend):
    """All entries in a database; those of recently used keys in lists in memory as well.

    The keys of a batch that are not in memory are read together. State that was handed out counts
    as changed, and is written when a snapshot is taken or places are released.
    """

    def __init__(
        self,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        clock: Clock | None = None,
        directory: Path | None = None,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        self._queues = (StoredTimerQueue(), StoredTimerQueue())
        super().__init__(key_groups, max_parallelism, clock, *self._queues)
        self._store = SharedDatabase(directory, memory // 2)
        self._budget = memory // 2
        self._set = WorkingSet()
        self._states = list(_TIMERS)
        """By number."""
        self._stored_tables: dict[str, StoredTable] = {}
        self._key_schemas: set[KeySchema | None] = set()
        """The schemas of all keys in the database; None stands for any values."""
        self._series = SnapshotSeries(self._store)
        self._sweep = ExpirySweep(self._store, key_groups)
        self._records = 0

    def places_of(self, keys: Sequence[Any], columns: KeyColumns | None = None) -> list[int]:
        known = self._places()
        places = super().places_of(keys, columns)
        if self._places() > known:
            self._load(known)
        self._set.touch(places)
        return places

    def _load(self, known: int) -> None:
        """Read the state of keys from this place on from the database."""
        assert self._keys is not None
        keys, hashes = self._keys.tail(known)
        stems = stems_of(keys, hashes, self.max_parallelism)
        self._set.add(stems, [head_of(key) for key in keys])
        if self._store.has_entries:
            for table in self._stored_tables.values():
                table.load(known, self._store.get_many([stem + table.suffix for stem in stems]))

    def _new_table(self, metadata: StateMetadata) -> StateTable:
        if metadata.name not in self._numbers():
            self._states.append(metadata)
        number = self._numbers()[metadata.name]
        table = StoredTable(self._states[number], self._places(), number)
        self._stored_tables[metadata.name] = table
        if self._store.has_entries and self._places():
            stems = self._set.stems
            table.load(0, self._store.get_many([stem + table.suffix for stem in stems]))
        return table

    def _convert(self, table: StateTable, conversion: Conversion) -> None:
        assert isinstance(table, StoredTable)
        self._write_back()
        self._states[self._numbers()[table.metadata.name]] = table.metadata
        self._rewrite(table.suffix, conversion)
        table.values[:] = table.stored[:] = [None] * self._places()
        table.load(0, self._store.get_many([stem + table.suffix for stem in self._set.stems]))

    def _rewrite(self, suffix: bytes, conversion: Conversion) -> None:
        """Convert the entries of a state in the database."""
        self._store.write(
            (key, converted(content, conversion))
            for key, content in self._store.scan(bounds_of(self.key_groups))
            if key[-2:] == suffix
        )

    def _known(self, stored: StateMetadata) -> StateMetadata:
        if stored.name not in self._numbers():
            self._states.append(stored)
        return self._states[self._numbers()[stored.name]]

    def _numbers(self) -> dict[str, int]:
        return {metadata.name: number for number, metadata in enumerate(self._states)}

    def keys(self, state: str) -> Iterable[Any]:
        self._write_back()
        if state not in self._numbers():
            return []
        suffix = state_suffix(self._numbers()[state])
        entries = self._store.scan(bounds_of(self.key_groups))
        return [key_of(key[:-2], content) for key, content in entries if key[-2:] == suffix]

    def ready_timers(self, timers: TimerQueue, now: int) -> int:
        assert isinstance(timers, StoredTimerQueue)
        due = timers.due(now)
        if len(due) > _TIMERS_AT_ONCE:
            now = sorted(timestamp for timestamp, _ in due)[_TIMERS_AT_ONCE]
            due = [timer for timer in due if timer[0] <= now]
        if due:
            keys = [key for _, key in due]
            timers.put_at(due, self.places_of(keys, self._as_columns(keys)))
        return now

    def _as_columns(self, keys: list[Any]) -> KeyColumns | None:
        """Keys as columns of the same types as in other records, so that they are found."""
        schema: KeySchema | None = None
        if isinstance(self._keys, ColumnKeys):
            schema = self._keys.schema
        elif self._keys is None:
            schema = self._only_schema()
        return None if schema is None else schema.columns(keys)

    def freeze(self) -> FrozenState:
        self._series.settle()
        metadata = self._states[len(_TIMERS) :]
        metadata += [s for s, queue in zip(_TIMERS, self._queues, strict=True) if queue]
        frozen = self._series.freeze(self._facts(), tuple(metadata), self._unwritten(self._clock))
        frozen.descriptors = self._descriptors.copy()
        return frozen

    def _unwritten(self, clock: Clock | None = None) -> UnwrittenValues:
        tables = list(self._stored_tables.values())
        return UnwrittenValues(tables, self._queues, self._set, self.max_parallelism, clock)

    def _facts(self) -> DatabaseFacts:
        if self._keys is not None:
            keys = self._keys
            self._key_schemas.add(keys.schema if isinstance(keys, ColumnKeys) else None)
        return DatabaseFacts(
            states=tuple(self._states),
            key_groups=self.key_groups,
            max_parallelism=self.max_parallelism,
            keys=self._only_schema(),
        )

    def _only_schema(self) -> KeySchema | None:
        """The schema that all keys in the database share."""
        return next(iter(self._key_schemas)) if len(self._key_schemas) == 1 else None

    def _write_back(self) -> None:
        self._series.settle()
        self._series.write(self._unwritten())

    def restore(self, images: Iterable[KeyedStateImage]) -> None:
        images = list(images)
        for image in images:
            check_max_parallelism_unchanged(image.max_parallelism, self.max_parallelism)
            self._expected(image.metadata)
        taken = None if self._store.has_entries else to_take_over(images, self.key_groups)
        if taken is not None:
            self._take_over(taken)
        for image in images:
            if image is not taken:
                self._copy(image)
        self._load_timers()

    def _expected(self, stored: Iterable[StateMetadata]) -> Conversions:
        """The conversions of states; afterwards all of them have a number."""
        return {metadata.name: self._expect(metadata) for metadata in stored}

    def _take_over(self, image: KeyedStateImage) -> None:
        facts = self._store.take_over(image, self.key_groups)
        self._key_schemas.add(facts.keys)
        known = {metadata.name: metadata for metadata in self._states}
        self._states = [known.pop(stored.name, stored) for stored in facts.states]
        self._states += known.values()
        for name, table in self._stored_tables.items():
            table.suffix = state_suffix(self._numbers()[name])
        for name, conversion in self._expected(facts.states).items():
            if conversion is not None:
                self._rewrite(self._stored_tables[name].suffix, conversion)

    def _copy(self, image: KeyedStateImage) -> None:
        if image.native_form == NATIVE_FORM:
            copied = CopiedDatabase(self._store, image)
            self._key_schemas.add(copied.facts.keys)
            conversions = self._expected(copied.facts.states)
            self._store.write(copied.entries(self.key_groups, self._numbers(), conversions))
            return
        conversions = self._expected(image.metadata)
        for chunk in image.chunks(self.key_groups):
            entries = CopiedChunk(chunk, self.key_groups, conversions[chunk.state])
            number = self._numbers()[chunk.state]
            self._key_schemas.add(entries.schema)
            self._store.write(
                entries.entries(number, self.max_parallelism, are_timers=number < len(_TIMERS))
            )

    def _load_timers(self) -> None:
        timers: list[list[tuple[int, int, Any]]] = [[] for _ in _TIMERS]
        for group in self.key_groups:
            for key, content in self._store.scan(timer_bounds_of(group)):
                stem, timestamp = timer_of(key[:-2])
                number = int.from_bytes(payload_of(content), "big")
                found = number, timestamp, key_of(stem, content)
                timers[int.from_bytes(key[-2:], "big")].append(found)
        for queue, loaded in zip(self._queues, timers, strict=True):
            queue.load(loaded)

    def clean_up(self, records: int) -> None:
        self._set.end_batch()
        self._records += records
        if self._series.is_settled:
            lifetimes = {
                table.suffix: Lifetime(table.ttl, self._clock)
                for table in self._stored_tables.values()
                if table.ttl is not None
            }
            if lifetimes:
                self._sweep.go_on(lifetimes, records)
        if self._records >= _RECORDS_BETWEEN_ESTIMATES and self._places() > _FEWEST_PLACES:
            self._records = 0
            room = self._budget // self._bytes_per_place()
            # While a snapshot is being written, it pays to wait a little.
            if self._places() > (room if self._series.is_settled else 2 * room):
                self.shrink(max(room // 2, _FEWEST_PLACES))

    def _bytes_per_place(self) -> int:
        """Estimated from a sample of the values in memory."""
        chosen = random.sample(range(self._places()), min(_SAMPLE, self._places()))
        total = 0
        for table in self._stored_tables.values():
            values = [value for place in chosen if (value := table.values[place]) is not None]
            total += sum(map(_estimated_bytes, values))
        return _PLACE_BYTES + total // len(chosen)

    def shrink(self, places: int) -> None:
        """Keep at most this many keys in memory, the most recently used ones."""
        if places >= self._places() or self._keys is None:
            return
        self._write_back()
        old = self._set.latest(places)
        self._keys, new = self._keys.only(old)
        self._set.keep(old, new)
        for table in self._tables.values():
            table.renumber(old, new)
        self.leave_key()

    def close(self) -> None:
        self._store.drop()


def _estimated_bytes(value: Any) -> int:
    """Estimate: objects take several times the size of their pickled form."""
    try:
        return _VALUE_BYTES + 4 * len(pickle.dumps(value, 5))
    except Exception:
        return _VALUE_BYTES


class ExpirySweep:
    """Visits all entries about once per shortest lifetime of a state.

    An entry of a key in memory may be removed, too: if it is still alive there, it is written
    again.
    """

    def __init__(self, store: SharedDatabase, key_groups: KeyGroupRange) -> None:
        self._store = store
        self._start, self._stop = bounds_of(key_groups)
        self._next = self._start
        self._next_pass = 0

    def go_on(self, lifetimes: Mapping[bytes, Lifetime], records: int) -> None:
        """Check some more entries for expiry; states are identified by their suffix."""
        looked_at = records * max(lifetime.cleanup_size for lifetime in lifetimes.values())
        now = next(iter(lifetimes.values())).now()
        if not looked_at or (self._next == self._start and now < self._next_pass):
            return
        if self._next == self._start:
            self._next_pass = now + min(lifetime.milliseconds for lifetime in lifetimes.values())
        expired: list[tuple[bytes, None]] = []
        last = b""
        for last, content in islice(self._store.scan((self._next, self._stop)), looked_at):
            lifetime = lifetimes.get(last[-2:])
            if lifetime is None or is_timer(last):
                continue
            if lifetime.living(pickle.loads(payload_of(content)), now) is None:
                expired.append((last, None))
        if expired:
            self._store.write(expired)
        self._next = last + b"\0" if last else self._start
