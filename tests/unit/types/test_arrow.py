import datetime
import gc
import pickle
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from tidegate.core.errors import MissingField, TypeMismatch
from tidegate.types.arrow import arrow_format
from tidegate.types.infer import as_type_info
from tidegate.types.instant import Instant
from tidegate.types.row import Row, RowKind
from tidegate.types.typeinfo import ArrowTypeInfo, ExternalTypeInfo, LocalTimeTypeInfo, Types

BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
PERSON = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
DAY = datetime.date(2024, 2, 29)
NOON = datetime.time(12, 0, 0, 1)
MOMENT = datetime.datetime(2024, 2, 29, 12, 0, 0, 1)  # noqa: DTZ001
FULL_SECOND = datetime.datetime(2024, 2, 29, 12)  # noqa: DTZ001
FIRST_AND_LAST = [datetime.datetime.min, datetime.datetime.max]  # noqa: DTZ901
LOCAL = LocalTimeTypeInfo.TimeType


class Color(IntEnum):
    RED = 1


@dataclass
class Point:
    x: int
    y: float


@dataclass(frozen=True)
class Frozen:
    x: int
    y: str | None


@dataclass(slots=True)
class Slotted:
    x: int


@dataclass(slots=True, frozen=True)
class FrozenSlotted:
    x: int


class Place(NamedTuple):
    name: str
    point: Point | None


@dataclass
class Counted:
    """Its __init__ must not run again when a record is restored."""

    number: int
    derived: int = field(init=False)
    limit: ClassVar[int] = 5

    def __post_init__(self):
        self.number += 1
        self.derived = self.number * 2


@dataclass
class LikeADict(dict):
    x: int


@dataclass
class Dated:
    when: Annotated[datetime.datetime, pa.timestamp("us", tz="UTC")]


def round_trip(declared, *records):
    format = arrow_format(as_type_info(declared))
    batch = format.encode(records)
    assert batch.schema == format.schema
    return format.decode(batch)


def mismatch(declared, *records):
    with pytest.raises(TypeMismatch) as caught:
        arrow_format(as_type_info(declared)).encode(records)
    return str(caught.value)


# columns


@pytest.mark.parametrize(
    ("type_info", "arrow_type"),
    [
        (Types.STRING(), pa.string()),
        (Types.CHAR(), pa.string()),
        (Types.BOOLEAN(), pa.bool_()),
        (Types.BYTE(), pa.int8()),
        (Types.SHORT(), pa.int16()),
        (Types.INT(), pa.int32()),
        (Types.LONG(), pa.int64()),
        (Types.FLOAT(), pa.float32()),
        (Types.DOUBLE(), pa.float64()),
        (Types.BIG_INT(), pa.decimal256(76, 0)),
        (Types.SQL_DATE(), pa.date32()),
        (Types.SQL_TIME(), pa.time64("us")),
        (Types.SQL_TIMESTAMP(), pa.timestamp("us")),
        (BYTES, pa.binary()),
        (Types.LIST(Types.INT()), pa.list_(pa.int32())),
        (Types.MAP(Types.STRING(), Types.INT()), pa.map_(pa.string(), pa.int32())),
        (ArrowTypeInfo(pa.decimal128(10, 2)), pa.decimal128(10, 2)),
    ],
    ids=str,
)
def test_single_values_have_the_one_column_value(type_info, arrow_type):
    format = arrow_format(type_info)
    assert format.is_scalar
    assert format.field_names == ("value",)
    assert format.schema == pa.schema([("value", arrow_type)])


def test_tuples_have_columns_by_position():
    format = arrow_format(PAIR)
    assert not format.is_scalar
    assert format.schema == pa.schema([("f0", pa.string()), ("f1", pa.int64())])


def test_rows_have_columns_by_name():
    assert arrow_format(PERSON).schema == pa.schema([("name", pa.string()), ("age", pa.int32())])


def test_records_inside_records_are_structs():
    format = arrow_format(Types.TUPLE([PERSON]))
    struct = pa.struct([("name", pa.string()), ("age", pa.int32())])
    assert format.schema == pa.schema([("f0", struct)])


@pytest.mark.parametrize(
    "type_info",
    [
        Types.PICKLED_BYTE_ARRAY(),
        Types.TUPLE([Types.INT(), Types.PICKLED_BYTE_ARRAY()]),
        Types.LIST(Types.PICKLED_BYTE_ARRAY()),
        Types.MAP(Types.STRING(), Types.PICKLED_BYTE_ARRAY()),
        Types.MAP(Types.PICKLED_BYTE_ARRAY(), Types.STRING()),
        ExternalTypeInfo(Types.PICKLED_BYTE_ARRAY()),
        Types.TUPLE([]),
        as_type_info(LikeADict),
    ],
    ids=str,
)
def test_what_is_pickled_in_part_has_no_columns(type_info):
    assert arrow_format(type_info) is None


# values


@pytest.mark.parametrize(
    ("declared", "records"),
    [
        (Types.STRING(), ["", "a", "ä€😀", "\0"]),
        (Types.STRING(), ["a", None]),
        (Types.CHAR(), ["x"]),
        (Types.BOOLEAN(), [True, False]),
        (Types.BYTE(), [-128, 127]),
        (Types.SHORT(), [-(2**15), 2**15 - 1]),
        (Types.INT(), [-(2**31), 2**31 - 1]),
        (Types.LONG(), [-(2**63), 2**63 - 1]),
        (Types.FLOAT(), [0.5, float("inf")]),
        (Types.DOUBLE(), [0.1, -0.0, 1e308, float("-inf")]),
        (Types.BIG_INT(), [0, 10**76 - 1, 1 - 10**76, None]),
        (Types.BIG_INT(), [1, 2]),
        (Types.BIG_DEC(), [Decimal("3.50"), Decimal("1E+400"), Decimal("-0"), None]),
        (Types.INSTANT(), [Instant(0, 0), Instant(-1, 999_999_999), Instant(10**15, 1), None]),
        (Types.SQL_DATE(), [DAY, datetime.date.min, datetime.date.max, None]),
        (Types.SQL_TIME(), [NOON, datetime.time.min, datetime.time.max, None]),
        (Types.SQL_TIMESTAMP(), [MOMENT, *FIRST_AND_LAST, None]),
        (LocalTimeTypeInfo(LOCAL.LOCAL_DATE), [DAY]),
        (LocalTimeTypeInfo(LOCAL.LOCAL_TIME), [NOON]),
        (LocalTimeTypeInfo(LOCAL.LOCAL_DATE_TIME), [MOMENT]),
        (ExternalTypeInfo(Types.INT()), [1]),
        (BYTES, [b"", b"\x00\xff"]),
        (Types.PRIMITIVE_ARRAY(Types.INT()), [[], [1, 2]]),
        (Types.BASIC_ARRAY(Types.STRING()), [["a", None]]),
        (Types.OBJECT_ARRAY(PAIR), [[("a", 1), None], []]),
        (Types.LIST(Types.LIST(Types.INT())), [[[1], [], None, [None]], []]),
        (Types.MAP(Types.STRING(), Types.LIST(Types.INT())), [{"b": [1], "a": None}, {}]),
        (Types.MAP(PAIR, PERSON), [{("a", 1): Row(name="Ada", age=36)}]),
        (PAIR, [("a", 1), (None, None)]),
        (PERSON, [Row(name="Ada", age=36), Row(name=None, age=None)]),
        (Types.ROW([Types.INT()]), [Row(f0=1)]),
        (Types.TUPLE([Types.TUPLE([Types.INT()]), PERSON]), [((1,), Row(name="A", age=2))]),
        (Types.TUPLE([Types.TUPLE([Types.INT()])]), [((1,),), (None,), ((None,),)]),
        (ArrowTypeInfo(pa.decimal128(10, 2)), [Decimal("1.25"), None]),
        (ArrowTypeInfo(pa.duration("us")), [datetime.timedelta(days=1)]),
        (Point, [Point(1, 2.0), Point(None, None)]),
        (Frozen, [Frozen(1, "a"), Frozen(2, None)]),
        (Slotted, [Slotted(1)]),
        (FrozenSlotted, [FrozenSlotted(1)]),
        (Place, [Place("here", Point(1, 2.0)), Place("nowhere", None)]),
        (list[Point], [[Point(1, 2.0)]]),
    ],
    ids=str,
)
def test_records_come_back_exactly(declared, records):
    found = round_trip(declared, *records)
    assert found == records
    assert repr(found) == repr(records)
    assert round_trip(declared) == []


def test_nan_comes_back_as_nan():
    (number,) = round_trip(Types.DOUBLE(), float("nan"))
    assert number != number


def test_a_stream_of_rows_without_names_gets_names():
    assert round_trip(PERSON, Row("Ada", 36)) == [Row(name="Ada", age=36)]


def test_an_annotated_field_keeps_the_time_zone():
    record = Dated(MOMENT.replace(tzinfo=datetime.UTC))
    assert round_trip(Dated, record) == [record]


def test_dataclasses_are_restored_without_running_their_init():
    record = Counted(1)
    assert round_trip(Counted, record) == [record]


def test_restored_records_can_be_changed():
    row, point = round_trip(PERSON, Row("Ada", 36))[0], round_trip(Point, Point(1, 2.0))[0]
    row["age"] = 37
    point.x = 5
    assert (row.age, point.x) == (37, 5)


# conversions that lose nothing


@pytest.mark.parametrize(
    ("declared", "given", "kept"),
    [
        (Types.INT(), True, 1),
        (Types.INT(), 3.0, 3),
        (Types.INT(), Decimal("3.0"), 3),
        (Types.INT(), np.int64(3), 3),
        (Types.INT(), np.bool_(True), 1),
        (Types.INT(), Color.RED, 1),
        (Types.LONG(), np.float64(4.0), 4),
        (Types.BIG_INT(), np.int64(5), 5),
        (Types.BIG_INT(), 5.0, 5),
        (Types.DOUBLE(), 3, 3.0),
        (Types.DOUBLE(), True, 1.0),
        (Types.DOUBLE(), 2**60 + 1, float(2**60)),
        (Types.DOUBLE(), Decimal("0.5"), 0.5),
        (Types.DOUBLE(), Fraction(1, 2), 0.5),
        (Types.DOUBLE(), np.float32(0.5), 0.5),
        (Types.DOUBLE(), np.bool_(True), 1.0),
        (Types.FLOAT(), 0.1, 0.10000000149011612),
        (Types.FLOAT(), float("-inf"), float("-inf")),
        (ArrowTypeInfo(pa.uint64()), np.float64(2**63), 2**63),
        (ArrowTypeInfo(pa.timestamp("s")), MOMENT.replace(microsecond=0), FULL_SECOND),
        (ArrowTypeInfo(pa.timestamp("us")), np.datetime64(MOMENT), MOMENT),
        (ArrowTypeInfo(pa.duration("s")), datetime.timedelta(1), datetime.timedelta(1)),
        (ArrowTypeInfo(pa.time32("s")), NOON.replace(microsecond=0), datetime.time(12)),
        (Types.BOOLEAN(), np.bool_(True), True),
        (Types.BOOLEAN(), 1, True),
        (Types.BOOLEAN(), 0.0, False),
        (Types.STRING(), np.str_("a"), "a"),
        (Types.BIG_DEC(), 3, Decimal(3)),
        (Types.BIG_DEC(), 3.5, Decimal("3.5")),
        (Types.SQL_DATE(), MOMENT, DAY),
        (BYTES, bytearray(b"a"), b"a"),
        pytest.param(BYTES, memoryview(b"a"), b"a", id="a memoryview"),
        (Types.LIST(Types.INT()), (1, 2), [1, 2]),
        (Types.LIST(Types.INT()), np.array([1, 2]), [1, 2]),
        (Types.MAP(Types.STRING(), Types.INT()), OrderedDict(a=1), {"a": 1}),
        (PAIR, ["a", 1], ("a", 1)),
        (PAIR, Row("a", 1), ("a", 1)),
        (PERSON, ("Ada", 36), Row(name="Ada", age=36)),
        (PERSON, ["Ada", 36], Row(name="Ada", age=36)),
        (PERSON, {"name": "Ada", "age": 36}, Row(name="Ada", age=36)),
        (PERSON, {"name": "Ada"}, Row(name="Ada", age=None)),
        (PERSON, Row(age=36, name="Ada"), Row(name="Ada", age=36)),
        (PERSON, Row(size=1, age=36, name="Ada"), Row(name="Ada", age=36)),
        (Types.ROW_NAMED(["x"], [Types.INT()]), Slotted(1), Row(x=1)),
        (Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.INT()]), Point(1, 2), Row(x=1, y=2)),
    ],
    ids=repr,
)
def test_a_value_is_converted_where_nothing_is_lost(declared, given, kept):
    (found,) = round_trip(declared, given)
    assert found == kept
    assert type(found) is type(kept)


def test_values_that_fit_and_values_that_must_be_converted_mix_in_a_column():
    assert round_trip(Types.TUPLE([Types.INT()]), (1,), (None,), (2.0,)) == [(1,), (None,), (2,)]


# refusals


@pytest.mark.parametrize(
    ("declared", "record", "reason"),
    [
        (
            Types.BYTE(),
            128,
            "128 is outside the range of Types.BYTE(), -128 to 127: declare Types.LONG()",
        ),
        (
            Types.INT(),
            2**31,
            (
                "2147483648 is outside the range of Types.INT(), -2147483648 to 2147483647: "
                "declare Types.LONG()"
            ),
        ),
        (
            Types.LONG(),
            2**63,
            (
                "9223372036854775808 is outside the range of Types.LONG(), -9223372036854775808 to "
                "9223372036854775807: declare Types.BIG_INT()"
            ),
        ),
        (Types.INT(), 3.7, "3.7 is not a whole number: round it, or declare Types.DOUBLE()"),
        (
            Types.INT(),
            float("nan"),
            "nan is not a whole number: round it, or declare Types.DOUBLE()",
        ),
        (Types.INT(), "3", "'3' is of type str, expected an integer"),
        (Types.INT(), None, "a stream of this type has no None: return a value, or filter first"),
        (Types.DOUBLE(), "3", "'3' is of type str, expected a number"),
        (
            Types.DOUBLE(),
            1j,
            "1j is of type complex, which no float represents",
        ),
        (Types.BOOLEAN(), 2, "2 is of type int, expected True or False"),
        (Types.BOOLEAN(), "yes", "'yes' is of type str, expected True or False"),
        (Types.STRING(), b"a", "b'a' is of type bytes, expected a str"),
        (Types.STRING(), 5, "5 is of type int, expected a str"),
        (BYTES, "a", "'a' is of type str, expected bytes"),
        (BYTES, [1, 2], "[1, 2] is of type list, expected bytes"),
        (Types.BIG_INT(), 10**76, "it has more than 76 digits: omit the type to keep it"),
        (Types.BIG_DEC(), "1", "'1' is of type str, expected a Decimal"),
        (Types.BIG_DEC(), True, "True is of type bool, expected a Decimal"),
        (Types.SQL_DATE(), 5, "5 is of type int, expected a datetime.date"),
        (Types.SQL_TIME(), MOMENT, f"{MOMENT!r} is of type datetime, expected a datetime.time"),
        (Types.SQL_TIMESTAMP(), DAY, f"{DAY!r} is of type date, expected a datetime.datetime"),
        (Types.INSTANT(), MOMENT, f"{MOMENT!r} is of type datetime, expected an Instant"),
        (Types.LIST(Types.INT()), "ab", "'ab' is of type str, expected a list"),
        (Types.LIST(Types.INT()), deque(), "deque([]) is of type deque, expected a list"),
        (
            Types.LIST(Types.INT()),
            ["x"],
            "an element of the list: 'x' is of type str, expected an integer",
        ),
        (
            Types.PRIMITIVE_ARRAY(Types.INT()),
            [1, None],
            "an element of a primitive array is None: declare Types.BASIC_ARRAY",
        ),
        (Types.MAP(Types.STRING(), Types.INT()), [1], "[1] is of type list, expected a dict"),
        (Types.MAP(Types.STRING(), Types.INT()), {None: 1}, "a key of the dict is None"),
        (
            Types.MAP(Types.STRING(), Types.INT()),
            {1: 1},
            "a key of the dict: 1 is of type int, expected a str",
        ),
        (
            Types.MAP(Types.STRING(), Types.INT()),
            {"a": "b"},
            "a value of the dict: 'b' is of type str, expected an integer",
        ),
        (PAIR, ("a", "b"), "field 'f1': 'b' is of type str, expected an integer"),
        (PAIR, ("a",), "it has 1 field(s), expected 2"),
        (PAIR, ("a", 1, 2), "it has 3 field(s), expected 2"),
        (PAIR, "ab", "it is of type str, expected a tuple"),
        (PAIR, None, "it is of type NoneType, expected a tuple"),
        (PERSON, Row("Ada"), "it has 1 field(s), expected 2"),
        (PERSON, Row(name="Ada", size=1), "no field 'age' in Row(name='Ada', size=1)"),
        (PERSON, {"nmae": "Ada"}, "it has the field(s) nmae, which the type lacks"),
        (PERSON, Point(1, 2.0), "it has no attribute(s) name, age"),
        (PERSON, None, "it is of type NoneType, expected a Row"),
        (
            PERSON,
            Row.of_kind(RowKind.DELETE, name="Ada", age=36),
            (
                "its kind is -D, but typed streams only have +I rows: omit the type of the "
                "stream to keep the kind"
            ),
        ),
        (
            Types.TUPLE([Types.LIST(PERSON)]),
            ([Row("Ada", "x")],),
            (
                "field 'f0': an element of the list: field 'age': 'x' is of type str, expected an "
                "integer"
            ),
        ),
        (Point, (1, 2.0), "it is of type tuple, expected Point"),
        (Place, ("here", None), "it is of type tuple, expected Place"),
        (Point, None, "it is of type NoneType, expected Point"),
    ],
    ids=repr,
)
def test_what_does_not_fit_is_refused_with_the_reason(declared, record, reason):
    assert mismatch(declared, record) == (
        f"record {record!r} does not fit the declared type {as_type_info(declared)}: {reason}"
    )


@pytest.mark.parametrize(
    ("declared", "value", "reason"),
    [
        (
            Types.FLOAT(),
            1e300,
            "1e+300 is outside the range of Types.FLOAT(): declare Types.DOUBLE()",
        ),
        (Types.FLOAT(), Decimal("-1e300"), "is outside the range of Types.FLOAT()"),
        (ArrowTypeInfo(pa.uint64()), 1.5, "1.5 is not a whole number"),
        (ArrowTypeInfo(pa.timestamp("us", "UTC")), 1.5, "of type float, expected a datetime"),
        (
            ArrowTypeInfo(pa.timestamp("us", "UTC")),
            1_700_000_000,
            "of type int, expected a datetime",
        ),
        (ArrowTypeInfo(pa.timestamp("ms")), MOMENT, "would lose data"),
        (
            ArrowTypeInfo(pa.timestamp("ns")),
            MOMENT.replace(tzinfo=datetime.UTC),
            "has a time zone, which this type does not keep",
        ),
        (ArrowTypeInfo(pa.time32("ms")), NOON, "would lose data"),
        (ArrowTypeInfo(pa.duration("s")), datetime.timedelta(microseconds=1), "would lose data"),
        (ArrowTypeInfo(pa.duration("s")), 5, "of type int, expected a timedelta"),
    ],
    ids=str,
)
def test_a_value_that_would_change_is_refused(declared, value, reason):
    assert reason in mismatch(Types.TUPLE([declared]), (value,))


def test_an_integer_beyond_all_floats_is_refused():
    assert mismatch(Types.DOUBLE(), 10**309).endswith("is of type int, which no float represents")


def test_a_time_zone_is_refused_with_what_to_declare_instead():
    text = mismatch(Types.SQL_TIMESTAMP(), MOMENT.replace(tzinfo=datetime.UTC))
    assert "has a time zone, which this type does not keep" in text
    assert "pa.timestamp('us', tz='UTC')" in text


def test_text_that_is_no_unicode_is_refused():
    assert "it is not valid Unicode" in mismatch(Types.STRING(), "\ud800")


def test_a_value_that_arrow_cannot_convert_is_refused():
    text = mismatch(ArrowTypeInfo(pa.decimal128(3, 1)), Decimal("1.25"))
    assert "Arrow cannot convert it to decimal128(3, 1)" in text


def test_a_dataclass_that_lost_a_field_is_refused():
    point = Point(1, 2.0)
    del point.y
    with pytest.raises(TypeMismatch, match="it lacks a field"):
        arrow_format(as_type_info(Point)).encode([point])


def test_an_instance_of_a_subclass_is_refused_because_its_fields_would_be_lost():
    @dataclass
    class Point3(Point):
        z: float

    assert "Point3, expected Point" in mismatch(Point, Point3(1, 2.0, 3.0))


@pytest.mark.parametrize("position", [0, 1, 499, 500, 998, 999])
def test_the_offending_record_is_found_among_many(position):
    records = [(str(n), n) for n in range(1000)]
    records[position] = ("bad", "bad")
    assert mismatch(PAIR, *records).startswith("record ('bad', 'bad') does not fit")


def test_the_first_of_several_offending_records_is_named():
    assert mismatch(Types.INT(), 1, "x", 2**40, None).startswith("record 'x' does not fit")


def test_a_long_record_is_shortened_in_the_message():
    assert len(mismatch(Types.INT(), "x" * 100_000)) < 500


# batches


def test_dictionary_encoded_columns_are_decoded():
    format = arrow_format(Types.TUPLE([Types.STRING(), Types.LONG(), Types.LIST(Types.LONG())]))
    columns = [
        pa.array(["a", None, "a"]).dictionary_encode(),
        pa.array([1, 1, None]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, 0, 1]), pa.array([[1], [2]])),
    ]
    first, second, third = format.decode(pa.record_batch(columns, names=["f0", "f1", "f2"]))
    assert [first, second, third] == [("a", 1, [1]), (None, 1, [1]), ("a", None, [2])]
    assert first[2] is not second[2]


def test_a_dictionary_with_null_entries_is_decoded():
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None]))
    batch = pa.record_batch([column], names=["value"])
    assert arrow_format(Types.STRING()).decode(batch) == ["a", None, None]


def test_columns_in_another_physical_form_are_decoded():
    format = arrow_format(PAIR)
    columns = [pa.array(["a"], pa.large_string()), pa.array([1], pa.int32())]
    assert format.decode(pa.record_batch(columns, names=["f0", "f1"])) == [("a", 1)]


@pytest.mark.parametrize(
    "declared",
    [
        Types.TUPLE([Types.LIST(Types.INT()), Types.MAP(Types.STRING(), Types.INT()), PAIR]),
        Types.TUPLE([Types.LIST(PAIR), Types.MAP(Types.STRING(), PAIR), Types.TUPLE([PAIR])]),
    ],
    ids=["flat", "nested"],
)
def test_slices_of_a_batch_are_decoded_alone(declared):
    pair = ("x", 1)
    records = {
        "flat": [([n] * n, {str(n): n}, (str(n), n)) for n in range(5)],
        "nested": [([pair] * n, {str(n): pair}, (pair,)) for n in range(5)],
    }["flat" if declared.get_field_types()[2] == PAIR else "nested"]
    records[2] = (None, None, None)
    format = arrow_format(declared)
    batch = format.encode(records)
    for start in range(5):
        for stop in range(start, 6):
            assert format.decode(batch[start:stop]) == records[start:stop]


def test_decoding_leaves_the_garbage_collector_as_it_was():
    format = arrow_format(Types.INT())
    batch = format.encode([1])
    format.decode(batch)
    assert gc.isenabled()
    gc.disable()
    try:
        format.decode(batch)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_conform_returns_a_batch_of_the_schema_as_it_is():
    format = arrow_format(PAIR)
    batch = format.encode([("a", 1)])
    assert format.conform(batch) is batch


def test_conform_orders_casts_and_drops_columns():
    batch = pa.record_batch(
        {
            "extra": pa.array([1.5]),
            "age": pa.array([36], pa.int64()),
            "name": pa.array(["Ada"], pa.large_string()).dictionary_encode(),
        }
    )
    format = arrow_format(PERSON)
    assert format.conform(batch) == format.encode([Row("Ada", 36)])


@pytest.mark.parametrize(
    ("logical", "physical"),
    [
        (Types.STRING(), pa.large_string()),
        (Types.STRING(), pa.string_view()),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), pa.large_binary()),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), pa.binary_view()),
    ],
    ids=str,
)
def test_conform_converts_every_form_of_text_and_bytes(logical, physical):
    """Polars has views; in its categories, they are the values of a dictionary."""
    format = arrow_format(logical)
    values = pa.array([b"a", None, b"b", b"a"], pa.binary()).cast(physical)
    encoded = values.dictionary_encode()
    for column in (values, encoded, encoded.slice(1, 2)):
        converted = format.conform(pa.record_batch({"value": column})).column(0)
        assert converted.type == format.schema.field(0).type
        assert converted.to_pylist() == column.to_pylist()


def test_conform_takes_the_one_column_of_single_values_whatever_its_name():
    batch = pa.record_batch({"number": pa.array([1], pa.int32())})
    assert arrow_format(Types.LONG()).conform(batch).to_pylist() == [{"value": 1}]


def test_conform_names_a_missing_column():
    batch = pa.record_batch({"name": pa.array(["Ada"])})
    with pytest.raises(MissingField) as caught:
        arrow_format(PERSON).conform(batch)
    assert str(caught.value) == (
        "a batch for RowTypeInfo(name: String, age: Integer): no field 'age'; the fields are: name"
    )


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pa.array([2**40]), "Integer value 1099511627776 not in range"),
        (pa.array([0.5]), "Float value 0.50* was truncated"),
        (pa.array(["36"]), "expected a column of type int32"),
        (pa.array([[36]]), "list<item: int64>"),
    ],
    ids=["overflow", "fraction", "text", "list"],
)
def test_conform_refuses_a_column_that_does_not_fit(column, reason):
    batch = pa.record_batch([pa.array(["Ada"]), column], names=["name", "age"])
    with pytest.raises(TypeMismatch, match=reason) as caught:
        arrow_format(PERSON).conform(batch)
    assert "<the column 'age' of type" in str(caught.value)


NUMBERS = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LONG()])
MIDDAY = datetime.datetime(2020, 1, 1, 12)  # noqa: DTZ001
MIDNIGHT = datetime.datetime(2020, 1, 1)  # noqa: DTZ001
IN_UTC = pa.timestamp("us", "UTC")
SECONDS = ArrowTypeInfo(pa.timestamp("s"))
NESTED_FLOATS = Types.MAP(Types.STRING(), Types.LIST(Types.FLOAT()))
NESTED_DOUBLES = pa.map_(pa.string(), pa.list_(pa.float64()))


@pytest.mark.parametrize(
    ("type_info", "column"),
    [
        (Types.BOOLEAN(), pa.array([1, 2])),
        (Types.BOOLEAN(), pa.array([0.5])),
        (Types.BOOLEAN(), pa.array([float("nan")])),
        (Types.LONG(), pa.array([1.5])),
        (Types.LONG(), pa.array([MIDDAY])),
        (Types.INT(), pa.array([MIDDAY.date()])),
        (Types.FLOAT(), pa.array([1.5, 1e300])),
        (Types.FLOAT(), pa.array([1e300]).dictionary_encode()),
        (Types.BIG_INT(), pa.array([1.5])),
        (Types.SQL_DATE(), pa.array([MIDDAY])),
        (Types.SQL_DATE(), pa.array([MIDNIGHT], IN_UTC)),
        (Types.SQL_DATE(), pa.array([1], pa.int32())),
        (Types.SQL_TIME(), pa.array([MIDDAY])),
        (Types.SQL_TIME(), pa.array([1])),
        (Types.SQL_TIMESTAMP(), pa.array([1])),
        (Types.SQL_TIMESTAMP(), pa.array([MIDDAY], IN_UTC)),
        (Types.SQL_TIMESTAMP(), pa.array([1], pa.timestamp("ns"))),
        (ArrowTypeInfo(pa.duration("us")), pa.array([1])),
        (Types.LIST(Types.STRING()), pa.array([[1]])),
        (Types.LIST(Types.FLOAT()), pa.array([[1.0], None, [1e300]])),
        (Types.LIST(Types.BOOLEAN()), pa.array([[2]], pa.large_list(pa.int64()))),
        (NESTED_FLOATS, pa.array([[("a", [1e300])]], NESTED_DOUBLES)),
        (Types.LIST(NUMBERS), pa.array([[{"b": 1}]])),
        (Types.LIST(NUMBERS), pa.array([[{"b": 1, "a": "1"}]])),
    ],
    ids=lambda given: str(getattr(given, "type", given)),
)
def test_conform_refuses_what_would_change_a_value(type_info, column):
    with pytest.raises(TypeMismatch, match="<the column 'value' of type"):
        arrow_format(type_info).conform(pa.record_batch({"value": column}))


@pytest.mark.parametrize(
    ("type_info", "column", "values"),
    [
        (Types.BOOLEAN(), pa.array([1, 0, None]), [True, False, None]),
        (Types.LONG(), pa.array([True, None]), [1, None]),
        (Types.LONG(), pa.array([2.0, None]), [2, None]),
        (Types.LONG(), pa.nulls(1), [None]),
        (Types.FLOAT(), pa.array([0.5, float("inf"), None]), [0.5, float("inf"), None]),
        (Types.BIG_INT(), pa.array([2**64 - 1], pa.uint64()), [2**64 - 1]),
        (Types.SQL_DATE(), pa.array([MIDNIGHT, None], pa.timestamp("ns")), [MIDNIGHT.date(), None]),
        (Types.SQL_TIMESTAMP(), pa.array([MIDNIGHT.date()]), [MIDNIGHT]),
        (Types.SQL_TIMESTAMP(), pa.array([MIDDAY], pa.timestamp("s")), [MIDDAY]),
        (SECONDS, pa.array([MIDDAY]), [MIDDAY]),
        (Types.SQL_TIME(), pa.array([MIDDAY.time()], pa.time32("s")), [MIDDAY.time()]),
        (Types.LIST(Types.FLOAT()), pa.array([[1], None], pa.list_(pa.int64(), 1)), [[1.0], None]),
        (
            Types.LIST(Types.BOOLEAN()),
            pa.array([[2], None, [1]]).slice(1),
            [None, [True]],
        ),
        (
            Types.LIST(NUMBERS),
            pa.array([[{"b": 1, "c": "x", "a": 2}, None]]),
            [[Row(a=2, b=1), None]],
        ),
        (
            NESTED_FLOATS,
            pa.array([[("a", [1e300])], None, [("b", [0.5])]], NESTED_DOUBLES).slice(1),
            [None, {"b": [0.5]}],
        ),
    ],
    ids=lambda given: str(getattr(given, "type", given))[:40],
)
def test_conform_converts_what_keeps_its_value(type_info, column, values):
    format = arrow_format(type_info)
    batch = format.conform(pa.record_batch({"value": column}))
    batch.validate(full=True)
    assert batch.schema == format.schema
    assert format.decode(batch) == values


# fields


def test_a_column_is_found_by_position_and_by_name():
    assert arrow_format(PERSON).column_of(1) == 1
    assert arrow_format(PERSON).column_of("age") == 1
    assert arrow_format(PAIR).column_of("f1") == 1
    assert arrow_format(Types.INT()).column_of(0) == 0


@pytest.mark.parametrize("unknown", ["size", 2, -1])
def test_an_unknown_field_is_named_with_those_that_exist(unknown):
    with pytest.raises(MissingField) as caught:
        arrow_format(PERSON).column_of(unknown)
    assert str(caught.value) == (
        f"RowTypeInfo(name: String, age: Integer): no field {unknown!r}; the fields are: name, age"
    )


# identity


def test_equal_formats_read_each_others_batches():
    assert arrow_format(PAIR) == arrow_format(Types.TUPLE([Types.STRING(), Types.LONG()]))
    assert arrow_format(ExternalTypeInfo(PAIR)) == arrow_format(PAIR)
    assert hash(arrow_format(PERSON)) == hash(arrow_format(PERSON))


@pytest.mark.parametrize(
    "other",
    [
        Types.TUPLE([Types.STRING(), Types.INT()]),
        Types.ROW([Types.STRING(), Types.INT()]),
        Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.LONG()]),
        Types.ROW_NAMED(["name"], [Types.STRING()]),
        Types.LIST(PERSON),
        Types.STRING(),
    ],
    ids=str,
)
def test_formats_of_other_records_or_other_names_differ(other):
    assert arrow_format(other) != arrow_format(PERSON)


@pytest.mark.parametrize("declared", [PAIR, PERSON, Point, Place, Types.INT()], ids=str)
def test_a_format_survives_pickling(declared):
    format = arrow_format(as_type_info(declared))
    clone = pickle.loads(pickle.dumps(format))
    assert clone == format
    assert hash(clone) == hash(format)
    assert clone.schema == format.schema
    assert repr(clone) == f"ArrowFormat({as_type_info(declared)})"
