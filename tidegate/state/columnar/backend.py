"""Keyed state as columns: one row per key, for aggregations on whole batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.core.errors import StateTypeChanged
from tidegate.state.backend import (
    FrozenState,
    KeyedStateImage,
    PayloadForm,
    StateChunk,
    StateMetadata,
    check_max_parallelism_unchanged,
)
from tidegate.state.columns import (
    ColumnStore,
    free_names,
    from_bytes,
    key_names,
    take_from,
    to_bytes,
)
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.keys.key_index import FrozenKeys, KeyIndex
from tidegate.state.keys.word_index import Places

ROWS_PER_CHUNK: Final = 1 << 16
_SPARE_ROWS: Final = 1 << 12
"""How many replaced values are kept before they are removed."""


FrozenColumn: TypeAlias = "Callable[[Places], pa.Array[Any]]"
"""A column of state at one moment: returns the values of places. Thread-safe."""


class StateColumn(ABC):
    """A column with a value for every place."""

    kind: pa.DataType
    is_number: bool
    """Whether every place has a number, never null."""

    @abstractmethod
    def grow(self, places: int) -> None:
        """Grow to this number of places."""

    @abstractmethod
    def freeze(self) -> FrozenColumn:
        """The column as it is now."""

    @abstractmethod
    def restore(self, places: Places, values: pa.Array[Any]) -> None:
        """Restore frozen values; `places` are new."""

    @abstractmethod
    def renumber(self, old: Places, new: Places) -> None:
        """Move the values at the old places to the new ones; no other places remain."""

    @property
    @abstractmethod
    def nbytes(self) -> int: ...


class NumberColumn(StateColumn):
    """A number per place."""

    is_number = True

    def __init__(self, dtype: npt.DTypeLike, initial: float = 0) -> None:
        self.kind = pa.from_numpy_dtype(np.dtype(dtype))
        self._initial = initial
        self._room = np.full(1024, initial, dtype)
        self.values = self._room[:0]
        """The numbers by place; changed in place."""

    @property
    def nbytes(self) -> int:
        return int(self._room.nbytes)

    def grow(self, places: int) -> None:
        if places > len(self._room):
            room = np.full(max(places, 2 * len(self._room)), self._initial, self._room.dtype)
            room[: len(self.values)] = self.values
            self._room = room
        self.values = self._room[:places]

    def freeze(self) -> FrozenColumn:
        values = self.values.copy()
        return lambda places: pa.array(values[places])

    def restore(self, places: Places, values: pa.Array[Any]) -> None:
        self.values[places] = values.to_numpy(zero_copy_only=False)

    def renumber(self, old: Places, new: Places) -> None:
        kept = self.values[old]
        self._room = np.full(max(len(old), 1024), self._initial, self._room.dtype)
        self.values = self._room[: len(old)]
        self.values[new] = kept


class ValueColumn(StateColumn):
    """A value of any Arrow type per place, replaced as a whole."""

    is_number = False

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self._store = ColumnStore()
        self._positions = NumberColumn(np.intp)
        """The position of each place's value in the store."""

    @property
    def nbytes(self) -> int:
        return self._store.nbytes + self._positions.nbytes

    def grow(self, places: int) -> None:
        self._positions.grow(places)

    def put(self, places: Places, values: pa.Array[Any]) -> None:
        """Replace the values of places, each of which occurs once."""
        positions = self._positions.values
        positions[places] = np.arange(len(self._store), len(self._store) + len(values))
        self._store.append(values)
        if len(self._store) > 2 * len(positions) + _SPARE_ROWS:
            living = self._store.take(positions)
            self._store = ColumnStore()
            self._store.append(living)
            positions[:] = np.arange(len(positions))

    def take(self, places: Places) -> pa.Array[Any]:
        """The values of places, all of which have been put."""
        return self._store.take(self._positions.values[places])

    def freeze(self) -> FrozenColumn:
        chunks, positions = self._store.chunks(), self._positions.values.copy()
        return lambda places: take_from(chunks, positions[places])

    def restore(self, places: Places, values: pa.Array[Any]) -> None:
        self.put(places, values)

    def renumber(self, old: Places, new: Places) -> None:
        living = self._store.take(self._positions.values[old]) if len(self._store) else None
        self._store = ColumnStore()
        self._positions = NumberColumn(np.intp)
        self._positions.grow(len(old))
        if living is not None:
            self.put(new, living)


class ColumnarState:
    """The columns of one keyed state and the index of its keys."""

    def __init__(
        self,
        name: str,
        declaration: str,
        keys: KeyIndex,
        columns: Mapping[str, StateColumn],
        key_groups: KeyGroupRange,
        max_parallelism: int,
    ) -> None:
        self.metadata = StateMetadata(name, declaration, PayloadForm.ARROW)
        names = free_names(columns, keys.width)
        self.columns = dict(zip(names, columns.values(), strict=True))
        """By their names in snapshots."""
        self.new: Places = np.arange(0)
        """The places, ascending, of keys that are new in the last batch."""
        self.loaded: Places = np.arange(0)
        """The places that the last batch loaded into memory."""
        self._index = keys
        self._key_names = key_names(keys.width, is_tuple=keys.schema.is_tuple)
        self.key_groups = key_groups
        self.max_parallelism = max_parallelism

    def __len__(self) -> int:
        """How many keys there are."""
        return len(self._index)

    @property
    def nbytes(self) -> int:
        return self._index.nbytes + sum(column.nbytes for column in self.columns.values())

    def places_of(self, keys: Sequence[pa.Array[Any]]) -> Places:
        """The place of every row's key; new keys get the next places."""
        known = len(self._index)
        places = self._index.find_or_add(keys)
        self.new = np.arange(known, len(self._index))
        if len(self.new):
            for column in self.columns.values():
                column.grow(len(self._index))
        return places

    def clean_up(self) -> None:
        """Free memory between batches. Afterwards, places refer to other keys."""

    def close(self) -> None:
        """Release all resources."""

    def freeze(self) -> FrozenState:
        return _FrozenColumns(
            self.metadata,
            self.key_groups,
            self.max_parallelism,
            self._key_names,
            self._index.keys(),
            {name: column.freeze() for name, column in self.columns.items()},
        )

    def restore(self, images: Iterable[KeyedStateImage]) -> None:
        for image in images:
            check_max_parallelism_unchanged(image.max_parallelism, self.max_parallelism)
            for stored in image.metadata:
                check_unchanged(self.metadata, stored)
            for chunk in image.chunks(self.key_groups):
                self._restore_chunk(chunk)

    def _restore_chunk(self, chunk: StateChunk) -> None:
        start, stop = chunk.span_in(self.key_groups)
        rows = from_bytes(chunk.payload).slice(start, stop - start)
        if rows.num_rows == 0:
            return
        # By position: the names may be those of an earlier version.
        width = self._index.width
        places = self.places_of(rows.columns[:width])
        for column, stored in zip(self.columns.values(), rows.columns[width:], strict=True):
            column.restore(places, stored)


def check_unchanged(declared: StateMetadata, stored: StateMetadata) -> None:
    """Raise StateTypeChanged if a stored state has other columns than the declared one."""
    if stored != declared:
        reason = (
            "an aggregation stores fields of its records: map() records to the previous fields, "
            "or give its operator another uid()"
        )
        raise StateTypeChanged(stored.name, stored.declaration, declared.declaration, reason)


class _FrozenColumns(FrozenState):
    def __init__(
        self,
        metadata: StateMetadata,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        key_names: Iterable[str],
        keys: FrozenKeys,
        columns: Mapping[str, FrozenColumn],
    ) -> None:
        self.metadata = (metadata,)
        self.key_groups = key_groups
        self.max_parallelism = max_parallelism
        self._names = [*key_names, *columns]
        self._keys = keys
        self._columns = columns

    def chunks(self, key_groups: KeyGroupRange | None = None) -> Iterator[StateChunk]:
        for part in self._keys.ordered(self.max_parallelism, ROWS_PER_CHUNK):
            if not part.are_none_of(key_groups):
                places = part.places.astype(np.intp)
                columns = [taken_at(places) for taken_at in self._columns.values()]
                payload = to_bytes([*part.keys, *columns], self._names)
                yield StateChunk(self.metadata[0].name, part.runs, payload)

    def release(self) -> None:
        """Nothing to release: nothing shared can change."""
