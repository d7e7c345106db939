"""Numbers the keys of whole batches; columnar state is stored under these places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.state.columns import ColumnStore, take_from
from tidegate.state.keys.hash_columns import Hashes, fold_hashes, hash_column
from tidegate.state.keys.key_order import KeyOrder, OrderedKeys, in_parts
from tidegate.state.keys.key_words import (
    can_be_words,
    is_text_or_bytes,
    words_of,
    words_per_key,
)
from tidegate.state.keys.selection import KeyColumns, KeySchema
from tidegate.state.keys.word_index import Places, WordIndex

MOST_KEY_COLUMNS: Final = 4
"""The number of columns whose numbers fit two 64-bit words."""
_ROWS_PER_KEY: Final = 4
"""With as many rows for each known text, Arrow's lookup is faster, though it hashes all of them."""


def can_be_indexed(kinds: Sequence[pa.DataType]) -> bool:
    """Whether a `KeyIndex` supports key columns of these types."""
    return 0 < len(kinds) <= MOST_KEY_COLUMNS and all(map(can_be_words, kinds))


class ColumnIndex:
    """Numbers the values of one column; null is a value, too."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._index = WordIndex(words_per_key(kind))
        self._null_place: int | None = None
        self._namesakes: dict[Any, int] = {}
        """Long keys with the same words as another key; practically never any."""
        self.values = ColumnStore()
        """The value of every place."""

    def __len__(self) -> int:
        return len(self._index)

    @property
    def nbytes(self) -> int:
        return self._index.nbytes + self.values.nbytes

    def find_or_add(self, column: pa.Array[Any]) -> Places:
        if isinstance(column, pa.DictionaryArray):
            return self._find_by_dictionary(column)
        if column.type != self._kind:
            column = column.cast(self._kind)
        if column.null_count == 0:
            return self._find_present(column)
        present = column.is_valid().to_numpy(zero_copy_only=False)
        places = np.empty(len(column), np.intp)
        places[present] = self._find_present(column.drop_null())
        places[~present] = self._place_of_null()
        return places

    def _find_by_dictionary(self, column: pa.DictionaryArray[Any, Any]) -> Places:
        """Look up only entries that occur; a dictionary may contain others."""
        absent = column.is_null().to_numpy(zero_copy_only=False)
        indices = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        occurring = np.unique(indices[~absent])
        place_of_entry = np.zeros(max(len(column.dictionary), 1), np.intp)
        entries = column.dictionary.take(occurring)
        place_of_entry[occurring] = self.find_or_add(entries)
        places = place_of_entry.take(indices)
        if absent.any():
            places[absent] = self._place_of_null()
        return places

    def _place_of_null(self) -> int:
        if self._null_place is None:
            self._null_place = self._index.reserve_place()
            self.values.append(pa.array([None], self._kind))
        return self._null_place

    def _find_present(self, column: pa.Array[Any]) -> Places:
        if is_text_or_bytes(self._kind) and 0 < len(self) * _ROWS_PER_KEY <= len(column):
            known = pc.index_in(column, self.values.joined())
            if not known.null_count:
                return known.to_numpy().astype(np.intp)
        words, long_rows = words_of(column)
        places, new_rows = self._index.find_or_add(words)
        if len(new_rows):
            self.values.append(column.take(new_rows))
        if len(long_rows):
            self._tell_namesakes_apart(column, places, long_rows)
        return places

    def _tell_namesakes_apart(self, column: pa.Array[Any], places: Places, rows: Places) -> None:
        """Correct the places of keys that have the same words as the key of their place."""
        asked = column if len(rows) == len(column) else column.take(rows)
        stored = self.values.take(places[rows])
        if stored.equals(asked):
            return
        differing = rows[pc.not_equal(stored, asked).to_numpy(zero_copy_only=False)]
        for row, key in zip(differing.tolist(), column.take(differing).to_pylist(), strict=True):
            place = self._namesakes.get(key)
            if place is None:
                place = self._namesakes[key] = self._index.reserve_place()
                self.values.append(column.slice(row, 1))
            places[row] = place


class KeyIndex:
    """Numbers keys of one or several columns 0, 1, 2, ... in no particular order.

    With `is_tuple`, a key is a tuple of the columns, even of one alone: it hashes differently.
    """

    def __init__(self, kinds: Sequence[pa.DataType], *, is_tuple: bool) -> None:
        self.schema = KeySchema(tuple(kinds), is_tuple)
        self._is_tuple = is_tuple
        self._columns = [ColumnIndex(kind) for kind in kinds]
        self._pairs = WordIndex((len(kinds) + 1) // 2) if len(kinds) > 1 else None
        self._parts = GrowingRows(len(kinds))
        self._order: KeyOrder[list[pa.Array[Any]]] = KeyOrder()

    def __len__(self) -> int:
        return len(self._columns[0]) if self._pairs is None else len(self._pairs)

    @property
    def width(self) -> int:
        """The number of columns of a key."""
        return len(self._columns)

    @property
    def nbytes(self) -> int:
        own = 0 if self._pairs is None else self._pairs.nbytes + self._parts.nbytes
        return own + sum(column.nbytes for column in self._columns)

    def find_or_add(self, columns: Sequence[pa.Array[Any]]) -> Places:
        """The place of every row; new places start at the previous length."""
        found = [
            index.find_or_add(column) for index, column in zip(self._columns, columns, strict=True)
        ]
        if self._pairs is None:
            return found[0]
        halves = np.zeros((len(found[0]), 2 * ((len(found) + 1) // 2)), np.uint32)
        for position, places in enumerate(found):
            halves[:, position] = places
        places, new_rows = self._pairs.find_or_add(halves.view(np.uint64))
        if len(new_rows):
            self._parts.append(halves[new_rows, : len(found)])
        return places

    def take(self, places: Places) -> list[pa.Array[Any]]:
        """The key columns of some places; there is at least one."""
        if self._pairs is None:
            return [self._columns[0].values.take(places)]
        parts = self._parts.rows()
        return [
            column.values.take(parts[places, position].astype(np.intp))
            for position, column in enumerate(self._columns)
        ]

    def keys(self) -> FrozenKeys:
        """The current key columns of all places."""
        stores = [column.values.chunks() for column in self._columns]
        parts = None if self._pairs is None else self._parts.rows()
        return FrozenKeys(stores, parts, self._is_tuple, self._order)

    def only(self, places: Places) -> tuple[KeyIndex, Places]:
        """An index of the keys of these places alone, and the new place of each."""
        fewer = KeyIndex(self.schema.kinds, is_tuple=self._is_tuple)
        return fewer, fewer.find_or_add(self.keys().take(places)) if len(places) else places


class GrowingRows:
    """Append-only rows, so that a view of the existing ones never changes."""

    def __init__(self, width: int) -> None:
        self._rows = np.empty((1024, width), np.uint32)
        self._size = 0

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def append(self, rows: npt.NDArray[np.uint32]) -> None:
        stop = self._size + len(rows)
        if stop > len(self._rows):
            grown = np.empty((max(stop, 2 * len(self._rows)), self._rows.shape[1]), np.uint32)
            grown[: self._size] = self._rows[: self._size]
            self._rows = grown
        self._rows[self._size : stop] = rows
        self._size = stop

    def rows(self) -> npt.NDArray[np.uint32]:
        return self._rows[: self._size]


class FrozenKeys:
    """The keys of all places at one moment. May be read on another thread."""

    def __init__(
        self,
        stores: list[tuple[pa.Array[Any], ...]],
        parts: npt.NDArray[np.uint32] | None,
        is_tuple: bool,
        order: KeyOrder[list[pa.Array[Any]]],
    ) -> None:
        self._stores = stores
        self._parts = parts
        self.is_tuple = is_tuple
        self._order = order

    def __len__(self) -> int:
        return sum(map(len, self._stores[0])) if self._parts is None else len(self._parts)

    def ordered(self, max_parallelism: int, size: int) -> list[OrderedKeys[list[pa.Array[Any]]]]:
        """The key columns ordered by key group, in parts of at most this size."""
        return self._order.parts(
            len(self),
            lambda start, stop: in_parts(
                self.hashes(start), start, max_parallelism, size, self.take
            ),
        )

    def hashes(self, start: int = 0) -> Hashes:
        """The stable hash of the key of every place from `start`."""
        if start:
            columns = self.take(np.arange(start, len(self)))
            return KeyColumns(columns, self.is_tuple).hashes()
        hashed = [
            np.concatenate([_NO_HASHES, *map(hash_column, chunks)]) for chunks in self._stores
        ]
        if self._parts is None:
            return fold_hashes(hashed, len(hashed[0])) if self.is_tuple else hashed[0]
        parts = [part.take(self._parts[:, position]) for position, part in enumerate(hashed)]
        return fold_hashes(parts, len(self._parts))

    def take(self, places: Places) -> list[pa.Array[Any]]:
        """The key columns of some places; there is at least one."""
        if self._parts is None:
            return [take_from(self._stores[0], places)]
        return [
            take_from(chunks, self._parts[places, position].astype(np.intp))
            for position, chunks in enumerate(self._stores)
        ]


_NO_HASHES: Final = np.empty(0, np.uint64)
