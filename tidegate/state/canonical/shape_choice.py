"""Chooses a shape for values: that of their declared type if they conform, or an inferred one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, Final
from uuid import UUID

from tidegate.state.descriptors import (
    TIME_TO_LIVE,
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
)
from tidegate.types.instant import Instant
from tidegate.types.record_shapes import (
    ANY,
    InstantShape,
    NamelessRowStruct,
    ObjectStruct,
    RowStruct,
    TupleStruct,
    names_of,
    numbered,
)
from tidegate.types.row import Row, row_class
from tidegate.types.shapes import ListShape, MapShape, Misfit, Shape, Single
from tidegate.types.typeinfo import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    ExternalTypeInfo,
    ListTypeInfo,
    LocalTimeTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RecordClassTypeInfo,
    RowTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)

INSTANT: Final = InstantShape(["seconds", "nanos"], [Single("integer"), Single("integer")])
_TIMED: Final = ("value", "since")
"""A value of a state with a time to live, and its start in milliseconds since the epoch."""
_DEEPEST: Final = 16
_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1
_SINGLE: Final[dict[type, str]] = {
    str: "text",
    float: "float",
    bool: "boolean",
    bytes: "bytes",
    dt.date: "date",
    dt.time: "time",
    Decimal: "decimal",
    UUID: "uuid",
}
_BASIC: Final = {
    BasicType.STRING: "text",
    BasicType.CHAR: "text",
    BasicType.BOOLEAN: "boolean",
    BasicType.BYTE: "integer",
    BasicType.SHORT: "integer",
    BasicType.INT: "integer",
    BasicType.LONG: "integer",
    BasicType.FLOAT: "float",
    BasicType.DOUBLE: "float",
    BasicType.BIG_INT: "big integer",
    BasicType.BIG_DEC: "decimal",
}


def choose_shape(
    values: Sequence[Any], declared: Shape | None = None, declaration: str = ""
) -> Shape:
    """Choose a shape from the first few values.

    Args:
        values: the first values.
        declared: the shape of the declared type, if it has one.
        declaration: that of the state.
    """
    own = infer(values)
    if own is not None and declaration.endswith(TIME_TO_LIVE):
        own = _timed(own)
    for shape in (declared, own):
        if shape is not None and _fits(shape, values):
            return shape
    # A declared type that fits most values is better than text.
    sample = values[:100]
    if declared is not None and 2 * sum(_fits(declared, [v]) for v in sample) > len(sample):
        return declared
    return ANY


def _timed(shape: Shape) -> Shape:
    """The shape of a value, list or map in which each value has a time."""
    match shape:
        case ListShape():
            return ListShape(_timed(shape.element))
        case MapShape():
            return MapShape(shape.key, _timed(shape.value))
        case TupleStruct() if len(shape.parts) == len(_TIMED):
            return TupleStruct(_TIMED, shape.parts)
    return shape


def _fits(shape: Shape, values: Sequence[Any]) -> bool:
    try:
        shape.encode(values)
    except Misfit:
        return False
    return True


def infer(values: Sequence[Any], depth: int = 0) -> Shape | None:
    """The common shape of values without a declaration; None: they have none."""
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return Single("text")  # all values are None, so any shape fits
    if len(kinds) > 1 or depth > _DEEPEST:
        return None
    [kind] = kinds
    if kind is int:
        found = [value for value in values if value is not None]
        return Single("integer" if min(found) >= _LEAST and max(found) <= _MOST else "big integer")
    if kind in _SINGLE:
        return Single(_SINGLE[kind])
    if kind is dt.datetime:
        return Single("datetime in UTC" if _first(values).tzinfo else "datetime")
    if kind is Instant:
        return INSTANT
    present = [value for value in values if value is not None]
    if kind is list:
        element = infer(list(chain.from_iterable(present)), depth + 1)
        return element and ListShape(element)
    if kind is dict:
        key = infer(list(chain.from_iterable(present)), depth + 1)
        item = infer(list(chain.from_iterable(v.values() for v in present)), depth + 1)
        return key and item and MapShape(key, item)
    return _infer_record(kind, present, depth)


def _infer_record(kind: type[Any], values: list[Any], depth: int) -> Shape | None:
    if kind is tuple:
        return _struct(TupleStruct, None, values, depth)
    if issubclass(kind, Row):
        if kind is not row_class(kind._fields):
            return None  # not an INSERT row, or of a subclass
        return _struct(
            NamelessRowStruct if kind._fields is None else RowStruct, kind._fields, values, depth
        )
    names = names_of(kind)
    if names is None:
        return None
    parts = [[getattr(value, name, None) for name in names] for value in values]
    return _struct(ObjectStruct, names, parts, depth)


def _struct(
    shape: type[TupleStruct] | type[RowStruct] | type[ObjectStruct],
    names: Sequence[str] | None,
    values: Sequence[Any],
    depth: int,
) -> Shape | None:
    widths = set(map(len, values))
    if len(widths) > 1 or widths == {0}:
        return None  # Parquet has no struct without fields
    [width] = widths
    parts = [infer([value[position] for value in values], depth + 1) for position in range(width)]
    known = [part for part in parts if part is not None]
    if len(known) < width:
        return None
    return shape(names or numbered(width), known)


def _first(values: Sequence[Any]) -> Any:
    return next(value for value in values if value is not None)


def shape_of_state(descriptor: StateDescriptor | None) -> Shape | None:
    """The shape of a state's stored values; None: the type does not determine it."""
    if descriptor is None:
        return None
    inner = shape_of_type(descriptor.type_info)
    if inner is None:
        return None
    if descriptor.ttl_config is not None:
        inner = TupleStruct(_TIMED, [inner, Single("integer")])
    if isinstance(descriptor, ListStateDescriptor):
        return ListShape(inner)
    if isinstance(descriptor, MapStateDescriptor):
        key = shape_of_type(descriptor.key_type_info)
        return None if key is None else MapShape(key, inner)
    return inner


def shape_of_type(type_info: TypeInformation | None) -> Shape | None:
    """The shape of values that are exactly of this type."""
    match type_info:
        case BasicTypeInfo(basic_type=BasicType.INSTANT):
            return INSTANT
        case BasicTypeInfo(basic_type=basic):
            return Single(_BASIC[basic])
        case ExternalTypeInfo():
            return shape_of_type(type_info.type_info)
        case PrimitiveArrayTypeInfo(element_type=BasicTypeInfo(basic_type=BasicType.BYTE)):
            return Single("bytes")
        case (
            PrimitiveArrayTypeInfo() | BasicArrayTypeInfo() | ObjectArrayTypeInfo() | ListTypeInfo()
        ):
            element = shape_of_type(type_info.element_type)
            return element and ListShape(element)
        case MapTypeInfo():
            key, item = shape_of_type(type_info.key_type), shape_of_type(type_info.value_type)
            return key and item and MapShape(key, item)
        case RowTypeInfo() | TupleTypeInfo() | RecordClassTypeInfo():
            return _shape_of_record(type_info)
    return _shape_of_time(type_info)


def _shape_of_record(
    type_info: RowTypeInfo | TupleTypeInfo | RecordClassTypeInfo,
) -> Shape | None:
    parts = [shape_of_type(part) for part in type_info.get_field_types()]
    known = [part for part in parts if part is not None]
    if not parts or len(known) < len(parts):
        return None
    names = type_info.get_field_names()
    if isinstance(type_info, RowTypeInfo):
        return RowStruct(names, known)
    if isinstance(type_info, TupleTypeInfo):
        return TupleStruct(names, known)
    return ObjectStruct(names, known)


def _shape_of_time(type_info: TypeInformation | None) -> Shape | None:
    kinds = LocalTimeTypeInfo.TimeType
    match type_info:
        case DateTypeInfo() | LocalTimeTypeInfo(time_type=kinds.LOCAL_DATE):
            return Single("date")
        case TimeTypeInfo() | LocalTimeTypeInfo(time_type=kinds.LOCAL_TIME):
            return Single("time")
        case TimestampTypeInfo() | LocalTimeTypeInfo():
            return Single("datetime")
    return None
