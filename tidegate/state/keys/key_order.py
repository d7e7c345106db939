"""The keys of a state in snapshot order, cached between snapshots."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from tidegate.state.keys.hash_columns import Hashes
from tidegate.state.keys.key_groups import KeyGroupRange, key_groups_of
from tidegate.state.keys.word_index import Places

T = TypeVar("T")
Groups = npt.NDArray[np.uint16]
Runs = tuple[tuple[int, int], ...]
"""(key group, number of entries), ascending."""


class OrderedKeys(NamedTuple, Generic[T]):
    """Some places, ordered by key group."""

    places: npt.NDArray[np.int32]
    runs: Runs
    keys: T
    """The keys of these places in their stored form."""

    @property
    def groups(self) -> Groups:
        numbers, counts = zip(*self.runs, strict=True)
        return np.repeat(np.array(numbers, np.uint16), counts)

    def runs_of(self, chosen: Places) -> Runs:
        """The runs of some of the entries, given by their positions, ascending."""
        groups, counts = zip(*self.runs, strict=True)
        ends = np.searchsorted(chosen, np.cumsum(counts))
        found = np.diff(ends, prepend=0).tolist()
        return tuple((group, count) for group, count in zip(groups, found, strict=True) if count)

    def are_all_of(self, key_groups: KeyGroupRange | None) -> bool:
        """Whether all keys belong to these key groups; by default, to any."""
        return key_groups is None or (
            key_groups.start <= self.runs[0][0] and self.runs[-1][0] < key_groups.stop
        )

    def are_none_of(self, key_groups: KeyGroupRange | None) -> bool:
        return key_groups is not None and (
            key_groups.stop <= self.runs[0][0] or self.runs[-1][0] < key_groups.start
        )


@dataclass(frozen=True, slots=True)
class _Segment(Generic[T]):
    start: int
    stop: int
    parts: tuple[OrderedKeys[T], ...]


class KeyOrder(Generic[T]):
    """Sorts keys once: keys never change and are only added.

    New keys are sorted separately. Each of the resulting segments is at least twice as large as the
    next, so there are few. Thread-safe.
    """

    def __init__(self) -> None:
        self._segments: tuple[_Segment[T], ...] = ()
        self._lock = threading.Lock()

    def parts(
        self, count: int, order: Callable[[int, int], Sequence[OrderedKeys[T]]]
    ) -> list[OrderedKeys[T]]:
        """The first `count` places in parts; `order` sorts a range of places."""
        with self._lock:
            known = [segment for segment in self._segments if segment.stop <= count]
            is_latest = len(known) == len(self._segments)
            start = known[-1].stop if known else 0
            if start < count:
                while known and known[-1].stop - known[-1].start < 2 * (count - start):
                    start = known.pop().start
                known.append(_Segment(start, count, tuple(order(start, count))))
            if is_latest:
                self._segments = tuple(known)
        return [part for segment in known for part in segment.parts]


def in_parts(
    hashes: Hashes,
    start: int,
    max_parallelism: int,
    size: int,
    stored: Callable[[Places], T],
) -> list[OrderedKeys[T]]:
    """Places from `start`, whose keys have these hashes, ordered by key group."""
    groups = key_groups_of(hashes, max_parallelism)
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    places = order + start
    return [
        OrderedKeys(
            places[position : position + size].astype(np.int32),
            runs_of(ordered[position : position + size]),
            stored(places[position : position + size]),
        )
        for position in range(0, len(places), size)
    ]


def runs_of(groups: Groups) -> Runs:
    """(key group, number of entries) of sorted groups."""
    found, counts = np.unique(groups, return_counts=True)
    return tuple(zip(found.tolist(), counts.tolist(), strict=True))
