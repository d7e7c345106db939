"""Records as bytes and back: what connectors to queues, and sinks of lines, are given."""

from tidegate.connectors.files.encodings import Encoder
from tidegate.connectors.json_serialization import JsonRowSerializationSchema
from tidegate.connectors.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    SerializationSchema,
    SimpleStringSchema,
)

__all__ = [
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "JsonRowSerializationSchema",
    "SerializationSchema",
    "SimpleStringSchema",
]
