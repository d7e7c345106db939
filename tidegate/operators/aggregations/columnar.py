"""Aggregations of typed streams on whole columns: no Python object per record."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.core.errors import TypeMismatch
from tidegate.operators.aggregations.running import (
    Segments,
    first_infinite,
    first_overflow,
    ranks_of,
    running_least,
    running_sum,
)
from tidegate.operators.base import Operator, OperatorContext, OperatorSnapshot, Output
from tidegate.state.backends import create_columnar_state
from tidegate.state.columnar.backend import ColumnarState, NumberColumn, StateColumn, ValueColumn
from tidegate.state.keys.key_index import KeyIndex
from tidegate.state.keys.word_index import Places
from tidegate.stream.batch import Batch
from tidegate.stream.elements import Barrier
from tidegate.types.arrow import ArrowFormat

Columns: TypeAlias = "list[pa.Array[Any]]"


class ColumnarAggregation(Operator):
    """Keeps one row of state for each key and emits one result for each record."""

    state: ColumnarState
    """Set when the operator is open."""

    def __init__(
        self,
        name: str,
        key_columns: int | tuple[int, ...],
        format: ArrowFormat,
        output_format: ArrowFormat | None = None,
    ) -> None:
        self.name = name
        self.is_tuple = isinstance(key_columns, tuple)
        self.key_columns = (key_columns,) if isinstance(key_columns, int) else key_columns
        self.format = format
        self.output_format = output_format or format

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self._columns = self.state_columns()
        self.state = create_columnar_state(
            context.settings,
            self.name,
            f"{self.name} over {self.format.type_info}, keyed by {self.key_columns}",
            KeyIndex(
                [self.format.schema.field(position).type for position in self.key_columns],
                is_tuple=self.is_tuple,
            ),
            self._columns,
            context.key_groups,
            context.max_parallelism,
            context.directory,
        )

    def keeps_state(self) -> bool:
        return True

    @abstractmethod
    def state_columns(self) -> dict[str, StateColumn]:
        """Empty columns for the state of every key."""

    @abstractmethod
    def results(self, columns: Columns, places: Places, new: Places) -> Columns:
        """The result columns, a row for each record; `new` places had no record before."""

    def on_loaded(self, places: Places) -> None:
        """The state of these places was loaded into memory."""

    def process(self, batch: Batch, input_index: int = 0) -> None:
        if not len(batch):
            return
        columns = batch.columns
        places = self.state.places_of([columns.column(position) for position in self.key_columns])
        if len(self.state.loaded):
            self.on_loaded(self.state.loaded)
        try:
            results = self.results(columns.columns, places, self.state.new)
        except SumOverflow as overflow:
            self._emit(overflow.results, batch)
            raise TypeMismatch(
                str(self.format.type_info), batch.records[overflow.row], overflow.reason
            ) from None
        self._emit(results, batch)
        self.state.clean_up()

    def _emit(self, results: Columns, batch: Batch) -> None:
        rows = len(results[0])
        if rows:
            names = list(self.output_format.field_names)
            columns = pa.RecordBatch.from_arrays(results, names=names)
            stamps = None if batch.timestamps is None else batch.timestamps[:rows]
            self.output.emit(Batch(columns=columns, format=self.output_format, timestamps=stamps))

    def snapshot(self, barrier: Barrier) -> OperatorSnapshot:
        return OperatorSnapshot(keyed=self.state.freeze())

    def restore(self, snapshots: list[OperatorSnapshot]) -> None:
        self.state.restore(found.keyed for found in snapshots if found.keyed is not None)

    def close(self) -> None:
        self.state.close()

    def plain(self, columns: Columns, position: int) -> pa.Array[Any]:
        """A column as its declared type; batches may hold it in another encoding."""
        column, kind = columns[position], self.format.schema.field(position).type
        return column if column.type == kind else column.cast(kind)


class SumOverflow(Exception):
    """A sum left the range of its type: the results before it, its row, and what happened."""

    def __init__(self, results: Columns, row: int, reason: str) -> None:
        super().__init__(results, row, reason)
        self.results = results
        self.row = row
        self.reason = reason


class FirstFields:
    """The fields that are neither key nor aggregated: each key keeps those of its first record."""

    def __init__(self, operator: ColumnarAggregation, aggregated: int) -> None:
        schema = operator.format.schema
        positions = first_places(schema, operator.key_columns, aggregated)
        self._operator = operator
        self._columns = {
            position: ValueColumn(schema.field(position).type) for position in positions
        }

    def state_columns(self) -> dict[str, StateColumn]:
        return {f"first{position}": column for position, column in self._columns.items()}

    def replace(self, columns: Columns, places: Places, new: Places) -> Columns:
        """The columns with these fields as each key saw them first."""
        if not self._columns:
            return list(columns)
        first_rows = first_occurrences(places, new)
        replaced = list(columns)
        for position, column in self._columns.items():
            values = self._operator.plain(columns, position)
            if len(new):
                column.put(new, values.take(first_rows))
            replaced[position] = column.take(places)
        return replaced


def first_places(schema: pa.Schema, key_columns: Sequence[int], aggregated: int) -> list[int]:
    """The fields that are neither key nor aggregated."""
    return [
        position
        for position in range(len(schema))
        # Equal keys look alike, except for the two zeros of floats.
        if position != aggregated
        and (position not in key_columns or pa.types.is_floating(schema.field(position).type))
    ]


def first_occurrences(places: Places, new: Places) -> Places:
    """The row in which each of some places, in ascending order, occurs first."""
    if not len(new):
        return new
    least = int(new[0])
    rows = np.flatnonzero(places >= least)
    later = places[rows] - least
    first = np.empty(int(later.max()) + 1, np.intp)
    # The last write wins, so write in reverse order.
    first[later[::-1]] = rows[::-1]
    return first[new - least]


class SumAggregation(ColumnarAggregation):
    """The running sum of a field; null adds nothing, and the sum is null until there is a value."""

    def __init__(self, key_columns: int | tuple[int, ...], field: int, format: ArrowFormat) -> None:
        super().__init__(f"sum of field {field}", key_columns, format)
        self.field = field

    def state_columns(self) -> dict[str, StateColumn]:
        kind = self.format.schema.field(self.field).type
        self._is_float = pa.types.is_floating(kind)
        self._dtype = kind.to_pandas_dtype()
        # -0.0 is neutral for addition, even for the sign of a zero.
        self._nothing = -0.0 if self._is_float else 0
        self._sums = NumberColumn(np.float64 if self._is_float else np.int64, self._nothing)
        self._seen = NumberColumn(np.bool_)
        self._firsts = FirstFields(self, self.field)
        self._reach = 0
        return {"sum": self._sums, "seen": self._seen, **self._firsts.state_columns()}

    def restore(self, snapshots: list[OperatorSnapshot]) -> None:
        super().restore(snapshots)
        self.on_loaded(np.arange(len(self.state)))

    def on_loaded(self, places: Places) -> None:
        if not self._is_float:
            self._reach = max(self._reach, magnitude(self._sums.values[places]))

    def results(self, columns: Columns, places: Places, new: Places) -> Columns:
        results = self._firsts.replace(columns, places, new)
        field = self.plain(columns, self.field)
        values = (field.fill_null(self._nothing) if field.null_count else field).to_numpy()
        segments = Segments(places, len(self.state))
        running = running_sum(segments, values, self._sums.values)
        absent = self._absent(segments, field, places)
        with np.errstate(over="ignore"):
            shown = running.astype(self._dtype, copy=False)
        if self._is_float:
            bad = first_infinite(shown, running)
        else:
            bad = self._first_unfit(running, values)
        results[self.field] = pa.array(shown, mask=absent)
        if bad is not None:
            raise self._overflow(results, bad, values[bad].item())
        return results

    def _absent(
        self, segments: Segments, field: pa.Array[Any], places: Places
    ) -> npt.NDArray[np.bool_] | None:
        """Where the result is null; None if nowhere."""
        if not field.null_count:
            self._seen.values[segments.places] = True
            return None
        seen = self._seen.values[segments.places].astype(np.int64)
        present = np.zeros(len(self.state), np.int64)
        present[segments.places] = seen
        counts = running_sum(segments, field.is_valid().to_numpy(zero_copy_only=False), present)
        self._seen.values[segments.places] = present[segments.places] > 0
        return np.equal(counts, 0)

    def _first_unfit(self, running: npt.NDArray[Any], values: npt.NDArray[Any]) -> int | None:
        """The first record whose sum is outside the range of the field's type."""
        bounds = np.iinfo(self._dtype)
        self._reach += magnitude(values) * len(values)
        if self._reach <= bounds.max:
            return None
        self._reach = magnitude(self._sums.values)
        if bounds.bits == 64:
            return first_overflow(running, values)
        outside = (running < bounds.min) | (running > bounds.max)
        return int(outside.argmax()) if outside.any() else None

    def _overflow(self, results: Columns, row: int, value: float) -> SumOverflow:
        name = self.format.field_names[self.field]
        kind = self.format.schema.field(self.field).type
        keys = [results[position][row].as_py() for position in self.key_columns]
        shown = tuple(keys) if self.is_tuple else keys[0]
        wider = "Types.DOUBLE()" if self._is_float else "Types.LONG()"
        advice = wider if kind.bit_width < 64 else "Types.BIG_INT()"
        return SumOverflow(
            [column.slice(0, row) for column in results],
            row,
            f"adding {value} to the sum of field {name!r} of key {shown!r} exceeds the range "
            f"of {kind}: declare the field as {advice}",
        )


class CountAggregation(ColumnarAggregation):
    """The number of records of each key; with a field, of those in which it is not null."""

    def __init__(
        self,
        key_columns: int | tuple[int, ...],
        field: int | None,
        format: ArrowFormat,
        output_format: ArrowFormat,
    ) -> None:
        counted = "records" if field is None else f"field {field}"
        super().__init__(f"count of {counted}", key_columns, format, output_format)
        self.field = field

    def state_columns(self) -> dict[str, StateColumn]:
        self._counts = NumberColumn(np.int64)
        return {"count": self._counts}

    def results(self, columns: Columns, places: Places, new: Places) -> Columns:
        ones: npt.NDArray[Any] = np.ones(len(places), np.int64)
        if self.field is not None and columns[self.field].null_count:
            ones = columns[self.field].is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
        counts = running_sum(Segments(places, len(self.state)), ones, self._counts.values)
        return [self._key(columns), pa.array(counts)]

    def _key(self, columns: Columns) -> pa.Array[Any]:
        parts = [self.plain(columns, position) for position in self.key_columns]
        kind = self.output_format.schema.field(0).type
        if not pa.types.is_struct(kind):
            return parts[0]
        return pa.StructArray.from_arrays(parts, fields=list(kind))


class ExtremeAggregation(ColumnarAggregation):
    """The smallest or greatest value of a field, or the record with it.

    The first among equals wins. Null is worse than any value; NaN is the greatest number.
    """

    def __init__(
        self,
        key_columns: int | tuple[int, ...],
        field: int,
        format: ArrowFormat,
        *,
        greatest: bool,
        whole_record: bool,
    ) -> None:
        name = f"{'max' if greatest else 'min'}{'_by' if whole_record else ''} of field {field}"
        super().__init__(name, key_columns, format)
        self.field = field
        self.greatest = greatest
        self.whole_record = whole_record

    def state_columns(self) -> dict[str, StateColumn]:
        positions = range(len(self.format.schema)) if self.whole_record else (self.field,)
        schema = self.format.schema
        self._best = {position: ValueColumn(schema.field(position).type) for position in positions}
        self._firsts = None if self.whole_record else FirstFields(self, self.field)
        best: dict[str, StateColumn] = {f"best{p}": column for p, column in self._best.items()}
        return best if self._firsts is None else {**best, **self._firsts.state_columns()}

    def results(self, columns: Columns, places: Places, new: Places) -> Columns:
        results = list(columns)
        if self._firsts is not None:
            results = self._firsts.replace(columns, places, new)
        touched = np.zeros(len(self.state), np.bool_)
        touched[places] = True
        touched[new] = False
        earlier = np.flatnonzero(touched)
        # The previous value of each key takes part as if it were a record before all others.
        contenders = {
            position: self._contenders(columns, position, earlier) for position in self._best
        }
        segments = Segments(np.concatenate([earlier, places]), len(self.state))
        ranks = ranks_of(contenders[self.field], len(segments.places), descending=self.greatest)
        winners = running_least(segments, ranks)
        for position, values in contenders.items():
            results[position] = values.take(winners[len(earlier) :])
        self._keep(segments, contenders, winners, len(earlier))
        return results

    def _contenders(self, columns: Columns, position: int, earlier: Places) -> pa.Array[Any]:
        values = self.plain(columns, position)
        if not len(earlier):
            return values
        return pa.concat_arrays([self._best[position].take(earlier), values])

    def _keep(
        self,
        segments: Segments,
        contenders: dict[int, pa.Array[Any]],
        winners: Places,
        earlier: int,
    ) -> None:
        """Store the new winners of the batch."""
        last = segments.ordered(winners).take(segments.ends)
        beaten = last >= earlier
        for position, values in contenders.items():
            self._best[position].put(segments.places[beaten], values.take(last[beaten]))


def magnitude(values: npt.NDArray[Any]) -> int:
    """The largest absolute value."""
    return max(-int(values.min(initial=0)), int(values.max(initial=0)))
