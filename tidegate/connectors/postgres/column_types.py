"""Which Arrow columns fit which PostgreSQL types, and their text form."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.types.columns import BigDecimalCodec, InstantCodec, is_binary, is_list, is_text

_INTEGERS = frozenset({"int2", "int4", "int8"})
_FLOATS = frozenset({"float4", "float8"})
_NUMBERS = _INTEGERS | _FLOATS | {"numeric"}
_TIMES = frozenset({"date", "time", "timetz", "timestamp", "timestamptz", "interval"})
_NO_TEXT = _NUMBERS | _TIMES | {"bool", "bytea"}
DOCUMENTS = frozenset({"json", "jsonb"})
"""Types that accept values of any type."""
_BIG_DECIMAL = BigDecimalCodec.arrow_type
_INSTANT = InstantCodec.arrow_type


def fits(arrow_type: Any, base: str, element: str | None) -> bool:
    """Whether a column of this type fits; single values may still be refused."""
    if pa.types.is_dictionary(arrow_type):
        return fits(arrow_type.value_type, base, element)
    if pa.types.is_null(arrow_type):
        return True
    if is_list(arrow_type):
        return base in DOCUMENTS or (element is not None and _is_element(arrow_type, element))
    return element is None and base in _targets(arrow_type, base)


def _is_element(arrow_type: Any, element: str) -> bool:
    while is_list(arrow_type):  # nested arrays have the same type as arrays
        arrow_type = arrow_type.value_type
    is_plain = not pa.types.is_nested(arrow_type) or arrow_type == _BIG_DECIMAL
    return is_plain and fits(arrow_type, element, None)


def _targets(arrow_type: Any, base: str) -> frozenset[str]:
    types = pa.types
    if is_text(arrow_type):
        return frozenset({base}) - _NO_TEXT
    if types.is_boolean(arrow_type):
        return frozenset({"bool"})
    if types.is_integer(arrow_type):
        return _NUMBERS
    if types.is_decimal(arrow_type):
        return _NUMBERS if arrow_type.scale == 0 else _FLOATS | {"numeric"}
    if types.is_floating(arrow_type) or arrow_type == _BIG_DECIMAL:
        return _FLOATS | {"numeric"}
    if is_binary(arrow_type):
        return frozenset({"bytea"})
    if types.is_date(arrow_type):
        return frozenset({"date", "timestamp"})
    if types.is_time(arrow_type):
        return frozenset({"time"})
    if types.is_timestamp(arrow_type):
        return frozenset({"timestamp" if arrow_type.tz is None else "timestamptz"})
    if arrow_type == _INSTANT:
        return frozenset({"timestamptz"})
    if types.is_struct(arrow_type) or types.is_map(arrow_type):
        return DOCUMENTS
    return frozenset()


def as_text(column: pa.Array[Any]) -> pa.Array[Any]:
    """Convert a column to one that both Arrow's CSV writer and PostgreSQL understand."""
    arrow_type: Any = column.type
    if isinstance(column, pa.DictionaryArray):
        return as_text(column.dictionary_decode())
    if pa.types.is_string_view(arrow_type):
        return column.cast(pa.string())
    if is_binary(arrow_type):
        return _each(column, lambda value: f"\\x{value.hex()}")
    if arrow_type == _BIG_DECIMAL:
        return _part(column, 0)
    if arrow_type == _INSTANT:
        return _as_timestamps(column)
    if is_list(arrow_type):
        return _each(column, _array_literal)
    return column


def _as_timestamps(column: pa.Array[Any]) -> pa.Array[Any]:
    micros: pa.Array[Any] = pc.add_checked(
        pc.multiply_checked(_part(column, 0), 1_000_000),
        pc.divide(_part(column, 1).cast(pa.int64()), 1000),
    )
    return micros.cast(pa.timestamp("us", "UTC"))


def _part(column: pa.Array[Any], position: int) -> pa.Array[Any]:
    part: pa.Array[Any] = pc.struct_field(column, position)
    return part


def _each(column: pa.Array[Any], convert: Any) -> pa.Array[Any]:
    values = column.to_pylist()
    return pa.array([None if v is None else convert(v) for v in values], pa.string())


def _array_literal(values: Any) -> str:
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case list():
            return _array_literal(value)
        case dict() if value.keys() == {"decimal"}:
            return str(value["decimal"])
        case bytes():
            text = f"\\x{value.hex()}"
        case _:
            text = str(value)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
