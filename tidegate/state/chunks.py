"""Converts entries of a state to chunks by key group, and back."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.core.errors import StateMisuse, shorten
from tidegate.state.backend import StateChunk
from tidegate.state.columns import from_bytes, to_bytes
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.keys.key_order import OrderedKeys, Runs, runs_of
from tidegate.state.keys.key_rows import KEYS_PER_PART, KeySnapshot, loaded_keys
from tidegate.state.keys.selection import KeyColumns
from tidegate.state.keys.word_index import Places

Values: TypeAlias = "list[Any] | pa.Array[Any]"
_COLUMN_TYPES: Final = {
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    str: pa.large_string(),
    bytes: pa.large_binary(),
}
"""Python types that a column returns unchanged."""


def table_chunks(
    state: str,
    keys: KeySnapshot,
    values: Values,
    max_parallelism: int,
    key_groups: KeyGroupRange | None = None,
) -> Iterator[StateChunk]:
    """The values of all places as chunks; None, or null, is no value.

    Args:
        state: the name of the state.
        keys: the keys of all places.
        values: the stored values, by place.
        max_parallelism: the number of key groups.
        key_groups: the wanted key groups; all by default.
    """
    for part in keys.ordered(max_parallelism):
        if part.are_none_of(key_groups):
            continue
        chosen = _taken(values, part.places)
        present = _present(chosen)
        if present is None and part.are_all_of(key_groups):
            yield chunk_of(state, part.runs, part.keys, chosen)
            continue
        wanted = _within(part, key_groups)
        kept = np.flatnonzero(wanted if present is None else wanted & present)
        if len(kept):
            places = part.places[kept].astype(np.intp)
            yield chunk_of(state, part.runs_of(kept), keys.stored(places), _taken(chosen, kept))


def timer_chunks(
    state: str,
    keys: KeySnapshot,
    places: Places,
    times: list[int],
    max_parallelism: int,
    key_groups: KeyGroupRange | None = None,
) -> Iterator[StateChunk]:
    """The times of timers at the places of their keys; a key may have several."""
    groups = np.empty(len(keys), np.uint16)
    for part in keys.ordered(max_parallelism):
        groups[part.places] = part.groups
    groups = groups[places]
    order = np.argsort(groups, kind="stable")
    if key_groups is not None:
        bounds = np.searchsorted(groups[order], (key_groups.start, key_groups.stop))
        order = order[bounds[0] : bounds[1]]
    for start in range(0, len(order), KEYS_PER_PART):
        positions = order[start : start + KEYS_PER_PART]
        chosen = [times[position] for position in positions.tolist()]
        yield chunk_of(state, runs_of(groups[positions]), keys.stored(places[positions]), chosen)


def chunk_of(state: str, groups: Runs, keys: bytes, values: Values) -> StateChunk:
    """A chunk of entries that are already ordered by key group."""
    stored = values if isinstance(values, list) else to_bytes([values], ["value"])
    return StateChunk(state, groups, _pickled(state, keys, stored))


def contents_of(chunk: StateChunk) -> tuple[list[Any] | KeyColumns, Values]:
    """The keys and values of a chunk of pickled values."""
    keys, values = pickle.loads(chunk.payload)
    return loaded_keys(keys), from_bytes(values).column(0) if isinstance(values, bytes) else values


def unpickled(chunk: StateChunk) -> tuple[list[Any] | KeyColumns, list[Any]]:
    """The keys and values of a chunk as Python objects."""
    keys, values = contents_of(chunk)
    return keys, values if isinstance(values, list) else values.to_pylist()


def as_column(values: list[Any]) -> Values:
    """The values as a column if all are numbers, text or bytes; otherwise unchanged.

    Columns are sorted and written without holding the interpreter lock. None becomes null.
    """
    kind: Any = None
    pieces: list[pa.Array[Any] | int] = []
    # Piece by piece, so that the data is still in the CPU cache the second time.
    for start in range(0, len(values), KEYS_PER_PART):
        piece = values[start : start + KEYS_PER_PART]
        found = set(map(type, piece))
        found.discard(type(None))
        if not found:
            pieces.append(len(piece))
            continue
        held = _COLUMN_TYPES.get(found.pop())
        if held is None or found or kind not in (None, held):
            return values
        kind = held
        try:
            pieces.append(pa.array(piece, kind))
        except (OverflowError, UnicodeEncodeError, pa.ArrowInvalid):
            return values
    if kind is None:
        return values
    column: pa.Array[Any] = pa.concat_arrays(
        [pa.nulls(piece, kind) if isinstance(piece, int) else piece for piece in pieces]
    )
    return column


def _taken(values: Values, positions: npt.NDArray[Any]) -> Values:
    if isinstance(values, list):
        return [values[position] for position in positions.tolist()]
    return values.take(positions)


def _present(values: Values) -> npt.NDArray[np.bool_] | None:
    """Where there is a value; None if everywhere."""
    if not isinstance(values, list):
        if not values.null_count:
            return None
        valid: npt.NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False)
        return valid
    if None not in values:
        return None
    return np.array([value is not None for value in values])


def _within(part: OrderedKeys[bytes], key_groups: KeyGroupRange | None) -> npt.NDArray[np.bool_]:
    groups = part.groups
    if key_groups is None:
        return np.ones(len(groups), np.bool_)
    return (groups >= key_groups.start) & (groups < key_groups.stop)


def _pickled(state: str, keys: bytes, values: list[Any] | bytes) -> bytes:
    try:
        return pickle.dumps((keys, values), protocol=5)
    except Exception as failure:
        if isinstance(values, bytes):
            raise
        position, reason = _first_unpicklable(values, failure)
        known = loaded_keys(keys)
        key = (known if isinstance(known, list) else known.values())[position]
        raise StateMisuse(
            f"state {state!r} of the key {shorten(key)} holds {shorten(values[position])}, "
            f"which cannot be stored: {reason}. Keep connections, locks and other live objects "
            "out of state."
        ) from None


def _first_unpicklable(values: list[Any], failure: Exception) -> tuple[int, Exception]:
    for position, value in enumerate(values):
        try:
            pickle.dumps(value, protocol=5)
        except Exception as reason:
            return position, reason
    return 0, failure
