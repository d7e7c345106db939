"""Snapshots of columnar state with several rows per key."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.state.backend import (
    FrozenState,
    KeyedStateImage,
    StateChunk,
    StateMetadata,
    check_max_parallelism_unchanged,
)
from tidegate.state.columnar.backend import ROWS_PER_CHUNK, check_unchanged
from tidegate.state.columns import from_bytes, key_names, to_bytes
from tidegate.state.keys.key_groups import KeyGroupRange, key_groups_of
from tidegate.state.keys.key_index import FrozenKeys
from tidegate.state.keys.key_order import Runs, runs_of
from tidegate.state.keys.word_index import Places


class KeyedRows(NamedTuple):
    """Rows at one moment. May be read on another thread."""

    keys: Places
    """The place of the key of each row."""
    take: Callable[[Places], list[pa.Array[Any]]]
    """Returns the columns of rows, without the key."""


class KeptRoom:
    """The bytes that may still be kept. Used by all threads that write snapshots."""

    def __init__(self) -> None:
        self.left = 0
        self._lock = threading.Lock()

    def measure(self, limit: int, kept: Iterable[KeptChunks]) -> None:
        """Measure what is left besides the chunks that are still needed."""
        with self._lock:
            self.left = limit - sum(each.size for each in kept)

    def keep(self, kept: KeptChunks, chunks: Iterable[StateChunk], size: int) -> None:
        """Keep chunks if they fit; another snapshot may have kept them already."""
        with self._lock:
            if not kept.chunks and size <= self.left:
                self.left -= size
                kept.chunks, kept.size = tuple(chunks), size


class KeptChunks:
    """What was stored of rows that do not change, for the next snapshots, if there is room."""

    def __init__(self, room: KeptRoom) -> None:
        self.chunks: tuple[StateChunk, ...] = ()
        self.size = 0
        self._room = room

    def passing(self, chunks: Iterable[StateChunk]) -> Iterator[StateChunk]:
        """All chunks of the rows, which are kept when the last one has passed."""
        passed: list[StateChunk] = []
        size, fits = 0, True
        for chunk in chunks:
            size += len(chunk.payload)
            fits = fits and size <= self._room.left
            if fits:
                passed.append(chunk)
            else:
                passed.clear()
            yield chunk
        if fits:
            self._room.keep(self, passed, size)


class RowPerKey(NamedTuple):
    """Rows of a good part of all keys, one for each. May be read on another thread."""

    present: npt.NDArray[np.bool_]
    """Whether there is a row, by the place of the key; there may be more or fewer places."""
    take: Callable[[Places], list[pa.Array[Any]]]
    """Returns the columns of rows by the places of their keys, without the key."""
    kept: KeptChunks | None = None
    """If the rows will not change soon."""


class RowState(NamedTuple):
    """A state that is being frozen."""

    metadata: StateMetadata
    names: Sequence[str]
    """The names of the columns, without the key."""
    rows: Callable[[], Iterable[KeyedRows | RowPerKey]]
    """Each part becomes chunks of its own."""


class _Part(NamedTuple):
    """Rows of one chunk, ordered by key group."""

    keys: list[pa.Array[Any]]
    rows: Places
    runs: Runs


class FrozenRows(FrozenState):
    """States of one operator at one moment, whose keys have the same places."""

    def __init__(
        self,
        states: Sequence[RowState],
        key_groups: KeyGroupRange,
        max_parallelism: int,
        keys: FrozenKeys,
    ) -> None:
        self.metadata = tuple(state.metadata for state in states)
        self.key_groups = key_groups
        self.max_parallelism = max_parallelism
        self._states = states
        self._keys = keys

    def chunks(self, key_groups: KeyGroupRange | None = None) -> Iterator[StateChunk]:
        for state in self._states:
            for rows in state.rows():
                kept = rows.kept if isinstance(rows, RowPerKey) and key_groups is None else None
                if kept is None:
                    yield from self._chunks_of(state, rows, key_groups)
                else:
                    yield from kept.chunks or kept.passing(self._chunks_of(state, rows, None))

    def _chunks_of(
        self, state: RowState, rows: KeyedRows | RowPerKey, key_groups: KeyGroupRange | None
    ) -> Iterator[StateChunk]:
        if isinstance(rows, RowPerKey):
            parts = self._in_order_of_keys(rows.present, key_groups)
        else:
            parts = self._sorted(rows.keys, key_groups)
        for keys, part, runs in parts:
            names = [*key_names(len(keys), is_tuple=self._keys.is_tuple), *state.names]
            payload = to_bytes([*keys, *rows.take(part)], names)
            yield StateChunk(state.metadata.name, runs, payload)

    def _in_order_of_keys(
        self, present: npt.NDArray[np.bool_], key_groups: KeyGroupRange | None
    ) -> Iterator[_Part]:
        """Parts in the order of all keys, which earlier snapshots have sorted."""
        occurs = np.zeros(len(self._keys), np.bool_)
        occurs[: len(present)] = present[: len(occurs)]
        for part in self._keys.ordered(self.max_parallelism, ROWS_PER_CHUNK):
            if part.are_none_of(key_groups):
                continue
            places = part.places.astype(np.intp)
            found = np.flatnonzero(occurs.take(places))
            if len(found) == len(places):
                yield _Part(part.keys, places, part.runs)
            elif len(found):
                keys = [column.take(found) for column in part.keys]
                yield _Part(keys, places.take(found), part.runs_of(found))

    def _sorted(self, keys: Places, key_groups: KeyGroupRange | None) -> Iterator[_Part]:
        """Parts of rows, sorted by key group."""
        if not len(keys):
            return
        groups = key_groups_of(self._keys.hashes(), self.max_parallelism)[keys]
        wanted = np.arange(len(groups))
        if key_groups is not None:
            wanted = np.flatnonzero((groups >= key_groups.start) & (groups < key_groups.stop))
        order = wanted[np.argsort(groups[wanted], kind="stable")]
        for start in range(0, len(order), ROWS_PER_CHUNK):
            part = order[start : start + ROWS_PER_CHUNK]
            yield _Part(self._keys.take(keys[part]), part, runs_of(groups[part]))

    def release(self) -> None:
        """Nothing to release: nothing shared can change."""


def stored_rows(
    images: Iterable[KeyedStateImage],
    states: Sequence[StateMetadata],
    key_groups: KeyGroupRange,
    max_parallelism: int,
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The frozen rows of these key groups, each part with the name of its state."""
    declared = {state.name: state for state in states}
    for image in images:
        check_max_parallelism_unchanged(image.max_parallelism, max_parallelism)
        for stored in image.metadata:
            check_unchanged(declared.get(stored.name, states[0]), stored)
        for chunk in image.chunks(key_groups):
            start, stop = chunk.span_in(key_groups)
            if stop > start:
                yield chunk.state, from_bytes(chunk.payload).slice(start, stop - start)
