"""map_batches: a function on whole batches, as Arrow, pandas or polars frames."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from tidegate.core.errors import GraphError, MissingField, TypeMismatch
from tidegate.operators.user_code import USER_FAILURES, FunctionOperator, Timestamps
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat
from tidegate.types.columns import is_list


class FrameKind(Enum):
    """The frames that the function receives."""

    ARROW = "arrow"
    PANDAS = "pandas"
    POLARS = "polars"

    @classmethod
    def of(cls, function: Callable[[Any], Any]) -> FrameKind:
        """The kind named by the annotation of the first parameter; Arrow by default."""
        try:
            parameter = next(iter(inspect.signature(function).parameters.values()))
            wanted = typing.get_type_hints(function).get(parameter.name, parameter.annotation)
        except (NameError, StopIteration, TypeError, ValueError):
            return cls.ARROW
        return {pd.DataFrame: cls.PANDAS, pl.DataFrame: cls.POLARS}.get(wanted, cls.ARROW)


class MapBatchesOperator(FunctionOperator):
    """Calls a function with a frame per batch; it returns a frame with any number of rows.

    It may return any kind of frame, an Arrow table, or None for no rows. The columns must be those
    of the declared output type, or of the input if none is declared.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        input_format: ArrowFormat | None,
        output_format: ArrowFormat | None = None,
        kind: FrameKind | None = None,
    ) -> None:
        if input_format is None:
            raise GraphError(
                "map_batches() needs columns, but the stream's records are pickled Python "
                "objects: declare the stream's type with output_type of the previous operator"
            )
        if not callable(function):
            raise TypeError(f"map_batches() needs a function, got {function!r}")
        super().__init__(function, output_format or input_format)
        self._is_declared = output_format is not None
        self._kind = kind or FrameKind.of(function)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        frame = batch.columns
        try:
            columns = self._columns(self.function(self._frame(frame)))
        except USER_FAILURES as error:
            raise self.user_code.failure_of_batch(error, len(batch)) from None
        if columns is not None and columns.num_rows:
            stamps = _timestamps(batch.timestamps, columns.num_rows)
            self.output.emit(Batch(columns=columns, format=self.format, timestamps=stamps))

    def _frame(self, columns: pa.RecordBatch) -> Any:
        match self._kind:
            case FrameKind.ARROW:
                return columns
            case FrameKind.PANDAS:
                return columns.to_pandas()
            case FrameKind.POLARS:
                return pl.from_arrow(columns)
            case _:
                typing.assert_never(self._kind)

    def _columns(self, returned: Any) -> pa.RecordBatch | None:
        if returned is None:
            return None
        assert self.format is not None
        try:
            return self.format.conform(_as_arrow(returned, self.format))
        except (MissingField, TypeMismatch) as misfit:
            if self._is_declared:
                raise
            raise GraphError(
                f"the function changed the columns ({misfit}): declare what it returns with "
                "output_type of map_batches()"
            ) from None


def _as_arrow(returned: Any, format: ArrowFormat) -> pa.RecordBatch:
    match returned:
        case pa.RecordBatch():
            return returned
        case pa.Table():
            return _one_batch(returned)
        case pl.DataFrame():
            return _one_batch(returned.to_arrow())
        case pd.DataFrame():
            return _of_pandas(returned, format)
        case _:
            raise TypeMismatch(
                str(format.type_info),
                returned,
                "map_batches() takes a RecordBatch, Table, pandas or polars DataFrame, or None",
            )


def _of_pandas(frame: pd.DataFrame, format: ArrowFormat) -> pa.RecordBatch:
    """The declared columns of a frame; `conform` converts them to the declared types."""
    for name in format.schema.names:
        if name not in frame.columns:
            raise MissingField(name, tuple(map(str, frame.columns)), "the pandas frame")
    try:
        columns = [_of_series(frame[field.name], field.type) for field in format.schema]
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise TypeMismatch(str(format.type_info), "<a pandas frame>", str(error)) from None
    return pa.RecordBatch.from_arrays(columns, names=format.schema.names)


def _of_series(series: Any, kind: pa.DataType) -> Any:
    """The series by its own type: Arrow would shorten values to make them fit another one."""
    try:
        column = pa.array(series, kind if _has_map(kind) else None, from_pandas=True)
    except (pa.ArrowException, OverflowError):  # objects of several types
        column = pa.array(series, kind, from_pandas=True)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _has_map(kind: Any) -> bool:
    """Whether there is a map in it: in pandas, it may be a dict or a list."""
    if pa.types.is_map(kind):
        return True
    if is_list(kind):
        return _has_map(kind.value_type)
    return pa.types.is_struct(kind) and any(_has_map(field.type) for field in kind)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    arrays = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def _timestamps(timestamps: Timestamps | None, rows: int) -> Timestamps | None:
    """Those of the records if the number of rows is the same; otherwise the latest one."""
    if timestamps is None or len(timestamps) == rows:
        return timestamps
    return np.full(rows, timestamps.max(), dtype=np.int64)
