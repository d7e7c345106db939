"""Partitioners with `open` and `close`."""

from __future__ import annotations

from typing import Any

from tidegate.operators.functions import KeySelector, Partitioner
from tidegate.operators.runtime_context import RuntimeContext
from tidegate.state.keys.selection import KeySelection


class OpenedWithPartitioner(KeySelector):
    """A key selector that also opens and closes its partitioner."""

    def __init__(self, key: KeySelection, partitioner: Partitioner) -> None:
        self._key = key
        self._partitioner = partitioner

    def open(self, runtime_context: RuntimeContext) -> None:
        self._key.open(runtime_context)
        self._partitioner.open(runtime_context)

    def get_key(self, value: Any) -> Any:
        return self._key.function(value)

    def close(self) -> None:
        self._key.close()
        self._partitioner.close()
