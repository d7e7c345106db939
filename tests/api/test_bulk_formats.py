"""Rows in and out of Parquet, ORC, CSV and Avro files, under PyFlink's names."""

import datetime
import json
from decimal import Decimal

import pytest

from tests.api.results import in_any_order
from tidegate.common import Row, Types
from tidegate.core.errors import ConfigError, UnreadableInput
from tidegate.datastream import RuntimeExecutionMode
from tidegate.datastream.connectors.file_system import (
    AvroFormat,
    BucketAssigner,
    FileSink,
    FileSource,
    OrcFormat,
    ParquetFormat,
)
from tidegate.datastream.formats.avro import (
    AvroBulkWriters,
    AvroInputFormat,
    AvroSchema,
    GenericRecordAvroTypeInfo,
)
from tidegate.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from tidegate.datastream.formats.orc import OrcBulkWriters
from tidegate.datastream.formats.parquet import (
    AvroParquetReaders,
    AvroParquetWriters,
    ParquetBulkWriters,
    ParquetColumnarRowInputFormat,
)

TYPE = Types.ROW_NAMED(["name", "amount", "price"], [Types.STRING(), Types.LONG(), Types.DOUBLE()])
ROWS = [Row("pen", 2, 1.5), Row("ink, black", 1, None), Row('a "pad"', None, 3.0)]
SCHEMA = {
    "type": "record",
    "name": "item",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "amount", "type": ["null", "long"]},
        {"name": "price", "type": ["null", "double"], "default": None},
    ],
}
DICTS = [dict(zip(("name", "amount", "price"), row, strict=True)) for row in ROWS]


def schema(text=SCHEMA):
    return AvroSchema.parse_string(json.dumps(text))


def csv_schema():
    builder = CsvSchema.builder().add_string_column("name").add_number_column("amount")
    return builder.add_number_column("price", Types.DOUBLE()).set_null_value("-").build()


WRITERS = {
    "parquet": lambda: ParquetBulkWriters.for_row_type(TYPE),
    "orc": lambda: OrcBulkWriters.for_row_type(TYPE, {"compression": "zlib"}),
    "csv": lambda: CsvBulkWriters.for_schema(csv_schema()),
    "avro": lambda: AvroBulkWriters.for_generic_record(schema()),
    "avro-parquet": lambda: AvroParquetWriters.for_generic_record(schema()),
}
READERS = {
    "parquet": [ParquetFormat, lambda: ParquetColumnarRowInputFormat(TYPE)],
    "orc": [OrcFormat, lambda: OrcFormat(TYPE)],
    "csv": [lambda: CsvReaderFormat.for_schema(csv_schema())],
    "avro": [AvroFormat, lambda: AvroFormat(schema())],
    "avro-parquet": [ParquetFormat],
}
DICT_READERS = {
    "avro": lambda: AvroFormat(schema(), as_dicts=True),
    "avro-parquet": lambda: AvroParquetReaders.for_generic_record(schema()),
}


@pytest.fixture
def env(env):
    return env.set_runtime_mode(RuntimeExecutionMode.BATCH)


def written(env, stream, kind, directory):
    sink = FileSink.for_bulk_format(str(directory), WRITERS[kind]())
    stream.sink_to(sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build())
    env.execute()
    return directory


def read(env, format, directory):
    source = FileSource.for_bulk_file_format(format, str(directory)).build()
    return env.from_source(source, source_name="files")


@pytest.mark.parametrize("declared", [None, TYPE])
@pytest.mark.parametrize("kind", sorted(WRITERS))
def test_rows_come_back_as_they_were_written(env, tmp_path, kind, declared):
    directory = written(env, env.from_collection(ROWS, declared), kind, tmp_path / "out")
    for reader in READERS[kind]:
        found = in_any_order(read(env, reader(), directory).map(tuple))
        assert sorted(found, key=str) == sorted(map(tuple, ROWS), key=str)


@pytest.mark.parametrize("kind", sorted(DICT_READERS))
def test_generic_records_are_dicts(env, tmp_path, kind):
    records = env.from_collection(DICTS).map(
        lambda record: record, output_type=GenericRecordAvroTypeInfo(schema())
    )
    directory = written(env, records, kind, tmp_path / "out")
    with read(env, DICT_READERS[kind](), directory).execute_and_collect() as found:
        assert sorted(found, key=str) == sorted(DICTS, key=str)
    if kind == "avro":
        stream = env.create_input(AvroInputFormat(str(directory), schema()))
        with stream.execute_and_collect() as found:
            assert sorted(found, key=str) == sorted(DICTS, key=str)


def test_a_reader_may_have_a_newer_schema_than_the_file(env, tmp_path):
    directory = written(env, env.from_collection(DICTS), "avro", tmp_path / "out")
    newer = {**SCHEMA, "fields": [*SCHEMA["fields"][:1], {**NEW_FIELD, "default": "none"}]}
    found = in_any_order(read(env, AvroFormat(schema(newer)), directory).map(tuple))
    assert found == [('a "pad"', "none"), ("ink, black", "none"), ("pen", "none")]


NEW_FIELD = {"name": "shelf", "type": "string"}
NESTED = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "item", "type": SCHEMA},
        {"name": "again", "type": ["null", "item"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["A", "B"]}},
        {"name": "raw", "type": "bytes"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "paid",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        },
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
AT = datetime.datetime(2024, 5, 6, 7, 8, 9, 120_000)  # noqa: DTZ001
ORDER = Row(
    Row("pen", 2, 1.5),
    None,
    ["new", "blue"],
    {"x": 1},
    "B",
    b"\x00\xff",
    AT.date(),
    AT,
    Decimal("12.30"),
    "c2f9b3c8-6e0e-4b43-8d2e-2f0f6a1f7a10",
)


def test_nested_and_logical_types_of_avro(env, tmp_path):
    encoding = AvroBulkWriters.for_generic_record(schema(NESTED))
    env.from_collection([ORDER]).sink_to(
        FileSink.for_bulk_format(str(tmp_path / "out"), encoding).build()
    )
    env.execute()
    with read(env, AvroFormat(), tmp_path / "out").execute_and_collect() as found:
        (order,) = found
    assert tuple(order)[1:] == tuple(ORDER)[1:]
    assert tuple(order.item) == ("pen", 2, 1.5)


def test_what_avro_has_no_type_for_here_is_said(tmp_path):
    union = {"type": "record", "name": "r", "fields": [{"name": "x", "type": ["int", "string"]}]}
    with pytest.raises(ConfigError, match="only unions of null and one type"):
        schema(union).type_info()
    fields = [{"name": "next", "type": ["null", "chain"]}]
    with pytest.raises(ConfigError, match="recursive records"):
        schema({"type": "record", "name": "chain", "fields": fields}).type_info()


@pytest.mark.parametrize("format", [AvroFormat(), OrcFormat(), ParquetFormat()])
def test_files_of_another_kind_are_refused(env, tmp_path, format):
    (tmp_path / "text").write_text("no such file\n")
    with pytest.raises(UnreadableInput, match="text"):
        read(env, format, tmp_path)


def test_the_form_of_csv_is_the_builders(env, tmp_path):
    builder = CsvSchema.builder().add_columns_from(csv_schema()).set_use_header()
    form = builder.set_column_separator("|").set_quote_char("'").set_line_separator("\r\n").build()
    env.from_collection([Row("a|b", 1, None)]).set_parallelism(1).sink_to(
        FileSink.for_bulk_format(str(tmp_path / "out"), CsvBulkWriters.for_schema(form)).build()
    )
    env.execute()
    (part,) = (tmp_path / "out").rglob("part-*")
    assert part.read_bytes() == b"name|amount|price\r\n'a|b'|1|\r\n"
    (row,) = in_any_order(read(env, CsvReaderFormat.for_schema(form), tmp_path / "out").map(tuple))
    assert row == ("a|b", 1, None)
