"""Rows of windows in snapshots: key, start and end of the window, and its contents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

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
from tidegate.state.columns import from_bytes, to_bytes
from tidegate.state.keys.key_groups import KeyGroupRange, key_groups_of
from tidegate.state.keys.key_index import FrozenKeys
from tidegate.state.keys.key_order import runs_of
from tidegate.state.keys.word_index import Places

WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"


class WindowRows(NamedTuple):
    """Windows of keys, with their places."""

    keys: Places
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    columns: list[pa.Array[Any]]


class FrozenWindowRows(FrozenState):
    """Windows at one moment; a key may have several."""

    def __init__(
        self,
        metadata: StateMetadata,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        keys: FrozenKeys,
        names: Iterable[str],
        rows: Callable[[], WindowRows],
    ) -> None:
        self.metadata = (metadata,)
        self.key_groups = key_groups
        self.max_parallelism = max_parallelism
        self._keys = keys
        self._names = list(names)
        self._rows = rows

    def chunks(self, key_groups: KeyGroupRange | None = None) -> Iterator[StateChunk]:
        rows = self._rows()
        if not len(rows.keys):
            return
        groups = key_groups_of(self._keys.hashes(), self.max_parallelism)[rows.keys]
        wanted = np.arange(len(groups))
        if key_groups is not None:
            wanted = np.flatnonzero((groups >= key_groups.start) & (groups < key_groups.stop))
        order = wanted[np.argsort(groups[wanted], kind="stable")]
        for start in range(0, len(order), ROWS_PER_CHUNK):
            part = order[start : start + ROWS_PER_CHUNK]
            keys = self._keys.take(rows.keys[part])
            columns = [
                *keys,
                pa.array(rows.starts[part]),
                pa.array(rows.ends[part]),
                *(column.take(part) for column in rows.columns),
            ]
            names = [*key_names(len(keys)), WINDOW_START, WINDOW_END, *self._names]
            payload = to_bytes(columns, names)
            yield StateChunk(self.metadata[0].name, runs_of(groups[part]), payload)

    def release(self) -> None:
        """Nothing to release: nothing shared can change."""


def stored_rows(
    images: Iterable[KeyedStateImage],
    metadata: StateMetadata,
    key_groups: KeyGroupRange,
    max_parallelism: int,
) -> Iterator[pa.RecordBatch]:
    """The rows of these key groups, with their frozen columns."""
    for image in images:
        check_max_parallelism_unchanged(image.max_parallelism, max_parallelism)
        for stored in image.metadata:
            check_unchanged(metadata, stored)
        for chunk in image.chunks(key_groups):
            start, stop = chunk.span_in(key_groups)
            if stop > start:
                yield from_bytes(chunk.payload).slice(start, stop - start)


def key_names(width: int) -> list[str]:
    """The names of the key columns."""
    return [f"key{place}" for place in range(width)]
