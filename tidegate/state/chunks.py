"""Entries of a state → chunks by key group → entries again."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.core.errors import StateMisuse, shorten
from tidegate.state.backend import StateChunk
from tidegate.state.column_bytes import from_bytes, to_bytes
from tidegate.state.key_groups import KeyGroupRange
from tidegate.state.key_slots import KeySnapshot, StoredKeys
from tidegate.state.word_index import Slots

ENTRIES_PER_CHUNK: Final = 8_192
"""Pickling holds the interpreter; so many entries keep records waiting for some milliseconds."""

Values: TypeAlias = "list[Any] | pa.Array[Any]"
_COLUMN_TYPES: Final = {
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    str: pa.large_string(),
    bytes: pa.large_binary(),
}
"""Python types of which a column returns the very values it was made of."""


def pickled_chunks(
    state: str,
    keys: KeySnapshot,
    groups: npt.NDArray[np.uint16],
    slots: Slots,
    values: Values,
    key_groups: KeyGroupRange | None = None,
) -> Iterator[StateChunk]:
    """Values of slots as chunks, in the order of their key groups.

    Args:
        state: the name of the state.
        keys: the keys of all slots.
        groups: the key groups of all slots.
        slots: where `values` stand; a slot may occur several times.
        values: what is stored, in the order of `slots`.
        key_groups: the only groups that are wanted.
    """
    order, ordered_groups = in_group_order(groups[slots], key_groups)
    for start in range(0, len(order), ENTRIES_PER_CHUNK):
        places = order[start : start + ENTRIES_PER_CHUNK]
        chosen: Values
        if isinstance(values, list):
            chosen = [values[place] for place in places.tolist()]
        else:
            chosen = values.take(places)
        runs = runs_of(ordered_groups[start : start + ENTRIES_PER_CHUNK])
        yield chunk_of(state, runs, keys.stored(slots[places]), chosen)


def chunk_of(
    state: str, groups: tuple[tuple[int, int], ...], keys: StoredKeys, values: Values
) -> StateChunk:
    """A chunk of entries that are in the order of their key groups already."""
    stored = values if isinstance(values, list) else to_bytes([values], ["value"])
    return StateChunk(state, groups, _pickled(state, keys, stored))


def unpickled(chunk: StateChunk) -> tuple[StoredKeys, list[Any]]:
    """The keys and values of a chunk."""
    keys, values = pickle.loads(chunk.payload)
    return keys, from_bytes(values).column(0).to_pylist() if isinstance(values, bytes) else values


def as_column(values: list[Any]) -> Values:
    """The values as a column if they are all numbers, all texts or all bytes; else as they are.

    Columns are put in order and written without holding the interpreter.
    """
    pieces: list[pa.Array[Any]] = []
    for start in range(0, len(values), ENTRIES_PER_CHUNK):
        piece = values[start : start + ENTRIES_PER_CHUNK]
        found = set(map(type, piece))
        kind = _COLUMN_TYPES.get(found.pop()) if len(found) == 1 else None
        if kind is None or (pieces and pieces[0].type != kind):
            return values
        try:
            pieces.append(pa.array(piece, kind))
        except (OverflowError, UnicodeEncodeError, pa.ArrowInvalid):
            return values
    return pa.concat_arrays(pieces) if pieces else values


def in_group_order(
    groups: npt.NDArray[np.uint16], key_groups: KeyGroupRange | None
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.uint16]]:
    """Where the entries of these key groups stand, by group, and the groups in that order."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    if key_groups is None:
        return order, ordered
    start, stop = np.searchsorted(ordered, (key_groups.start, key_groups.stop))
    return order[start:stop], ordered[start:stop]


def runs_of(groups: npt.NDArray[np.uint16]) -> tuple[tuple[int, int], ...]:
    """(key group, number of entries) of groups in ascending order."""
    found, counts = np.unique(groups, return_counts=True)
    return tuple(zip(found.tolist(), counts.tolist(), strict=True))


def _pickled(state: str, keys: StoredKeys, values: list[Any] | bytes) -> bytes:
    try:
        return pickle.dumps((keys, values), protocol=5)
    except Exception as failure:
        if isinstance(values, bytes):
            raise
        place, reason = _first_unpicklable(values, failure)
        if isinstance(keys, bytes):
            keys = [tuple(row.values()) for row in from_bytes(keys).to_pylist()]
        raise StateMisuse(
            f"state {state!r} of the key {shorten(keys[place])} holds {shorten(values[place])}, "
            f"which cannot be stored: {reason}. Keep connections, locks and other live objects "
            "out of state."
        ) from None


def _first_unpicklable(values: list[Any], failure: Exception) -> tuple[int, Exception]:
    for place, value in enumerate(values):
        try:
            pickle.dumps(value, protocol=5)
        except Exception as reason:
            return place, reason
    return 0, failure
