"""Rows as the bytes of messages, and back."""

import json

import pytest

from tidegate.common import Row, Types
from tidegate.common.serialization import RowFieldExtractorSchema
from tidegate.connectors.row_schemas import UnreadableMessages
from tidegate.core.errors import ConfigError
from tidegate.datastream.formats.avro import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
)
from tidegate.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema

TYPE = Types.ROW_NAMED(["name", "n", "ok"], [Types.STRING(), Types.LONG(), Types.BOOLEAN()])
AVRO = json.dumps(
    {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "name", "type": "string"},
            {"name": "n", "type": ["null", "long"]},
            {"name": "ok", "type": "boolean"},
        ],
    }
)


@pytest.mark.parametrize(
    ("settings", "row", "line"),
    [
        ({}, Row("a", 1, True), b"a,1,true\n"),
        ({}, Row('say "a, b"', 1, True), b'"say ""a, b""",1,true\n'),
        ({}, Row("a", None, False), b"a,,false\n"),
        ({"null_literal": "-"}, Row("a", None, False), b"a,-,false\n"),
        ({"field_delimiter": ";", "line_delimiter": ""}, Row("a;b", 1, True), b'"a;b";1;true'),
        ({"quote_character": "'"}, Row("a,b", 1, True), b"'a,b',1,true\n"),
        ({"quote_character": None, "escape_character": "\\"}, ("a,b", 1, True), b"a\\,b,1,true\n"),
    ],
)
def test_a_row_is_a_line_and_comes_back(settings, row, line):
    writing = CsvRowSerializationSchema.Builder(TYPE)
    reading = CsvRowDeserializationSchema.Builder(TYPE)
    for name, value in settings.items():
        if value is None:
            writing.disable_quote_character()
            continue
        getattr(writing, f"set_{name}")(value)
        if name != "line_delimiter":
            getattr(reading, f"set_{name}")(value)
    assert writing.build().serialize(row) == line
    assert tuple(reading.build().deserialize(line)) == tuple(row)


def test_a_row_of_another_width_is_refused():
    with pytest.raises(ValueError, match="2 field"):
        CsvRowSerializationSchema(TYPE).serialize(Row("a", 1))


def test_a_field_gives_its_bytes():
    schema = RowFieldExtractorSchema(1)
    assert schema.serialize(Row("key", b"value")) == b"value"
    assert schema.serialize(Row("key", None)) == b""
    with pytest.raises(TypeError, match="not bytes"):
        schema.serialize(Row("key", 5))
    with pytest.raises(ConfigError):
        RowFieldExtractorSchema(-1)


@pytest.mark.parametrize("row", [Row("a", 1, True), ("é", None, False)])
def test_rows_are_avro_and_back(row):
    message = AvroRowSerializationSchema(avro_schema_string=AVRO).serialize(row)
    reading = AvroRowDeserializationSchema(avro_schema_string=AVRO)
    assert tuple(reading.deserialize(message)) == tuple(row)
    assert reading.produced_type() == TYPE


def test_avro_is_written_as_its_specification_says():
    # Length 1 as a zigzag number, "a"; branch 1 of the union, 1 as a zigzag number; true.
    message = AvroRowSerializationSchema(avro_schema_string=AVRO).serialize(Row("a", 1, True))
    assert message == bytes([2]) + b"a" + bytes([2, 2, 1])


def test_a_message_that_ends_early_is_not_read():
    with pytest.raises(UnreadableMessages):
        AvroRowDeserializationSchema(avro_schema_string=AVRO).deserialize(b"\x02")


def test_classes_of_java_are_not_known():
    with pytest.raises(ConfigError, match="avro_schema_string"):
        AvroRowSerializationSchema(record_class="com.example.Item")
