from __future__ import annotations

import datetime
from collections import namedtuple
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Optional

import pyarrow as pa
import pytest

from tidegate.types.arrow import arrow_format
from tidegate.types.infer import as_type_info, typed_schema_from_arrow
from tidegate.types.instant import Instant
from tidegate.types.typeinfo import ArrowTypeInfo, Types

if TYPE_CHECKING:
    from fractions import Fraction

BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
PICKLED = Types.PICKLED_BYTE_ARRAY()


@dataclass
class Point:
    x: int
    y: float


class Place(NamedTuple):
    name: str
    point: Point | None


@dataclass
class Node:
    value: int
    next: Node | None


@dataclass
class Hidden:
    part: Fraction


class Plain:
    pass


@pytest.mark.parametrize(
    ("declared", "meaning"),
    [
        (bool, Types.BOOLEAN()),
        (int, Types.LONG()),
        (float, Types.DOUBLE()),
        (str, Types.STRING()),
        (bytes, BYTES),
        (Decimal, Types.BIG_DEC()),
        (datetime.date, Types.SQL_DATE()),
        (datetime.time, Types.SQL_TIME()),
        (datetime.datetime, Types.SQL_TIMESTAMP()),
        (Instant, Types.INSTANT()),
        (object, PICKLED),
        (Any, PICKLED),
        (list[int], Types.LIST(Types.LONG())),
        (dict[str, float], Types.MAP(Types.STRING(), Types.DOUBLE())),
        (tuple[int, str], Types.TUPLE([Types.LONG(), Types.STRING()])),
        (list[Plain], Types.LIST(PICKLED)),
        (int | None, Types.LONG()),
        (Optional[int], Types.LONG()),  # noqa: UP045
        (int | str, PICKLED),
        (Annotated[int, Types.SHORT()], Types.SHORT()),
        (Annotated[int, "a remark"], Types.LONG()),
        (Types.INT(), Types.INT()),
        (pa.int16(), Types.SHORT()),
    ],
    ids=repr,
)
def test_a_declaration_means_a_type(declared, meaning):
    assert as_type_info(declared) == meaning


def test_a_dataclass_is_the_type_of_its_instances():
    found = as_type_info(Point)
    assert found.record_class is Point
    assert found.get_field_names() == ["x", "y"]
    assert found.get_field_types() == [Types.LONG(), Types.DOUBLE()]


def test_a_named_tuple_is_the_type_of_its_instances_and_may_hold_others():
    assert as_type_info(Place).get_field_types() == [Types.STRING(), as_type_info(Point)]


def test_fields_without_annotation_are_pickled():
    pair = as_type_info(namedtuple("Pair", ["a", "b"]))
    assert pair.get_field_types() == [PICKLED, PICKLED]


def test_a_class_that_contains_itself_is_pickled_from_there_on():
    assert as_type_info(Node).get_field_types() == [Types.LONG(), PICKLED]
    assert arrow_format(as_type_info(Node)) is None


def test_two_classes_with_the_same_fields_are_two_types():
    @dataclass
    class Other:
        x: int
        y: float

    assert as_type_info(Other) != as_type_info(Point)


def test_an_annotation_that_cannot_be_resolved_is_named():
    with pytest.raises(TypeError, match=r"annotations of Hidden .* name 'Fraction' is not defined"):
        as_type_info(Hidden)


def test_a_class_without_declared_fields_is_refused():
    with pytest.raises(TypeError, match="Plain declares no fields: make it a dataclass"):
        as_type_info(Plain)


def test_a_list_without_the_type_of_its_elements_is_refused():
    with pytest.raises(TypeError, match=r"declare the contents of a list, such as list\[int\]"):
        as_type_info(list)


def test_a_forgotten_call_of_a_factory_is_named():
    with pytest.raises(TypeError, match=r"Types.STRING is a function: write Types.STRING\(\)"):
        as_type_info(Types.STRING)


@pytest.mark.parametrize("nonsense", [5, "str", None, [int]], ids=repr)
def test_nonsense_is_refused_with_what_to_give(nonsense):
    with pytest.raises(TypeError, match="is not a type of records: use Types"):
        as_type_info(nonsense)


def test_an_arrow_schema_means_rows():
    schema = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.string())])))])
    row = as_type_info(schema)
    inner = Types.ROW_NAMED(["c"], [Types.STRING()])
    assert row == Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LIST(inner)])
    assert row.get_field_names() == ["a", "b"]


@pytest.mark.parametrize(
    ("arrow_type", "meaning"),
    [
        (pa.bool_(), Types.BOOLEAN()),
        (pa.int8(), Types.BYTE()),
        (pa.uint8(), Types.SHORT()),
        (pa.uint16(), Types.INT()),
        (pa.uint32(), Types.LONG()),
        (pa.float16(), Types.FLOAT()),
        (pa.large_string(), Types.STRING()),
        (pa.string_view(), Types.STRING()),
        (pa.dictionary(pa.int8(), pa.string()), Types.STRING()),
        (pa.binary(4), BYTES),
        (pa.date64(), Types.SQL_DATE()),
        (pa.time32("ms"), Types.SQL_TIME()),
        (pa.timestamp("ms"), Types.SQL_TIMESTAMP()),
        (pa.large_list(pa.int32()), Types.LIST(Types.INT())),
        (pa.list_(pa.int32(), 3), Types.LIST(Types.INT())),
        (pa.map_(pa.string(), pa.int32()), Types.MAP(Types.STRING(), Types.INT())),
        (pa.uint64(), ArrowTypeInfo(pa.uint64())),
        (pa.decimal128(10, 2), ArrowTypeInfo(pa.decimal128(10, 2))),
        (pa.timestamp("us", tz="UTC"), ArrowTypeInfo(pa.timestamp("us", tz="UTC"))),
    ],
    ids=str,
)
def test_an_arrow_type_means_the_type_of_its_values(arrow_type, meaning):
    assert as_type_info(arrow_type) == meaning


def test_a_schema_of_our_own_types_comes_back_unchanged():
    schema = pa.schema(
        [
            ("a", pa.string()),
            ("b", pa.list_(pa.int32())),
            ("c", pa.map_(pa.string(), pa.struct([("d", pa.timestamp("us"))]))),
            ("e", pa.decimal128(10, 2)),
        ]
    )
    assert arrow_format(typed_schema_from_arrow(schema)).schema == schema
