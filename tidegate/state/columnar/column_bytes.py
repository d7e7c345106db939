"""Columns as bytes, in Arrow's stream format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa


def to_bytes(columns: Sequence[pa.Array[Any]], names: Sequence[str]) -> bytes:
    """Columns of equal length, with their names and types."""
    rows = pa.RecordBatch.from_arrays(list(columns), names=list(names))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return sink.getvalue().to_pybytes()


def from_bytes(raw: bytes) -> pa.RecordBatch:
    """What `to_bytes` wrote."""
    return pa.ipc.open_stream(raw).read_next_batch()
