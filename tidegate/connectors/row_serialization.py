"""Rows as the bytes of messages: lines of values, single fields, Avro."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Self

import pyarrow as pa

from tidegate.connectors.files.avro_schema import AvroSchema, fastavro, from_avro, to_avro
from tidegate.connectors.files.encodings import CsvLines, field_values
from tidegate.connectors.files.formats import require_columns
from tidegate.connectors.row_schemas import RowDeserializationSchema, UnreadableMessages
from tidegate.connectors.serialization import SerializationSchema
from tidegate.core.errors import ConfigError
from tidegate.core.fluent import FluentBuilder
from tidegate.types.infer import as_type_info


class CsvRowSerializationSchema(SerializationSchema):
    """A line of values per row, quoted if necessary, with a line end."""

    def __init__(self, type_info: Any, lines: CsvLines | None = None) -> None:
        self._width = len(require_columns(as_type_info(type_info), "CSV").field_names)
        self._lines = lines or CsvLines()

    def serialize(self, value: Any) -> bytes:
        """The line of a record."""
        fields = field_values(value)
        if len(fields) != self._width:
            raise ValueError(f"{len(fields)} field(s) where the schema has {self._width}")
        return self._lines.text([fields]).encode()

    class Builder(FluentBuilder):
        """Settings of the schema, under PyFlink's names."""

        def __init__(self, type_info: Any) -> None:
            super().__init__()
            self._type = type_info

        def set_field_delimiter(self, c: str) -> Self:
            return self._with(delimiter=c)

        def set_line_delimiter(self, delimiter: str) -> Self:
            return self._with(line_end=delimiter)

        def set_quote_character(self, c: str) -> Self:
            return self._with(quote=c)

        def disable_quote_character(self) -> Self:
            return self._with(quote=None)

        def set_escape_character(self, c: str) -> Self:
            return self._with(escape=c)

        def set_null_literal(self, s: str) -> Self:
            return self._with(null_value=s)

        def set_array_element_delimiter(self, delimiter: str) -> Self:
            raise ConfigError("array_element_delimiter", delimiter, "join the elements in a map()")

        def build(self) -> CsvRowSerializationSchema:
            return CsvRowSerializationSchema(self._type, CsvLines(**self._chosen))


class RowFieldExtractorSchema(SerializationSchema):
    """The bytes in one field of a row, such as the key or the value of a message."""

    def __init__(self, field_index: int) -> None:
        if field_index < 0:
            raise ConfigError("field_index", field_index, "give 0 or more")
        self._index = field_index

    def serialize(self, value: Any) -> bytes:
        """The bytes of the field; empty if it is None."""
        field = value[self._index]
        if field is None:
            return b""
        if not isinstance(field, bytes | bytearray):
            raise TypeError(f"field {self._index} is {field!r}, not bytes")
        return bytes(field)


class AvroRowSerializationSchema(SerializationSchema):
    """A row or dict per message, in Avro's binary format."""

    def __init__(
        self, record_class: str | None = None, avro_schema_string: str | None = None
    ) -> None:
        self._schema = _schema(record_class, avro_schema_string)
        self._type = self._schema.type_info()

    def serialize(self, value: Any) -> bytes:
        """The bytes of a record."""
        stream = io.BytesIO()
        record = to_avro(value, self._type)
        fastavro().schemaless_writer(stream, self._schema.parsed, record)
        return stream.getvalue()


class AvroRowDeserializationSchema(RowDeserializationSchema):
    """Rows from messages in Avro's binary format."""

    def __init__(
        self, record_class: str | None = None, avro_schema_string: str | None = None
    ) -> None:
        self._schema = _schema(record_class, avro_schema_string)
        super().__init__(require_columns(self._schema.type_info(), "Avro"))

    def deserialize_all(self, messages: Sequence[bytes]) -> pa.RecordBatch:
        read, schema = fastavro().schemaless_reader, self._schema.parsed
        try:
            records = [from_avro(read(io.BytesIO(message), schema)) for message in messages]
        except (EOFError, ValueError, IndexError) as error:
            raise UnreadableMessages(f"not a record of the schema: {error!r}") from None
        return self.format.encode(records)


def _schema(record_class: str | None, text: str | None) -> AvroSchema:
    if record_class is not None:
        raise ConfigError("record_class", record_class, "give the schema by avro_schema_string")
    if text is None:
        raise ConfigError("avro_schema_string", None, "give the schema of the records")
    return AvroSchema.parse_string(text)
