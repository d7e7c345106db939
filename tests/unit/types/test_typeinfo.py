import pickle
from dataclasses import dataclass

import pyarrow as pa
import pytest

from tidegate.types.infer import as_type_info
from tidegate.types.typeinfo import (
    ArrowTypeInfo,
    BasicType,
    BasicTypeInfo,
    ExternalTypeInfo,
    ListTypeInfo,
    LocalTimeTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    Types,
)


@dataclass
class Point:
    x: int
    y: float


SHOWN = [
    (Types.STRING(), "String"),
    (Types.BYTE(), "Byte"),
    (Types.BOOLEAN(), "Boolean"),
    (Types.SHORT(), "Short"),
    (Types.INT(), "Integer"),
    (Types.LONG(), "Long"),
    (Types.FLOAT(), "Float"),
    (Types.DOUBLE(), "Double"),
    (Types.CHAR(), "Char"),
    (Types.BIG_INT(), "BigInteger"),
    (Types.BIG_DEC(), "BigDecimal"),
    (Types.INSTANT(), "Instant"),
    (Types.SQL_DATE(), "DateTypeInfo"),
    (Types.SQL_TIME(), "TimeTypeInfo"),
    (Types.SQL_TIMESTAMP(), "TimestampTypeInfo"),
    (Types.PICKLED_BYTE_ARRAY(), "PickledByteArrayTypeInfo"),
    (Types.ROW([Types.INT(), Types.STRING()]), "RowTypeInfo(Integer, String)"),
    (Types.ROW_NAMED(["a"], [Types.LIST(Types.INT())]), "RowTypeInfo(a: ListTypeInfo<Integer>)"),
    (Types.TUPLE([Types.INT(), Types.STRING()]), "TupleTypeInfo(Integer, String)"),
    (Types.PRIMITIVE_ARRAY(Types.INT()), "PrimitiveArrayTypeInfo<Integer>"),
    (Types.BASIC_ARRAY(Types.STRING()), "BasicArrayTypeInfo<String>"),
    (Types.OBJECT_ARRAY(Types.SQL_DATE()), "ObjectArrayTypeInfo<DateTypeInfo>"),
    (Types.MAP(Types.STRING(), Types.INT()), "MapTypeInfo<String, Integer>"),
    (Types.LIST(Types.LONG()), "ListTypeInfo<Long>"),
    (ExternalTypeInfo(Types.INT()), "ExternalTypeInfo<Integer>"),
    (
        LocalTimeTypeInfo(LocalTimeTypeInfo.TimeType.LOCAL_DATE),
        "LocalTimeTypeInfo<LOCAL_DATE>",
    ),
    (as_type_info(Point), "Point(x: Long, y: Double)"),
]


@pytest.mark.parametrize(("type_info", "shown"), SHOWN, ids=[shown for _, shown in SHOWN])
def test_a_type_shows_as_in_pyflink(type_info, shown):
    assert repr(type_info) == str(type_info) == shown


@pytest.mark.parametrize(("type_info", "shown"), SHOWN, ids=[shown for _, shown in SHOWN])
def test_a_type_equals_itself_after_pickling_and_no_other_type(type_info, shown):
    clone = pickle.loads(pickle.dumps(type_info))
    assert clone == type_info
    assert hash(clone) == hash(type_info)
    assert repr(clone) == shown
    assert [other for other, name in SHOWN if other == type_info and name != shown] == []


def test_every_name_of_pyflink_is_there():
    assert {name for name in dir(Types) if not name.startswith("_")} == {
        *("STRING", "BYTE", "BOOLEAN", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "CHAR"),
        *("BIG_INT", "BIG_DEC", "INSTANT", "SQL_DATE", "SQL_TIME", "SQL_TIMESTAMP"),
        *("PICKLED_BYTE_ARRAY", "ROW", "ROW_NAMED", "TUPLE", "PRIMITIVE_ARRAY", "BASIC_ARRAY"),
        *("OBJECT_ARRAY", "MAP", "LIST"),
    }


def test_the_classes_make_the_same_types_as_the_factory():
    assert [BasicTypeInfo(basic_type) for basic_type in BasicType] == [
        getattr(Types, basic_type.name)() for basic_type in BasicType
    ]
    assert BasicTypeInfo.STRING_TYPE_INFO() == Types.STRING()
    assert BasicTypeInfo.INSTANT_TYPE_INFO() == Types.INSTANT()
    assert SqlTimeTypeInfo.DATE() == Types.SQL_DATE()
    assert SqlTimeTypeInfo.TIME() == Types.SQL_TIME()
    assert SqlTimeTypeInfo.TIMESTAMP() == Types.SQL_TIMESTAMP()
    assert RowTypeInfo([Types.INT()], ["a"]) == Types.ROW_NAMED(["a"], [Types.INT()])
    assert TupleTypeInfo([Types.INT()]) == Types.TUPLE([Types.INT()])


def test_a_type_is_not_equal_to_something_else():
    assert Types.INT() != "Integer"


def test_the_names_of_a_row_do_not_count_for_equality():
    assert Types.ROW([Types.INT()]) == Types.ROW_NAMED(["a"], [Types.INT()])


def test_a_row_type_tells_names_types_and_positions():
    row = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
    assert row.get_field_names() == ["name", "age"]
    assert row.get_field_types() == [Types.STRING(), Types.INT()]
    assert row.get_field_index("age") == 1


def test_fields_without_names_are_called_by_their_positions():
    types = [Types.STRING(), Types.INT()]
    assert Types.ROW(types).get_field_names() == ["f0", "f1"]
    assert Types.TUPLE(types).get_field_names() == ["f0", "f1"]
    assert Types.TUPLE(types).get_field_types() == types


def test_the_position_of_an_unknown_field_is_a_value_error():
    with pytest.raises(ValueError, match="no field 'size'; the fields are: name, age"):
        Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()]).get_field_index("size")


def test_a_list_type_tells_the_type_of_its_elements():
    assert ListTypeInfo(Types.INT()).elem_type == Types.INT()


def test_a_forgotten_call_of_a_factory_is_named():
    with pytest.raises(TypeError, match=r"Types.STRING is a function: write Types.STRING\(\)"):
        Types.TUPLE([Types.STRING, Types.INT()])


def test_something_else_than_a_type_is_refused():
    with pytest.raises(TypeError, match=r"expected a type such as Types.STRING\(\), got <class"):
        Types.LIST(str)


@pytest.mark.parametrize("view", [pa.string_view(), pa.binary_view()])
def test_a_view_is_refused_as_a_type_of_values(view):
    with pytest.raises(TypeError, match=r"declare Types\.STRING"):
        ArrowTypeInfo(view)


def test_names_and_types_of_a_row_must_be_as_many():
    with pytest.raises(ValueError, match="1 field names for 2 field types"):
        Types.ROW_NAMED(["a"], [Types.INT(), Types.INT()])


def test_names_of_a_row_must_differ():
    with pytest.raises(ValueError, match="field names must differ, repeated: a"):
        Types.ROW_NAMED(["a", "a"], [Types.INT(), Types.INT()])


def test_names_of_a_row_are_a_list():
    with pytest.raises(TypeError, match="expected a list of field names, got the string 'ab'"):
        Types.ROW_NAMED("ab", [Types.INT(), Types.INT()])


def test_a_primitive_array_holds_no_strings():
    with pytest.raises(TypeError, match=r"PRIMITIVE_ARRAY contains one of BYTE, .* not String"):
        Types.PRIMITIVE_ARRAY(Types.STRING())


def test_a_basic_array_holds_no_rows():
    with pytest.raises(TypeError, match=r"use Types.OBJECT_ARRAY for others"):
        Types.BASIC_ARRAY(Types.ROW([Types.INT()]))
