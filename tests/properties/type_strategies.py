"""Types of any depth, and records of them."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from tidegate.types.infer import as_type_info
from tidegate.types.instant import Instant
from tidegate.types.row import Row
from tidegate.types.typeinfo import (
    ArrowTypeInfo,
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    DataclassTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    NamedTupleTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)


@dataclass
class Point:
    x: int
    y: float


@dataclass(frozen=True, slots=True)
class Reading:
    sensor: str
    point: Point | None
    values: list[int]


class Pair(NamedTuple):
    left: int
    right: str | None


@st.composite
def instants(draw: st.DrawFn) -> Instant:
    return Instant(draw(_integers(63)), draw(st.integers(0, 999_999_999)))


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits), (1 << bits) - 1)


def _texts() -> st.SearchStrategy[str]:
    return st.text(max_size=8)


BASIC_VALUES: dict[BasicType, st.SearchStrategy[Any]] = {
    BasicType.STRING: _texts(),
    BasicType.CHAR: st.characters(codec="utf-8"),
    BasicType.BOOLEAN: st.booleans(),
    BasicType.BYTE: _integers(7),
    BasicType.SHORT: _integers(15),
    BasicType.INT: _integers(31),
    BasicType.LONG: _integers(63),
    BasicType.FLOAT: st.floats(width=32, allow_nan=False),
    BasicType.DOUBLE: st.floats(allow_nan=False),
    BasicType.BIG_INT: st.integers(1 - 10**76, 10**76 - 1) | _integers(63),
    BasicType.BIG_DEC: st.decimals(allow_nan=False),
    BasicType.INSTANT: instants(),
}

OTHER_VALUES: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (Types.SQL_DATE(), st.dates()),
    (Types.SQL_TIME(), st.times()),
    (Types.SQL_TIMESTAMP(), st.datetimes()),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary(max_size=8)),
    (ArrowTypeInfo(pa.decimal128(10, 2)), st.decimals(-9999, 9999, places=2)),
    (ArrowTypeInfo(pa.timestamp("us", tz="UTC")), st.datetimes(timezones=st.just(datetime.UTC))),
]


def single_types() -> st.SearchStrategy[TypeInformation]:
    """Types of numbers, texts and times."""
    basic = st.sampled_from([BasicTypeInfo(basic_type) for basic_type in BasicType])
    return basic | st.sampled_from([type_info for type_info, _ in OTHER_VALUES])


def key_types() -> st.SearchStrategy[TypeInformation]:
    """Types whose values can be keys of a dict: as single values and in tuples."""
    return single_types() | st.lists(single_types(), min_size=1, max_size=2).map(Types.TUPLE)


def types() -> st.SearchStrategy[TypeInformation]:
    """Types with a columnar form, of any depth."""
    numbers = st.sampled_from([Types.INT(), Types.DOUBLE(), Types.BOOLEAN(), Types.CHAR()])
    classes = st.sampled_from([as_type_info(cls) for cls in (Point, Reading, Pair)])
    leaves = (
        single_types()
        | classes
        | numbers.map(Types.PRIMITIVE_ARRAY)
        | (numbers | st.just(Types.STRING())).map(Types.BASIC_ARRAY)
    )
    return st.recursive(leaves, _containers, max_leaves=6)


def _containers(inner: st.SearchStrategy[TypeInformation]) -> st.SearchStrategy[TypeInformation]:
    return (
        inner.map(Types.LIST)
        | inner.map(Types.OBJECT_ARRAY)
        | st.builds(Types.MAP, key_types(), inner)
        | record_types(inner)
    )


def record_types(
    fields: st.SearchStrategy[TypeInformation],
) -> st.SearchStrategy[TypeInformation]:
    """Tuples and rows of such fields."""
    several = st.lists(fields, min_size=1, max_size=4)
    return (
        several.map(Types.TUPLE)
        | several.map(Types.ROW)
        | several.flatmap(
            lambda kinds: st.lists(
                _texts(), min_size=len(kinds), max_size=len(kinds), unique=True
            ).map(lambda names: Types.ROW_NAMED(names, kinds))
        )
    )


def values_of(type_info: TypeInformation) -> st.SearchStrategy[Any]:
    """Values of the type; None where it is allowed inside."""
    match type_info:
        case BasicTypeInfo():
            return BASIC_VALUES[type_info.basic_type]
        case PrimitiveArrayTypeInfo() if type_info.element_type != Types.BYTE():
            return st.lists(values_of(type_info.element_type), max_size=3)
        case BasicArrayTypeInfo() | ObjectArrayTypeInfo() | ListTypeInfo():
            return st.lists(_optional(type_info.element_type), max_size=3)
        case MapTypeInfo():
            keys = values_of(type_info.key_type)
            return st.dictionaries(keys, _optional(type_info.value_type), max_size=3)
        case TupleTypeInfo():
            return st.tuples(*map(_optional, type_info.get_field_types()))
        case RowTypeInfo():
            names = type_info.get_field_names()
            return _joined(type_info.get_field_types(), Row(*names))
        case DataclassTypeInfo() | NamedTupleTypeInfo():
            return _joined(type_info.get_field_types(), type_info.record_class)
        case _:
            return next(values for known, values in OTHER_VALUES if known == type_info)


def _joined(kinds: list[TypeInformation], make: Callable[..., Any]) -> st.SearchStrategy[Any]:
    return st.tuples(*map(_optional, kinds)).map(lambda values: make(*values))


def _optional(type_info: TypeInformation) -> st.SearchStrategy[Any]:
    return st.none() | values_of(type_info)


@st.composite
def typed_records(
    draw: st.DrawFn, kinds: st.SearchStrategy[TypeInformation] | None = None
) -> tuple[TypeInformation, list[Any]]:
    """A type and records of it."""
    type_info = draw(types() if kinds is None else kinds)
    return type_info, draw(st.lists(values_of(type_info), max_size=5))


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal to the last digit and of the same classes."""
    if isinstance(left, datetime.datetime) or not isinstance(
        left, Row | tuple | list | dict | float | Decimal | Point | Reading
    ):
        return type(left) is type(right) and bool(left == right)
    if type(left) is not type(right):
        return False
    match left:
        case float():
            return left == right and math.copysign(1, left) == math.copysign(1, right)
        case Decimal():
            return left.as_tuple() == right.as_tuple()
        case dict():
            return same(list(left.items()), list(right.items()))
        case Row():
            return left._fields == right._fields and same(list(left), list(right))
        case Point():
            return same([left.x, left.y], [right.x, right.y])
        case Reading():
            return same(
                [left.sensor, left.point, left.values], [right.sensor, right.point, right.values]
            )
        case _:
            return len(left) == len(right) and all(map(same, left, right))
