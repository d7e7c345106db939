"""Converts entries of any image to those of a database."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tidegate.state.backend import KeyedStateImage, StateChunk
from tidegate.state.chunks import unpickled
from tidegate.state.evolution import Conversion
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.keys.selection import KeyColumns, KeySchema
from tidegate.state.keys.window_keys import hash_keys
from tidegate.state.rocksdb.database import Database
from tidegate.state.rocksdb.entries import (
    bounds_of,
    head_of,
    payload_of,
    state_suffix,
    stems_of,
    timer_stem,
)
from tidegate.state.rocksdb.files import NATIVE_FORM, DatabaseFacts
from tidegate.state.rocksdb.store import SharedDatabase, remove

Entries = Iterator[tuple[bytes, bytes]]
Numbers = Mapping[str, int]
"""Maps states to their numbers in the target database."""
Conversions = Mapping[str, Conversion | None]
"""Maps states to the conversions of their values."""

_TIMER_PAYLOAD: Final = (0).to_bytes(8, "big")


def to_take_over(
    images: Sequence[KeyedStateImage], key_groups: KeyGroupRange
) -> KeyedStateImage | None:
    """The image whose files to continue with, so that the least is copied; None: there is none.

    More than half of it is needed, so no other subtask continues with the same files.
    """

    def wanted(image: KeyedStateImage) -> int:
        return len(image.key_groups.intersection(key_groups))

    databases = [image for image in images if image.native_form == NATIVE_FORM]
    best = max(databases, key=wanted, default=None)
    return best if best is not None and 2 * wanted(best) > len(best.key_groups) else None


class CopiedDatabase:
    """Entries of some key groups from an image that is a database."""

    def __init__(self, store: SharedDatabase, image: KeyedStateImage) -> None:
        self._directory = store.fetched(image)
        self.facts = DatabaseFacts.read(self._directory)

    def entries(
        self, key_groups: KeyGroupRange, numbers: Numbers, conversions: Conversions | None = None
    ) -> Entries:
        states = {
            state_suffix(number): (
                state_suffix(numbers[state.name]),
                (conversions or {}).get(state.name),
            )
            for number, state in enumerate(self.facts.states)
        }
        database = Database.read_only(self._directory)
        try:
            for key, content in database.scan(*bounds_of(key_groups)):
                suffix, conversion = states[key[-2:]]
                if conversion is not None:
                    content = converted(content, conversion)
                yield key[:-2] + suffix, content
        finally:
            database.close()
            remove(self._directory)


def converted(content: bytes, conversion: Conversion) -> bytes:
    """The entry of a pickled value after a conversion."""
    payload = payload_of(content)
    return content[: -len(payload)] + pickle.dumps(conversion(pickle.loads(payload)), 5)


class CopiedChunk:
    """Entries of some key groups from a chunk of pickled values."""

    def __init__(
        self, chunk: StateChunk, key_groups: KeyGroupRange, conversion: Conversion | None = None
    ) -> None:
        stored, values = unpickled(chunk)
        start, stop = chunk.span_in(key_groups)
        self.schema: KeySchema | None = None
        if isinstance(stored, KeyColumns):
            columns = stored.slice(start, stop)
            self.schema = KeySchema(tuple(columns.kinds), columns.is_tuple)
            self._keys, self._hashes = columns.values(), columns.hashes()
        else:
            self._keys = stored[start:stop]
            self._hashes = hash_keys(self._keys)
        self._values = values[start:stop]
        if conversion is not None:
            self._values = [conversion(value) for value in self._values]

    def entries(self, number: int, max_parallelism: int, *, are_timers: bool) -> Entries:
        suffix = state_suffix(number)
        stems = stems_of(self._keys, self._hashes, max_parallelism)
        for key, stem, value in zip(self._keys, stems, self._values, strict=True):
            if are_timers:
                yield timer_stem(stem, value) + suffix, head_of(key) + _TIMER_PAYLOAD
            else:
                yield stem + suffix, head_of(key) + pickle.dumps(value, 5)


def copied_rows(keys: KeyColumns, rows: Sequence[bytes], max_parallelism: int) -> Entries:
    """Entries of the only state, from key columns and encoded rows."""
    suffix = state_suffix(0)
    values: list[Any] = keys.values()
    stems = stems_of(values, keys.hashes(), max_parallelism)
    for key, stem, row in zip(values, stems, rows, strict=True):
        yield stem + suffix, head_of(key) + row
