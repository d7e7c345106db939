"""Entries of a state → chunks by key group → entries again."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidegate.core.errors import StateMisuse, shorten
from tidegate.state.backend import StateChunk
from tidegate.state.hash_columns import hash_values
from tidegate.state.key_groups import KeyGroupRange, key_groups_of

ENTRIES_PER_CHUNK: Final = 8_192
"""Pickling holds the interpreter; so many entries keep records waiting for some milliseconds."""


def pickled_chunks(
    state: str,
    keys: Sequence[Any],
    values: Sequence[Any],
    max_parallelism: int,
    key_groups: KeyGroupRange | None = None,
) -> Iterator[StateChunk]:
    """The entries of these key groups, in the order of the groups."""
    groups = _groups_of(keys, max_parallelism)
    order, groups = in_group_order(groups, key_groups)
    for start in range(0, len(order), ENTRIES_PER_CHUNK):
        places = order[start : start + ENTRIES_PER_CHUNK].tolist()
        chosen = [keys[place] for place in places], [values[place] for place in places]
        runs = runs_of(groups[start : start + ENTRIES_PER_CHUNK])
        yield StateChunk(state, runs, _pickled(state, *chosen))


def unpickled_entries(chunk: StateChunk, key_groups: KeyGroupRange) -> Iterator[tuple[Any, Any]]:
    """The entries of a pickled chunk that belong to these key groups."""
    keys, values = pickle.loads(chunk.payload)
    start, stop = chunk.span_in(key_groups)
    return zip(keys[start:stop], values[start:stop], strict=True)


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


def _groups_of(keys: Sequence[Any], max_parallelism: int) -> npt.NDArray[np.uint16]:
    parts = [
        key_groups_of(hash_values(keys[start : start + ENTRIES_PER_CHUNK]), max_parallelism)
        for start in range(0, len(keys), ENTRIES_PER_CHUNK)
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.uint16)


def _pickled(state: str, keys: list[Any], values: list[Any]) -> bytes:
    try:
        return pickle.dumps((keys, values), protocol=5)
    except Exception as failure:
        key, value, reason = _first_unpicklable(keys, values, failure)
        raise StateMisuse(
            f"state {state!r} of the key {shorten(key)} holds {shorten(value)}, which cannot be "
            f"stored: {reason}. Keep connections, locks and other live objects out of state."
        ) from None


def _first_unpicklable(
    keys: list[Any], values: list[Any], failure: Exception
) -> tuple[Any, Any, Exception]:
    for key, value in zip(keys, values, strict=True):
        try:
            pickle.dumps((key, value), protocol=5)
        except Exception as reason:
            return key, value, reason
    return keys[0], values[0], failure
