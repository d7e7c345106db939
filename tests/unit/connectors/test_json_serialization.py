import datetime
import json
from decimal import Decimal

import pytest

from tidegate.common import JsonRowSerializationSchema, Row, Types
from tidegate.connectors.json_serialization import JsonRowSerializationSchema as Schema
from tidegate.core.errors import ConfigError
from tidegate.stream.batch import Batch
from tidegate.testing.harness import as_batch
from tidegate.types.arrow import arrow_format

ROW = Types.ROW_NAMED(["name", "size"], [Types.STRING(), Types.LONG()])
SCHEMA = JsonRowSerializationSchema.builder().with_type_info(ROW).build()


@pytest.mark.parametrize(
    "record", [("ä", 1), Row("ä", 1), Row(name="ä", size=1), {"name": "ä", "size": 1}, ["ä", 1]]
)
def test_a_row_of_any_kind_is_an_object(record):
    assert SCHEMA.serialize(record) == '{"name":"ä","size":1}'.encode()


def test_without_a_type_the_rows_name_their_fields():
    assert Schema().serialize(Row(a=1, b=Row(c=2))) == b'{"a":1,"b":{"c":2}}'


def test_what_json_does_not_have_is_text_or_null():
    row = {"day": datetime.date(2026, 1, 2), "price": Decimal("1.50"), "odd": float("nan")}
    assert Schema().serialize(row) == b'{"day":"2026-01-02","price":"1.50","odd":null}'


def test_columns_and_records_give_the_same_objects():
    types = [Types.STRING(), Types.LONG(), Types.DOUBLE(), Types.BOOLEAN()]
    names = ["text", "number", "fraction", "flag"]
    row = Types.ROW_NAMED(names, types)
    records = [
        Row("a\n\"'ü\x01", 2**63 - 1, 0.1, True),
        Row(None, None, float("inf"), False),
        Row("", -1, -1e300, None),
    ]
    schema = Schema(row)
    columns = schema.serialize_batch(as_batch(records, arrow_format(row)))
    assert not isinstance(columns[0], bytes), "no object was made for a record"
    slowly = schema.serialize_batch(Batch.of_records(records))
    assert list(map(json.loads, columns)) == list(map(json.loads, slowly))


def test_columns_get_the_names_of_the_schema():
    pair = arrow_format(Types.TUPLE([Types.STRING(), Types.LONG()]))
    assert SCHEMA.serialize_batch(as_batch([("a", 1)], pair)) == ['{"name":"a","size":1}']


@pytest.mark.parametrize("wide", [[("a", 1, 2)], as_batch([(1, 2, 3)])])
def test_too_many_fields_are_refused(wide):
    batch = wide if isinstance(wide, Batch) else Batch.of_records(wide)
    with pytest.raises(ValueError, match=r"3 field.s. where the schema has 2: name, size"):
        SCHEMA.serialize_batch(batch)


def test_a_type_without_names_is_refused():
    with pytest.raises(ConfigError, match="give a type with named fields"):
        Schema(Types.LONG())
