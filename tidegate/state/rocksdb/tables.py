"""One keyed state in memory, backed by a database."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tidegate.core.clock import Clock
from tidegate.core.errors import StateMisuse, shorten
from tidegate.state.backend import StateMetadata
from tidegate.state.keys.window_keys import hash_keys
from tidegate.state.keys.word_index import Places
from tidegate.state.memory.expiring_handles import Lifetime
from tidegate.state.memory.tables import StateTable
from tidegate.state.rocksdb.entries import (
    head_of,
    key_of,
    payload_of,
    state_suffix,
    stems_of,
    timer_stem,
)
from tidegate.state.rocksdb.snapshot import Unwritten
from tidegate.state.rocksdb.timers import StoredTimerQueue, TimerChanges
from tidegate.state.rocksdb.working_set import WorkingSet
from tidegate.types.privacy import ATOMIC

_UNKNOWN: Final = object()


class StoredTable(StateTable):
    """The values of the keys in memory, and their stored values."""

    __slots__ = ("stored", "suffix")

    def __init__(self, metadata: StateMetadata, places: int, number: int) -> None:
        super().__init__(metadata, places)
        self.suffix = state_suffix(number)
        self.stored: list[Any] = [None] * places
        """By place: the value that was last written or read. Only immutable values count."""

    def grow(self, places: int) -> None:
        super().grow(places)
        self.stored.extend([None] * (places - len(self.stored)))

    def load(self, start: int, entries: Sequence[bytes | None]) -> None:
        """Load database entries for the places from `start`."""
        for place, content in enumerate(entries, start):
            if content is not None:
                self.values[place] = self.stored[place] = pickle.loads(payload_of(content))

    def renumber(self, old: Places, new: Places) -> None:
        super().renumber(old, new)
        kept = [self.stored[place] for place in old.tolist()]
        self.stored = [None] * len(kept)
        for place, value in zip(new.tolist(), kept, strict=True):
            self.stored[place] = value

    def changes(
        self,
        values: list[Any],
        places: list[int],
        entries: tuple[list[bytes], list[bytes]],
        lifetime: Lifetime | None,
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """The entries of places whose value may differ from the stored one."""
        stored, suffix, dumps = self.stored, self.suffix, pickle.dumps
        stems, heads = entries
        now = 0 if lifetime is None else lifetime.now()
        for place in places:
            value = values[place]
            if lifetime is not None and value is not None:
                value = lifetime.living(value, now)
            if value is stored[place] and (value is None or type(value) in ATOMIC):
                continue
            if value is None:
                yield stems[place] + suffix, None
            else:
                try:
                    payload = dumps(value, 5)
                except Exception as reason:
                    raise self._unstorable(stems[place], heads[place], value, reason) from None
                yield stems[place] + suffix, heads[place] + payload
            stored[place] = value

    def forget_stored(self, places: list[int]) -> None:
        """Forget what is stored after a failed write: it is unknown."""
        for place in places:
            self.stored[place] = _UNKNOWN

    def _unstorable(self, stem: bytes, head: bytes, value: Any, reason: Exception) -> StateMisuse:
        return StateMisuse(
            f"state {self.metadata.name!r} of the key {shorten(key_of(stem, head))} holds "
            f"{shorten(value)}, which cannot be stored: {reason}. Keep connections, locks and "
            "other live objects out of state."
        )


class UnwrittenValues(Unwritten):
    """The values of tables at changed places, and changed timers."""

    def __init__(
        self,
        tables: Sequence[StoredTable],
        timers: Sequence[StoredTimerQueue],
        working_set: WorkingSet,
        max_parallelism: int,
        clock: Clock | None,
    ) -> None:
        """Freeze what has changed; with a clock, without expired values."""
        self._clock = clock
        self._tables = [(table, table.freeze()) for table in tables]
        self._timers = [(queue, queue.take_changes()) for queue in timers]
        self._set = working_set
        self._entries = working_set.stems, working_set.heads
        self._max_parallelism = max_parallelism
        changed = working_set.changed()
        self._places: list[int] = changed.tolist()
        working_set.mark_written()

    def changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        for table, values in self._tables:
            lifetime = None
            if table.ttl is not None and self._clock is not None:
                lifetime = Lifetime(table.ttl, self._clock)
            yield from table.changes(values, self._places, self._entries, lifetime)
        for number, (_, changed) in enumerate(self._timers):
            yield from self._timer_changes(state_suffix(number), changed)

    def _timer_changes(
        self, suffix: bytes, changed: TimerChanges
    ) -> Iterator[tuple[bytes, bytes | None]]:
        if not changed:
            return
        keys = [key for _, key in changed]
        stems = stems_of(keys, hash_keys(keys), self._max_parallelism)
        for stem, ((timestamp, key), number) in zip(stems, changed.items(), strict=True):
            content = None if number is None else head_of(key) + number.to_bytes(8, "big")
            yield timer_stem(stem, timestamp) + suffix, content

    def thaw(self) -> None:
        for table, values in self._tables:
            table.release(values)

    def undo(self) -> None:
        self._set.mark_changed(self._places)
        for table, _ in self._tables:
            table.forget_stored(self._places)
        for queue, changed in self._timers:
            queue.put_back(changed)
