"""Records as bytes and back: what connectors to queues, and sinks of lines, are given."""

from tidegate.common.java_only import java_only
from tidegate.connectors.files.encodings import Encoder
from tidegate.connectors.json_serialization import JsonRowSerializationSchema
from tidegate.connectors.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    SerializationSchema,
    SimpleStringSchema,
)

BulkWriterFactory = java_only("BulkWriterFactory", "Use an Encoding with FileSink.")
RowFieldExtractorSchema = java_only(
    "RowFieldExtractorSchema", "Take the field by map(), and use ByteArraySchema."
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
