"""Named aggregates of any records, one record at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tidegate.operators.aggregations.aggregates import Aggregate, AggregateKind, AggregatePlan
from tidegate.operators.aggregations.by_record import FieldOf, is_better
from tidegate.operators.base import OperatorContext, Output
from tidegate.operators.functions import AggregateFunction
from tidegate.operators.keyed import KeyedOperator, KeyedRecords
from tidegate.operators.user_code import USER_FAILURES, Outcome
from tidegate.state.descriptors import ValueStateDescriptor
from tidegate.state.keys.selection import KeySelection
from tidegate.types.row import make_rows, row_class

Step = Callable[[Any, Any], Any]
"""(accumulated value, record) -> new accumulated value."""


class NamedAggregates(AggregateFunction):
    """Keeps one value per aggregate; None until there is one."""

    def __init__(self, aggregates: Sequence[Aggregate]) -> None:
        self._aggregates = tuple(aggregates)
        self._steps = [_step(aggregate) for aggregate in aggregates]

    def __reduce__(self) -> tuple[Any, ...]:
        return NamedAggregates, (self._aggregates,)

    def create_accumulator(self) -> list[Any]:
        return [None] * len(self._steps)

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        steps = zip(self._steps, accumulator, strict=True)
        return [step(kept, value) for step, kept in steps]

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        pairs = zip(self._aggregates, accumulator, strict=True)
        return [_result(aggregate.kind, kept) for aggregate, kept in pairs]

    def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        triples = zip(self._aggregates, acc_a, acc_b, strict=True)
        return [_merged(aggregate.kind, a, b) for aggregate, a, b in triples]


class ResultRows:
    """Builds rows of keys and aggregates."""

    def __init__(self, plan: AggregatePlan) -> None:
        self._plan = plan
        self._kinds = [aggregate.kind for aggregate in plan.aggregates.values()]
        self._class = row_class(plan.names)

    def row(self, key: Any, values: Sequence[Any], window: Any = None) -> Any:
        """The result of a key, and of a window if there is one."""
        filled = [
            window.start
            if kind is AggregateKind.WINDOW_START
            else window.end
            if kind is AggregateKind.WINDOW_END
            else value
            for kind, value in zip(self._kinds, values, strict=True)
        ]
        parts = key if self._plan.key_is_tuple else (key,)
        (row,) = make_rows(self._class, [(*parts, *filled)])
        return row


class RunningRecordAggregates(KeyedOperator):
    """Keeps the aggregates of each key and emits them for each record."""

    def __init__(self, plan: AggregatePlan, key: KeySelection) -> None:
        super().__init__(None, [key], plan.output_format)
        self.plan = plan

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self._aggregates = NamedAggregates(list(self.plan.aggregates.values()))
        self._rows = ResultRows(self.plan)
        named = ", ".join(self.plan.aggregates)
        self._table = self.backend.table(ValueStateDescriptor(f"aggregates {named}"))

    def keeps_state(self) -> bool:
        return True

    def run(self, keyed: KeyedRecords, input_index: int) -> Outcome:
        places, keys, records, stamps = keyed
        values, aggregates, row = self._table.values, self._aggregates, self._rows.row
        results: list[Any] = []
        failure = record = None
        try:
            for place, key, record in zip(places, keys, records, strict=True):
                held = values[place]
                kept = aggregates.add(record, held or aggregates.create_accumulator())
                values[place] = kept
                results.append(row(key, aggregates.get_result(kept)))
        except USER_FAILURES as error:
            failure = self.user_code.failure(error, record, len(results))
        return Outcome(results, None if stamps is None else stamps[: len(results)], failure)


def _step(aggregate: Aggregate) -> Step:
    get = None if aggregate.field is None else FieldOf(aggregate.field)
    if aggregate.kind is AggregateKind.COUNT:
        if get is None:
            return lambda kept, record: (kept or 0) + 1
        return lambda kept, record: (kept or 0) + (get(record) is not None)
    if get is None:
        return lambda kept, record: kept
    match aggregate.kind:
        case AggregateKind.SUM:
            return lambda kept, record: _merged(AggregateKind.SUM, kept, get(record))
        case AggregateKind.AVG:
            return lambda kept, record: _with_mean(kept, get(record))
    kind = aggregate.kind
    return lambda kept, record: _merged(kind, kept, get(record))


def _with_mean(kept: tuple[Any, int] | None, value: Any) -> tuple[Any, int] | None:
    if value is None:
        return kept
    return (value, 1) if kept is None else (kept[0] + value, kept[1] + 1)


def _merged(kind: AggregateKind, one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    match kind:
        case AggregateKind.COUNT | AggregateKind.SUM:
            return one + other
        case AggregateKind.AVG:
            return one[0] + other[0], one[1] + other[1]
        case AggregateKind.MIN | AggregateKind.MAX:
            return other if is_better(other, one, kind is AggregateKind.MAX) else one
    return None


def _result(kind: AggregateKind, kept: Any) -> Any:
    if kind is AggregateKind.COUNT:
        return kept or _NO_RECORDS
    if kind is AggregateKind.AVG and kept is not None:
        return float(kept[0] / kept[1])
    return kept


_NO_RECORDS: Final = 0
