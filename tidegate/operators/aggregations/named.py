"""Named aggregates on columns, with a result for each record; also used by windows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.operators.aggregations.aggregates import Aggregate, AggregateKind, AggregatePlan
from tidegate.operators.aggregations.columnar import (
    ColumnarAggregation,
    Columns,
    SumOverflow,
    magnitude,
)
from tidegate.operators.aggregations.running import (
    Segments,
    first_overflow,
    means,
    ranks_of,
    running_least,
    running_sum,
)
from tidegate.operators.base import OperatorSnapshot
from tidegate.state.columnar.backend import NumberColumn, StateColumn, ValueColumn
from tidegate.state.columns import free_names
from tidegate.state.keys.word_index import Places

_MOST: Final = np.iinfo(np.int64).max


class RunningPart(ABC):
    """The running value of one aggregate for every key."""

    columns: dict[str, StateColumn]

    @abstractmethod
    def results(self, field: pa.Array[Any] | None, segments: Segments, touched: Places) -> Any:
        """The result of each record; `touched` places had records before."""

    def on_loaded(self, places: Places) -> None:
        """The state of these places was loaded into memory."""


class RunningCount(RunningPart):
    """The number of records, or of values."""

    def __init__(self, name: str) -> None:
        self.counts = NumberColumn(np.int64)
        self.columns = {name: self.counts}

    def running(self, field: pa.Array[Any] | None, segments: Segments) -> npt.NDArray[np.int64]:
        ones: npt.NDArray[Any] = np.ones(segments.length, np.int64)
        if field is not None and field.null_count:
            ones = field.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
        return running_sum(segments, ones, self.counts.values)

    def results(self, field: pa.Array[Any] | None, segments: Segments, touched: Places) -> Any:
        return pa.array(self.running(field, segments))


class RunningTotal(RunningPart):
    """The sum of the values, or their mean."""

    def __init__(self, name: str, kind: pa.DataType, *, is_mean: bool) -> None:
        self._is_float = pa.types.is_floating(kind)
        self._is_mean = is_mean
        # -0.0 is neutral for addition, even for the sign of a zero.
        self._nothing = -0.0 if self._is_float else 0
        self._sums = NumberColumn(np.float64 if self._is_float else np.int64, self._nothing)
        self._count = RunningCount(f"{name} count")
        self._name = name
        self.columns = {name: self._sums, **self._count.columns}
        self._reach = 0

    def on_loaded(self, places: Places) -> None:
        if not self._is_float:
            self._reach = max(self._reach, magnitude(self._sums.values[places]))

    def results(self, field: pa.Array[Any] | None, segments: Segments, touched: Places) -> Any:
        assert field is not None
        filled = field.fill_null(self._nothing) if field.null_count else field
        values = filled.to_numpy(zero_copy_only=False)
        if not self._is_float:
            values = values.astype(np.int64, copy=False)
            self._reach += magnitude(values) * len(values)
        running = running_sum(segments, values, self._sums.values)
        counts = self._count.running(field, segments)
        absent = counts == 0 if field.null_count or not counts.all() else None
        results = means(running, counts) if self._is_mean else running
        column = pa.array(results, mask=absent)
        if self._reach > _MOST:
            self._reach = magnitude(self._sums.values)
            row = first_overflow(running, values)
            if row is not None:
                raise SumOverflow([column.slice(0, row)], row, _OUT_OF_RANGE.format(self._name))
        return column


_OUT_OF_RANGE: Final = (
    "the sum {!r} exceeds the range of 64-bit integers: declare the field as Types.BIG_INT()"
)


class RunningExtreme(RunningPart):
    """The smallest or greatest value."""

    def __init__(self, name: str, kind: pa.DataType, *, greatest: bool) -> None:
        self._best = ValueColumn(kind)
        self._greatest = greatest
        self.columns = {name: self._best}

    def results(self, field: pa.Array[Any] | None, segments: Segments, touched: Places) -> Any:
        assert field is not None
        # The previous value of each key takes part as if it were a record before all others.
        if len(touched):
            field = pa.concat_arrays([self._best.take(touched), field])
        ranks = ranks_of(field, len(segments.places), descending=self._greatest)
        winners = running_least(segments, ranks)
        last = segments.ordered(winners).take(segments.ends)
        beaten = last >= len(touched)
        self._best.put(segments.places[beaten], field.take(last[beaten]))
        return field.take(winners[len(touched) :])


class RunningAggregates(ColumnarAggregation):
    """Keeps the aggregates of each key and emits them for each record."""

    def __init__(self, plan: AggregatePlan) -> None:
        assert plan.key_columns is not None and plan.format is not None
        named = ", ".join(f"{name} {each.kind.value}" for name, each in plan.aggregates.items())
        super().__init__(f"aggregates {named}", plan.key_columns, plan.format, plan.output_format)
        self.plan = plan

    def state_columns(self) -> dict[str, StateColumn]:
        self._parts = [
            (self._position(aggregate), self._part(name, aggregate))
            for name, aggregate in self.plan.aggregates.items()
        ]
        columns = [each for _, part in self._parts for each in part.columns.items()]
        # One aggregate may have the name that another one gives its count.
        names = free_names((name for name, _ in columns), 0)
        return dict(zip(names, (column for _, column in columns), strict=True))

    def _position(self, aggregate: Aggregate) -> int | None:
        return None if aggregate.field is None else self.format.column_of(aggregate.field)

    def _part(self, name: str, aggregate: Aggregate) -> RunningPart:
        if aggregate.kind is AggregateKind.COUNT:
            return RunningCount(name)
        position = self._position(aggregate)
        assert position is not None
        kind = self.format.schema.field(position).type
        if aggregate.kind in (AggregateKind.SUM, AggregateKind.AVG):
            return RunningTotal(name, kind, is_mean=aggregate.kind is AggregateKind.AVG)
        return RunningExtreme(name, kind, greatest=aggregate.kind is AggregateKind.MAX)

    def restore(self, snapshots: list[OperatorSnapshot]) -> None:
        super().restore(snapshots)
        self.on_loaded(np.arange(len(self.state)))

    def on_loaded(self, places: Places) -> None:
        for _, part in self._parts:
            part.on_loaded(places)

    def results(self, columns: Columns, places: Places, new: Places) -> Columns:
        segments = Segments(places, len(self.state))
        is_known = np.zeros(len(self.state), np.bool_)
        is_known[places] = True
        is_known[new] = False
        touched = np.flatnonzero(is_known)
        contended = segments
        if len(touched) and any(isinstance(part, RunningExtreme) for _, part in self._parts):
            contended = Segments(np.concatenate([touched, places]), len(self.state))
        results = [self.plain(columns, position) for position in self.key_columns]
        first: SumOverflow | None = None
        for position, part in self._parts:
            field = None if position is None else self.plain(columns, position)
            own = contended if isinstance(part, RunningExtreme) else segments
            try:
                results.append(part.results(field, own, touched))
            except SumOverflow as overflow:
                results += overflow.results
                if first is None or overflow.row < first.row:
                    first = overflow
        if first is not None:
            rows = [column.slice(0, first.row) for column in results]
            raise SumOverflow(rows, first.row, first.reason)
        return results
