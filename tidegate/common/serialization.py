"""Schemas that convert records to bytes and back, for message queues and line sinks."""

from tidegate.connectors.files.encodings import Encoder
from tidegate.connectors.files.encodings import FileEncoding as BulkWriterFactory
from tidegate.connectors.json_serialization import JsonRowSerializationSchema
from tidegate.connectors.row_serialization import RowFieldExtractorSchema
from tidegate.connectors.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    SerializationSchema,
    SimpleStringSchema,
)

__all__ = [
    "BulkWriterFactory",
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "JsonRowSerializationSchema",
    "RowFieldExtractorSchema",
    "SerializationSchema",
    "SimpleStringSchema",
]
