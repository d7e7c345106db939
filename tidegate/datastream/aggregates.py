"""Aggregates for `agg`, over the records of a key or of its windows."""

from tidegate.operators.aggregations.aggregates import (
    Aggregate,
    avg_,
    count,
    max_,
    min_,
    sum_,
    window_end,
    window_start,
)

__all__ = ["Aggregate", "avg_", "count", "max_", "min_", "sum_", "window_end", "window_start"]
