"""Rows as lines of values."""

from tidegate.common.java_only import java_only
from tidegate.connectors.row_schemas import CsvRowDeserializationSchema

_ADVICE = "Use CsvFormat and CsvEncoding of tidegate.datastream.connectors.file_system."
CsvBulkWriters = java_only("CsvBulkWriters", _ADVICE)
CsvReaderFormat = java_only("CsvReaderFormat", _ADVICE)
CsvRowSerializationSchema = java_only("CsvRowSerializationSchema", "Make the line by map().")
CsvSchema = java_only("CsvSchema", _ADVICE)
CsvSchemaBuilder = java_only("CsvSchemaBuilder", _ADVICE)

__all__ = [
    "CsvBulkWriters",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "CsvSchema",
    "CsvSchemaBuilder",
]
