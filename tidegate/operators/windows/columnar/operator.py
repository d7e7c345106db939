"""Built-in aggregates over windows of typed streams: no Python object per record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from tidegate.core.errors import StateMisuse
from tidegate.operators.aggregations.accumulators import Accumulator, Accumulators, Columns
from tidegate.operators.base import Operator, OperatorContext, OperatorSnapshot, Output
from tidegate.operators.runtime_context import RuntimeContext
from tidegate.operators.windows.columnar.combining import PartialRows
from tidegate.operators.windows.columnar.session_table import SessionTable
from tidegate.operators.windows.columnar.slice_table import SliceTable
from tidegate.operators.windows.columnar.slicing import Slicing
from tidegate.operators.windows.columnar.table import Fired, Times, WindowTable
from tidegate.operators.windows.operator import LATE_RECORDS, WindowSettings
from tidegate.operators.windows.windows import without_window
from tidegate.state.backend import PayloadForm, StateMetadata
from tidegate.state.columnar.keyed_rows import FrozenRows, RowState, stored_rows
from tidegate.state.columnar.window_rows import WINDOW_END, WINDOW_START
from tidegate.state.columns import free_names
from tidegate.state.descriptors import ListStateDescriptor
from tidegate.state.keys.key_index import KeyIndex
from tidegate.stream.batch import Batch
from tidegate.stream.elements import FINAL_WATERMARK, NO_WATERMARK, Barrier, Watermark
from tidegate.types.arrow import ArrowFormat

_ROWS_AT_ONCE: Final = 1 << 16
_MANY_ROWS: Final = 1 << 12
_ROWS_PER_GROUP: Final = 1 << 6
"""Slices with more rows, also for each key group, are stored one by one: the metadata of a
checkpoint has an entry for each key group of each part."""
_TIMES: Final = "window-time"
"""The time up to which windows have fired, so that none fires again after a restore."""


@dataclass(frozen=True, slots=True)
class SlicedWindowing:
    """Windows of a size, one per slide, in milliseconds."""

    size: int
    slide: int
    offset: int

    def table(
        self, keys: KeyIndex, accumulators: Accumulators, lateness: int, now: int
    ) -> WindowTable:
        slicing = Slicing(self.size, self.slide, self.offset)
        return SliceTable(keys, accumulators, lateness, now, slicing)

    def __str__(self) -> str:
        return f"windows of {self.size} ms each {self.slide} ms from {self.offset} ms"


@dataclass(frozen=True, slots=True)
class SessionWindowing:
    """Windows that end after a gap of this many milliseconds."""

    gap: int

    def table(
        self, keys: KeyIndex, accumulators: Accumulators, lateness: int, now: int
    ) -> WindowTable:
        return SessionTable(keys, accumulators, lateness, now, self.gap)

    def __str__(self) -> str:
        return f"sessions with a gap of {self.gap} ms"


class WindowResults(NamedTuple):
    """Windows that have fired, with the values for their results."""

    keys: Columns
    values: list[Columns]
    """By accumulator."""
    starts: Times
    ends: Times


class ResultPlan(Protocol):
    """What is kept of windows, and how it becomes results. Picklable."""

    def accumulators(self) -> list[Accumulator]: ...

    def columns(self, results: WindowResults) -> Columns: ...


class ColumnarWindowOperator(Operator):
    """Aggregates of windows that fire once at their end, and again for late records."""

    def __init__(
        self,
        name: str,
        windowing: SlicedWindowing | SessionWindowing,
        key_columns: int | tuple[int, ...],
        format: ArrowFormat,
        plan: ResultPlan,
        output_format: ArrowFormat,
        settings: WindowSettings,
        side_formats: dict[str, ArrowFormat | None],
    ) -> None:
        self.name = name
        self.windowing = windowing
        self.is_tuple = isinstance(key_columns, tuple)
        self.key_columns = (key_columns,) if isinstance(key_columns, int) else key_columns
        self.format = format
        self.plan = plan
        self.output_format = output_format
        self.is_event_time = settings.assigner.is_event_time()
        self.lateness = settings.allowed_lateness if self.is_event_time else 0
        self.late_tag = settings.late_tag
        self.side_formats = side_formats
        self.partial: PartialRows | None = None
        """What arrives where records were added up before they travelled."""

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        kinds = [self.format.schema.field(place).type for place in self.key_columns]
        self._context = context
        self._accumulators = Accumulators(self.plan.accumulators())
        self._times = context.operator_state.get_union_list_state(ListStateDescriptor(_TIMES))
        # All subtasks have the same watermark at a barrier; never fire before the last of them.
        stored = min(self._times.get(), default=NO_WATERMARK)
        now = max(stored, context.watermark) if self.is_event_time else stored
        self._table = self.windowing.table(
            KeyIndex(kinds, is_tuple=self.is_tuple),
            self._accumulators,
            self.lateness,
            now,
        )
        of = f"{self.format.type_info}, keyed by {self.key_columns}"
        declaration = f"{self.name} in {self.windowing} over {of}"
        self._metadata = StateMetadata(self.name, declaration, PayloadForm.ARROW)
        self._late_records = RuntimeContext(context).get_metrics_group().counter(LATE_RECORDS)

    def keeps_state(self) -> bool:
        return True

    def process(self, batch: Batch, input_index: int = 0) -> None:
        if not len(batch):
            return
        if self.partial is not None:
            self._take_partial(batch, self.partial.width)
            return
        if self.is_event_time:
            times = batch.timestamps
            if (unfit := without_window(times)) is not None:
                place, reason = unfit
                self.process(batch.slice(0, place))
                failure = StateMisuse(reason)
                failure.suspects = range(place, place + 1)
                raise failure
            assert times is not None
        else:
            # The clock of another machine may be behind that before a restore.
            now = max(int(self._context.clock.time() * 1000), self._table.now + 1)
            times = np.full(len(batch), now, np.int64)
        columns = batch.columns.columns
        keys = [columns[place] for place in self.key_columns]
        added = self._table.add(keys, times, columns)
        if len(added.late):
            self._send_late(batch, added.late)
        self._emit(added.fired)
        self._table.clean_up()

    def _take_partial(self, batch: Batch, width: int) -> None:
        columns, times = batch.columns.columns, batch.timestamps
        assert times is not None
        values = self._accumulators.restored(columns[width + 1 :], len(batch))
        added = self._table.add(columns[:width], times, columns[:width], values)
        if len(added.late):
            self._late_records.inc(int(columns[width].to_numpy()[added.late].sum()))
        self._table.clean_up()

    def _send_late(self, batch: Batch, late: Any) -> None:
        if self.late_tag is None:
            self._late_records.inc(len(late))
            return
        found, format = batch.take(late), self.side_formats.get(self.late_tag)
        if format != found.format:
            found = Batch(records=found.records, format=format, timestamps=found.timestamps)
        self.output.emit_side(self.late_tag, found)

    def on_watermark(self, watermark: Watermark) -> None:
        if self.is_event_time or (watermark.is_final and self._context.is_batch):
            self._advance(watermark.timestamp)
        self.output.emit_watermark(watermark)

    def next_timer(self) -> float | None:
        if self.is_event_time:
            return None
        end = self._table.next_end()
        return None if end is None else end / 1000

    def fire_timers(self, now: float) -> None:
        if not self.is_event_time:
            self._advance(int(now * 1000) - 1)

    def _advance(self, now: int) -> None:
        self._emit(self._table.advance(now))
        self._table.clean_up()

    def _emit(self, fired: Iterable[Fired]) -> None:
        for some in _in_parts(fired):
            keys = self._table.key_columns(some.keys)
            results = self._accumulators.results(some.values)
            columns = self.plan.columns(WindowResults(keys, results, some.starts, some.ends))
            names = list(self.output_format.field_names)
            rows = pa.RecordBatch.from_arrays(columns, names=names)
            self.output.emit(
                Batch(columns=rows, format=self.output_format, timestamps=some.ends - 1)
            )

    def snapshot(self, barrier: Barrier) -> OperatorSnapshot:
        now = self._table.now
        self._times.update([now] if now < FINAL_WATERMARK else [])  # a restore may add input
        times = (WINDOW_START, WINDOW_END)
        aggregates = self._accumulators.stored_names
        names = (*times, *free_names(aggregates, len(self.key_columns), times))
        context = self._context
        many = max(_MANY_ROWS, _ROWS_PER_GROUP * len(context.key_groups))
        state = RowState(self._metadata, names, self._table.freeze(many))
        return OperatorSnapshot(
            keyed=FrozenRows([state], context.key_groups, context.max_parallelism, self._table.keys)
        )

    def restore(self, snapshots: list[OperatorSnapshot]) -> None:
        images = [found.keyed for found in snapshots if found.keyed is not None]
        context = self._context
        for _, rows in stored_rows(
            images, [self._metadata], context.key_groups, context.max_parallelism
        ):
            self._table.restore(rows)


def _in_parts(fired: Iterable[Fired]) -> Iterator[Fired]:
    """Combine many small firings into one."""
    held: list[Fired] = []
    count = 0
    for each in fired:
        if held and count + len(each.keys) > _ROWS_AT_ONCE:
            yield _joined(held)
            held, count = [], 0
        held.append(each)
        count += len(each.keys)
    if count:
        yield _joined(held)


def _joined(fired: list[Fired]) -> Fired:
    if len(fired) == 1:
        return fired[0]
    values = zip(*(each.values for each in fired), strict=True)
    return Fired(
        np.concatenate([each.keys for each in fired]),
        np.concatenate([each.starts for each in fired]),
        np.concatenate([each.ends for each in fired]),
        [np.concatenate(arrays) for arrays in values],
    )
