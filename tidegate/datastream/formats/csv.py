"""Rows as lines of values."""

from tidegate.connectors.row_schemas import CsvRowDeserializationSchema

__all__ = ["CsvRowDeserializationSchema"]
