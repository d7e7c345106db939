"""Which aggregations a keyed stream has."""

from __future__ import annotations

from enum import Enum


class Aggregation(Enum):
    """The built-in aggregations; each emits a result for every record."""

    SUM = "sum"
    """The first record, with the sum of a field."""
    MIN = "min"
    """The first record, with the least value of a field."""
    MAX = "max"
    """The first record, with the greatest value of a field."""
    MIN_BY = "min_by"
    """The record with the least value of a field; of several the first."""
    MAX_BY = "max_by"
    """The record with the greatest value of a field; of several the first."""
    COUNT = "count"
    """The key and the number of its records."""
