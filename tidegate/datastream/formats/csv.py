"""Rows as lines of values, in messages and in files."""

from tidegate.connectors.files.csv_schema import (
    CsvBulkWriters,
    CsvReaderFormat,
    CsvSchema,
    CsvSchemaBuilder,
)
from tidegate.connectors.row_schemas import CsvRowDeserializationSchema
from tidegate.connectors.row_serialization import CsvRowSerializationSchema

__all__ = [
    "CsvBulkWriters",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "CsvSchema",
    "CsvSchemaBuilder",
]
