"""Arrow columns in types that Spark reads from Parquet, and back without loss."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

_TICKS: Final = (pa.int64(), pa.int32())
"""In which times are that Spark or Parquet does not have."""


def portable_type(kind: pa.DataType) -> pa.DataType:
    """In which type `portable` gives columns of a type."""
    is_ = pa.types
    if isinstance(kind, pa.DictionaryType):
        return portable_type(kind.value_type)
    if is_.is_decimal256(kind) or is_.is_string_view(kind):
        return pa.large_string()
    if is_.is_binary_view(kind):
        return pa.large_binary()
    if is_.is_float16(kind):
        return pa.float32()
    if is_.is_duration(kind) or is_.is_time64(kind):
        return pa.int64()
    if is_.is_time32(kind):
        return pa.int32()
    if isinstance(kind, pa.TimestampType) and kind.unit == "ns":
        return pa.int64()  # Spark has times to the microsecond
    return kind


def portable(column: pa.Array[Any]) -> pa.Array[Any]:
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    kind = portable_type(column.type)
    if kind == column.type:
        return column
    return column.view(kind) if kind in _TICKS else column.cast(kind)


def from_portable(column: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    """The column in the type that it had."""
    if isinstance(kind, pa.DictionaryType):
        kind = kind.value_type
    if column.type == kind:
        return column
    return column.view(kind) if column.type in _TICKS else column.cast(kind)
