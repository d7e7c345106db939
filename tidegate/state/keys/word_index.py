"""An exact index from fixed-width keys to dense numbers, for whole arrays at a time."""

from __future__ import annotations

import secrets
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
"""Keys as rows of one or two 64-bit words."""
Places = npt.NDArray[np.intp]

_FIRST_CELLS: Final = 1 << 10
_CELLS_PER_KEY: Final = 4
"""Sparse, so that a single probe finds nearly all keys in their home cell."""
_EMPTY: Final = -1
_NO_ROWS: Final = np.empty(0, np.intp)
_WHOLE_ROW: Final[dict[int, Any]] = {1: np.uint64, 2: np.complex128}
"""A type as wide as a row, to move a row as one element."""


class WordIndex:
    """Numbers distinct keys 0, 1, 2, ... in no particular order, and finds them again.

    Open addressing with linear probing: each round probes one cell for every key not found so far.
    The words themselves are compared, so the result is exact.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._size = 0
        self._words = np.empty((_FIRST_CELLS, width), np.uint64)
        self._cells = np.full(_FIRST_CELLS, _EMPTY, np.int32)
        self._reserved: list[int] = []
        # Random per process, so that nobody can choose keys that collide.
        self._factors = [np.uint64(secrets.randbits(64) | 1) for _ in range(3)]

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        return self._words.nbytes + self._cells.nbytes

    def reserve_place(self) -> int:
        """A number that no key will get."""
        self._reserved.append(self._size)
        self._append(np.zeros((1, self._width), np.uint64))
        return self._size - 1

    def find_or_add(self, words: Words) -> tuple[Places, Places]:
        """The place of every row, and the rows that were new, in the order of their places."""
        cells = self._home(words)
        places = self._cells.take(cells).astype(np.intp)
        pending = self._mismatches(places, words)
        if not len(pending):
            return places, pending
        return places, self._search(words, places, cells, pending)

    def _search(self, words: Words, places: Places, cells: Places, rows: Places) -> Places:
        """Find or add `rows`, which are not in the `cells` probed so far."""
        added: list[Places] = []
        words, cells, found = self._take(words, rows), cells.take(rows), places.take(rows)
        while True:
            at_empty = found == _EMPTY
            cells = (cells + ~at_empty) & (len(self._cells) - 1)
            if at_empty.any():
                winners = self._claim(at_empty.nonzero()[0], cells)
                added.append(rows.take(winners))
                if self._add(self._take(words, winners), cells.take(winners)):
                    cells = self._home(words)
            found = self._cells.take(cells).astype(np.intp)
            places[rows] = found
            left = self._mismatches(found, words)
            if not len(left):
                return np.concatenate(added or [_NO_ROWS])
            rows, words = rows.take(left), self._take(words, left)
            cells, found = cells.take(left), found.take(left)

    def _claim(self, rows: Places, cells: Places) -> Places:
        """One row for each wanted empty cell: the first, because the last write wins."""
        wanted = cells[rows]
        ballot = np.arange(len(rows), dtype=np.int32)
        self._cells[wanted[::-1]] = ballot[::-1]
        chosen = self._cells[wanted] == ballot
        return np.compress(chosen, rows)

    def _add(self, words: Words, cells: Places) -> bool:
        """Assign places to new keys at these cells; True if all cells were redistributed."""
        self._cells[cells] = np.arange(self._size, self._size + len(words), dtype=np.int32)
        self._append(words)
        if self._size * _CELLS_PER_KEY <= len(self._cells):
            return False
        self._deal(self._size)
        return True

    def _append(self, words: Words) -> None:
        stop = self._size + len(words)
        if stop > len(self._words):
            grown = np.empty((max(stop, 2 * len(self._words)), self._width), np.uint64)
            grown[: self._size] = self._words[: self._size]
            self._words = grown
        self._words[self._size : stop] = words
        self._size = stop

    def _deal(self, keys: int) -> None:
        """Enlarge the table and insert all keys again."""
        self._cells = np.full(1 << (keys * _CELLS_PER_KEY).bit_length(), _EMPTY, np.int32)
        places = np.arange(self._size, dtype=np.intp)
        cells = self._home(self._words[: self._size])
        if self._reserved:  # their words are those of another key
            places, cells = np.delete(places, self._reserved), np.delete(cells, self._reserved)
        while len(places):
            free = self._cells.take(cells) == _EMPTY
            self._cells[cells[free]] = places[free]
            left = self._cells.take(cells) != places
            places, cells = places[left], (cells[left] + 1) & (len(self._cells) - 1)

    def _home(self, words: Words) -> Places:
        """The first cell to probe for a key."""
        mixed = words[:, 0] * self._factors[0]
        if self._width == 2:
            mixed ^= words[:, 1]
            mixed *= self._factors[1]
        mixed ^= mixed >> np.uint64(32)
        mixed *= self._factors[2]
        mixed >>= np.uint64(64 - (len(self._cells) - 1).bit_length())
        return mixed.view(np.intp)

    def _mismatches(self, places: Places, words: Words) -> Places:
        """The rows whose place has another key, or none."""
        wrong = self._take(self._words, places) != words
        missed = places == _EMPTY
        for column in range(self._width):
            missed |= wrong[:, column]
        rows: Places = missed.nonzero()[0]
        return rows

    def _take(self, words: Words, rows: Places) -> Words:
        """The rows of these numbers; any row for a negative number."""
        whole = words.view(_WHOLE_ROW[self._width]).ravel()
        taken: Words = whole.take(rows, mode="clip").view(np.uint64)
        return taken.reshape(-1, self._width)
