"""The aggregations of keyed streams."""

from __future__ import annotations

from enum import Enum


class Aggregation(Enum):
    """The built-in aggregations; each emits a result for every record."""

    SUM = "sum"
    """The first record, with the sum of a field."""
    MIN = "min"
    """The first record, with the smallest value of a field."""
    MAX = "max"
    """The first record, with the greatest value of a field."""
    MIN_BY = "min_by"
    """The record with the smallest value of a field; the first among equals."""
    MAX_BY = "max_by"
    """The record with the greatest value of a field; the first among equals."""
    COUNT = "count"
    """The key and the number of its records."""
