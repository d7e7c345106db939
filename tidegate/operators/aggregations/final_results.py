"""Aggregations in batch mode: only the last result of each key is emitted."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.core.ids import CheckpointId
from tidegate.operators.base import Operator, OperatorContext, OperatorSnapshot, Output
from tidegate.state.keys.key_bytes import with_one_nan
from tidegate.state.keys.selection import KeySelection
from tidegate.state.keys.stable_hash import without_lists
from tidegate.stream.batch import Batch
from tidegate.stream.elements import Barrier, Watermark, WatermarkStatus


class Aggregating(Operator):
    """An aggregation with one result per record, and the results that the runtime mode emits.

    Streaming mode emits all of them. Batch mode emits the last result of each key at the end of the
    input; it takes no checkpoints, so the held-back results are not state.
    """

    def __init__(self, aggregation: Operator, key: KeySelection) -> None:
        self.aggregation = aggregation
        self.key = key

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self._last: dict[Any, Any] = {}
        self._results = _Results(output) if context.is_batch else None
        self.aggregation.open(context, self._results or output)

    def keeps_state(self) -> bool:
        return self.aggregation.keeps_state()

    def process(self, batch: Batch, input_index: int = 0) -> None:
        try:
            self.aggregation.process(batch, input_index)
        finally:
            first = 0
            for results in [] if self._results is None else self._results.take():
                self._keep(batch.slice(first, first + len(results)), results)
                first += len(results)

    def _keep(self, batch: Batch, results: Batch) -> None:
        """Keep the last results; there is one for each record, in order, up to a failure."""
        positions = {
            with_one_nan(without_lists(key)): position
            for position, key in enumerate(self.key.values(batch))
        }
        kept = results.take(np.fromiter(positions.values(), np.intp, len(positions)))
        self._last.update(zip(positions, kept.records, strict=True))
        self._format = results.format

    def finish(self, input_index: int = 0) -> None:
        self.aggregation.finish(input_index)
        self._emit_last()

    def _emit_last(self) -> None:
        if self._last:
            self.output.emit(Batch.of_records(list(self._last.values()), self._format))
            self._last = {}

    def on_watermark(self, watermark: Watermark) -> None:
        if watermark.is_final:
            self._emit_last()  # before the watermark, after which every record is late
        self.aggregation.on_watermark(watermark)

    def on_watermark_status(self, status: WatermarkStatus) -> None:
        self.aggregation.on_watermark_status(status)

    def next_timer(self) -> float | None:
        return self.aggregation.next_timer()

    def fire_timers(self, now: float) -> None:
        self.aggregation.fire_timers(now)

    def flush(self) -> None:
        self.aggregation.flush()

    def snapshot(self, barrier: Barrier) -> OperatorSnapshot | None:
        return self.aggregation.snapshot(barrier)

    def restore(self, snapshots: list[OperatorSnapshot]) -> None:
        self.aggregation.restore(snapshots)

    def notify_complete(self, checkpoint_id: CheckpointId) -> None:
        self.aggregation.notify_complete(checkpoint_id)

    def notify_aborted(self, checkpoint_id: CheckpointId) -> None:
        self.aggregation.notify_aborted(checkpoint_id)

    def close(self) -> None:
        self.aggregation.close()


class _Results:
    """Holds what the aggregation emits until it is taken."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._batches: list[Batch] = []

    def emit(self, batch: Batch) -> None:
        self._batches.append(batch)

    def emit_side(self, tag: str, batch: Batch) -> None:
        self._output.emit_side(tag, batch)

    def emit_watermark(self, watermark: Watermark) -> None:
        self._output.emit_watermark(watermark)

    def emit_watermark_status(self, status: WatermarkStatus) -> None:
        self._output.emit_watermark_status(status)

    def take(self) -> list[Batch]:
        batches, self._batches = self._batches, []
        return batches
