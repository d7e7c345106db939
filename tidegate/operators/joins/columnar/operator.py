"""Joins of typed streams by equal columns: no Python object per record."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegate.core.errors import GraphError
from tidegate.operators.base import Operator, OperatorContext, OperatorSnapshot, Output
from tidegate.operators.joins.columnar.buffer import (
    JoinBuffer,
    JoinRecords,
    Times,
)
from tidegate.operators.joins.selection import ColumnarSelection
from tidegate.operators.runtime_context import RuntimeContext
from tidegate.operators.user_code import UserCode
from tidegate.operators.windows.operator import LATE_RECORDS
from tidegate.state.backend import PayloadForm, StateMetadata
from tidegate.state.columnar.keyed_rows import FrozenRows, RowState, stored_rows
from tidegate.state.columns import free_names
from tidegate.state.keys.key_index import KeyIndex
from tidegate.state.keys.word_index import Places
from tidegate.stream.batch import Batch
from tidegate.stream.elements import Barrier, Watermark
from tidegate.types.arrow import ArrowFormat

_BUFFERS: Final = ("left-buffer", "right-buffer")
_TIME: Final = "timestamp"
_FEWEST_KEYS: Final = 1 << 10


class ColumnarJoin(Operator):
    """Keeps the selected fields of both streams while records can still join them."""

    def __init__(
        self,
        selection: ColumnarSelection,
        late_tags: tuple[str | None, str | None],
        side_formats: dict[str, ArrowFormat | None],
    ) -> None:
        self.selection = selection
        self.late_tags = late_tags
        self.side_formats = side_formats
        """May be filled until the graph is translated: tags are declared where they are read."""

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        selection = self.selection
        self._context = context
        self._late_records = RuntimeContext(context).get_metrics_group().counter(LATE_RECORDS)
        self._watermark = context.watermark
        self._fields = [selection.selected.columns(side) for side in (0, 1)]
        places = [_positions(columns) for columns in selection.key_columns]
        self._key_places = places
        kinds = [selection.formats[0].schema.field(place).type for place in places[0]]
        is_tuple = isinstance(selection.key_columns[0], tuple)
        self._index = KeyIndex(kinds, is_tuple=is_tuple)
        self._living_keys = 0
        """How many keys had records when they were last counted."""
        self._buffers = JoinBuffer(), JoinBuffer()
        self._states = [
            StateMetadata(
                name,
                f"fields {fields} of {format.type_info}, keyed by {keys}, for {self._kind()}",
                PayloadForm.ARROW,
            )
            for name, fields, format, keys in zip(
                _BUFFERS, self._fields, selection.formats, places, strict=True
            )
        ]

    @abstractmethod
    def _kind(self) -> str:
        """The kind of join, for the declaration of its state."""

    @abstractmethod
    def _unfit(self, times: Times | None) -> tuple[int, str] | None:
        """The position of the first record that cannot be joined at all, and the reason."""

    @abstractmethod
    def _sorted_out(self, times: Times) -> tuple[Places, Places | None]:
        """The records that are late, and those that can be joined; None: all of them."""

    @abstractmethod
    def _take(self, records: JoinRecords, side: int) -> None:
        """Add records that can be joined."""

    @abstractmethod
    def _needed_since(self, side: int) -> int:
        """Records of a side before this time can no longer be joined."""

    def keeps_state(self) -> bool:
        return True

    def process(self, batch: Batch, input_index: int = 0) -> None:
        if not len(batch):
            return
        times = batch.timestamps
        if (unfit := self._unfit(times)) is not None:
            place, reason = unfit
            self.process(batch.slice(0, place), input_index)
            failure = GraphError(reason)
            raise UserCode(self._context).failure(failure, batch.records[place], place)
        assert times is not None
        late, wanted = self._sorted_out(times)
        if len(late):
            self._send_late(batch.take(late), input_index)
        if wanted is not None:
            batch = batch.take(wanted)
        if len(batch):
            self._take(self._records_of(batch, input_index), input_index)

    def _send_late(self, late: Batch, side: int) -> None:
        tag = self.late_tags[side]
        if tag is None:
            self._late_records.inc(len(late))
            return
        format = self.side_formats.get(tag)
        if format != late.format:
            late = Batch(records=late.records, format=format, timestamps=late.timestamps)
        self.output.emit_side(tag, late)

    def _records_of(self, batch: Batch, side: int) -> JoinRecords:
        columns = self.selection.formats[side].conform(batch.columns).columns
        assert batch.timestamps is not None
        keys = self._index.find_or_add([columns[place] for place in self._key_places[side]])
        return JoinRecords(keys, batch.timestamps, [columns[place] for place in self._fields[side]])

    def _emit(self, sides: Sequence[Any], times: Times) -> None:
        """Emit pairs; each side has a function that returns the column of a field."""
        taken: dict[Any, pa.Array[Any]] = {}
        for field in self.selection.selected.fields.values():
            if field not in taken:
                place = self._fields[field.side].index(int(field.field))
                taken[field] = sides[field.side](place)
        columns = [taken[field] for field in self.selection.selected.fields.values()]
        format = self.selection.output_format
        rows = pa.RecordBatch.from_arrays(columns, schema=format.schema)
        self.output.emit(Batch(columns=rows, format=format, timestamps=times))

    def on_watermark(self, watermark: Watermark) -> None:
        self._advance(watermark.timestamp)
        self._watermark = watermark.timestamp
        for side, buffer in enumerate(self._buffers):
            buffer.forget(self._needed_since(side))
        self._forget_keys()
        self.output.emit_watermark(watermark)

    def _advance(self, watermark: int) -> None:
        """Prepare for event time to reach this watermark."""

    def _forget_keys(self) -> None:
        count = len(self._index)
        if count <= max(2 * self._living_keys, _FEWEST_KEYS):
            return
        occurring = np.flatnonzero(
            self._buffers[0].occurring(count) | self._buffers[1].occurring(count)
        )
        self._living_keys = len(occurring)
        if 2 * len(occurring) < count:
            new = np.full(count, -1, np.intp)
            self._index, new[occurring] = self._index.only(occurring)
            for buffer in self._buffers:
                buffer.renumber(new)

    def snapshot(self, barrier: Barrier) -> OperatorSnapshot:
        context = self._context
        states = [
            RowState(metadata, self._names(side), self._buffers[side].freeze(since))
            for side, metadata in enumerate(self._states)
            for since in [self._needed_since(side)]
        ]
        return OperatorSnapshot(
            keyed=FrozenRows(
                states, context.key_groups, context.max_parallelism, self._index.keys()
            )
        )

    def _names(self, side: int) -> list[str]:
        names = self.selection.formats[side].field_names
        fields = [names[place] for place in self._fields[side]]
        return [_TIME, *free_names(fields, self._index.width, (_TIME,))]

    def restore(self, snapshots: list[OperatorSnapshot]) -> None:
        images = [found.keyed for found in snapshots if found.keyed is not None]
        context = self._context
        for name, rows in stored_rows(
            images, self._states, context.key_groups, context.max_parallelism
        ):
            side, width = _BUFFERS.index(name), self._index.width
            keys = self._index.find_or_add(rows.columns[:width])
            times = rows.column(width).to_numpy()
            self._buffers[side].add(JoinRecords(keys, times, rows.columns[width + 1 :]))


def _positions(columns: int | tuple[int, ...]) -> tuple[int, ...]:
    return (columns,) if isinstance(columns, int) else columns
