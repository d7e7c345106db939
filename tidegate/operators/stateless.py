"""Map, filter, flat_map, process and project: one input, no state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from operator import itemgetter
from typing import Any

import numpy as np

from tidegate.core.errors import InternalError, MissingField, TidegateError
from tidegate.operators.base import Operator, OperatorContext, Output
from tidegate.operators.functions import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    ProcessFunction,
    bound_method,
)
from tidegate.operators.results import emit_outcome, emit_tagged_outcome
from tidegate.operators.unkeyed import UnkeyedContext
from tidegate.operators.user_code import (
    USER_FAILURES,
    FunctionOperator,
    Outcome,
    run_in_pieces,
)
from tidegate.stream.batch import Batch
from tidegate.stream.elements import Watermark
from tidegate.types.arrow import ArrowFormat
from tidegate.types.keeping import holds_nothing, keeps_nothing
from tidegate.types.privacy import shared
from tidegate.types.typeinfo import TupleTypeInfo


class MapOperator(FunctionOperator):
    """One result per record."""

    def __init__(
        self, function: MapFunction | Callable[[Any], Any], format: ArrowFormat | None = None
    ) -> None:
        super().__init__(function, format)
        bound_method(function, MapFunction, "map")

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self._map = bound_method(self.function, MapFunction, "map")
        self._keeps_nothing = keeps_nothing(self._map)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        emit_outcome(self.output, run_in_pieces(batch, self._run), self.format)

    def _run(self, batch: Batch) -> Outcome:
        records = batch.records
        is_safe = self._keeps_nothing and batch.is_inert and holds_nothing(self._map)
        return self.user_code.map_until_failure(
            self._map, records, batch.timestamps, is_safe=is_safe
        )


class PassOperator(Operator):
    """Passes records on unchanged."""

    def process(self, batch: Batch, input_index: int = 0) -> None:
        self.output.emit(batch)


class FilterOperator(FunctionOperator):
    """Keeps the records that match the predicate; columns stay columns."""

    def __init__(self, function: FilterFunction | Callable[[Any], bool]) -> None:
        super().__init__(function)
        bound_method(function, FilterFunction, "filter")

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self._keeps = bound_method(self.function, FilterFunction, "filter")
        self._keeps_nothing = keeps_nothing(self._keeps)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        records = batch.records
        is_safe = self._keeps_nothing and batch.is_inert and holds_nothing(self._keeps)
        if is_safe or self.user_code.private is shared or batch.never_changes:
            verdicts, failure = self.user_code.call_until_failure(self._keeps, records)
        else:
            verdicts, records, failure = self._judge(records)
        try:
            kept = list(compress(records, verdicts))
        except USER_FAILURES:
            failure = self._without_truth(records, verdicts)
            kept = list(compress(records, verdicts))
        if len(kept) == len(batch) and records is batch.records:
            self.output.emit(batch)
        elif kept:
            self.output.emit(self._select(batch, kept, verdicts))
        if failure is not None:
            raise failure

    def _judge(self, records: list[Any]) -> tuple[list[Any], list[Any], TidegateError | None]:
        """The verdicts, and the records as the predicate left them."""
        verdicts: list[Any] = []

        def judged(record: Any) -> Any:
            verdicts.append(self._keeps(record))
            return record

        results, _, failure, _ = self.user_code.map_until_failure(judged, records)
        return verdicts, results, failure

    def _without_truth(self, records: list[Any], verdicts: list[Any]) -> TidegateError:
        """The failure for a verdict without a truth value, like an array; truncates there."""
        for position, verdict in enumerate(verdicts):
            try:
                bool(verdict)
            except USER_FAILURES as error:
                del verdicts[position:]
                return self.user_code.failure(error, records[position], position)
        raise InternalError("the truth value of a verdict has changed")

    @staticmethod
    def _select(batch: Batch, kept: list[Any], verdicts: list[Any]) -> Batch:
        if not batch.is_columnar and batch.timestamps is None:
            return Batch(records=kept, format=batch.format, is_inert=batch.is_inert)
        indices = np.fromiter(compress(range(len(verdicts)), verdicts), np.int64, len(kept))
        return Batch(
            columns=batch.columns.take(indices) if batch.is_columnar else None,
            records=kept,
            format=batch.format,
            timestamps=None if batch.timestamps is None else batch.timestamps[indices],
            is_inert=batch.is_inert,
        )


class FlatMapOperator(FunctionOperator):
    """Any number of results per record."""

    def __init__(
        self, function: FlatMapFunction | Callable[[Any], Any], format: ArrowFormat | None = None
    ) -> None:
        super().__init__(function, format)
        bound_method(function, FlatMapFunction, "flat_map")

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self._flat_map = bound_method(self.function, FlatMapFunction, "flat_map")

    def process(self, batch: Batch, input_index: int = 0) -> None:
        emit_outcome(self.output, run_in_pieces(batch, self._run), self.format)

    def _run(self, batch: Batch) -> Outcome:
        return self.user_code.flat_map_until_failure(
            self._flat_map, batch.records, batch.timestamps
        )


class ProcessOperator(FunctionOperator):
    """A ProcessFunction without keys: side outputs, but neither state nor timers."""

    def __init__(
        self,
        function: ProcessFunction,
        format: ArrowFormat | None = None,
        side_formats: dict[str, ArrowFormat | None] | None = None,
    ) -> None:
        super().__init__(function, format)
        if not isinstance(function, ProcessFunction):
            raise TypeError(f"process() needs a ProcessFunction, got {function!r}")
        self.side_formats = side_formats if side_formats is not None else {}
        """May be filled until the graph is translated: tags are declared where they are read."""

    def open(self, context: OperatorContext, output: Output) -> None:
        self._context = UnkeyedContext(context.clock, context.watermark)
        super().open(context, output)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        outcome = run_in_pieces(batch, self._run)
        emit_tagged_outcome(self.output, outcome, self.format, self.side_formats)

    def _run(self, batch: Batch) -> Outcome:
        return self.user_code.process_until_failure(
            self.function.process_element, batch.records, self._context, batch.timestamps
        )

    def on_watermark(self, watermark: Watermark) -> None:
        self._context.watermark = watermark.timestamp
        super().on_watermark(watermark)


class ProjectOperator(Operator):
    """Some fields of tuples or rows, by position, in the given order."""

    def __init__(self, indices: Sequence[int], format: ArrowFormat | None = None) -> None:
        if not indices:
            raise ValueError("project() needs at least one field")
        self.indices = tuple(indices)
        self.format = format

    def process(self, batch: Batch, input_index: int = 0) -> None:
        format = self.format
        makes_tuples = format is None or isinstance(format.type_info, TupleTypeInfo)
        if format is not None and (batch.is_columnar or not makes_tuples):
            self.output.emit(self._select_columns(batch, format))
        else:
            self.output.emit(self._select_fields(batch))

    def _select_columns(self, batch: Batch, format: ArrowFormat) -> Batch:
        columns = batch.columns
        chosen = [columns.column(index) for index in self.indices]
        selected = type(columns).from_arrays(chosen, schema=format.schema)
        return Batch(columns=selected, format=format, timestamps=batch.timestamps)

    def _select_fields(self, batch: Batch) -> Batch:
        chosen = itemgetter(*self.indices)
        try:
            records = list(map(chosen, batch.records))
        except IndexError:
            shortest = min(batch.records, key=len)
            known = tuple(str(i) for i in range(len(shortest)))
            wrong = next(i for i in self.indices if i >= len(shortest))
            missing = MissingField(wrong, known, "project()")
            missing.suspects = range(len(batch))
            raise missing from None
        if len(self.indices) == 1:
            records = [(value,) for value in records]
        return Batch(records=records, format=self.format, timestamps=batch.timestamps)
