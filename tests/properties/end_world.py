"""Jobs with bounded inputs and committing sinks, in one thread, in any order of events.

Subtasks, operators and the classes of the protocol are real; threads, steps, stores and the
external system are simulated. A pipeline is one chain in every slot:

    tap ──▶ a function with operator state ──▶ sink

Streams have different lengths, so subtasks end one after the other. `stop_world` simulates stops
and drains.
"""

from __future__ import annotations

import pickle
import random
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from typing import Any

import cloudpickle

from tests.programs import apply, graph_of, mapped, read
from tests.properties.ledgers import Ledger, Transfers
from tests.taps import Tap, TapSplit
from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.checkpoint.statistics import SubtaskStatistics
from tidegate.connectors.sink import Committer, CommittingWriter, SupportsCommitter
from tidegate.core.checkpoint_settings import CheckpointSettings
from tidegate.core.errors import ExternalError, TidegateError
from tidegate.core.ids import SubtaskId
from tidegate.core.modes import FailoverStrategy, SavepointFormat
from tidegate.graph.job_graph import JobGraph
from tidegate.graph.job_graph import Pipeline as PipelineOfGraph
from tidegate.operators.checkpointed import CheckpointedFunction
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.operators.endpoints.two_phase_commit import TwoPhaseCommitOperator
from tidegate.operators.functions import MapFunction
from tidegate.operators.stateless import MapOperator
from tidegate.protocol.assembly import CheckpointedJob
from tidegate.protocol.checkpoints.coordinator import CheckpointCoordinator
from tidegate.protocol.checkpoints.instructions import (
    FailJob,
    Finish,
    NotifyAborted,
    NotifyComplete,
    Publish,
    StopJob,
    TriggerCheckpoint,
)
from tidegate.protocol.checkpoints.restore_orders import restore_orders
from tidegate.protocol.checkpoints.retained import RetainedCheckpoints
from tidegate.protocol.input_gate import REQUESTS, InputGate
from tidegate.protocol.messages import (
    CheckpointAcknowledged,
    CheckpointDeclined,
    RestoreOrder,
    SplitAssignment,
)
from tidegate.protocol.region import Region, RegionState
from tidegate.protocol.restart_strategy import regions_to_reset
from tidegate.slot.restored_state import RestoredState
from tidegate.slot.snapshotter import FrozenSubtask
from tidegate.slot.subtask import Subtask
from tidegate.state.descriptors import ListStateDescriptor
from tidegate.state.operator_state import OperatorStateStore
from tidegate.state.pointers import OperatorHandle, SubtaskSnapshot
from tidegate.state.snapshot.writer import MemoryTarget, SnapshotWriter
from tidegate.stream.elements import Barrier, BarrierKind, SavepointTarget, SnapshotRequest
from tidegate.testing.harness import OperatorHarness

TROUBLE = ExternalError("no room")
TARGET = SavepointTarget("/savepoints", "savepoint-1", SavepointFormat.CANONICAL)
CONTEXT = OperatorHarness(MapOperator(abs)).context
SETTINGS = CheckpointSettings(
    interval=timedelta(days=1),
    timeout=timedelta(seconds=60),
    max_concurrent=2,
    tolerable_failures=10**6,
)


class Outside(Ledger):
    """The external system of one pipeline, which can refuse a request."""

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex
        super().__init__(self.name)
        self.troubles: set[str] = set()
        self.unions: list[list[tuple[int, int]]] = []
        """What subtasks got from a union list, at each restore."""

    def fail_at(self, what: str) -> None:
        if what in self.troubles:
            self.troubles.discard(what)
            raise RuntimeError(f"no {what} now")

    def prepare(self, transaction: str) -> None:
        """Record by record: if it fails in the middle, it cannot be repeated."""
        written = self.prepared.setdefault(transaction, [])
        for record in self.open[transaction]:
            written.append(record)
            self.fail_at("prepare")
        del self.open[transaction]

    def commit(self, transaction: str) -> None:
        self.fail_at("commit")
        if transaction not in self.committed:
            self.committed[transaction] = self.prepared.pop(transaction)
        self.fail_at("answer to a commit")

    @property
    def visible(self) -> Counter[Any]:
        return Counter(record for records in self.committed.values() for record in records)

    def as_of(self, positions: Sequence[int]) -> Outside:
        """Its state if nothing after these positions had been read."""
        other = Outside()
        for mine, theirs in ((self.prepared, other.prepared), (self.committed, other.committed)):
            for transaction, records in mine.items():
                if all(place < positions[stream] for stream, place in records):
                    theirs[transaction] = deepcopy(records)
        return other


class Found:
    """Finds the external system by name, in every copy."""

    def __init__(self, outside: Outside) -> None:
        self.name = outside.name

    @property
    def ledger(self) -> Any:
        return Ledger.ledgers[self.name]


class Function(Found, Transfers):
    """A sink with transactions."""

    def invoke(self, transaction, value, context):
        self.ledger.fail_at("record")
        super().invoke(transaction, value, context)

    def pre_commit(self, transaction):
        self.ledger.prepare(transaction)

    def commit(self, transaction):
        self.ledger.commit(transaction)


class Account(Found, SupportsCommitter):
    """A sink whose writers prepare, and whose committers commit."""

    def create_writer(self, context):
        for lost in self.ledger.prepared.keys() - set(context.recovered):
            del self.ledger.prepared[lost]
        return Clerk(self.ledger)

    def create_committer(self, context):
        return Cashier(self.ledger)


class Clerk(CommittingWriter):
    def __init__(self, ledger):
        self.ledger = ledger
        self.begin()

    def begin(self):
        self.transaction = uuid.uuid4().hex
        self.ledger.open[self.transaction] = []

    def write(self, batch):
        self.ledger.fail_at("record")
        self.ledger.open[self.transaction] += batch.records

    def prepare_commit(self):
        prepared = self.transaction
        self.ledger.prepare(prepared)
        self.begin()
        return [prepared]


class Cashier(Committer):
    def __init__(self, ledger):
        self.ledger = ledger

    def commit(self, committables):
        for each in committables:
            self.ledger.commit(each)


class Remembers(Found, MapFunction, CheckpointedFunction):
    """Every element was added by one of the first subtasks, and belongs to one subtask since."""

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.own = store.get_list_state(ListStateDescriptor("own"))
        self.all = store.get_union_list_state(ListStateDescriptor("all"))
        self.is_restored = context.is_restored()

    def open(self, runtime_context):
        if self.is_restored:
            self.ledger.unions.append(sorted(self.all.get()))
        else:
            width = runtime_context.get_number_of_parallel_subtasks()
            self.own.update([(runtime_context.get_index_of_this_subtask(), width)])

    def map(self, value):
        return value

    def snapshot_state(self, context):
        self.all.update(self.own.get())


SINKS = {
    "function": lambda outside: TwoPhaseCommitOperator(Function(outside)),
    "committer": lambda outside: SinkOperator(Account(outside)),
}


class Slot:
    """The subtask of one pipeline in one slot, with a control line that delivers in order."""

    def __init__(self, pipeline: Pipeline, index: int, order: RestoreOrder | None) -> None:
        self.pipeline, self.world = pipeline, pipeline.world
        self.attempt = pipeline.region.attempt
        self.index = index
        self.id = SubtaskId(pipeline.vertex.id, index)
        self.barriers: deque[Barrier] = deque()
        self.notices: deque[tuple[str, int]] = deque()
        self.frozen: deque[FrozenSubtask] = deque()
        self.restored = None if order is None else RestoredState(order)
        self.assignment: SplitAssignment | None = self._assignment()
        self.subtask = self._build()

    def _assignment(self) -> SplitAssignment:
        """Splits that are not restored are assigned once, in the first step."""
        streams = range(len(self.pipeline.tap.streams)) if self.restored is None else ()
        splits = [TapSplit(stream) for stream in streams[self.index :: self.pipeline.width]]
        return SplitAssignment(splits=tuple(splits), no_more=True)

    def _build(self) -> Subtask:
        vertex, restored = self.pipeline.vertex, self.restored
        contexts = []
        for chained in vertex.chain:
            store = OperatorStateStore()
            if restored is not None:
                store.restore(restored.operator_states(vertex.id, chained.operator_id))
            context = replace(
                CONTEXT,
                name=chained.name,
                operator_id=chained.operator_id,
                subtask=self.index,
                parallelism=vertex.parallelism,
                operator_state=store,
                has_ended=restored is not None and restored.subtask(vertex.id).is_finished,
            )
            contexts.append(context)
        operators = [pickle.loads(cloudpickle.dumps(each.operator)) for each in vertex.chain]
        return Subtask(vertex, operators, contexts, (), InputGate({REQUESTS: 0}), self)

    def open(self) -> None:
        restored = self.restored
        self.subtask.open(None if restored is None else restored.snapshots(self.id.vertex))

    def step(self) -> None:
        """Read a record, after a barrier if one was requested."""
        barriers = [self.barriers.popleft()] if self.barriers else []
        self.subtask.run_slice(1, 1 << 20, barriers, self.assignment)
        self.subtask.end_slice(0.0)
        self.assignment = None
        self._check()

    def hear(self) -> None:
        match self.notices.popleft():
            case ("aborted", number):
                self.subtask.abort(number)
            case ("complete", number):
                self.subtask.complete(number)
                if self.subtask.failure is None:
                    self.world.coordinator.heard(
                        self.pipeline.number, self.attempt, number, self.index
                    )
        self._check()

    def _check(self) -> None:
        while self.frozen:
            self._write(self.frozen.popleft())
        if self.subtask.failure is not None:
            self.pipeline.fail(self.subtask.failure)

    def write(self, frozen: FrozenSubtask) -> None:
        self.frozen.append(frozen)

    def _write(self, frozen: FrozenSubtask) -> None:
        number = frozen.barrier.checkpoint_id
        if self.world.has_trouble():
            self.decline(self.id, number, TROUBLE)
            return
        writer = SnapshotWriter(MemoryTarget(1 << 20))
        handles = [
            OperatorHandle(
                operator_id=each.operator_id,
                operator=writer.write(pickle.dumps(each.states)) if each.states else None,
                operator_states=tuple(state.facts for state in each.states),
                source_splits=each.source_splits,
            )
            for each in frozen.operators
        ]
        acknowledged = CheckpointAcknowledged(
            checkpoint_id=number,
            subtask=self.id,
            attempt=self.attempt,
            snapshot=SubtaskSnapshot(operators=tuple(handles), ended_inputs=frozen.ended_inputs),
            is_finished=frozen.is_finished,
            statistics=SubtaskStatistics(),
        )
        self.world.to_driver.append(acknowledged)

    def decline(
        self, subtask: SubtaskId, number: int, error: TidegateError, *, is_skipped: bool = False
    ) -> None:
        declined = CheckpointDeclined(
            checkpoint_id=number,
            subtask=subtask,
            attempt=self.attempt,
            error=error,
            is_skipped=is_skipped,
        )
        self.world.to_driver.append(declined)


class Pipeline:
    """A region with its slots."""

    def __init__(self, world: World, graph: PipelineOfGraph, outside: Outside, tap: Tap) -> None:
        self.world, self.graph, self.outside, self.tap = world, graph, outside, tap
        self.number = graph.id
        (self.vertex,) = graph.vertices
        self.width = self.vertex.parallelism
        self.region = Region(self.number, range(self.width))
        self.slots: list[Slot] = []

    @property
    def is_running(self) -> bool:
        return self.region.state is RegionState.RUNNING

    @property
    def has_ended(self) -> bool:
        return self.is_running and all(slot.subtask.is_finished for slot in self.slots)

    def actions(self) -> Iterator[Callable[[], None]]:
        waits = self.region.state in (RegionState.CREATED, RegionState.RESTARTING)
        if waits and not self.world.coordinator.is_publishing:
            yield self.deploy
        for slot in self.slots if self.is_running else ():
            if slot.barriers or not slot.subtask.is_finished:
                yield slot.step
            if slot.notices:
                yield slot.hear

    def deploy(self) -> None:
        attempt = self.region.deploy()
        point = self.world.coordinator.retained.restore_point
        orders = {} if point is None else restore_orders(self.graph, replace(point, location=None))
        self.slots = []
        for index in range(self.width):
            slot = Slot(self, index, orders.get(index))
            self.slots.append(slot)
            try:
                slot.open()
            except TidegateError as error:
                self.fail(error)
                return
            self.region.deployed(index, attempt)

    def fail(self, cause: TidegateError) -> None:
        """Close the subtasks, unless their processes are gone."""
        world = self.world
        if self.region.fail(self.region.attempt, cause) is None:
            return
        world.carry_out(world.coordinator.region_failed(world.now))
        states = {each.number: each.region.state for each in world.pipelines}
        for number in regions_to_reset(world.failover, self.number, states):
            world.pipelines[number].reset()

    def reset(self) -> None:
        for slot in self.slots:
            if self.world.chance(0.5):
                slot.subtask.close()
        self.slots = []
        self.region.restart()

    @property
    def expected(self) -> Counter[Any]:
        return Counter(record for stream in self.tap.streams for record in stream)

    def positions_in(self, checkpoint: Checkpoint) -> list[int]:
        """The read positions; readers do not report streams they have finished."""
        positions = [len(stream) for stream in self.tap.streams]
        record = checkpoint.metadata.operators[self.vertex.chain[0].operator_id]
        for handle in record.subtasks.values():
            for split in map(pickle.loads, handle.source_splits):
                positions[split.stream] = split.position
        return positions


class Work:
    """What a job reads and where it writes: the same for every driver."""

    def __init__(self, sink: str, lengths: Sequence[Sequence[int]]) -> None:
        self.sink = sink
        self.taps = [
            Tap(*([(s, n) for n in range(size)] for s, size in enumerate(streams)), is_open=True)
            for streams in lengths
        ]
        self.outsides = [Outside() for _ in lengths]

    def graph(self, width: int) -> JobGraph:
        sinks = []
        for number, (tap, outside) in enumerate(zip(self.taps, self.outsides, strict=True)):
            source = read(tap, uid=f"source {number}")
            remembers = mapped(Remembers(outside), source, uid=f"remembers {number}")
            operator = SINKS[self.sink](outside)
            sinks.append(apply(operator, remembers, is_sink=True, uid=f"sink {number}"))
        return graph_of(*sinks, parallelism=width)


class World:
    """Successive drivers of one job, with the durable checkpoints."""

    def __init__(
        self,
        work: Work,
        width: int,
        rnd: random.Random,
        origin: Checkpoint | None = None,
        failover: FailoverStrategy = FailoverStrategy.FULL,
    ) -> None:
        self.work, self.rnd, self.now, self.failover = work, rnd, 0.0, failover
        self.trouble = 0
        self.next_id = 1
        self.durable: list[Checkpoint] = []
        self.savepoints: list[Checkpoint] = []
        self.surprises: deque[Callable[[], None]] = deque()
        """What happens right after a publication."""
        self.origins = [] if origin is None else [origin]
        self.start_driver(width)

    def start_driver(self, width: int) -> None:
        """Start a driver that continues the work of the last one."""
        graph = self.work.graph(width)
        self.to_driver: deque[CheckpointAcknowledged | CheckpointDeclined] = deque()
        self.store: deque[TriggerCheckpoint | Publish] = deque()
        retained = RetainedCheckpoints(SETTINGS.num_retained, self.durable, self.origins)
        self.coordinator = CheckpointCoordinator(
            SETTINGS,
            CheckpointedJob("job", graph, None),
            now=self.now,
            retained=retained,
            next_id=self.next_id,
        )
        self.pipelines = [
            Pipeline(self, *each)
            for each in zip(graph.pipelines, self.work.outsides, self.work.taps, strict=True)
        ]

    def lose_driver(self, width: int) -> None:
        """Kill the driver, perhaps right after a checkpoint became durable."""
        for order in self.store:
            if isinstance(order, Publish) and self.chance(0.5):
                self._keep(order.checkpoint)
        self.next_id += 100
        self.start_driver(width)

    def _keep(self, checkpoint: Checkpoint) -> None:
        if checkpoint.metadata.kind is BarrierKind.SAVEPOINT:
            self.savepoints.append(checkpoint)
        else:
            self.durable = [checkpoint]

    def chance(self, probability: float) -> bool:
        return self.rnd.random() < probability

    def has_trouble(self) -> bool:
        """Whether writing currently fails."""
        self.trouble = max(0, self.trouble - 1)
        return self.trouble == 1

    # --- what happens -------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return all(each.region.state is RegionState.FINISHED for each in self.pipelines)

    def advance(self, count: int) -> None:
        for _ in range(count):
            actions = [each for pipeline in self.pipelines for each in pipeline.actions()]
            actions += [self.use_store] if self.store else []
            actions += [self.receive] if self.to_driver else []
            if actions:
                self.rnd.choice(actions)()
            self.look()

    def look(self) -> None:
        for pipeline in self.pipelines:
            pipeline.region.all_ended = pipeline.has_ended
        instructions, _ = self.coordinator.look(self.now, self.now, self.regions)
        self.carry_out(instructions)

    @property
    def regions(self) -> dict[int, Region]:
        return {each.number: each.region for each in self.pipelines}

    def order(self, kind: BarrierKind) -> None:
        is_savepoint = kind is BarrierKind.SAVEPOINT
        target = TARGET if is_savepoint else None
        self.coordinator.request(SnapshotRequest(kind, target, awaits_next=is_savepoint))
        self.look()

    def receive(self) -> None:
        match self.to_driver.popleft():
            case CheckpointAcknowledged() as written:
                self.carry_out(self.coordinator.acknowledged(written, self.now))
            case CheckpointDeclined() as refusal:
                self.carry_out(self.coordinator.declined(refusal, self.now))

    def use_store(self) -> None:
        match self.store.popleft():
            case TriggerCheckpoint(barrier, pipelines) if self.coordinator.begun(
                barrier.checkpoint_id
            ):
                for number in pipelines:
                    for slot in self.pipelines[number].slots:
                        slot.barriers.append(barrier)
            case Publish(checkpoint) if self.has_trouble():
                number = checkpoint.checkpoint_id
                self.carry_out(self.coordinator.not_published(number, TROUBLE, self.now))
            case Publish(checkpoint):
                self._keep(checkpoint)
                self.carry_out(self.coordinator.published(checkpoint, self.now, self.regions))
                if self.surprises:
                    self.surprises.popleft()()

    def carry_out(self, instructions: list) -> None:
        for instruction in instructions:
            match instruction:
                case TriggerCheckpoint() | Publish():
                    self.store.append(instruction)
                case NotifyAborted(number):
                    self._tell("aborted", number)
                case NotifyComplete(checkpoint):
                    self._tell("complete", checkpoint.checkpoint_id)
                case Finish(number):
                    self.pipelines[number].region.finish()
                case FailJob(cause):
                    for pipeline in self.pipelines:
                        pipeline.fail(cause)
                case StopJob():
                    self.lose_driver(self.pipelines[0].width)

    def _tell(self, what: str, number: int) -> None:
        for pipeline in self.pipelines:
            for slot in pipeline.slots if pipeline.is_running else ():
                slot.notices.append((what, number))

    # --- the end --------------------------------------------------------------------------------

    def finish(self) -> None:
        """Without further faults, the job ends, and everything it read is visible once."""
        for _ in range(100):
            self.advance(20)
            self.now += 1.0
            if self.is_over:
                break
        states = [(pipeline.number, pipeline.region.state.name) for pipeline in self.pipelines]
        assert self.is_over, f"the job does not end: {states}"
        for pipeline in self.pipelines:
            assert pipeline.outside.visible == pipeline.expected
            for found in pipeline.outside.unions:
                width = found[0][1] if found else 0
                assert found == [(index, width) for index in range(width)] != []

    def go_on_from(self, savepoint: Checkpoint, width: int) -> None:
        """A job started from a savepoint ends as if nothing had happened after it."""
        work = Work(self.work.sink, [])
        work.taps = self.work.taps
        work.outsides = [
            pipeline.outside.as_of(pipeline.positions_in(savepoint)) for pipeline in self.pipelines
        ]
        World(work, width, self.rnd, savepoint).finish()
