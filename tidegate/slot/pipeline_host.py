"""The subtasks of one pipeline in one slot, and how they process a unit."""

from __future__ import annotations

import logging
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tidegate.checkpoint.layout import TASK_OWNED, home_of
from tidegate.core.clock import Clock
from tidegate.core.errors import CorruptCheckpoint, TidegateError, shorten
from tidegate.core.ids import (
    Attempt,
    CheckpointId,
    EdgeId,
    Level,
    OperatorId,
    PipelineId,
    SlotIndex,
    StepNumber,
    SubtaskId,
    SubtaskIndex,
    VertexId,
)
from tidegate.core.permit import Permit
from tidegate.core.poison import DeadLetter, PoisonOrders
from tidegate.core.workers import Threads, Workers
from tidegate.exchange.codec import decode
from tidegate.exchange.spill import SpillStore, loaded
from tidegate.graph.job_graph import ChainedOperator, Edge, JobGraph, Vertex
from tidegate.operators.base import OperatorContext, OperatorSnapshot
from tidegate.operators.metrics import MetricGroup
from tidegate.operators.poison import DEAD_LETTERS
from tidegate.protocol.input_gate import REQUESTS, InputGate
from tidegate.protocol.messages import (
    RecordsSkipped,
    RestoreOrder,
    SlotMessage,
    SlotReport,
    SnapshotSettings,
    SourceReport,
    StateRead,
    StepRequest,
    SubtaskFailure,
    UserCounts,
)
from tidegate.protocol.pacing import LONGEST_LOOK, StepCaller
from tidegate.protocol.packet import Channel, FailureMark, Packet
from tidegate.protocol.restore import SubtaskRestore
from tidegate.slot.function_logs import thread_named
from tidegate.slot.inspection import EdgeTap
from tidegate.slot.outbox import ChannelWriter, Outbox, channels_into
from tidegate.slot.restored_state import RestoredState
from tidegate.slot.snapshotter import Snapshotter
from tidegate.slot.subtask import Subtask
from tidegate.state.operator_state import OperatorStateStore
from tidegate.state.pointers import TimeHandle
from tidegate.storage.filesystem import open_store
from tidegate.storage.locations import below
from tidegate.stream.batch import Batch
from tidegate.stream.elements import NO_WATERMARK, StreamElement
from tidegate.transport.shipping import JobPackage

_log = logging.getLogger("tidegate.job")
_COUNTING_SECONDS = 1.0
"""How often the metrics of functions are sent to the driver."""
_LETTERS_AT_ONCE = 10
"""Beyond this number per second, skipped records are only counted."""


@dataclass(frozen=True, slots=True)
class UnitAnswer:
    """The result of a unit: packets and marks for other slots, and a report to the driver."""

    packets: tuple[Packet, ...]
    marks: tuple[FailureMark, ...]
    report: SlotReport
    """About the whole step, from the last level; before that, empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostServices:
    """Services of the slot for its operators."""

    clock: Clock
    console: Callable[[str], None]
    deliver: Callable[[SubtaskIndex, str, Batch], None]
    directory: Path
    """For files that need not outlive the slot."""
    spill_threshold: int
    send: Callable[[SlotMessage], None]
    permit: Permit = Permit()
    workers: Workers = field(default_factory=Threads)
    wake: Callable[[], None] = lambda: None
    """Has the mailbox look for work; called by any thread."""
    look_seconds: float = LONGEST_LOOK
    """How often to look for work that cannot be foreseen."""


class PipelineHost:
    """One attempt of a pipeline in one slot. Used only by its mailbox thread."""

    def __init__(
        self,
        package: JobPackage,
        pipeline: PipelineId,
        attempt: Attempt,
        slot: SlotIndex,
        services: HostServices,
        snapshots: SnapshotSettings,
        restore: RestoreOrder | None = None,
        poison: PoisonOrders | None = None,
    ) -> None:
        self.attempt = attempt
        self._pipeline = pipeline
        self._counted_at = 0.0
        self._has_uncounted = False
        self._skipped: dict[VertexId, int] = {}
        self._letters: list[DeadLetter] = []
        """Skipped records since the last report to the driver."""
        self._poison = poison
        self._slot = slot
        self._clock = services.clock
        self._permit = Permit(services.permit.is_valid, self._check_owned)
        self._is_opening = False
        self._package = package
        self._services = services
        self._graph = package.graph
        self._restored = (
            None
            if restore is None
            else RestoredState(
                restore, lambda size: services.send(StateRead(pipeline, attempt, size))
            )
        )
        self._snapshotter = Snapshotter(
            attempt, snapshots, services.send, services.permit, services.workers
        )
        self._snapshots = snapshots
        location = None if restore is None else restore.location
        self._is_restored_at_home = (
            location is not None and location.job_directory == snapshots.directory
        )
        self._origin = None if location is None else home_of(location.job_directory, location.name)
        """The directory with the restored files of operators."""
        self.caller = StepCaller(services.look_seconds)
        self._spill = SpillStore(services.directory, services.spill_threshold)
        self._outbox = Outbox(slot, attempt, self._spill)
        self._parked: dict[Level, list[Packet]] = {}
        self._received: Counter[VertexId] = Counter()
        """Bytes of packets."""
        self._marks: dict[SlotIndex, FailureMark] = {}
        self._sources: dict[VertexId, SourceReport] = {}
        self._step = StepNumber(0)
        self._busy_seconds = 0.0
        self._reads_sources = True
        """Whether sources were allowed to read in the last step."""
        [whole] = [each for each in package.graph.pipelines if each.id == pipeline]
        self._last_level = whole.levels - 1
        self._vertices = [vertex for vertex in whole.vertices if slot < vertex.parallelism]
        self._subtasks: dict[VertexId, Subtask] = {}
        self._edges: Mapping[int, Edge] = {edge.id: edge for edge in package.graph.edges}
        self._in_flight: dict[VertexId, list[tuple[Channel, list[StreamElement]]]] = {}

    def _build(self, vertex: Vertex) -> Subtask:
        package, services, graph, slot = self._package, self._services, self._graph, self._slot
        subtask = SubtaskIndex(slot)
        restored = SubtaskRestore()
        if self._restored is not None:
            restored = self._restored.subtask(vertex.id)
        contexts = [
            OperatorContext(
                name=chained.name,
                operator_id=chained.operator_id,
                uid=chained.uid,
                subtask=subtask,
                parallelism=vertex.parallelism,
                max_parallelism=vertex.max_parallelism,
                key_groups=vertex.key_groups_of(subtask),
                attempt=self.attempt,
                job_name=graph.name,
                job_id=package.job_id,
                is_checkpointed=self._snapshots.is_regular,
                metrics=MetricGroup(services.clock),
                settings=package.settings,
                clock=services.clock,
                console=services.console,
                deliver=partial(services.deliver, subtask),
                operator_state=self._operator_state(vertex, chained.operator_id),
                watermark=_received(vertex, chained, restored),
                emitted_watermark=_time_of(chained, restored).emitted,
                has_ended=restored.is_finished,
                directory=services.directory,
                owned_directory=_owned_by(chained.operator_id, self._snapshots.directory),
                origin_directory=(
                    None
                    if self._origin == self._snapshots.directory
                    else _owned_by(chained.operator_id, self._origin)
                ),
                poison=self._poison_orders(vertex, chained),
                skip=partial(self._skip, vertex.id),
                permit=self._permit,
                wake=services.wake,
            )
            for chained in vertex.chain
        ]
        writers = [
            (
                edge.source_operator,
                edge.side_tag,
                ChannelWriter(edge, subtask, vertex, graph.vertices[edge.target], self._outbox),
            )
            for edge in graph.edges_from(vertex.id)
        ]
        return Subtask(
            vertex,
            [package.operator(chained.operator_id) for chained in vertex.chain],
            contexts,
            writers,
            _gate_of(vertex, graph, slot, restored),
            self._snapshotter,
        )

    def _poison_orders(self, vertex: Vertex, chained: ChainedOperator) -> PoisonOrders | None:
        """The orders for the operator; none for a dead-letter sink, which must not lose records."""
        tags = {edge.side_tag for edge in self._graph.edges_into(vertex.id)}
        if chained.parent is not None:
            tags = {chained.parent.side_tag}
        if self._poison is None or DEAD_LETTERS in tags:
            return None
        return self._poison.of(chained.operator_id)

    def _operator_state(self, vertex: Vertex, operator_id: OperatorId) -> OperatorStateStore:
        store = OperatorStateStore()
        if self._restored is not None:
            store.restore(self._restored.operator_states(vertex.id, operator_id))
        return store

    def open(self) -> None:
        """Open all subtasks, the last first; each restores its part of the checkpoint.

        Raises:
            DirectoryTaken: another driver took over the job.
            TidegateError: user code failed; everything is closed again.
        """
        self._is_opening = True
        try:
            for vertex in self._vertices:
                self._subtasks[vertex.id] = self._build(vertex)
            for vertex in reversed(self._vertices):
                snapshots = self._snapshots_for(vertex)
                self._permit.require()
                subtask = self._subtasks[vertex.id]
                with thread_named(subtask.name):
                    subtask.open(snapshots)
                self._in_flight[vertex.id] = self._in_flight_to(vertex)
        except Exception as error:
            self.close()
            if isinstance(error, CorruptCheckpoint):
                self._check_owned()  # the other driver may have deleted it
            raise
        self._is_opening = False

    def _check_owned(self, takes_over: bool = False) -> None:
        """Check ownership before an action that may harm another driver. Called by any thread.

        Sinks that open commit and abort the transactions that they find. Sinks that take over a
        name abort what was begun under it. Everything else that they commit belongs to a checkpoint
        from which that driver resumes: it needs no question to the storage.
        """
        snapshots = self._snapshots
        if not (takes_over or self._is_opening):
            return
        if snapshots.directory is not None and snapshots.ownership is not None:
            snapshots.ownership.check(open_store(snapshots.directory))

    @property
    def seeks(self) -> tuple[str, ...]:
        """The positions that its sources resume from, as text."""
        if self._restored is None:
            return ()
        return tuple(
            f"source {vertex.chain[0].name!r} ({self._slot + 1}/{vertex.parallelism}) seeks to "
            f"{shorten(split)}"
            for vertex in self._vertices
            if not self._restored.subtask(vertex.id).is_finished
            for split in self._restored.splits(vertex.id, vertex.chain[0].operator_id)
        )

    def _in_flight_to(self, vertex: Vertex) -> list[tuple[Channel, list[StreamElement]]]:
        if self._restored is None:
            return []
        return [
            (channel, list(decode(elements, self._edges[channel.edge].format)))
            for channel, elements in self._restored.in_flight(vertex.id)
        ]

    def _snapshots_for(self, vertex: Vertex) -> dict[OperatorId, list[OperatorSnapshot]] | None:
        restored = self._restored
        if restored is None:
            return None
        subtask = SubtaskIndex(self._slot)
        shared = restored.subtask(vertex.id).databases_to_share(
            vertex.key_groups_of(subtask), is_at_home=self._is_restored_at_home
        )
        id = SubtaskId(vertex.id, subtask)
        for operator_id, handle in shared.items():
            self._snapshotter.remember(restored.checkpoint_id, id, operator_id, handle)
        restored.verify_owned(vertex.id)
        return restored.snapshots(vertex.id)

    def run(
        self,
        step: StepNumber,
        level: Level,
        packets: Iterable[Packet],
        marks: Iterable[FailureMark] = (),
        request: StepRequest | None = None,
        on_packet: Callable[[Packet], None] | None = None,
    ) -> UnitAnswer:
        """Run every vertex of this level on the input for it.

        `request` comes with level 0, where the sources are. `on_packet` gets the first packets of
        the answer while the unit runs.
        """
        started = time.monotonic()
        self._outbox.on_complete = on_packet
        if step != self._step:
            self._begin(step)
        if request is not None:
            self._reads_sources = request.slice_records > 0
        self._marks.update((mark.slot, mark) for mark in marks)
        arrived = self._sort(level, packets)
        now = self._clock.time()
        for vertex in self._vertices:
            if vertex.level != level:
                continue
            subtask = self._subtasks[vertex.id]
            began = time.monotonic()
            with thread_named(subtask.name):
                self._run_subtask(subtask, request, arrived.get(vertex.id, {}), now)
            subtask.worked += time.monotonic() - began
        self.caller.ran(self._sources.values())
        self._has_uncounted = True
        self.send_counts_when_due()
        packets = tuple(self._outbox.take_packets())
        self._outbox.on_complete = None
        self._busy_seconds += time.monotonic() - started
        is_last = level == self._last_level
        report = self._report() if is_last else SlotReport(slot=self._slot)
        return UnitAnswer(packets, tuple(self._marks.values()), report)

    def _run_subtask(
        self,
        subtask: Subtask,
        request: StepRequest | None,
        arrived: Mapping[Channel, list[Packet]],
        now: float,
    ) -> None:
        vertex = subtask.vertex.id
        subtask.announce()
        if (overtaken := self._in_flight.pop(vertex, None)) is not None:
            subtask.feed(overtaken)
        if subtask.source is not None and request is not None:
            self._sources[vertex] = subtask.run_slice(
                request.slice_records,
                request.slice_bytes,
                request.barriers,
                request.assignments.get((vertex, SubtaskIndex(self._slot))),
                request.group_watermarks,
            )
        subtask.feed(self._inputs_of(vertex, arrived))
        subtask.end_slice(now)

    def tap(self, edge: EdgeId, tap: EdgeTap) -> None:
        """Sample the records on an edge."""
        if not any(subtask.tap(edge, tap) for subtask in self._subtasks.values()):
            tap.finish()

    def _skip(self, vertex: VertexId, letter: DeadLetter) -> None:
        self._skipped[vertex] = self._skipped.get(vertex, 0) + 1
        if len(self._letters) < _LETTERS_AT_ONCE:
            self._letters.append(letter)

    def send_counts_when_due(self) -> None:
        """Send the metrics of functions: about once a second, and when the pipeline is idle."""
        if self._has_uncounted and time.monotonic() - self._counted_at >= _COUNTING_SECONDS:
            self._send_counts()

    def _send_counts(self) -> None:
        self._has_uncounted = False
        self._counted_at = time.monotonic()
        subtasks = self._subtasks.items()
        metrics = {id: found for id, subtask in subtasks if (found := subtask.metrics())}
        accumulators: list[tuple[str, bytes]] = []
        for _, subtask in subtasks:
            for name, accumulator in subtask.accumulators():
                try:
                    accumulators.append((name, pickle.dumps(accumulator, protocol=5)))
                except Exception as error:
                    _log.warning("accumulator %r of %s is lost: %s", name, subtask.name, error)
        if metrics or accumulators:
            counts = UserCounts(self._pipeline, self.attempt, metrics, tuple(accumulators))
            self._services.send(counts)
        if self._skipped:
            self._services.send(RecordsSkipped(self._skipped, tuple(self._letters)))
            self._skipped, self._letters = {}, []

    def _begin(self, step: StepNumber) -> None:
        self._step = step
        self._busy_seconds = 0.0
        self._spill.end_step()
        self._outbox.begin_step(step)
        self._sources.clear()
        for checkpoint_id in self.caller.begin():
            for subtask in self._subtasks.values():
                subtask.abort(checkpoint_id)

    def _sort(
        self, level: Level, packets: Iterable[Packet]
    ) -> dict[VertexId, dict[Channel, list[Packet]]]:
        """The packets of this level by vertex and channel; packets for later levels are parked."""
        arrived: dict[VertexId, dict[Channel, list[Packet]]] = {}
        for packet in (*self._parked.pop(level, ()), *packets):
            target = self._graph.vertices[packet.header.target_vertex]
            if target.level > level:
                waiting = Packet(packet.header, self._spill.keep(loaded(packet.body)))
                self._parked.setdefault(target.level, []).append(waiting)
            else:
                by_channel = arrived.setdefault(target.id, {})
                by_channel.setdefault(packet.header.channel, []).append(packet)
        return arrived

    def is_available(self) -> bool:
        """Whether there is input that may be read, or a timer that is due."""
        if any(seconds <= 0 for seconds in self._timers_in()):
            return True
        subtasks = self._subtasks.values()
        return self._reads_sources and any(subtask.is_available() for subtask in subtasks)

    def next_look(self) -> float:
        """In how many seconds to look again whether anything is available."""
        work_in: list[float] = []
        if not self.caller.has_called:
            work_in += [self._clock.sleep_for(seconds) for seconds in self._timers_in()]
            if self._reads_sources:
                work_in += [subtask.available_in() for subtask in self._subtasks.values()]
        if self._has_uncounted:
            work_in.append(self._counted_at + _COUNTING_SECONDS - time.monotonic())
        return self.caller.next_look(work_in)

    def _timers_in(self) -> list[float]:
        now = self._clock.time()
        timers = [subtask.next_timer() for subtask in self._subtasks.values()]
        return [timer - now for timer in timers if timer is not None]

    def abort_checkpoint(self, checkpoint_id: CheckpointId) -> None:
        """Abort a checkpoint: records that waited for it are released in the next step."""
        self._snapshotter.abort(checkpoint_id)
        self.caller.abort(checkpoint_id)

    def complete_checkpoint(self, checkpoint_id: CheckpointId) -> TidegateError | None:
        """Notify operators of a durable checkpoint; returns the first failure."""
        self._snapshotter.complete(checkpoint_id)
        for subtask in self._subtasks.values():
            subtask.complete(checkpoint_id)
        failures = [subtask.failure for subtask in self._subtasks.values()]
        return next((failure for failure in failures if failure is not None), None)

    def close(self) -> TidegateError | None:
        """Close all subtasks; returns the first failure of user code.

        Without a lease they are not closed: user code may write or roll back in `close()`.
        """
        self._snapshotter.close()
        if not self._permit.is_valid():
            return None
        failures: list[TidegateError | None] = []
        for subtask in self._subtasks.values():
            with thread_named(subtask.name):
                failures.append(subtask.close())
        self._send_counts()
        return next((failure for failure in failures if failure is not None), None)

    def _inputs_of(
        self, vertex: VertexId, packets: Mapping[Channel, list[Packet]]
    ) -> Iterable[tuple[Channel, Iterable[StreamElement]]]:
        """The input by channel in a fixed order, including channels within this slot."""
        local = self._outbox.take_local(vertex)
        for channel in sorted({*packets, *local}):
            yield channel, local.get(channel, ())
            for packet in packets.get(channel, ()):
                body = loaded(packet.body)
                self._received[vertex] += len(body)
                yield channel, decode(body, self._edges[channel.edge].format)

    def _report(self) -> SlotReport:
        subtasks = self._subtasks
        timers = [t for s in subtasks.values() if (t := s.next_timer()) is not None]
        rooms = [room for s in subtasks.values() if (room := s.room()) is not None]
        sent = {id: s.sent(self._outbox.sizes) for id, s in subtasks.items()}
        return SlotReport(
            slot=self._slot,
            failures=tuple(
                SubtaskFailure(id, SubtaskIndex(self._slot), s.failure)
                for id, s in subtasks.items()
                if s.failure is not None
            ),
            marks=tuple(self._marks.values()),
            sources=dict(self._sources),
            records_in={id: s.records_in for id, s in subtasks.items()},
            records_out={id: s.records_out for id, s in subtasks.items()},
            records_taken=sum(s.records_taken for s in subtasks.values()),
            bytes_in=dict(self._received + self._outbox.handed_over),
            bytes_out={id: sum(size for _, size in each.values()) for id, each in sent.items()},
            finished=frozenset(id for id, s in subtasks.items() if s.is_finished),
            watermarks={id: w for id, s in subtasks.items() if (w := s.watermark) != NO_WATERMARK},
            idle_channels={id: idle for id, s in subtasks.items() if (idle := s.idle_channels)},
            timer_in=min(timers) - self._clock.time() if timers else None,
            busy_seconds=self._busy_seconds,
            worked={id: s.worked for id, s in subtasks.items()},
            sent={edge: traffic for each in sent.values() for edge, traffic in each.items()},
            room=min(rooms, default=None),
        )


def _owned_by(operator_id: OperatorId, job_directory: str | None) -> str | None:
    """The directory for the files of one operator, next to the job's checkpoints."""
    return None if job_directory is None else below(job_directory, f"{TASK_OWNED}/{operator_id}")


def _gate_of(
    vertex: Vertex, graph: JobGraph, slot: SlotIndex, restored: SubtaskRestore
) -> InputGate:
    channels: dict[Channel, int] = {}
    for edge in graph.edges_into(vertex.id):
        senders = graph.vertices[edge.source].parallelism
        for channel in channels_into(edge, slot, senders, vertex.parallelism):
            channels[channel] = edge.input_index
    time = _time_of(vertex.chain[0], restored)
    return InputGate(channels or {REQUESTS: 0}, ended_inputs=restored.ended_inputs, time=time)


def _time_of(chained: ChainedOperator, restored: SubtaskRestore) -> TimeHandle:
    found = restored.operators.get(chained.operator_id)
    return TimeHandle() if found is None else found.time


def _received(vertex: Vertex, chained: ChainedOperator, restored: SubtaskRestore) -> int:
    """The last watermark that an operator received before the checkpoint."""
    if chained.parent is None:
        return _time_of(chained, restored).received
    return _time_of(vertex.chain[chained.parent.operator_index], restored).emitted
