"""Rows of windows in snapshots: key, start and end of the window, and its contents."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.state.columnar.keyed_rows import KeyedRows
from tidegate.state.keys.word_index import Places

WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"


class WindowRows(NamedTuple):
    """Windows of keys, with their places."""

    keys: Places
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    columns: list[pa.Array[Any]]

    def keyed(self) -> KeyedRows:
        return KeyedRows(self.keys, self._taken)

    def _taken(self, rows: Places) -> list[pa.Array[Any]]:
        times = [pa.array(self.starts[rows]), pa.array(self.ends[rows])]
        return [*times, *(column.take(rows) for column in self.columns)]
