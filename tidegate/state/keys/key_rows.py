"""Maps the keys of a batch to places, the row numbers of their state."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import compress, count, repeat
from operator import is_
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegate.state.columns import from_bytes, to_bytes
from tidegate.state.keys.hash_columns import Hashes
from tidegate.state.keys.key_bytes import NEVER_NAN, with_one_nan
from tidegate.state.keys.key_index import FrozenKeys, KeyIndex
from tidegate.state.keys.key_order import KeyOrder, OrderedKeys, in_parts
from tidegate.state.keys.selection import KeyColumns, KeySchema
from tidegate.state.keys.window_keys import hash_keys
from tidegate.state.keys.word_index import Places

_PICKLED: Final = b"\x80"
"""The first byte of pickled keys; Arrow streams never begin with it."""
KEYS_PER_PART: Final = 8_192
"""Pickling holds the interpreter lock; this many entries delay records by a few milliseconds."""


class KeySnapshot(ABC):
    """The keys of all places at one moment. May be read on another thread."""

    def __init__(self, order: KeyOrder[bytes]) -> None:
        self._order = order

    @abstractmethod
    def __len__(self) -> int: ...

    def ordered(self, max_parallelism: int) -> list[OrderedKeys[bytes]]:
        """All places ordered by key group, in parts."""
        return self._order.parts(
            len(self),
            lambda start, stop: in_parts(
                self.hashes(start), start, max_parallelism, KEYS_PER_PART, self.stored
            ),
        )

    @abstractmethod
    def hashes(self, start: int = 0) -> Hashes:
        """The stable hash of the key of every place from `start`."""

    @abstractmethod
    def stored(self, places: Places) -> bytes:
        """The keys of some places, at least one, in the form for `loaded_keys`."""


class ObjectKeys:
    """Numbers hashable keys 0, 1, 2, ... with a dict, and never forgets one."""

    def __init__(self, keys: Sequence[Any] = ()) -> None:
        self._keys = list(map(with_one_nan, keys))
        self._places = {key: place for place, key in enumerate(self._keys)}
        self._order: KeyOrder[bytes] = KeyOrder()

    def __len__(self) -> int:
        return len(self._keys)

    def find_or_add(self, keys: Sequence[Any]) -> list[int]:
        found: list[Any] = list(map(self._places.get, keys))
        if None not in found:
            return found
        if NEVER_NAN.issuperset(map(type, keys)):
            return self._add_all(keys, found)
        for position, place in enumerate(found):
            if place is None:
                found[position] = self._add(keys[position])
        return found

    def _add_all(self, keys: Sequence[Any], found: list[Any]) -> list[int]:
        """Add the keys that were not found; returns the places of all."""
        are_all_new = found.count(None) == len(found)
        missing = keys if are_all_new else compress(keys, map(is_, found, repeat(None)))
        new = dict.fromkeys(missing)
        first = len(self._keys)
        self._places.update(zip(new, count(first), strict=False))
        self._keys += new
        if are_all_new and len(new) == len(found):
            return list(range(first, first + len(found)))
        return list(map(self._places.__getitem__, keys))

    def _add(self, key: Any) -> int:
        key = with_one_nan(key)
        place = self._places.setdefault(key, len(self._keys))
        if place == len(self._keys):
            self._keys.append(key)
        return place

    def values(self) -> list[Any]:
        """All keys, in the order of their places."""
        return self._keys.copy()

    def tail(self, start: int) -> tuple[list[Any], Hashes]:
        """The keys from a place on, at least one, and their stable hashes."""
        keys = self._keys[start:]
        return keys, hash_keys(keys)

    def freeze(self) -> KeySnapshot:
        return _FrozenObjectKeys(self._keys, self._order)

    def only(self, places: Places) -> tuple[ObjectKeys, Places]:
        """The keys of some places, renumbered, and the new place of each."""
        keys = self._keys
        return ObjectKeys([keys[place] for place in places.tolist()]), np.arange(len(places))


class _FrozenObjectKeys(KeySnapshot):
    def __init__(self, keys: list[Any], order: KeyOrder[bytes]) -> None:
        super().__init__(order)
        self._keys = keys
        # Keys are only appended: the first ones do not change.
        self._size = len(keys)

    def __len__(self) -> int:
        return self._size

    def hashes(self, start: int = 0) -> Hashes:
        starts = range(start, self._size, KEYS_PER_PART)
        stops = [*starts[1:], self._size]
        pieces = [hash_keys(self._keys[s:t]) for s, t in zip(starts, stops, strict=False)]
        return np.concatenate([np.empty(0, np.uint64), *pieces])

    def stored(self, places: Places) -> bytes:
        keys = self._keys
        return pickled_keys([keys[place] for place in places.tolist()])


class ColumnKeys:
    """Numbers keys that are columns of typed streams, without a Python object per key."""

    def __init__(self, kinds: Sequence[pa.DataType], *, is_tuple: bool) -> None:
        self._is_tuple = is_tuple
        self._index = KeyIndex(kinds, is_tuple=is_tuple)
        self._order: KeyOrder[bytes] = KeyOrder()

    @classmethod
    def like(cls, keys: KeyColumns) -> ColumnKeys:
        return cls(keys.kinds, is_tuple=keys.is_tuple)

    def __len__(self) -> int:
        return len(self._index)

    def takes(self, keys: KeyColumns) -> bool:
        """Whether these keys have the same type."""
        return self.schema == KeySchema(tuple(keys.kinds), keys.is_tuple)

    def find_or_add(self, keys: KeyColumns) -> list[int]:
        """The place of every row."""
        places: list[int] = self._index.find_or_add(keys.columns).tolist()
        return places

    def values(self) -> list[Any]:
        if not len(self):
            return []
        columns = self._index.keys().take(np.arange(len(self)))
        return KeyColumns(columns, self._is_tuple).values()

    @property
    def schema(self) -> KeySchema:
        return self._index.schema

    def tail(self, start: int) -> tuple[list[Any], Hashes]:
        keys = KeyColumns(self._index.keys().take(np.arange(start, len(self))), self._is_tuple)
        return keys.values(), keys.hashes()

    def freeze(self) -> KeySnapshot:
        return _FrozenColumnKeys(self._index.keys(), self._is_tuple, self._order)

    def only(self, places: Places) -> tuple[ColumnKeys, Places]:
        fewer = ColumnKeys(self.schema.kinds, is_tuple=self._is_tuple)
        fewer._index, places = self._index.only(places)
        return fewer, places


class _FrozenColumnKeys(KeySnapshot):
    def __init__(self, keys: FrozenKeys, is_tuple: bool, order: KeyOrder[bytes]) -> None:
        super().__init__(order)
        self._keys = keys
        self._is_tuple = is_tuple

    def __len__(self) -> int:
        return len(self._keys)

    def hashes(self, start: int = 0) -> Hashes:
        return self._keys.hashes(start)

    def stored(self, places: Places) -> bytes:
        return stored_columns(KeyColumns(self._keys.take(places), self._is_tuple))


def stored_columns(keys: KeyColumns) -> bytes:
    """Encode columnar keys for `loaded_keys`."""
    parts = [f"part{position}" for position in range(len(keys.columns))]
    return to_bytes(keys.columns, parts if keys.is_tuple else ["key"])


def pickled_keys(keys: list[Any]) -> bytes:
    """Encode any keys for `loaded_keys`."""
    return pickle.dumps(keys, protocol=5)


def loaded_keys(stored: bytes) -> list[Any] | KeyColumns:
    if stored.startswith(_PICKLED):
        keys: list[Any] = pickle.loads(stored)
        return keys
    rows = from_bytes(stored)
    return KeyColumns(rows.columns, is_tuple=rows.schema.names != ["key"])
