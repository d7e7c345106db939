"""One subtask: the operators of a vertex, their inputs and outputs."""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Protocol, assert_never

from tidegate.connectors.source import InputStatus
from tidegate.core.errors import (
    ExternalError,
    InternalError,
    TidegateError,
    UserFunctionError,
)
from tidegate.core.fault_points import FaultPoint, Victim, during, passing
from tidegate.core.ids import CheckpointId, EdgeId, OperatorId, SubtaskId
from tidegate.exchange.codec import encode
from tidegate.graph.job_graph import Vertex
from tidegate.operators.accumulators import FunctionAccumulator
from tidegate.operators.base import Operator, OperatorContext, OperatorSnapshot
from tidegate.operators.endpoints.operators import SourceOperator
from tidegate.operators.poison import guarded
from tidegate.operators.user_code import USER_FAILURES, user_traceback
from tidegate.protocol.input_gate import (
    REQUESTS,
    AdvanceWatermark,
    ChangeStatus,
    Delivery,
    InFlight,
    InputEnded,
    InputGate,
    Records,
    SnapshotAborted,
    TakeSnapshot,
)
from tidegate.protocol.messages import SourceReport, SplitAssignment, Traffic
from tidegate.protocol.packet import Channel
from tidegate.slot.inspection import EdgeTap
from tidegate.slot.outbox import ChannelWriter, size_of
from tidegate.slot.snapshotter import FrozenOperator, FrozenSubtask, Snapshotter
from tidegate.state.backend import FrozenState
from tidegate.state.pointers import TimeHandle
from tidegate.stream.batch import Batch
from tidegate.stream.elements import (
    FINAL_WATERMARK,
    NO_WATERMARK,
    Barrier,
    BarrierKind,
    EndOfInput,
    StreamElement,
    Watermark,
    WatermarkStatus,
)

_SMALL_RECORDS = 1 << 10
"""Joining more would cost more than it saves."""


class TimeConsumer(Protocol):
    """A receiver of event time: an operator, or the channels of an edge."""

    def on_watermark(self, watermark: Watermark) -> None: ...

    def on_watermark_status(self, status: WatermarkStatus) -> None: ...


class ChainOutput:
    """The output of one operator: the operators chained to it, and channels to other vertices."""

    def __init__(self, *, reuses_objects: bool = False, watermark: int = NO_WATERMARK) -> None:
        self._reuses_objects = reuses_objects
        self.watermark = watermark
        """The last watermark emitted."""
        self.is_idle = False
        self._main: list[Callable[[Batch], None]] = []
        self._side: dict[str, list[Callable[[Batch], None]]] = {}
        self._times: list[TimeConsumer] = []
        self.records: dict[str | None, int] = {}
        """Emitted, by the tag of the side output; None: the main one."""

    def add(
        self,
        side_tag: str | None,
        take: Callable[[Batch], None],
        times: TimeConsumer,
    ) -> None:
        consumers = self._main if side_tag is None else self._side.setdefault(side_tag, [])
        consumers.append(take)
        self._times.append(times)

    def emit(self, batch: Batch) -> None:
        self._hand_out(batch, None, self._main)

    def emit_side(self, tag: str, batch: Batch) -> None:
        self._hand_out(batch, tag, self._side.get(tag, ()))

    def _hand_out(
        self, batch: Batch, tag: str | None, consumers: Sequence[Callable[[Batch], None]]
    ) -> None:
        if len(batch) == 0:
            return
        self.records[tag] = self.records.get(tag, 0) + len(batch)
        for take in consumers[:-1]:
            take(batch if self._reuses_objects else batch.branched())
        for take in consumers[-1:]:
            take(batch)

    def emit_watermark(self, watermark: Watermark) -> None:
        self.watermark = watermark.timestamp
        for consumer in self._times:
            consumer.on_watermark(watermark)

    def emit_watermark_status(self, status: WatermarkStatus) -> None:
        self.is_idle = status is WatermarkStatus.IDLE
        for consumer in self._times:
            consumer.on_watermark_status(status)


class _SmallBatches:
    """Joins small batches that follow each other: operators have a fixed cost per batch."""

    def __init__(self, process: Callable[[Batch, int], None]) -> None:
        self._process = process
        self._batches: list[Batch] = []
        self._records = 0
        self._input_index = 0

    def add(self, batch: Batch, input_index: int) -> None:
        records = len(batch)
        if input_index != self._input_index or self._records + records > _SMALL_RECORDS:
            self.flush()
        self._input_index = input_index
        if records > _SMALL_RECORDS:
            self._process(batch, input_index)
        else:
            self._batches.append(batch)
            self._records += records

    def flush(self) -> None:
        batches, self._batches, self._records = self._batches, [], 0
        for batch in batches if len(batches) < 2 else Batch.joined(batches):
            self._process(batch, self._input_index)


class Subtask:
    """Runs the operators of one vertex in one slot. Used by the mailbox only."""

    def __init__(
        self,
        vertex: Vertex,
        operators: Sequence[Operator],
        contexts: Sequence[OperatorContext],
        writers: Sequence[tuple[int, str | None, ChannelWriter]],
        gate: InputGate,
        snapshotter: Snapshotter,
    ) -> None:
        self.vertex = vertex
        self.name = f"{vertex.name} ({contexts[0].subtask + 1}/{contexts[0].parallelism})"
        """Like "Map -> Filter (1/2)"."""
        self.source = operators[0] if isinstance(operators[0], SourceOperator) else None
        self.failure: TidegateError | None = None
        self.is_finished = self._owes_end = contexts[0].has_ended
        self.records_in = 0
        self.worked = 0.0
        """Seconds, set by the caller."""
        self._owes_time = not self.is_finished
        self._operators = operators
        self._contexts = contexts
        self._writers = writers
        self._gate = gate
        self._snapshotter = snapshotter
        self._id = SubtaskId(vertex.id, contexts[0].subtask)
        self._opened: list[tuple[Operator, OperatorContext]] = []
        self._halted_by: CheckpointId | None = None
        """The checkpoint that the job stops with: nothing is emitted after it."""
        self._ending_input: int | None = None
        """The last input that ended, while the first operator still has something to emit."""
        self._unfinished: dict[CheckpointId, FrozenSubtask] = {}
        """Unaligned snapshots that wait for records in flight."""
        self._outputs = self._wire()
        self._sinks = [
            chained
            for chained, operator in zip(vertex.chain, operators, strict=True)
            if operator.delivery() is not None
        ]

    def _wire(self) -> list[ChainOutput]:
        outputs = [
            ChainOutput(reuses_objects=context.reuses_objects, watermark=context.emitted_watermark)
            for context in self._contexts
        ]
        processes = [
            guarded(operator.process, context, output, self._position)
            for operator, context, output in zip(
                self._operators, self._contexts, outputs, strict=True
            )
        ]
        self._process = processes[0]
        for index, chained in enumerate(self.vertex.chain):
            if chained.parent is not None:
                outputs[chained.parent.operator_index].add(
                    chained.parent.side_tag, processes[index], self._operators[index]
                )
        for index, side_tag, writer in self._writers:
            write = guarded(writer.write, self._contexts[index], outputs[index], self._position)
            outputs[index].add(side_tag, write, writer)
        return outputs

    def _position(self) -> str | None:
        """The position of the source of this chain, if it has one."""
        return None if self.source is None else self.source.position()

    @property
    def records_taken(self) -> int:
        """What its sinks have received."""
        return sum(
            self.records_in
            if sink.parent is None
            else self._outputs[sink.parent.operator_index].records.get(sink.parent.side_tag, 0)
            for sink in self._sinks
        )

    @property
    def records_out(self) -> int:
        """What it has sent to other vertices, and what its sinks have received."""
        return sum(writer.records for _, _, writer in self._writers) + self.records_taken

    def tap(self, edge: EdgeId, tap: EdgeTap) -> bool:
        """Sample the records on an edge; False if the subtask does not send to it."""
        for _, _, writer in self._writers:
            if writer.edge == edge:
                writer.tap = tap
                return True
        return False

    def sent(self, sizes: Mapping[EdgeId, int]) -> dict[EdgeId, Traffic]:
        """What it has sent on each edge; `sizes` are those of the slot."""
        return {
            writer.edge: Traffic(writer.records, sizes.get(writer.edge, 0))
            for _, _, writer in self._writers
        }

    @property
    def watermark(self) -> int:
        """The current event time."""
        return self._gate.watermark if self.source is None else self._outputs[0].watermark

    @property
    def idle_channels(self) -> int:
        """The number of idle channels; an idle source counts as one."""
        if self.source is None:
            return self._gate.idle_channels
        return int(self._outputs[0].is_idle)

    def open(self, restored: Mapping[OperatorId, list[OperatorSnapshot]] | None = None) -> None:
        """Open the operators, the last first, as in Flink; each restores its state at once.

        Of a subtask that had ended, only operators with state are opened: to commit, or to pass it
        on to later checkpoints.

        Raises:
            TidegateError: user code failed; `close` closes what was opened.
        """
        try:
            for index, _, writer in self._writers:
                writer.open(self._contexts[index])
            for operator, context, output in reversed(
                list(zip(self._operators, self._contexts, self._outputs, strict=True))
            ):
                if self.is_finished and (restored is None or context.operator_id not in restored):
                    continue
                self._opened.append((operator, context))
                with nullcontext() if restored is None else during(FaultPoint.RESTORE, Victim.SLOT):
                    operator.open(context, output)
                    if restored is not None and context.operator_id in restored:
                        operator.restore(restored[context.operator_id])
        except USER_FAILURES as error:
            failure = error if isinstance(error, TidegateError) else self._as_failure(error)
            raise failure from None

    def run_slice(
        self,
        max_records: int,
        max_bytes: int,
        barriers: Iterable[Barrier],
        assignment: SplitAssignment | None,
        group_watermarks: Mapping[str, int] | None = None,
    ) -> SourceReport:
        """Emit the requested barriers, then read and emit one slice of the source.

        The barriers come first, so that a checkpoint need not wait for a slice.
        """
        source = self.source
        assert source is not None
        if self.failure is not None:
            return SourceReport(0, InputStatus.NOTHING_AVAILABLE, None)
        records, status, pending = 0, InputStatus.END_OF_INPUT, None
        try:
            if not self.is_finished and assignment is not None:
                source.add_splits(assignment.splits)
                if assignment.no_more:
                    source.no_more_splits()
            self._end_again()
            for barrier in barriers:
                self._deliver(self._gate.feed(REQUESTS, barrier, time.monotonic()))
            if not self.is_finished and self._halted_by is not None:
                status = InputStatus.NOTHING_AVAILABLE
            elif not self.is_finished:
                source.align(group_watermarks or {})
                report = source.run_slice(max_records, max_bytes)
                records, status = report.records, report.status
                self.records_in += records
                if status is InputStatus.END_OF_INPUT:
                    self._finish()
                pending = source.pending_records()
        except USER_FAILURES as error:
            self.failure = self._as_failure(error)
        aligned = None if self.is_finished else source.aligned()
        return SourceReport(records, status, pending, aligned)

    def feed(self, inputs: Iterable[tuple[Channel, Iterable[StreamElement]]]) -> None:
        """Process elements in order, channel by channel; after a failure, ignore them."""
        small = _SmallBatches(self._process_records)
        try:
            try:
                self._feed(inputs, small)
            finally:  # also before an element that cannot be decoded
                small.flush()
        except USER_FAILURES as error:
            self.failure = self._as_failure(error)

    def _feed(
        self, inputs: Iterable[tuple[Channel, Iterable[StreamElement]]], small: _SmallBatches
    ) -> None:
        gate = self._gate
        for channel, elements in inputs:
            for element in elements:
                if self.failure is not None:
                    return
                index = gate.open_input(channel)
                if index is not None and type(element) is Batch:
                    small.add(element, index)
                    continue
                small.flush()
                size = size_of(element)
                self._deliver(gate.feed(channel, element, time.monotonic(), size))

    def _process_records(self, batch: Batch, input_index: int) -> None:
        self.records_in += len(batch)
        self._process(batch, input_index)

    def abort(self, checkpoint_id: CheckpointId) -> None:
        self._drop_snapshot(checkpoint_id)
        if checkpoint_id == self._halted_by:
            self._halted_by = None
        try:
            self._deliver(self._gate.abort(checkpoint_id, time.monotonic()))
            for operator, _ in reversed(self._opened):
                operator.notify_aborted(checkpoint_id)
        except USER_FAILURES as error:
            self.failure = self._as_failure(error)

    def complete(self, checkpoint_id: CheckpointId) -> None:
        if self._sinks:
            passing(FaultPoint.PRE_COMMITTED, Victim.SLOT)
        try:
            with during(FaultPoint.COMMIT, Victim.SLOT) if self._sinks else nullcontext():
                for operator, _ in reversed(self._opened):
                    operator.notify_complete(checkpoint_id)
        except USER_FAILURES as error:
            self.failure = self._as_failure(error)

    def end_slice(self, now: float) -> None:
        """Fire due timers and flush: the unit is about to be sealed."""
        self._end_again()
        if self.failure is not None or self._rests:
            return
        try:
            for operator in self._operators:
                due = operator.next_timer()
                if due is not None and due <= now:
                    operator.fire_timers(now)
                operator.flush()
            self._end_when_drained()
        except USER_FAILURES as error:
            self.failure = self._as_failure(error)

    @property
    def _rests(self) -> bool:
        """Whether it has stopped emitting, for good or until the stop is aborted."""
        return self.is_finished or self._halted_by is not None

    def next_timer(self) -> float | None:
        if self._rests:
            return None
        due = [
            timer for operator in self._operators if (timer := operator.next_timer()) is not None
        ]
        return min(due, default=None)

    def metrics(self) -> dict[str, dict[str, float]]:
        """Metrics of functions, by operator and name."""
        found = {context.name: dict(context.metrics.readings()) for context in self._contexts}
        return {operator: readings for operator, readings in found.items() if readings}

    def accumulators(self) -> list[tuple[str, FunctionAccumulator]]:
        return [pair for context in self._contexts for pair in context.accumulators.copy().items()]

    def room(self) -> int | None:
        """How many records the next step should deliver; None: no limit."""
        return None if self.is_finished else self._operators[0].room()

    def is_available(self) -> bool:
        """Whether a step would find input in this source, or must report its failure."""
        source = self.source
        if source is None or self._rests or self.failure is not None:
            return False
        try:
            return source.is_available()
        except USER_FAILURES as error:
            self.failure = self._as_failure(error)
            return True

    def available_in(self) -> float:
        """In how many seconds its source may be available, if it is not now; 0: unknown."""
        source = self.source
        if source is None or self._rests or self.failure is not None:
            return math.inf
        return source.available_in()

    def close(self) -> TidegateError | None:
        """Close everything that was opened; returns the first failure of user code."""
        first: TidegateError | None = None
        for checkpoint_id in list(self._unfinished):
            self._drop_snapshot(checkpoint_id)
        closings = [operator.close for operator, _ in reversed(self._opened)]
        closings += [writer.close for _, _, writer in self._writers]
        for close in closings:
            try:
                close()
            except USER_FAILURES as error:
                first = first or self._as_failure(error)
        self._opened.clear()
        return first

    def _deliver(self, deliveries: Iterable[Delivery]) -> None:
        head = self._operators[0]
        for delivery in deliveries:
            match delivery:
                case Records(input_index, batch):
                    self._process_records(batch, input_index)
                case TakeSnapshot():
                    self._take_snapshot(delivery)
                case InFlight(checkpoint_id, elements):
                    self._complete_snapshot(checkpoint_id, elements)
                case SnapshotAborted(checkpoint_id, reason):
                    self._drop_snapshot(checkpoint_id)
                    error = InternalError(reason)
                    self._snapshotter.decline(self._id, checkpoint_id, error, is_skipped=True)
                case AdvanceWatermark(watermark):
                    if not self.is_finished:
                        head.on_watermark(watermark)
                case ChangeStatus(status):
                    if not self.is_finished:
                        head.on_watermark_status(status)
                case InputEnded(input_index, is_last):
                    self._end_input(input_index, is_last)
                case _:
                    assert_never(delivery)

    def _end_input(self, input_index: int, is_last: bool) -> None:
        if self.is_finished:
            return
        self._operators[0].finish(input_index)
        if is_last:
            self._ending_input = input_index
            self._end_when_drained()

    def _end_when_drained(self) -> None:
        if self._ending_input is not None and self._operators[0].is_drained():
            self._ending_input = None
            self._finish(head_is_done=True)

    def _finish(self, *, head_is_done: bool = False) -> None:
        if self.source is not None:
            self._outputs[0].emit_watermark(Watermark(FINAL_WATERMARK))
        for operator in self._operators[1 if head_is_done else 0 :]:
            operator.finish()
        for _, _, writer in self._writers:
            writer.broadcast(EndOfInput())
        self.is_finished = True

    def announce(self) -> None:
        """Announce the restored event time again: receivers may be new."""
        if self._owes_time:
            self._owes_time = False
            for index, _, writer in self._writers:
                if (emitted := self._outputs[index].watermark) != NO_WATERMARK:
                    writer.on_watermark(Watermark(emitted))
            if self._gate.is_idle:
                self._operators[0].on_watermark_status(WatermarkStatus.IDLE)

    def _end_again(self) -> None:
        """Announce the end of input again after a restore, to receivers that missed it."""
        if self._owes_end:
            self._owes_end = False
            for _, _, writer in self._writers:
                writer.broadcast(EndOfInput())

    def _take_snapshot(self, order: TakeSnapshot) -> None:
        passing(FaultPoint.BARRIER, Victim.SLOT)
        barrier = order.barrier
        if barrier.drains and self.source is not None and not self.is_finished:
            self._finish()
        if barrier.drains and self._ending_input is not None:
            self._operators[0].drain()
            self._end_when_drained()
        if barrier.kind is BarrierKind.STOP:
            self._halted_by = barrier.checkpoint_id
        for operator, _ in reversed(self._opened):
            operator.flush()
        start_delay = time.time() - barrier.triggered_at - order.alignment_seconds
        started = time.monotonic()
        frozen: list[FrozenOperator] = []
        outputs = dict(zip(self._operators, self._outputs, strict=True))
        try:
            for operator, context in reversed(self._opened):
                received = order.time if operator is self._operators[0] else None
                time_ = _time(outputs[operator].watermark, received)
                frozen.append(_frozen(operator, context, barrier, time_))
        except USER_FAILURES:
            for each in frozen:
                each.release()
            raise
        for _, _, writer in self._writers:
            writer.broadcast(barrier)
        subtask = FrozenSubtask(
            id=self._id,
            key_groups=self._contexts[0].key_groups,
            barrier=barrier,
            operators=tuple(frozen),
            # A subtask restored from this gets the end of input again, and ends when it is drained.
            ended_inputs=order.ended_inputs - {self._ending_input},
            is_finished=self.is_finished,
            start_delay=max(0.0, start_delay),
            alignment=order.alignment_seconds,
            alignment_bytes=order.bytes_buffered,
            sync=time.monotonic() - started,
        )
        if order.is_whole:
            self._snapshotter.write(subtask)
        else:
            self._unfinished[barrier.checkpoint_id] = subtask

    def _complete_snapshot(
        self, checkpoint_id: CheckpointId, elements: Sequence[tuple[Channel, StreamElement]]
    ) -> None:
        """Complete a snapshot: the last barrier of an unaligned checkpoint has arrived."""
        taken = self._unfinished.pop(checkpoint_id, None)
        if taken is not None:
            in_flight = tuple((channel, encode(element)) for channel, element in elements)
            self._snapshotter.write(replace(taken, in_flight=in_flight))

    def _drop_snapshot(self, checkpoint_id: CheckpointId) -> None:
        taken = self._unfinished.pop(checkpoint_id, None)
        if taken is not None:
            taken.release()

    def _as_failure(self, error: BaseException) -> TidegateError:
        """Wrap an error that was not wrapped where user code is called."""
        if isinstance(error, UserFunctionError | ExternalError | InternalError):
            return error
        context = self._contexts[0]
        number = f"({context.subtask + 1}/{context.parallelism})"
        trace = user_traceback(error)
        return UserFunctionError(self.vertex.name, context.uid, number, None, trace)


def _time(emitted: int, received: TimeHandle | None) -> TimeHandle | None:
    if emitted >= FINAL_WATERMARK:
        emitted = NO_WATERMARK  # a changed program may resume ended inputs
    if emitted == NO_WATERMARK and received is None:
        return None
    return replace(received or TimeHandle(), emitted=emitted)


def _frozen(
    operator: Operator, context: OperatorContext, barrier: Barrier, time: TimeHandle | None
) -> FrozenOperator:
    snapshot = operator.snapshot(barrier) or OperatorSnapshot()
    assert snapshot.keyed is None or isinstance(snapshot.keyed, FrozenState)
    if snapshot.generator is not None:
        generator = pickle.dumps(snapshot.generator, protocol=5)
        time = replace(time or TimeHandle(), generator=generator)
    return FrozenOperator(
        operator_id=context.operator_id,
        uid=context.uid,
        keyed=snapshot.keyed,
        states=context.operator_state.freeze(),
        source_splits=tuple(pickle.dumps(split, protocol=5) for split in snapshot.source_splits),
        files=snapshot.files,
        time=time,
    )
