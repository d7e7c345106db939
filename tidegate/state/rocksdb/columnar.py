"""Columnar keyed state in memory, backed by a database that stores it as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegate.state.backend import (
    FrozenState,
    KeyedStateImage,
    StateChunk,
    check_max_parallelism_unchanged,
)
from tidegate.state.columnar.backend import (
    ColumnarState,
    FrozenColumn,
    StateColumn,
    check_unchanged,
)
from tidegate.state.columnar.column_rows import RowCodec
from tidegate.state.columns import from_bytes
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.keys.key_index import KeyIndex
from tidegate.state.keys.selection import KeyColumns
from tidegate.state.keys.word_index import Places
from tidegate.state.rocksdb.entries import head_of, payload_of, state_suffix, stems_of
from tidegate.state.rocksdb.files import NATIVE_FORM, DatabaseFacts
from tidegate.state.rocksdb.restore import CopiedDatabase, copied_rows, to_take_over
from tidegate.state.rocksdb.snapshot import SnapshotSeries, Unwritten
from tidegate.state.rocksdb.store import DEFAULT_MEMORY, SharedDatabase
from tidegate.state.rocksdb.working_set import WorkingSet

_SUFFIX: Final = state_suffix(0)
_ROWS_AT_ONCE: Final = 8_192
_PLACE_BYTES: Final = 200
"""The memory for a key besides index and columns: its stem and list entries."""
_FEWEST_PLACES: Final = 1_000


class RocksDBColumnarState(ColumnarState):
    """The rows of all keys in a database; those of recently used keys as columns, too."""

    def __init__(
        self,
        name: str,
        declaration: str,
        keys: KeyIndex,
        columns: Mapping[str, StateColumn],
        key_groups: KeyGroupRange,
        max_parallelism: int,
        directory: Path | None = None,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        super().__init__(name, declaration, keys, columns, key_groups, max_parallelism)
        self._store = SharedDatabase(directory, memory // 2)
        self._budget = memory // 2
        self._set = WorkingSet()
        self._series = SnapshotSeries(self._store)
        self._rows = pa.schema(
            [pa.field(name, c.kind, nullable=not c.is_number) for name, c in self.columns.items()]
        )
        self._codec = RowCodec(self._rows)

    def places_of(self, keys: Sequence[pa.Array[Any]]) -> Places:
        known = len(self)
        places = super().places_of(keys)
        self.loaded = self.new[:0]
        if len(self) > known:
            self._load(known)
        self._set.touch(places)
        return places

    def _load(self, known: int) -> None:
        """Read the rows of the keys from this place on, if they exist."""
        schema = self._index.schema
        columns = self._index.keys().take(np.arange(known, len(self)))
        keys = KeyColumns(columns, schema.is_tuple)
        values = keys.values()
        stems = stems_of(values, keys.hashes(), self.max_parallelism)
        self._set.add(stems, [head_of(key) for key in values])
        if not self._store.has_entries:
            return
        entries = self._store.get_many([stem + _SUFFIX for stem in stems])
        rows = [payload_of(entry) for entry in entries if entry is not None]
        if not rows:
            return
        is_known = np.array([entry is not None for entry in entries])
        self.loaded, self.new = self.new[is_known], self.new[~is_known]
        for column, stored in zip(self.columns.values(), self._codec.decode(rows), strict=True):
            column.restore(self.loaded, stored)

    def freeze(self) -> FrozenState:
        self._series.settle()
        facts = DatabaseFacts(
            states=(self.metadata,),
            key_groups=self.key_groups,
            max_parallelism=self.max_parallelism,
            keys=self._index.schema,
            rows=self._rows,
        )
        return self._series.freeze(facts, facts.states, self._unwritten())

    def _unwritten(self) -> UnwrittenRows:
        columns = [column.freeze() for column in self.columns.values()]
        return UnwrittenRows(columns, self._codec, self._set)

    def restore(self, images: Iterable[KeyedStateImage]) -> None:
        images = list(images)
        for image in images:
            check_max_parallelism_unchanged(image.max_parallelism, self.max_parallelism)
            for stored in image.metadata:
                check_unchanged(self.metadata, stored)
        taken = None if self._store.has_entries else to_take_over(images, self.key_groups)
        if taken is not None:
            self._store.take_over(taken, self.key_groups)
        for image in images:
            if image is taken:
                continue
            if image.native_form == NATIVE_FORM:
                numbers = {self.metadata.name: 0}
                copied = CopiedDatabase(self._store, image)
                self._store.write(copied.entries(self.key_groups, numbers))
            else:
                for chunk in image.chunks(self.key_groups):
                    self._copy_chunk(chunk)

    def _copy_chunk(self, chunk: StateChunk) -> None:
        start, stop = chunk.span_in(self.key_groups)
        rows = from_bytes(chunk.payload).slice(start, stop - start)
        if rows.num_rows:
            width = self._index.width
            keys = KeyColumns(rows.columns[:width], self._index.schema.is_tuple)
            encoded = self._codec.encode(rows.columns[width:])
            self._store.write(copied_rows(keys, encoded, self.max_parallelism))

    def clean_up(self) -> None:
        self._set.end_batch()
        if len(self) > _FEWEST_PLACES:
            room = self._budget // (_PLACE_BYTES + self.nbytes // len(self))
            # While a snapshot is being written, it pays to wait a little.
            if len(self) > (room if self._series.is_settled else 2 * room):
                self.shrink(max(room // 2, _FEWEST_PLACES))

    def shrink(self, places: int) -> None:
        """Keep at most this many keys in memory, the most recently used ones."""
        if places >= len(self):
            return
        self._series.settle()
        self._series.write(self._unwritten())
        old = self._set.latest(places)
        self._index, new = self._index.only(old)
        self._set.keep(old, new)
        for column in self.columns.values():
            column.renumber(old, new)

    def close(self) -> None:
        self._store.drop()


class UnwrittenRows(Unwritten):
    """The rows of changed places."""

    def __init__(
        self, columns: Sequence[FrozenColumn], codec: RowCodec, working_set: WorkingSet
    ) -> None:
        self._columns = columns
        self._codec = codec
        self._set = working_set
        self._entries = working_set.stems, working_set.heads
        self._places = working_set.changed()
        working_set.mark_written()

    def changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        stems, heads = self._entries
        for start in range(0, len(self._places), _ROWS_AT_ONCE):
            places = self._places[start : start + _ROWS_AT_ONCE]
            rows = self._codec.encode([taken_at(places) for taken_at in self._columns])
            for place, row in zip(places.tolist(), rows, strict=True):
                yield stems[place] + _SUFFIX, heads[place] + row

    def undo(self) -> None:
        self._set.mark_changed(self._places.tolist())
