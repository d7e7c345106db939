"""Aggregations of any records, one record at a time."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

from tidegate.operators.aggregations.kinds import Aggregation
from tidegate.operators.base import OperatorContext, Output
from tidegate.operators.keyed import KeyedOperator, KeyedRecords
from tidegate.operators.user_code import USER_FAILURES, Outcome
from tidegate.state.descriptors import ValueStateDescriptor
from tidegate.state.keys.selection import KeySelection
from tidegate.state.keys.selectors import FieldByName
from tidegate.types.arrow import ArrowFormat
from tidegate.types.row import Row

Combine = Callable[[Any, Any], Any]
"""(result so far, record) -> new result; changes neither."""


class RecordAggregation(KeyedOperator):
    """Keeps the last result of each key and emits a result for each record."""

    def __init__(
        self,
        aggregation: Aggregation,
        field: int | str,
        key: KeySelection,
        format: ArrowFormat | None = None,
    ) -> None:
        super().__init__(None, [key], format)
        self.aggregation = aggregation
        self.field = field

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self._combine = combining(self.aggregation, self.field)
        self._check = FieldOf(self.field)
        name = f"{self.aggregation.value} of field {self.field}"
        held = None if self.format is None else self.format.type_info
        self._table = self.backend.table(ValueStateDescriptor(name, held))

    def keeps_state(self) -> bool:
        return True

    def run(self, keyed: KeyedRecords, input_index: int) -> Outcome:
        places, _, records, stamps = keyed
        combine, check, values = self._combine, self._check, self._table.values
        kept = self.user_code.kept
        results: list[Any] = []
        append = results.append
        failure = record = None
        try:
            for place, record in zip(places, records, strict=True):
                result = values[place]
                if result is None:
                    check(record)
                    result = record
                else:
                    result = combine(result, record)
                values[place] = result
                append(kept(result))
        except USER_FAILURES as error:
            failure = self.user_code.failure(error, record, len(results))
        return Outcome(results, None if stamps is None else stamps[: len(results)], failure)


class RecordCount(KeyedOperator):
    """Emits the key and its number of records; with a field, of those in which it is not None."""

    def __init__(
        self, field: int | str | None, key: KeySelection, format: ArrowFormat | None = None
    ) -> None:
        super().__init__(None, [key], format)
        self.field = field

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        counted = "records" if self.field is None else f"field {self.field}"
        self._table = self.backend.table(ValueStateDescriptor(f"count of {counted}"))

    def keeps_state(self) -> bool:
        return True

    def run(self, keyed: KeyedRecords, input_index: int) -> Outcome:
        places, keys, records, stamps = keyed
        values = self._table.values
        get = None if self.field is None else FieldOf(self.field)
        results: list[Any] = []
        failure = record = None
        try:
            for place, key, record in zip(places, keys, records, strict=True):
                counts = get is None or get(record) is not None
                total = values[place] = (values[place] or 0) + counts
                results.append((key, total))
        except USER_FAILURES as error:
            failure = self.user_code.failure(error, record, len(results))
        return Outcome(results, None if stamps is None else stamps[: len(results)], failure)


class FieldOf:
    """A field of a record by position or name; a single value is its own field 0."""

    __slots__ = ("_by_name", "_field")

    def __init__(self, field: int | str) -> None:
        self._field = field
        self._by_name = FieldByName(str(field))

    def __call__(self, record: Any) -> Any:
        if isinstance(self._field, str):
            return self._by_name(record)
        if isinstance(record, tuple | list | Row):
            return record[self._field]
        if dataclasses.is_dataclass(record):
            return getattr(record, dataclasses.fields(record)[self._field].name)
        if self._field != 0:
            raise TypeError(
                f"field {self._field} of {record!r}: a single value has only field 0, itself"
            )
        return record

    def replaced(self, record: Any, value: Any) -> Any:
        """A copy of the record with another value in the field."""
        field = self._field
        if isinstance(record, Row):
            changed = copy.copy(record)
            changed[field] = value
            return changed
        if isinstance(record, tuple):
            if isinstance(field, str):
                return record._replace(**{field: value})  # type: ignore[attr-defined]
            parts = (*record[:field], value, *record[field + 1 :])
            return parts if type(record) is tuple else type(record)._make(parts)  # type: ignore[attr-defined]
        if isinstance(record, list | dict):
            container: Any = record.copy()
            container[field] = value
            return container
        if dataclasses.is_dataclass(record):
            name = field if isinstance(field, str) else dataclasses.fields(record)[field].name
            return dataclasses.replace(record, **{name: value})  # type: ignore[type-var]
        return value


def combining(aggregation: Aggregation, field: int | str) -> Combine:
    """How an aggregation that keeps a record combines it with another one."""
    get = FieldOf(field)
    match aggregation:
        case Aggregation.SUM:
            return _Sum(get)
        case Aggregation.MIN | Aggregation.MAX:
            return _Extreme(get, greatest=aggregation is Aggregation.MAX)
        case Aggregation.MIN_BY | Aggregation.MAX_BY:
            return _ExtremeBy(get, greatest=aggregation is Aggregation.MAX_BY)
        case Aggregation.COUNT:
            raise AssertionError("counts keep no record")


class _Sum:
    """None adds nothing; the sum is None until there is a value."""

    def __init__(self, field: FieldOf) -> None:
        self._field = field

    def __call__(self, result: Any, record: Any) -> Any:
        value, total = self._field(record), self._field(result)
        if value is None:
            return result
        return self._field.replaced(result, value if total is None else total + value)


class _Extreme:
    """The first record, with the best value so far."""

    def __init__(self, field: FieldOf, *, greatest: bool) -> None:
        self._field = field
        self._greatest = greatest

    def __call__(self, result: Any, record: Any) -> Any:
        value = self._field(record)
        if is_better(value, self._field(result), self._greatest):
            return self._field.replaced(result, value)
        return result


class _ExtremeBy:
    """The first record with the best value."""

    def __init__(self, field: FieldOf, *, greatest: bool) -> None:
        self._field = field
        self._greatest = greatest

    def __call__(self, result: Any, record: Any) -> Any:
        better = is_better(self._field(record), self._field(result), self._greatest)
        return record if better else result


def is_better(value: Any, best: Any, greatest: bool) -> bool:
    """Whether a value replaces the best one; None is the worst, NaN the greatest number."""
    if value is None or best is None:
        return value is not None and best is None
    if value != value or best != best:
        return bool((value != value) != (best != best) and (value != value) == greatest)
    return bool(value > best if greatest else value < best)
