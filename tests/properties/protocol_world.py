"""A driver, its slots and a Spark that misbehaves, in one thread under a clock moved by hand.

The protocol's own classes are the real ones; threads, sockets and Spark are played. The job is

    source ──▶ sum ──▶ sink          one of each in every slot, records spread over all slots

A record is (source, position). Sums and sinks remember every record they took, so "exactly once"
can be read off their state. The world keeps what nobody in it knows, and complains (AssertionError)
as soon as the protocol lets something happen that must not.

Played: any order and delay of everything; step tasks that are repeated, doubled and delayed beyond
the end of their job, with their packets shuffled and doubled; connections that fail; processes that
die, are cut off, wake up, are started twice; clocks that run at different speeds; user code that
fails; checkpoints that are triggered, aborted and restored. Not played: several pipelines, bytes
that change on their way, a control line that ends while its process goes on.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field

from tidegate.checkpoint.completed import Acknowledgement, CompletedCheckpoint
from tidegate.checkpoint.pending import AbortReason, AckResult, PendingCheckpoint, PendingState
from tidegate.checkpoint.plan import (
    PipelineFacts,
    PipelineProgress,
    SubtaskId,
    VertexFacts,
    plan_checkpoint,
)
from tidegate.core.errors import ExternalError, SlotLost
from tidegate.runtime.exchange.packet import Channel, FailureMark, Packet, PacketHeader
from tidegate.runtime.incarnation import Incarnation
from tidegate.runtime.jobmanager.region import Region, RegionFails, RegionState, RunStep, StepDone
from tidegate.runtime.jobmanager.slot_pool import (
    CancelLaunch,
    Dismiss,
    Launch,
    SlotGone,
    SlotPool,
    SlotReady,
)
from tidegate.runtime.taskmanager.input_gate import (
    InputGate,
    Records,
    SnapshotAborted,
    TakeSnapshot,
)
from tidegate.runtime.taskmanager.slot_state import Exit, OpenSubtasks, SlotState
from tidegate.runtime.taskmanager.work_unit import Pending, RunNow, Sealed, Stale, UnitKey, WorkUnits
from tidegate.stream.batch import Batch
from tidegate.stream.elements import Barrier

LEASE = 10.0
SOURCE, SUM, SINK = 0, 1, 2
LEVELS = (SOURCE, SUM, SINK)
PIPELINE = 0


@dataclass(frozen=True)
class Answer:
    """What a unit leaves behind: packets by the slot they are for, and marks."""

    packets: dict[int, tuple[Packet, ...]]
    marks: tuple[FailureMark, ...]


@dataclass
class StepJob:
    """One Spark job for a step."""

    order: RunStep
    barriers: tuple[Barrier, ...]
    addresses: dict[int, Process]
    level: int = 0
    outputs: dict[tuple[int, int], Answer] = field(default_factory=dict)
    is_over: bool = False


@dataclass(eq=False)
class Task:
    """One attempt of Spark's at the task of a stage; it may outlive its job."""

    job: StepJob
    level: int
    slot: int
    packets: list[Packet]
    marks: tuple[FailureMark, ...]
    waits: bool = False
    is_over: bool = False

    @property
    def key(self) -> UnitKey:
        return UnitKey(self.job.order.attempt, self.job.order.step, self.level)


class Subtasks:
    """The operators of one attempt in one process."""

    def __init__(self, process: Process, attempt: int, restored: CompletedCheckpoint | None) -> None:
        self.process, self.attempt = process, attempt
        slot, slots = process.slot, process.world.slots
        self.position = 0
        self.taken: dict[int, Counter] = {SUM: Counter(), SINK: Counter()}
        if restored is not None:
            self.position = restored.snapshots[SubtaskId(SOURCE, slot)]
            for level in (SUM, SINK):
                self.taken[level].update(restored.snapshots[SubtaskId(level, slot)])
        self.gates = {
            level: InputGate({Channel(level, source): 0 for source in range(slots)})
            for level in (SUM, SINK)
        }
        self.last_seen: dict[tuple, tuple] = {}
        self.waiting_barriers: deque[Barrier] = deque()
        self.growing: dict[tuple[int, int], list] = {}
        self.failure: FailureMark | None = None

    def emit(self, level: int, target: int, element: object) -> None:
        """Send an element of this slot's subtask at `level` to the next vertex in `target`."""
        self.growing.setdefault((level + 1, target), []).append(element)

    def take_packets(self, step: int) -> dict[int, tuple[Packet, ...]]:
        rnd, packets = self.process.world.rnd, {}
        for (vertex, target), elements in self.growing.items():
            cuts = sorted(rnd.randint(0, len(elements)) for _ in range(rnd.randint(0, 2)))
            pieces = [elements[a:b] for a, b in zip([0, *cuts], [*cuts, len(elements)], strict=True)]
            for sequence, piece in enumerate(pieces):
                header = PacketHeader(
                    self.attempt, step, vertex, self.process.slot, vertex, target, sequence
                )
                packets[target] = (*packets.get(target, ()), Packet(header, piece))
        self.growing.clear()
        return packets

    def run_source(self, barriers: tuple[Barrier, ...]) -> None:
        rnd = self.process.world.rnd
        self.waiting_barriers.extend(barriers)
        for _ in range(rnd.randint(0, 3)):
            if self.waiting_barriers and rnd.random() < 0.5:
                self.snapshot(SOURCE, self.waiting_barriers.popleft(), self.position)
            record = (self.process.slot, self.position)
            self.position += 1
            self.emit(SOURCE, rnd.randrange(self.process.world.slots), Batch.of_records([record]))
        if self.waiting_barriers and rnd.random() < 0.5:
            self.snapshot(SOURCE, self.waiting_barriers.popleft(), self.position)

    def feed(self, packet: Packet) -> None:
        level, channel = packet.header.target_vertex, packet.header.channel
        gate = self.gates[level]
        for element in packet.body:
            if self.failure is not None:
                return
            if type(element) is Batch and gate.open_input(channel) is not None:
                self.process_records(level, element)
            else:
                self.carry_out(level, gate.feed(channel, element, self.process.world.now))

    def abort(self, number: int) -> None:
        for level, gate in self.gates.items():
            self.carry_out(level, gate.abort(number, self.process.world.now))
        self.waiting_barriers = deque(
            barrier for barrier in self.waiting_barriers if barrier.checkpoint_id != number
        )

    def carry_out(self, level: int, deliveries: list) -> None:
        for delivery in deliveries:
            match delivery:
                case Records(_, batch):
                    self.process_records(level, batch)
                case TakeSnapshot(barrier, _, _):
                    self.snapshot(level, barrier, Counter(self.taken[level]))
                case SnapshotAborted(number, _):
                    self.process.send(("decline", number))

    def process_records(self, level: int, batch: Batch) -> None:
        rnd = self.process.world.rnd
        for record in batch.records:
            if self.failure is not None:
                return
            if self.process.user_code_fails:
                self.process.user_code_fails = False
                self.failure = FailureMark(self.process.slot, ExternalError("user code failed"))
                return
            source, position = record
            if level == SUM:
                assert self.last_seen.get(source, -1) < position, "records overtook each other"
                self.last_seen[source] = position
                self.emit(SUM, rnd.randrange(self.process.world.slots), Batch.of_records([record]))
            self.taken[level][record] += 1
            assert self.taken[level][record] == 1, f"{record} was counted twice"

    def snapshot(self, level: int, barrier: Barrier, state: object) -> None:
        if self.failure is not None:
            return
        if level != SINK:
            for target in range(self.process.world.slots):
                self.emit(level, target, barrier)
        subtask = SubtaskId(level, self.process.slot)
        ack = Acknowledgement(
            checkpoint_id=barrier.checkpoint_id,
            subtask=subtask,
            attempt=self.attempt,
            snapshot=state,
        )
        self.process.send(("ack", ack))

    def buffered(self, level: int) -> Counter:
        """Records that wait in a gate."""
        waiting = Counter()
        for fifo in self.gates[level]._waiting.values():
            for element, _ in fifo:
                if isinstance(element, Batch):
                    waiting.update(element.records)
        return waiting

    def in_transit(self) -> Counter:
        """Records emitted outside of a unit, on their way with the next step."""
        return Counter(
            record
            for elements in self.growing.values()
            for element in elements
            if isinstance(element, Batch)
            for record in element.records
        )


class Process:
    """A slot process with its control line."""

    def __init__(self, world: World, incarnation: Incarnation) -> None:
        self.world, self.slot, self.incarnation = world, incarnation.slot, incarnation
        self.state = SlotState(incarnation)
        self.units: WorkUnits[Answer] = WorkUnits(0)
        self.subtasks: Subtasks | None = None
        self.mailbox: deque = deque()
        self.to_driver: deque = deque()
        self.to_slot: deque = deque()
        self.is_alive, self.is_cut_off, self.user_code_fails = True, False, False
        self.speed = world.rnd.choice((0.98, 1.0, 1.02))
        self.offset = world.rnd.uniform(-1000, 1000)
        self.asked_at = self.now
        self.answers: dict[UnitKey, Answer] = {}
        self.send(("register", incarnation))

    @property
    def now(self) -> float:
        return self.world.now * self.speed + self.offset

    @property
    def may_act(self) -> bool:
        return self.is_alive and self.state.may_act(self.now)

    def send(self, message: tuple) -> None:
        self.to_driver.append(message)

    def die(self) -> None:
        self.is_alive = False
        self.to_driver.append(("line ended", self.incarnation))

    def beat(self) -> None:
        self.send(("beat", self.state.beat(self.now)))

    def receive(self) -> None:
        match self.to_slot.popleft():
            case ("accepted", lease):
                self.state.accepted(lease * self.speed, self.asked_at)
            case ("answer", number):
                self.state.answered(number, self.now)
            case ("dismiss", reason):
                self.state.exit(reason)
                self.die()
            case ("abort", number):
                self.mailbox.append(("abort", number))
            case ("deploy", attempt, restored):
                match self.state.deploy(PIPELINE, attempt, self.now):
                    case OpenSubtasks():
                        self.units.reset(attempt)
                        self.mailbox.append(("open", attempt, restored))
                    case Exit():
                        self.die()

    def deliver(self, task: Task) -> RunNow | Pending | Sealed[Answer] | Stale:
        """What a step-server thread does with a complete set."""
        outcome = self.units.complete(task.key, task.packets)
        if isinstance(outcome, RunNow):
            self.mailbox.append(("run", task.key, outcome.packets, task.marks, task.job.barriers))
        return outcome

    def run_mailbox(self) -> None:
        match self.mailbox.popleft():
            case ("open", attempt, restored):
                if attempt == self.units.attempt and self.may_act:
                    self.subtasks = Subtasks(self, attempt, restored)
                    self.send(("deployed", attempt))
            case ("abort", number):
                if self.subtasks is not None and self.may_act:
                    self.subtasks.abort(number)
            case ("run", key, packets, marks, barriers):
                self.run_unit(key, packets, marks, barriers)

    def run_unit(self, key: UnitKey, packets: tuple, marks: tuple, barriers: tuple) -> None:
        subtasks = self.subtasks
        if self.state.refusal(PIPELINE, key.attempt, self.now) is not None:
            return
        if subtasks is None or subtasks.attempt != key.attempt:
            return
        self.world.unit_runs(self, key)
        if key.level == SOURCE and subtasks.failure is None:
            subtasks.run_source(barriers)
        for packet in packets:
            if packet.header.target_vertex > key.level:
                subtasks.growing.setdefault(("parked", packet.header.place), []).append(packet)
            else:
                subtasks.feed(packet)
        answer = self.world.seal(self, subtasks, key, marks)
        assert self.answers.setdefault(key, answer) is answer
        self.units.seal(key, answer)


class World:
    """Everything at once; `actions` are what may happen next without anybody's fault."""

    def __init__(self, slots: int, rnd: random.Random) -> None:
        self.slots, self.rnd, self.now = slots, rnd, 0.0
        self.region = Region(PIPELINE, range(slots), max_step_tries=2)
        self.pool = SlotPool(slots, lease=LEASE, now=0.0)
        self.processes: list[Process] = []
        self.addresses: dict[int, Process] = {}
        self.launched: dict[int, int] = {}
        self.task_attempts: Counter = Counter()
        self.jobs_to_end: list[int] = []
        self.job: StepJob | None = None
        self.tasks: list[Task] = []
        self.unit_runs_seen: set = set()
        self.answers_seen: dict = {}
        self.next_checkpoint = 1
        self.pending: dict[int, PendingCheckpoint] = {}
        self.to_trigger: list[Barrier] = []
        self.restore_point: CompletedCheckpoint | None = None
        self.published: Counter = Counter()
        self.steps_done = 0
        self.carry_out(self.pool.start(self.now))
