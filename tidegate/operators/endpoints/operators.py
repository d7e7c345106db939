"""Sources and sinks as operators."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tidegate.connectors.guarantee import Delivery, DeliveryGuarantee
from tidegate.connectors.sink import (
    CommittingWriter,
    Sink,
    SinkWriter,
    SupportsCommitter,
    WriterContext,
)
from tidegate.connectors.source import InputStatus, Poll, ReaderContext, Source, SourceReader
from tidegate.core.errors import InternalError, shorten
from tidegate.core.ids import CheckpointId
from tidegate.operators.base import (
    NeededFiles,
    Operator,
    OperatorContext,
    OperatorSnapshot,
    Output,
)
from tidegate.operators.endpoints.commits import Commits
from tidegate.operators.endpoints.source_function import FunctionReader, FunctionSource
from tidegate.operators.event_time.assigning import ALL, EventTime, TrackState
from tidegate.operators.event_time.strategy import WatermarkStrategy
from tidegate.operators.functions import SinkFunction, bound_method
from tidegate.operators.poison import DeadLetters, guarded
from tidegate.operators.unkeyed import UnkeyedContext
from tidegate.operators.user_code import USER_FAILURES, FunctionOperator, UserCode
from tidegate.stream.batch import Batch
from tidegate.stream.elements import Barrier, BarrierKind, Watermark
from tidegate.types.arrow import ArrowFormat
from tidegate.types.privacy import shared

_LARGEST_POLL = 1 << 18
"""Larger batches gain nothing and exceed the CPU caches."""
_FIRST_POLL = 1024
"""How many records to poll before their size is known."""
_SAMPLE = 32


@dataclass(frozen=True, slots=True)
class SliceReport:
    """What a slice emitted, and the status of the source."""

    records: int
    bytes: int
    """Estimated for Python objects."""
    status: InputStatus


@dataclass(frozen=True, slots=True)
class TimedSplit:
    """A split with its event time, as stored in checkpoints."""

    split: Any
    time: TrackState

    def __repr__(self) -> str:
        return repr(self.split)


def _untimed(split: Any) -> Any:
    return split.split if isinstance(split, TimedSplit) else split


class SourceOperator(Operator):
    """The head of a source vertex: polls its reader slice by slice."""

    _reader: SourceReader
    _halted_by: CheckpointId | None = None

    _time: EventTime | None = None
    _split: Hashable = ALL
    """The split of the records that get their timestamps."""
    _is_paused = False

    def __init__(
        self,
        source: Source,
        format: ArrowFormat | None = None,
        strategy: WatermarkStrategy | None = None,
        field: int | None = None,
    ) -> None:
        self.source = source
        self.format = format
        self.strategy = strategy
        self.field = field
        """The position of the timestamp field, if the strategy names one."""

    def keeps_state(self) -> bool:
        return self.source.replay().is_possible

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self._user_code = UserCode(context)
        self._guard = self._user_code.guard(spares_ours=True)
        self._bytes_per_record: float | None = None
        self._unconfirmed: dict[CheckpointId, tuple[Any, ...]] = {}
        self._copied: set[CheckpointId] = set()
        """Savepoints whose files are being copied; until then, none may be deleted."""
        if self.strategy is not None:
            self._time = EventTime(self.strategy, self.field, context, output)
            self._time.add()
            self._process_timed = guarded(self._stamp, context, output, self.position)
        with self._guard:
            self._reader = self._create_reader(context)
            self._reader.open()

    def _create_reader(self, context: OperatorContext) -> SourceReader:
        if context.has_ended:
            return _EndedReader()
        reader_context = ReaderContext(
            subtask=context.subtask,
            parallelism=context.parallelism,
            clock=context.clock,
            format=self.format,
            operator_name=context.name,
            attempt=context.attempt,
            job_id=context.job_id,
            operator_state=context.operator_state,
            directory=context.owned_directory,
            origin=context.origin_directory,
            retained_checkpoints=context.settings.get("execution.checkpointing.num-retained", 1),
            permit=context.permit,
            wake=context.wake,
            has_event_time=self._time is not None,
        )
        if context.poison is not None:
            dead_letters = DeadLetters(context, self.output, context.poison)
            reader_context = replace(reader_context, undecodable=dead_letters.undecodable)
        if isinstance(self.source, FunctionSource):
            return self.source.create_function_reader(reader_context, context)
        return self.source.create_reader(reader_context)

    def align(self, lowest: Mapping[str, int]) -> None:
        """Read nothing while it is too far ahead of the slowest source of its group.

        Where only some splits are, these alone wait.
        """
        if self._time is None:
            return
        before = self._time.ahead
        self._is_paused = not self._time.align(lowest)
        if self._time.ahead != before:
            with self._guard:
                self._reader.pause(self._time.ahead)

    def aligned(self) -> tuple[str, int] | None:
        """Its group and watermark, if it is aligned and not idle."""
        return None if self._time is None else self._time.aligned()

    def run_slice(self, max_records: int, max_bytes: int) -> SliceReport:
        """Emit what is available without waiting, up to a number of records and about that size."""
        records, size = 0, 0
        status = InputStatus.MORE_AVAILABLE
        if self._is_paused:
            status = InputStatus.NOTHING_AVAILABLE
        while status is InputStatus.MORE_AVAILABLE and records < max_records and size < max_bytes:
            with self._guard:
                poll = self._reader.poll(self._how_many(max_records - records, max_bytes - size))
            status = poll.status
            if poll.batch is not None and len(poll.batch):
                bytes_read = size_of(poll.batch)
                self._bytes_per_record = bytes_read / len(poll.batch)
                size += bytes_read
                records += len(poll.batch)
                batch = self._owned(poll.batch)
                if self._time is None:
                    self.output.emit(batch)
                else:
                    self._split = poll.split
                    self._process_timed(batch)
            if self._time is not None:
                for split in poll.ended:
                    self._time.release(split)
        return SliceReport(records, size, status)

    def _stamp(self, batch: Batch, input_index: int = 0) -> None:
        assert self._time is not None
        self._time.process(batch, self._split)

    def _owned(self, batch: Batch) -> Batch:
        """The batch with records that the reader can no longer change."""
        private = self._user_code.private
        return batch if private is shared else batch.owned(private)

    def _how_many(self, records: int, size: int) -> int:
        if self._bytes_per_record is None:
            return min(records, _FIRST_POLL)
        fitting = int(size / max(self._bytes_per_record, 1.0))
        return max(1, min(records, fitting, _LARGEST_POLL))

    def next_timer(self) -> float | None:
        return None if self._time is None else self._time.next_timer()

    def fire_timers(self, now: float) -> None:
        if self._time is not None:
            self._time.fire(now)

    def add_splits(self, splits: Sequence[Any]) -> None:
        with self._guard:
            self._reader.add_splits([_untimed(split) for split in splits])
            if self._time is None:
                return
            for split in splits:
                key = self._reader.split_key(_untimed(split))
                if isinstance(split, TimedSplit):
                    self._time.resume(split.time, key)
                elif key is not None and self._reader.reads_all_at_once:
                    self._time.add(key)

    def no_more_splits(self) -> None:
        with self._guard:
            self._reader.no_more_splits()

    def is_available(self) -> bool:
        if self._is_paused:
            return False
        with self._guard:
            return self._reader.is_available()

    def available_in(self) -> float:
        """In how many seconds it may be available, if it is not now; 0: unknown."""
        if self._is_paused:
            return math.inf  # until the next step
        with self._guard:
            return self._reader.available_in()

    def pending_records(self) -> int | None:
        with self._guard:
            return self._reader.pending_records()

    def position(self) -> str | None:
        """Its read position as text; None if unknown."""
        if isinstance(self._reader, FunctionReader):
            return None
        return ", ".join(f"before {shorten(split)}" for split in self._reader.snapshot()) or None

    def process(self, batch: Batch, input_index: int = 0) -> None:
        raise InternalError(f"a source has no input, but received {len(batch)} record(s)")

    def snapshot(self, barrier: Barrier) -> OperatorSnapshot:
        number = barrier.checkpoint_id
        files: NeededFiles | None = None
        with self._guard:
            if barrier.kind is BarrierKind.STOP:
                self._halted_by = number
                self._reader.halt()
            if isinstance(self._reader, FunctionReader):
                splits = tuple(self._reader.snapshot_at(barrier))
            else:
                splits = tuple(self._reader.snapshot())
            if barrier.savepoint is not None and (urls := self._reader.files_of(splits)):
                self._copied.add(number)
                files = NeededFiles(urls, partial(self._copied.discard, number))
        self._unconfirmed[number] = splits
        if self._time is None:
            return OperatorSnapshot(source_splits=splits, files=files)
        timed = tuple(self._timed(split) for split in splits)
        state = self._time.state_of()
        return OperatorSnapshot(source_splits=timed, files=files, generator=state)

    def _timed(self, split: Any) -> Any:
        """A split with its event time, so that both move to the same subtask."""
        assert self._time is not None
        key = self._reader.split_key(split)
        state = None if key is None else self._time.state_of(key)
        return split if state is None else TimedSplit(split, state)

    def restore(self, snapshots: list[OperatorSnapshot]) -> None:
        self.add_splits([split for snapshot in snapshots for split in snapshot.source_splits])
        for snapshot in snapshots:
            if snapshot.generator is not None and self._time is not None:
                self._time.resume(snapshot.generator)

    def notify_complete(self, checkpoint_id: CheckpointId) -> None:
        splits = self._unconfirmed.get(checkpoint_id)
        self._forget(checkpoint_id)
        if splits is not None and not self._copied:
            with self._guard:
                self._reader.notify_complete(checkpoint_id, splits)

    def notify_aborted(self, checkpoint_id: CheckpointId) -> None:
        self._unconfirmed.pop(checkpoint_id, None)
        with self._guard:
            if checkpoint_id == self._halted_by:
                self._halted_by = None
                self._reader.go_on()
            self._reader.notify_aborted(checkpoint_id)

    def _forget(self, checkpoint_id: CheckpointId) -> None:
        """Forget this checkpoint and older ones, which it subsumes."""
        for known in [known for known in self._unconfirmed if known <= checkpoint_id]:
            del self._unconfirmed[known]

    def close(self) -> None:
        if hasattr(self, "_reader"):
            with self._guard:
                self._reader.close()


class _EndedReader(SourceReader):
    """The reader of a source that had ended: reads nothing, and keeps unread splits."""

    def __init__(self) -> None:
        self._splits: list[Any] = []

    def add_splits(self, splits: Sequence[Any]) -> None:
        self._splits += splits

    def poll(self, max_records: int) -> Poll:
        return Poll(None, InputStatus.END_OF_INPUT)

    def snapshot(self) -> list[Any]:
        return self._splits


class SinkOperator(Operator):
    """The tail of a sink: passes records to its writer."""

    _writer: SinkWriter
    _commits: Commits | None = None

    def __init__(self, sink: Sink, format: ArrowFormat | None = None) -> None:
        self.sink = sink
        self.format = format

    def delivery(self) -> Delivery:
        return self.sink.delivery()

    def keeps_state(self) -> bool:
        return isinstance(self.sink, SupportsCommitter)

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self._user_code = UserCode(context)
        self._guard = self._user_code.guard(spares_ours=True)
        self._is_checkpointed = context.is_checkpointed
        self._is_watched = context.poison is not None
        writer_context = WriterContext(
            subtask=context.subtask,
            parallelism=context.parallelism,
            operator_name=context.name,
            console=context.console,
            deliver=context.deliver,
            job_id=context.job_id,
            attempt=context.attempt,
            clock=context.clock,
            is_checkpointed=context.is_checkpointed,
            operator_state=context.operator_state,
            operator_id=context.operator_id,
            format=self.format,
            permit=context.permit,
        )
        with self._guard:
            if isinstance(self.sink, SupportsCommitter):
                committer = self.sink.create_committer(writer_context)
                self._commits = Commits(committer, writer_context)
                writer_context = replace(writer_context, recovered=self._commits.recover())
            self._writer = self.sink.create_writer(writer_context)
            self._writer.open()

    def process(self, batch: Batch, input_index: int = 0) -> None:
        if self._is_watched and batch.format is not None:
            _ = batch.columns  # find records of the wrong type before any is written
        with self._guard:
            self._writer.write(batch)

    def flush(self) -> None:
        with self._guard:
            self._writer.flush()

    def snapshot(self, barrier: Barrier) -> OperatorSnapshot:
        with self._guard:
            self._writer.snapshot(barrier.checkpoint_id)
            if self._commits is not None:
                self._commits.prepared(barrier.checkpoint_id, self._prepared())
        return OperatorSnapshot()

    def _prepared(self) -> Sequence[Any]:
        assert isinstance(self._writer, CommittingWriter)
        return self._writer.prepare_commit()

    def notify_complete(self, checkpoint_id: CheckpointId) -> None:
        with self._guard:
            if self._commits is not None:
                self._commits.complete(checkpoint_id)
            self._writer.notify_complete(checkpoint_id)

    def notify_aborted(self, checkpoint_id: CheckpointId) -> None:
        with self._guard:
            self._writer.notify_aborted(checkpoint_id)

    def finish(self, input_index: int = 0) -> None:
        with self._guard:
            self._writer.flush(end_of_input=True)
            if self._commits is not None and not self._is_checkpointed:
                self._commits.at_once(self._prepared())

    def close(self) -> None:
        with self._guard, ExitStack() as last_first:
            if self._commits is not None:
                last_first.callback(self._commits.close)
            if hasattr(self, "_writer"):
                last_first.callback(self._writer.close)


class SinkFunctionOperator(FunctionOperator):
    """Calls a SinkFunction, or a plain callable, with one record at a time."""

    def __init__(self, function: SinkFunction | Callable[[Any], Any]) -> None:
        super().__init__(function)
        bound_method(function, SinkFunction, "invoke")

    def delivery(self) -> Delivery:
        return Delivery(
            DeliveryGuarantee.AT_LEAST_ONCE, "is called again for repeated records after a failure"
        )

    def open(self, context: OperatorContext, output: Output) -> None:
        self._context = SinkFunctionContext(context.clock, context.watermark)
        super().open(context, output)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        if isinstance(self.function, SinkFunction):
            invoke_for_each(self.function.invoke, batch, self._context, self.user_code)
            return
        _, failure = self.user_code.call_until_failure(self.function, batch.records)
        if failure is not None:
            raise failure

    def on_watermark(self, watermark: Watermark) -> None:
        self._context.watermark = watermark.timestamp


class SinkFunctionContext(UnkeyedContext, SinkFunction.Context):
    """Time, as seen by a sink function."""


def invoke_for_each(
    invoke: Callable[[Any, SinkFunction.Context], None],
    batch: Batch,
    context: SinkFunctionContext,
    user_code: UserCode,
) -> None:
    """Pass every record to a sink function; a failure names the record."""
    stamps = batch.timestamps
    context.current = None
    record, position = None, 0
    try:
        for position, record in enumerate(batch.records):
            if stamps is not None:
                context.current = int(stamps[position])
            invoke(record, context)
    except USER_FAILURES as error:
        raise user_code.failure(error, record, position) from None


def size_of(batch: Batch) -> int:
    """The size of the records in bytes, estimated from a sample for Python objects."""
    if batch.is_columnar:
        return int(batch.columns.nbytes)
    records = batch.records
    step = max(1, len(records) // _SAMPLE)
    sample = records[::step]
    return len(pickle.dumps(sample, pickle.HIGHEST_PROTOCOL)) * len(records) // len(sample)
