"""Built-in aggregates over windows of any records, one record at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidegate.operators.aggregations.aggregates import AggregatePlan
from tidegate.operators.aggregations.by_record import combining
from tidegate.operators.aggregations.kinds import Aggregation
from tidegate.operators.aggregations.named_by_record import ResultRows
from tidegate.operators.functions import ReduceFunction
from tidegate.operators.windows.functions import AllWindowFunction, WindowFunction


class AggregatedRecord(ReduceFunction):
    """The first record of a window with an aggregated field, or the one with the best value."""

    def __init__(self, aggregation: Aggregation, field: int | str) -> None:
        self._combine = combining(aggregation, field)

    def reduce(self, value1: Any, value2: Any) -> Any:
        return self._combine(value1, value2)


class CountWithKey(WindowFunction[Any, Any, Any, Any]):
    """The key of a window and its count."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return [(key, total) for (total,) in inputs]


class AggregateRows(WindowFunction[Any, Any, Any, Any]):
    """The aggregates of a window as a row."""

    def __init__(self, plan: AggregatePlan) -> None:
        self._rows = ResultRows(plan)

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return [self._rows.row(key, values, window) for values in inputs]


class AllCount(AllWindowFunction[Any, Any, Any]):
    def apply(self, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return [total for (total,) in inputs]


class AllAggregateRows(AllWindowFunction[Any, Any, Any]):
    """The aggregates of a window without key as a row."""

    def __init__(self, plan: AggregatePlan) -> None:
        self._rows = ResultRows(plan)

    def apply(self, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return [self._rows.row((), values, window) for values in inputs]
