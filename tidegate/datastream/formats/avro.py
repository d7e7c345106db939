"""Avro: schemas, rows as messages, and files of records. Needs the extra `avro`."""

from tidegate.connectors.files.avro import AvroEncoding, AvroInputFormat
from tidegate.connectors.files.avro_schema import AvroSchema, GenericRecordAvroTypeInfo
from tidegate.connectors.row_serialization import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
)


class AvroBulkWriters:
    """Writes records as Avro files: PyFlink's name for `AvroEncoding`."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> AvroEncoding:
        """For `FileSink.for_bulk_format`; records are dicts, or rows."""
        return AvroEncoding(schema)


__all__ = [
    "AvroBulkWriters",
    "AvroInputFormat",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "AvroSchema",
    "GenericRecordAvroTypeInfo",
]
