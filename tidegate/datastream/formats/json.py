"""Rows as JSON objects."""

from tidegate.connectors.json_serialization import JsonRowSerializationSchema
from tidegate.connectors.row_schemas import JsonRowDeserializationSchema

__all__ = ["JsonRowDeserializationSchema", "JsonRowSerializationSchema"]
