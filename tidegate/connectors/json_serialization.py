"""Rows as JSON objects; columnar batches are encoded at once."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import pyarrow as pa

from tidegate.connectors.files.encodings import field_names, field_values
from tidegate.connectors.serialization import SerializationSchema
from tidegate.core.errors import ConfigError
from tidegate.core.fluent import FluentBuilder
from tidegate.stream.batch import Batch
from tidegate.types.infer import as_type_info
from tidegate.types.row import Row
from tidegate.types.typeinfo import CompositeTypeInfo

_encode = json.JSONEncoder(
    default=str, ensure_ascii=False, separators=(",", ":"), allow_nan=False
).encode


class JsonRowSerializationSchema(SerializationSchema):
    """A JSON object per row, with the field names of a type, or else of the rows.

    Dates and decimals are text; NaN and infinity, which JSON lacks, are null.
    """

    def __init__(self, type_info: Any = None) -> None:
        self._names: tuple[str, ...] | None = None
        if type_info is not None:
            declared = as_type_info(type_info)
            if not isinstance(declared, CompositeTypeInfo):
                raise ConfigError("type_info", declared, "give a type with named fields")
            self._names = tuple(declared.get_field_names())

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        """Create a builder."""
        return JsonRowSerializationSchema.Builder()

    def serialize(self, value: Any) -> bytes:
        """Encode a record."""
        return _encode(self._as_object(value)).encode()

    def serialize_batch(self, batch: Batch) -> Sequence[bytes | str | None]:
        if not batch.is_columnar or not all(map(_is_simple, batch.columns.schema.types)):
            return super().serialize_batch(batch)
        import polars as pl

        frame = pl.DataFrame(pl.from_arrow(batch.columns))
        if self._names is not None:
            frame.columns = self._checked(frame.columns)
        texts: list[str] = frame.select(pl.struct(pl.all()).struct.json_encode())[:, 0].to_list()
        return texts

    def _as_object(self, record: Any) -> Any:
        if isinstance(record, Mapping):
            return _plain(record)
        names = self._names or field_names(record)
        if not names:
            return _plain(record)
        values = field_values(record)
        self._checked(values)
        return {name: _plain(value) for name, value in zip(names, values, strict=True)}

    def _checked(self, fields: Sequence[Any]) -> list[str]:
        names = list(self._names or ())
        if names and len(names) != len(fields):
            raise ValueError(
                f"{len(fields)} field(s) where the schema has {len(names)}: {', '.join(names)}"
            )
        return names

    class Builder(FluentBuilder):
        """Settings of the schema, under PyFlink's names."""

        def with_type_info(self, type_info: Any) -> Self:
            return self._with(type_info=type_info)

        def build(self) -> JsonRowSerializationSchema:
            return JsonRowSerializationSchema(**self._chosen)


def _is_simple(arrow_type: pa.DataType) -> bool:
    """Whether polars writes this type as Python's json does."""
    return (
        pa.types.is_integer(arrow_type)
        or pa.types.is_float64(arrow_type)
        or pa.types.is_boolean(arrow_type)
        or pa.types.is_string(arrow_type)
    )


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    names = field_names(value)
    if names:
        return {name: _plain(item) for name, item in zip(names, field_values(value), strict=True)}
    if isinstance(value, Row | tuple | list):
        return [_plain(item) for item in value]
    return value
