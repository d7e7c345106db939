"""Pre-aggregation for windows: records are combined before they are sent to the window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegate.core.errors import StateMisuse
from tidegate.operators.aggregations.accumulators import Accumulators, Columns, Count
from tidegate.operators.aggregations.aggregates import AggregatePlan
from tidegate.operators.base import Operator, OperatorContext, Output
from tidegate.operators.windows.columnar.slice_table import SliceTable
from tidegate.operators.windows.columnar.slicing import Slicing
from tidegate.operators.windows.columnar.table import Times
from tidegate.operators.windows.windows import without_window
from tidegate.state.keys.key_index import KeyIndex
from tidegate.stream.batch import Batch
from tidegate.stream.elements import NO_WATERMARK
from tidegate.types.arrow import ArrowFormat, arrow_format
from tidegate.types.typeinfo import RowTypeInfo, TypeInformation, Types

_MOST_KEYS: Final = 1 << 18
"""With more keys, there is little to combine in a batch."""
_TRIAL: Final = 1 << 16
"""After how many records to decide whether combining pays off: one small batch says little."""
_FIRST_PAUSE: Final = 2 * _TRIAL
_LONGEST_PAUSE: Final = 64 * _TRIAL
"""After how many records to try again; each failed trial doubles the pause."""
_TYPES: Final = {"b": Types.BOOLEAN(), "i": Types.LONG(), "f": Types.DOUBLE()}
"""By the kind of an array's numbers."""


@dataclass(frozen=True, slots=True)
class PartialRows:
    """What is sent: the key, the number of records, and their aggregates. Times are slices."""

    plan: AggregatePlan

    @property
    def key_columns(self) -> int | tuple[int, ...]:
        return tuple(range(self.width)) if isinstance(self.plan.key_columns, tuple) else 0

    @property
    def width(self) -> int:
        """The number of columns of a key."""
        return len(self.plan.key_names)

    @property
    def type_info(self) -> TypeInformation:
        output = self.plan.output_type
        assert isinstance(output, RowTypeInfo)
        kept = [field.dtype for part in self.plan.accumulators() for field in part.fields]
        types = [*output.get_field_types()[: self.width], Types.LONG()]
        types += [_TYPES[np.dtype(dtype).kind] for dtype in kept]
        return RowTypeInfo(types, [f"f{place}" for place in range(len(types))])

    @property
    def format(self) -> ArrowFormat:
        found = arrow_format(self.type_info)
        assert found is not None
        return found


class WindowCombiner(Operator):
    """Combines the records of each batch by key and slice; keeps nothing between batches."""

    def __init__(self, slicing: Slicing, plan: AggregatePlan) -> None:
        self.slicing = slicing
        self.plan = plan
        self.rows = PartialRows(plan)

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        assert self.plan.format is not None and self.plan.key_columns is not None
        columns = self.plan.key_columns
        self._places = columns if isinstance(columns, tuple) else (columns,)
        self._kinds = [self.plan.format.schema.field(place).type for place in self._places]
        self._format = self.rows.format
        self._accumulators = Accumulators([Count("records", None), *self.plan.accumulators()])
        self._table = self._new_table()
        self._tried = self._sent = 0
        """The records of this trial, and the rows that they were combined into."""
        self._pause, self._paused = _FIRST_PAUSE, 0
        """The next pause, and for how many records nothing is combined."""

    def _new_table(self) -> SliceTable:
        keys = KeyIndex(self._kinds, is_tuple=isinstance(self.plan.key_columns, tuple))
        return SliceTable(keys, self._accumulators, 0, NO_WATERMARK, self.slicing)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        if not len(batch):
            return
        times = batch.timestamps
        if (unfit := without_window(times)) is not None:
            place, reason = unfit
            self.process(batch.slice(0, place))
            failure = StateMisuse(reason)
            failure.suspects = range(place, place + 1)
            raise failure
        assert times is not None
        self._accumulators.relax(lambda: ([], 0))  # nothing is kept from earlier batches
        columns = batch.columns.columns
        keys = [columns[place] for place in self._places]
        if self._paused > 0:
            self._paused -= len(batch)
            stored = self._accumulators.freeze()(self._accumulators.lift(columns))
            self._emit(keys, self.slicing.starts_of(times), stored)
            return
        self._table.add(keys, times, columns)
        rows = self._table.drain()
        self._emit(self._table.keys.take(rows.keys), rows.starts, rows.columns)
        self._tried += len(batch)
        self._sent += len(rows.keys)
        has_many_keys = len(self._table.keys) > _MOST_KEYS
        if has_many_keys:
            self._table = self._new_table()
        if has_many_keys or self._tried >= _TRIAL:
            if has_many_keys or 2 * self._sent > self._tried:
                self._paused = self._pause
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            else:
                self._pause = _FIRST_PAUSE
            self._tried = self._sent = 0

    def _emit(self, keys: list[pa.Array[Any]], starts: Times, stored: Columns) -> None:
        schema = self._format.schema
        columns = [
            column if column.type == kind else column.cast(kind)
            for column, kind in zip([*keys, *stored], schema.types, strict=True)
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        self.output.emit(Batch(columns=rows, format=self._format, timestamps=starts))
