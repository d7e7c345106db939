"""Which keys of a database are in memory, and which of them have changed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidegate.state.keys.word_index import Places


class WorkingSet:
    """The stem of each place in the database, and when it was last handed out.

    A place that was handed out counts as changed, because its value may be changed in place. Times
    are batch numbers.
    """

    def __init__(self) -> None:
        self.stems: list[bytes] = []
        """Key group and key, by place. Replaced, never changed, when places are released."""
        self.heads: list[bytes] = []
        """The beginnings of entry values, by place."""
        self._touched = np.zeros(1024, np.int64)
        self._batch = 1
        self._written = 0
        """Places touched in later batches are not in the database yet."""

    def __len__(self) -> int:
        return len(self.stems)

    def add(self, stems: list[bytes], heads: list[bytes]) -> None:
        """Add places for these keys."""
        self.stems += stems
        self.heads += heads
        if len(self.stems) > len(self._touched):
            grown = np.zeros(2 * len(self.stems), np.int64)
            grown[: len(self._touched)] = self._touched
            self._touched = grown

    def touch(self, places: Sequence[int] | Places) -> None:
        """Hand out these places."""
        self._touched[np.asarray(places, np.intp)] = self._batch

    def end_batch(self) -> None:
        """End the use of the places handed out."""
        self._batch += 1

    def changed(self) -> Places:
        """The unwritten places."""
        return np.flatnonzero(self._all() > self._written)

    def mark_written(self) -> None:
        """Mark all places as written; those handed out may still change."""
        in_use = np.flatnonzero(self._all() == self._batch)
        self._written = self._batch
        self._batch += 1
        self._touched[in_use] = self._batch

    def mark_changed(self, places: Sequence[int]) -> None:
        self._touched[np.asarray(places, np.intp)] = self._batch

    def latest(self, count: int) -> Places:
        """The most recently used places."""
        first = len(self.stems) - count
        return np.sort(np.argpartition(self._all(), min(first, len(self.stems) - 1))[first:])

    def keep(self, old: Places, new: Places) -> None:
        """Move the values at the old places to the new ones; no other places remain."""
        stems, heads = self.stems, self.heads
        order = np.empty(len(old), np.intp)
        order[new] = old
        self.stems = [stems[place] for place in order.tolist()]
        self.heads = [heads[place] for place in order.tolist()]
        self._touched[: len(order)] = self._touched[order]

    def _all(self) -> npt.NDArray[np.int64]:
        return self._touched[: len(self.stems)]
