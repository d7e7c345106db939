"""Encodes rows of columns as bytes, one by one."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


class RowCodec:
    """Encodes numbers side by side, followed by all other values, pickled.

    Non-nullable fields of the schema are numbers and are encoded as whole columns.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._numbers = [position for position, field in enumerate(schema) if not field.nullable]
        self._others = [position for position, field in enumerate(schema) if field.nullable]
        kinds = [(f"f{position}", schema.field(position).type) for position in self._numbers]
        self._dtype = np.dtype([(name, kind.to_pandas_dtype()) for name, kind in kinds])

    def encode(self, columns: Sequence[pa.Array[Any]]) -> list[bytes]:
        """Encode the rows of the columns; there is at least one."""
        numbers = np.empty(len(columns[0]), self._dtype)
        for position in self._numbers:
            numbers[f"f{position}"] = columns[position].to_numpy(zero_copy_only=False)
        raw, width = numbers.tobytes(), self._dtype.itemsize
        rows = [raw[position * width : (position + 1) * width] for position in range(len(numbers))]
        if not self._others:
            return rows
        others = zip(*(_plain(columns[p]).to_pylist() for p in self._others), strict=True)
        return [row + pickle.dumps(rest, 5) for row, rest in zip(rows, others, strict=True)]

    def decode(self, rows: Sequence[bytes]) -> list[pa.Array[Any]]:
        """Decode rows to columns; there is at least one."""
        width = self._dtype.itemsize
        decoded: dict[int, pa.Array[Any]] = {}
        if self._numbers:
            numbers: npt.NDArray[Any] = np.frombuffer(
                b"".join([row[:width] for row in rows]), self._dtype
            )
            for position in self._numbers:
                decoded[position] = pa.array(numbers[f"f{position}"].copy())
        if self._others:
            values = zip(*[pickle.loads(row[width:]) for row in rows], strict=True)
            for position, found in zip(self._others, values, strict=True):
                decoded[position] = _column(found, self._schema.field(position).type)
        return [decoded[position] for position in range(len(self._schema))]


def _plain(column: pa.Array[Any]) -> pa.Array[Any]:
    """Times as integers: Python's times are less precise."""
    ticks = _ticks(column.type)
    return column if ticks is None else column.view(ticks)


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array[Any]:
    ticks = _ticks(kind)
    if ticks is None:
        return pa.array(list(values), kind)
    return pa.array(list(values), ticks).view(kind)


def _ticks(kind: pa.DataType) -> pa.DataType | None:
    if not pa.types.is_temporal(kind) or pa.types.is_interval(kind):
        return None
    return pa.int32() if kind.bit_width == 32 else pa.int64()
