"""Drives one operator by hand: no Spark, no threads, a clock that the test moves."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import cloudpickle
import numpy as np

from tidegate.core.clock import ManualClock
from tidegate.core.ids import Attempt, CheckpointId, EdgeId, OperatorId, SubtaskIndex
from tidegate.core.permit import Permit
from tidegate.core.poison import PoisonOrders
from tidegate.operators.base import Operator, OperatorContext, OperatorSnapshot
from tidegate.operators.endpoints.operators import SinkOperator, SliceReport, SourceOperator
from tidegate.operators.keyed import KeyedProcessOperator
from tidegate.operators.poison import guarded
from tidegate.operators.stateless import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    ProcessOperator,
)
from tidegate.protocol.packet import Channel
from tidegate.protocol.watermark_valve import SubtaskTime
from tidegate.state.keys.key_groups import default_max_parallelism, range_of
from tidegate.state.keys.selection import select_key
from tidegate.state.operator_state import FrozenOperatorState, OperatorStateStore
from tidegate.state.pointers import TimeHandle
from tidegate.state.redistribution import put_together, share_of
from tidegate.stream.batch import Batch
from tidegate.stream.elements import (
    NO_WATERMARK,
    Barrier,
    BarrierKind,
    SnapshotRequest,
    Watermark,
    WatermarkStatus,
)
from tidegate.types.arrow import ArrowFormat, arrow_format
from tidegate.types.typeinfo import TypeInformation

__all__ = [
    "FilterOperator",
    "FlatMapOperator",
    "HarnessSnapshot",
    "KeyedProcessOperator",
    "ManualClock",
    "MapOperator",
    "OperatorHarness",
    "ProcessOperator",
    "SinkOperator",
    "SourceOperator",
    "select_key",
]


@dataclass(frozen=True, slots=True)
class HarnessSnapshot(OperatorSnapshot):
    """The state of one subtask of an operator in a checkpoint."""

    operator_states: tuple[FrozenOperatorState, ...] = ()
    received: int = NO_WATERMARK
    """The last watermark that the operator received."""
    emitted: int = NO_WATERMARK
    """The last watermark that it emitted."""


class OperatorHarness:
    """One subtask of an operator, and what it emitted.

        with OperatorHarness(MapOperator(lambda x: x + 1)) as harness:
            harness.process([1, 2])
            assert harness.output == [2, 3]

    Test a function with state by resuming from a snapshot:

        snapshot = harness.snapshot()
        with harness.restore(snapshot) as restored:
            restored.process([3])

    `watermark` advances event time, and `advance` the clock; nothing waits. An operator on two
    streams has two `inputs`; its event time is the lower of both.

    `has_lease` may change at any time. Without a lease, another process may act for the subtask:
    nothing external may then be committed, aborted or deleted (`OperatorContext.permit`).

    The operator is copied by pickling, as if sent to a slot, unless `copy` is false. Not simulated:
    channels, alignment, the conversion of shipped records.
    """

    def __init__(
        self,
        operator: Operator,
        *,
        parallelism: int = 1,
        subtask: int = 0,
        max_parallelism: int | None = None,
        name: str = "Tested",
        uid: str | None = None,
        job_id: str = "harness",
        settings: Mapping[str, Any] | None = None,
        clock: ManualClock | None = None,
        attempt: int = 1,
        is_checkpointed: bool = True,
        poison: PoisonOrders | None = None,
        restore_from: Sequence[HarnessSnapshot] = (),
        has_lease: bool = True,
        copy: bool = True,
        inputs: int = 1,
    ) -> None:
        self.has_lease = has_lease
        channels = {Channel(EdgeId(i), SubtaskIndex(0)): i for i in range(inputs)}
        self._channels = list(channels)
        self._time = SubtaskTime(channels)
        received = min((found.received for found in restore_from), default=NO_WATERMARK)
        self._emitted = min((found.emitted for found in restore_from), default=NO_WATERMARK)
        self._time.resume(
            TimeHandle(received=received, inputs=tuple((i, received) for i in range(inputs)))
        )
        self._given = operator
        self.operator: Operator = pickle.loads(cloudpickle.dumps(operator)) if copy else operator
        self.clock = clock or ManualClock()
        self.batches: list[Batch] = []
        """The emitted batches."""
        self.side_batches: dict[str, list[Batch]] = {}
        self.watermarks: list[Watermark] = []
        self.statuses: list[WatermarkStatus] = []
        self.console: list[str] = []
        self.delivered: dict[str, list[Any]] = {}
        self.wakes = 0
        """How often the operator, or the reader of a source, has called `wake`."""
        self._checkpoints = 0
        total = max_parallelism or default_max_parallelism(parallelism)
        self.context = OperatorContext(
            name=name,
            operator_id=OperatorId(uid or name),
            uid=uid,
            subtask=SubtaskIndex(subtask),
            parallelism=parallelism,
            max_parallelism=total,
            key_groups=range_of(subtask, parallelism, total),
            attempt=Attempt(attempt),
            job_name="harness",
            job_id=job_id,
            is_checkpointed=is_checkpointed,
            settings=settings or {},
            clock=self.clock,
            console=self._print,
            deliver=self._deliver,
            operator_state=OperatorStateStore(),
            watermark=received,
            emitted_watermark=self._emitted,
            poison=poison,
            permit=Permit(lambda: self.has_lease),
            wake=self._wake,
        )
        if restore_from:
            stored = [found.operator_states for found in restore_from]
            facts = [[state.facts for state in states] for states in stored]
            share = share_of(subtask, parallelism, facts)
            self.context.operator_state.restore(put_together(share, stored.__getitem__))
        self.operator.open(self.context, self)
        if restore_from:
            is_rescaled = len(restore_from) != parallelism
            self.operator.restore(
                [
                    found if i == subtask and not is_rescaled else replace(found, generator=None)
                    for i, found in enumerate(restore_from)
                ]
            )

    def emit(self, batch: Batch) -> None:
        self.batches.append(batch)

    def emit_side(self, tag: str, batch: Batch) -> None:
        self.side_batches.setdefault(tag, []).append(batch)

    def emit_watermark(self, watermark: Watermark) -> None:
        self._emitted = watermark.timestamp
        self.watermarks.append(watermark)

    def emit_watermark_status(self, status: WatermarkStatus) -> None:
        self.statuses.append(status)

    @property
    def output(self) -> list[Any]:
        """All records of the main output so far."""
        return [record for batch in self.batches for record in batch.records]

    @property
    def timed_output(self) -> list[tuple[Any, int | None]]:
        """All records of the main output so far, each with its timestamp."""
        return [
            (record, stamp)
            for batch in self.batches
            for record, stamp in zip(
                batch.records,
                [None] * len(batch) if batch.timestamps is None else batch.timestamps.tolist(),
                strict=True,
            )
        ]

    def side_output(self, tag: str) -> list[Any]:
        return [record for batch in self.side_batches.get(tag, ()) for record in batch.records]

    def take_output(self) -> list[Any]:
        """The records of the main output since the last call."""
        records = self.output
        self.batches.clear()
        return records

    def process(
        self,
        records: Sequence[Any],
        *,
        input_index: int = 0,
        type_info: TypeInformation | None = None,
        timestamps: Sequence[int] | None = None,
    ) -> None:
        """Process records with their timestamps; with a type they arrive as columns."""
        format = None if type_info is None else arrow_format(type_info)
        batch = as_batch(records, format)
        if timestamps is not None:
            batch = batch.stamped(np.array(timestamps, np.int64))
        self.process_batch(batch, input_index)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        guarded(self.operator.process, self.context, self)(batch, input_index)

    def watermark(self, timestamp: int, input_index: int = 0) -> None:
        """Advance event time on an input; the operator gets the lowest of all inputs."""
        channel = self._channels[input_index]
        self._tell_time(self._time.advance(channel, Watermark(timestamp)))

    def watermark_status(self, status: WatermarkStatus, input_index: int = 0) -> None:
        """Make an input idle, or active again."""
        self._tell_time(self._time.change(self._channels[input_index], status))

    def _tell_time(self, elements: Sequence[Watermark | WatermarkStatus]) -> None:
        for element in elements:
            if isinstance(element, Watermark):
                self.operator.on_watermark(element)
            else:
                self.operator.on_watermark_status(element)

    def advance(self, seconds: float) -> None:
        """Advance the clock, stopping at every due timer."""
        target = self.clock.time() + seconds
        while (due := self.operator.next_timer()) is not None and due <= target:
            self.clock.advance(max(due - self.clock.time(), 0.0))
            self.operator.fire_timers(self.clock.time())
        self.clock.advance(target - self.clock.time())

    def run_slice(self, max_records: int = 1_000_000, max_bytes: int = 1 << 40) -> SliceReport:
        """Read a slice of a source."""
        assert isinstance(self.operator, SourceOperator), "only sources have slices"
        return self.operator.run_slice(max_records, max_bytes)

    def assign_all_splits(self) -> None:
        """Give a source the splits of this subtask, and signal that there are no more."""
        assert isinstance(self.operator, SourceOperator), "only sources have splits"
        enumerator = self.operator.source.create_enumerator()
        enumerator.open()
        splits = enumerator.next_splits(self.context.parallelism)
        self.operator.add_splits(splits.get(self.context.subtask, []))
        if enumerator.is_exhausted():
            self.operator.no_more_splits()
        enumerator.close()

    def snapshot(self, kind: BarrierKind = BarrierKind.CHECKPOINT) -> HarnessSnapshot:
        """A snapshot of the current state, for `restore`."""
        self._checkpoints += 1
        self.operator.flush()
        barrier = Barrier(CheckpointId(self._checkpoints), self.clock.time(), SnapshotRequest(kind))
        found = self.operator.snapshot(barrier) or OperatorSnapshot()
        return HarnessSnapshot(
            keyed=found.keyed,
            source_splits=found.source_splits,
            operator_states=self.context.operator_state.freeze(),
            generator=found.generator,
            received=self._time.watermark,
            emitted=self._emitted,
        )

    def complete_checkpoint(self) -> None:
        """Notify the operator that its last snapshot is durable."""
        self.operator.notify_complete(CheckpointId(self._checkpoints))

    def abort_checkpoint(self) -> None:
        """Notify the operator that its last snapshot will never be durable."""
        self.operator.notify_aborted(CheckpointId(self._checkpoints))

    def restore(
        self, *snapshots: HarnessSnapshot, parallelism: int | None = None, subtask: int = 0
    ) -> OperatorHarness:
        """A new copy of the operator that resumes from snapshots of all its subtasks.

        At another parallelism, it takes the share of its subtask.
        """
        assert self._given is not self.operator, "an operator that is not copied starts only once"
        context = self.context
        return OperatorHarness(
            self._given,
            parallelism=parallelism or len(snapshots),
            subtask=subtask,
            max_parallelism=context.max_parallelism,
            name=context.name,
            uid=context.uid,
            settings=context.settings,
            clock=self.clock,
            attempt=context.attempt + 1,
            is_checkpointed=context.is_checkpointed,
            poison=context.poison,
            restore_from=snapshots,
            inputs=len(self._channels),
        )

    def flush(self) -> None:
        self.operator.flush()

    def finish(self, input_index: int = 0) -> None:
        """End an input; after the last one comes the final watermark."""
        self._tell_time(self._time.end(self._channels[input_index]))
        self.operator.finish(input_index)

    def close(self) -> None:
        self.operator.close()

    def __enter__(self) -> OperatorHarness:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _wake(self) -> None:
        self.wakes += 1

    def _print(self, text: str) -> None:
        self.console.extend(text.split("\n"))

    def _deliver(self, name: str, batch: Batch) -> None:
        self.delivered.setdefault(name, []).extend(batch.records)


def as_batch(records: Sequence[Any], format: ArrowFormat | None = None) -> Batch:
    """A batch as received from a channel: columnar if the records have a format."""
    if format is None:
        return Batch.of_records(list(records))
    return Batch.of_columns(format.encode(list(records)), format)
