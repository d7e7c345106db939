"""Columns as bytes, and append-only columns, whose snapshots are free."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_LARGEST_CHUNK: Final = 1 << 29
"""The size in bytes up to which chunks are joined: text in a chunk must stay below 2 GiB."""


def to_bytes(columns: Sequence[pa.Array[Any]], names: Sequence[str]) -> bytes:
    """Encode columns of equal length, with their names and types."""
    rows = pa.RecordBatch.from_arrays(list(columns), names=list(names))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return sink.getvalue().to_pybytes()


def from_bytes(raw: bytes) -> pa.RecordBatch:
    """Decode what `to_bytes` wrote."""
    rows = pa.ipc.open_stream(raw).read_next_batch()
    for place, field in enumerate(rows.schema):
        if pa.types.is_run_end_encoded(field.type):
            decoded = pc.call_function("run_end_decode", [rows.column(place)])
            rows = rows.set_column(place, field.name, decoded)
    return rows


def key_names(width: int, *, is_tuple: bool) -> list[str]:
    """The names of key columns in snapshots; they come before all others.

    A tuple of one part has another hash than the part.
    """
    return [_ONLY_PART] if is_tuple and width == 1 else [f"key{place}" for place in range(width)]


def key_width(names: Sequence[str]) -> tuple[int, bool]:
    """The number of the key's columns among all columns, and whether keys are tuples."""
    if names[0] == _ONLY_PART:
        return 1, True
    width = next(place for place, name in enumerate([*names, ""]) if name != f"key{place}")
    return width, width > 1


def free_names(names: Iterable[str], width: int, taken: Collection[str] = ()) -> list[str]:
    """The names of other columns in snapshots, changed if they are those of key columns."""
    used = {"key", "key_group", _ONLY_PART, *(f"key{place}" for place in range(width + 1)), *taken}
    found: list[str] = []
    for name in names:
        while name in used:
            name += "_"
        used.add(name)
        found.append(name)
    return found


_ONLY_PART: Final = "part0"


def repeated(value: int, count: int) -> pa.Array[Any]:
    """A column of one value, which takes no space; `from_bytes` spells it out."""
    return pa.RunEndEncodedArray.from_arrays(
        pa.array([count], pa.int32()), pa.array([value], pa.int64())
    )


class ColumnStore:
    """Values in insertion order, as a few immutable Arrow arrays."""

    def __init__(self) -> None:
        self._chunks: list[pa.Array[Any]] = []
        self._size = 0
        self._taken = 0

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        return sum(chunk.nbytes for chunk in self._chunks)

    def append(self, values: pa.Array[Any]) -> None:
        """Add values of the same type as all before."""
        if not len(values):
            return
        self._size += len(values)
        chunks = self._chunks
        chunks.append(values)
        # Each chunk is at least twice as large as the next, so there are few, and values rarely
        # move.
        while len(chunks) > 1 and len(chunks[-2]) < 2 * len(chunks[-1]):
            if chunks[-2].nbytes + chunks[-1].nbytes > _LARGEST_CHUNK:
                break
            chunks[-2:] = [pa.concat_arrays(chunks[-2:])]

    def chunks(self) -> tuple[pa.Array[Any], ...]:
        """All values now; later ones do not appear."""
        return tuple(self._chunks)

    def joined(self) -> pa.Array[Any] | pa.ChunkedArray[Any]:
        """All values now, at least one, as one array unless that would be too large."""
        if len(self._chunks) > 1 and self.nbytes <= _LARGEST_CHUNK:
            self._chunks = [pa.concat_arrays(self._chunks)]
        return self._chunks[0] if len(self._chunks) == 1 else pa.chunked_array(self._chunks)

    def take(self, positions: npt.NDArray[np.intp]) -> pa.Array[Any]:
        """The values at `positions`, in that order; there is at least one value."""
        self._taken += len(positions)
        # Taking from one chunk is cheaper. Once as many were taken as exist, joining pays off.
        if self._taken > self._size:
            self._taken = 0
            self.joined()
        return take_from(self._chunks, positions)


def take_from(
    chunks: list[pa.Array[Any]] | tuple[pa.Array[Any], ...], positions: npt.NDArray[np.intp]
) -> pa.Array[Any]:
    """The values at `positions` of the concatenated chunks."""
    if len(chunks) == 1:
        return chunks[0] if _are_all(positions, len(chunks[0])) else chunks[0].take(positions)
    starts = np.cumsum([0, *(len(chunk) for chunk in chunks[:-1])])
    owners = np.searchsorted(starts, positions, side="right") - 1
    order = np.argsort(owners, kind="stable")
    bounds = np.searchsorted(owners[order], np.arange(len(chunks) + 1))
    parts = [
        chunk.take(positions[order[bounds[number] : bounds[number + 1]]] - starts[number])
        for number, chunk in enumerate(chunks)
    ]
    back = np.empty(len(positions), np.intp)
    back[order] = np.arange(len(positions))
    return pa.concat_arrays(parts).take(back)


def _are_all(positions: npt.NDArray[np.intp], count: int) -> bool:
    return len(positions) == count and bool((positions == np.arange(count)).all())
