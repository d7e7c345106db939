"""The slots of `protocol_world`: processes, and their subtasks."""

from __future__ import annotations

from collections import Counter, deque
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.played_jobs import acknowledgement, states_of
from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.core.errors import ExternalError
from tidegate.core.ids import SubtaskId
from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.input_gate import (
    InputGate,
    Records,
    SnapshotAborted,
    TakeSnapshot,
)
from tidegate.protocol.packet import Channel, FailureMark, Packet, PacketHeader
from tidegate.protocol.slot_machine import SlotMachine
from tidegate.protocol.units import RunNow, UnitKey
from tidegate.stream.batch import Batch
from tidegate.stream.elements import Barrier

if TYPE_CHECKING:
    from tests.properties.protocol_world import World

SOURCE, SUM, SINK = 0, 1, 2
PIPELINE = 0


@dataclass(frozen=True)
class Answer:
    """The output of a unit: packets by target slot, and marks for all slots."""

    packets: dict[int, tuple[Packet, ...]]
    marks: tuple[FailureMark, ...]


class Subtasks:
    """Source, sum and sink of one attempt in one process. Their state is what they received."""

    def __init__(self, process: Process, attempt: int, restored: Checkpoint | None):
        self.process, self.world, self.slot = process, process.world, process.slot
        self.attempt = attempt
        self.taken = {SUM: Counter(), SINK: Counter()}
        self.position = 0
        if restored is not None:
            states = states_of(restored)
            self.position = states[SubtaskId(SOURCE, self.slot)]
            for level, taken in self.taken.items():
                taken.update(states[SubtaskId(level, self.slot)])
        self.gates = {
            level: InputGate({Channel(level, source): 0 for source in range(self.world.slots)})
            for level in self.taken
        }
        self.highest_seen: dict[int, int] = {}
        self.triggers: deque[Barrier] = deque()
        self.emitted: dict[tuple[int, int], list] = {}
        self.parked: list[Packet] = []
        self.marks: dict[int, FailureMark] = {}
        self.has_failed = False

    def run_unit(self, key: UnitKey, packets, marks, barriers) -> Answer:
        self.marks.update((mark.slot, mark) for mark in marks)
        if key.level == SOURCE:
            self.run_source(barriers)
        due, self.parked = [*self.parked, *packets], []
        for packet in due:
            if packet.header.target_vertex > key.level:
                self.parked.append(packet)
            else:
                self.feed(packet)
        return Answer(self.take_packets(key), tuple(self.marks.values()))

    def run_source(self, barriers) -> None:
        self.triggers.extend(barriers)
        for _ in range(self.world.rnd.randint(0, 3)):
            self.maybe_put_barrier()
            self.emit(SUM, (self.slot, self.position))
            self.position += 1
        self.maybe_put_barrier()

    def maybe_put_barrier(self) -> None:
        if self.triggers and self.world.rnd.random() < 0.4:
            self.snapshot(SOURCE, self.triggers.popleft(), self.position)

    def feed(self, packet: Packet) -> None:
        level, channel = packet.header.target_vertex, packet.header.channel
        for element in packet.body:
            if self.has_failed:
                return
            if type(element) is Batch and self.gates[level].open_input(channel) is not None:
                self.take(level, element)
            else:
                self.deliver(level, self.gates[level].feed(channel, element, self.world.now))

    def abort(self, number: int) -> None:
        for level, gate in self.gates.items():
            self.deliver(level, gate.abort(number, self.world.now))
        self.triggers = deque(each for each in self.triggers if each.checkpoint_id != number)

    def deliver(self, level: int, deliveries) -> None:
        for delivery in deliveries:
            match delivery:
                case Records(_, batch):
                    self.take(level, batch)
                case TakeSnapshot(barrier):
                    self.snapshot(level, barrier, Counter(self.taken[level]))
                case SnapshotAborted(number, _):
                    self.process.send("decline", number)

    def take(self, level: int, batch: Batch) -> None:
        for record in batch.records:
            if self.process.user_code_fails:
                self.process.user_code_fails, self.has_failed = False, True
                self.marks[self.slot] = FailureMark(self.slot, ExternalError("user code failed"))
            if self.has_failed:
                return
            self.taken[level][record] += 1
            assert self.taken[level][record] == 1, f"{record} was counted twice"
            if level == SUM:
                source, position = record
                assert self.highest_seen.get(source, -1) < position, "records overtook records"
                self.highest_seen[source] = position
                self.emit(SINK, record)

    def snapshot(self, level: int, barrier: Barrier, state: object) -> None:
        if self.has_failed:
            return
        if level != SINK:
            for target in range(self.world.slots):
                self.emitted.setdefault((level + 1, target), []).append(barrier)
        ack = acknowledgement(
            barrier.checkpoint_id, SubtaskId(level, self.slot), state, attempt=self.attempt
        )
        self.process.send("ack", ack)

    def emit(self, vertex: int, record) -> None:
        target = self.world.rnd.randrange(self.world.slots)
        self.emitted.setdefault((vertex, target), []).append(Batch.of_records([record]))

    def take_packets(self, key: UnitKey) -> dict[int, tuple[Packet, ...]]:
        """What can still travel in this step; what was emitted between units may have to wait."""
        packets: dict[int, tuple[Packet, ...]] = {}
        for vertex, target in [place for place in self.emitted if place[0] > key.level]:
            elements = self.emitted.pop((vertex, target))
            cut = self.world.rnd.randint(0, len(elements))
            for sequence, piece in enumerate((elements[:cut], elements[cut:])):
                header = PacketHeader(
                    key.attempt, key.step, vertex, self.slot, vertex, target, sequence
                )
                packets[target] = (*packets.get(target, ()), Packet(header, piece))
        return packets

    def on_the_way_to(self, level: int) -> Counter:
        """Records for this level that wait in a gate, are parked or were emitted between units."""
        waiting = [element for fifo in self.gates[level]._waiting.values() for element, _ in fifo]
        for packet in self.parked:
            if packet.header.target_vertex == level:
                waiting += packet.body
        for (vertex, _), elements in self.emitted.items():
            if vertex == level:
                waiting += elements
        return Counter(r for each in waiting if isinstance(each, Batch) for r in each.records)


class Process:
    """A slot process with its control line, which delivers in order, eventually."""

    def __init__(self, world: World, incarnation: Incarnation) -> None:
        self.world, self.slot, self.incarnation = world, incarnation.slot, incarnation
        self.subtasks: Subtasks | None = None
        self.mailbox: deque = deque()
        self.to_driver: deque = deque()
        self.to_slot: deque = deque()
        self.is_alive, self.is_cut_off, self.is_asleep = True, False, False
        self.user_code_fails = False
        self.speed = world.rnd.choice((0.98, 1.0, 1.02))
        self.offset = world.rnd.choice((-500.0, 0.0, 500.0))
        self.machine: SlotMachine[Answer] = SlotMachine(incarnation, self.now)
        self.send("register", incarnation)

    @property
    def is_awake(self) -> bool:
        return self.is_alive and not self.is_asleep

    @property
    def now(self) -> float:
        return self.world.now * self.speed + self.offset

    @property
    def has_lease(self) -> bool:
        """As known to the world, without letting the machine notice."""
        return self.is_alive and copy(self.machine).has_lease(self.now)

    def looks_at_its_lease(self) -> bool:
        """Whether it finds out that it has to exit."""
        self.machine.has_lease(self.now)
        return self.machine.is_exiting

    def send(self, kind: str, content: object) -> None:
        self.to_driver.append((kind, content))

    def die(self) -> None:
        self.is_alive = False
        self.send("line ended", self.incarnation)

    def beat(self) -> None:
        self.send("beat", self.machine.beat(self.now))

    def receive(self) -> None:
        match self.to_slot.popleft():
            case ("accepted", lease):
                self.machine.accepted(lease)
            case ("answer", number):
                self.machine.answered(number, self.now)
            case ("dismiss", reason):
                self.machine.exit(reason)
                self.die()
            case ("abort", order):
                self.mailbox.append(("abort", order))
            case ("deploy", (attempt, restored)):
                if self.machine.deploy(PIPELINE, attempt):
                    self.mailbox.append(("open", (attempt, restored)))

    def deliver(self, key: UnitKey, packets, marks, barriers):
        """What a thread of the step server does with a complete set of packets."""
        outcome = self.machine.deliver(PIPELINE, key, packets)
        if isinstance(outcome, RunNow):
            self.mailbox.append(("run", (key, outcome.packets, marks, barriers)))

    def run_mailbox(self) -> None:
        match self.mailbox.popleft():
            case ("open", (attempt, restored)):
                if self.machine.open(PIPELINE, attempt, self.now):
                    self.world.note_act(self)
                    self.subtasks = Subtasks(self, attempt, restored)
                    self.send("deployed", attempt)
            case ("abort", (attempt, number)):
                if self.machine.may_act(PIPELINE, attempt, self.now):
                    self.world.note_act(self)
                    self.subtasks.abort(number)
            case ("run", (key, packets, marks, barriers)):
                if self.machine.may_run(PIPELINE, key, self.now):
                    self.world.note_act(self)
                    self.world.note_run(self, key)
                    assert self.subtasks.attempt == key.attempt
                    answer = self.subtasks.run_unit(key, packets, marks, barriers)
                    self.machine.seal(PIPELINE, key, answer)
