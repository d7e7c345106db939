"""Pipelines that are stopped, drained and aborted, in one thread, in any order of events.

The classes of the protocol are real; threads, stores and Spark are simulated. A pipeline is

    source ──▶ sink          one of each in every slot, records spread over all slots

A record is (slot, position); sinks remember what they received. Sources never end by themselves:
one that makes no progress, or has ended, is stuck. `protocol_world` simulates processes, leases and
repeated tasks.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.played_jobs import acknowledgement, played_job, states_of
from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.connectors.source import InputStatus
from tidegate.core.checkpoint_settings import CheckpointSettings
from tidegate.core.errors import ExternalError
from tidegate.core.ids import SubtaskId
from tidegate.core.modes import SavepointFormat
from tidegate.protocol.checkpoints.coordinator import CheckpointCoordinator
from tidegate.protocol.checkpoints.instructions import (
    GoBack,
    NotifyAborted,
    NotifyComplete,
    Publish,
    TriggerCheckpoint,
)
from tidegate.protocol.input_gate import REQUESTS, InputEnded, InputGate, Records, TakeSnapshot
from tidegate.protocol.messages import CheckpointDeclined, SlotReport, SourceReport
from tidegate.protocol.pacing import NextStep, StepCaller
from tidegate.protocol.packet import Channel
from tidegate.protocol.region import Region, RegionState, RunStep
from tidegate.stream.batch import Batch
from tidegate.stream.elements import (
    Barrier,
    BarrierKind,
    EndOfInput,
    SavepointTarget,
    SnapshotRequest,
)

TROUBLE = ExternalError("no room")
TARGET = SavepointTarget("/savepoints", "savepoint-1", SavepointFormat.CANONICAL)


class Slot:
    """The subtasks of one pipeline in one slot, with a control line that delivers in order."""

    def __init__(self, pipeline: Pipeline, index: int) -> None:
        self.pipeline, self.world, self.index = pipeline, pipeline.world, index
        self.to_slot: deque[tuple[str, int, Any]] = deque()
        self.to_driver: deque[tuple[str, Any]] = deque()
        self.hearing_pace = self.working_pace = 1.0
        self.attempt = 0

    def open(self, attempt: int, restored: Checkpoint | None) -> None:
        self.attempt, self.caller = attempt, StepCaller()
        self.position, self.taken = 0, Counter()
        self.halted_by, self.has_ended = None, False
        if restored is not None:
            states = states_of(restored)
            self.position = states[SubtaskId(self.pipeline.source, self.index)]
            self.taken += states[SubtaskId(self.pipeline.sink, self.index)]
        channels = {Channel(0, sender): 0 for sender in range(len(self.pipeline.slots))}
        self.gates = [InputGate({REQUESTS: 0}), InputGate(channels)]
        self.emitted: list[tuple[int, Any]] = []

    def receive(self) -> None:
        match self.to_slot.popleft():
            case ("deploy", attempt, restored):
                self.open(attempt, restored)
                self.to_driver.append(("deployed", attempt))
            case ("abort", self.attempt, number):
                self.caller.abort(number)

    def look_around(self) -> None:
        """What an idle mailbox does; sources have reported everything they have."""
        if self.caller.calls(lambda: False):
            self.to_driver.append(("wake", None))

    def run(self, level: int, barriers: tuple[Barrier, ...], elements: list) -> None:
        if level == 0:
            for number in self.caller.begin():
                self.abort(number)
            for barrier in barriers:
                self.deliver(0, self.gates[0].feed(REQUESTS, barrier, 0.0))
            if not self.is_stuck:
                self.emit(Batch.of_records([(self.index, self.position)]))
                self.position += 1
        for sender, element in elements:
            self.deliver(1, self.gates[1].feed(Channel(0, sender), element, 0.0))
        self.caller.ran()

    @property
    def is_stuck(self) -> bool:
        return self.has_ended or self.halted_by is not None

    def abort(self, number: int) -> None:
        for level, gate in enumerate(self.gates):
            self.deliver(level, gate.abort(number, 0.0))
        if self.halted_by == number:
            self.halted_by = None

    def deliver(self, level: int, deliveries: list) -> None:
        for delivery in deliveries:
            match delivery:
                case Records(_, batch):
                    self.taken.update(batch.records)
                case TakeSnapshot(barrier):
                    self.snapshot(level, barrier)
                case InputEnded():
                    self.has_ended = True

    def snapshot(self, level: int, barrier: Barrier) -> None:
        if level == 0:
            if barrier.drains and not self.has_ended:
                self.has_ended = True
                self.broadcast(EndOfInput())
            if barrier.kind is BarrierKind.STOP:
                self.halted_by = barrier.checkpoint_id
            self.broadcast(barrier)
        subtask = SubtaskId(self.pipeline.source + level, self.index)
        number = barrier.checkpoint_id
        if self.world.has_trouble():
            refusal = CheckpointDeclined(
                checkpoint_id=number, subtask=subtask, attempt=self.attempt, error=TROUBLE
            )
            self.to_driver.append(("decline", refusal))
        else:
            state = self.position if level == 0 else Counter(self.taken)
            written = acknowledgement(number, subtask, state, attempt=self.attempt)
            self.to_driver.append(("ack", written))

    def emit(self, batch: Batch) -> None:
        self.emitted.append((self.world.rnd.randrange(len(self.pipeline.slots)), batch))

    def broadcast(self, element: Any) -> None:
        self.emitted += [(target, element) for target in range(len(self.pipeline.slots))]

    def report(self) -> SlotReport:
        idle, busy = InputStatus.NOTHING_AVAILABLE, InputStatus.MORE_AVAILABLE
        source = SourceReport(0, idle if self.is_stuck else busy, None)
        return SlotReport(slot=self.index, sources={self.pipeline.source: source})


@dataclass
class Step:
    """A step in progress: who has not run which level, and what was sent to whom."""

    order: RunStep
    barriers: tuple[Barrier, ...]
    missing: list[tuple[int, Slot]]
    sent: dict[int, list] = field(default_factory=dict)


class Pipeline:
    """A region with its slots, as the driver steps it."""

    def __init__(self, world: World, number: int, slots: int) -> None:
        self.world, self.number = world, number
        self.source, self.sink = 2 * number, 2 * number + 1
        self.region = Region(number, range(slots), max_step_tries=3)
        self.next_step = NextStep()
        self.slots: list[Slot] = []
        self.slots += [Slot(self, index) for index in range(slots)]
        self.step: Step | None = None

    @property
    def is_running(self) -> bool:
        return self.region.state is RegionState.RUNNING

    def actions(self) -> Iterator[Callable[[], None]]:
        for slot in self.slots:
            if slot.to_slot and self.world.chance(slot.hearing_pace):
                yield slot.receive
            if slot.to_driver:
                yield lambda s=slot: self.receive(s)
            if slot.attempt and slot.caller._aborted:
                yield slot.look_around
        waits = self.region.state in (RegionState.CREATED, RegionState.RESTARTING)
        if waits and not self.world.coordinator.is_publishing:
            yield self.deploy
        if self.is_running and self.step is None and self.next_step.due is not None:
            yield self.begin_step
        if self.step is not None:
            level = self.step.missing[0][0]
            for place in [each for each in self.step.missing if each[0] == level]:
                if self.world.chance(place[1].working_pace):
                    yield lambda p=place: self.run_unit(*p)

    def deploy(self) -> None:
        attempt = self.region.deploy()
        self.step = None
        self.tell("deploy", attempt, self.world.coordinator.retained.restore_point)

    def tell(self, kind: str, attempt: int, content: Any) -> None:
        for slot in self.slots:
            slot.to_slot.append((kind, attempt, content))

    def begin_step(self) -> None:
        order = self.region.begin_step()
        missing = [(level, slot) for level in (0, 1) for slot in self.slots]
        self.step = Step(order, self.next_step.begin(order), missing)

    def break_step(self) -> None:
        """The exchange broke: what has run stays sealed, the rest is requested again."""
        step = self.step
        again = self.region.step_broke(step.order.attempt, step.order.step, "lost")
        if isinstance(again, RunStep):
            assert self.next_step.begin(again) == step.barriers
        else:
            self.failed()

    def run_unit(self, level: int, slot: Slot) -> None:
        step = self.step
        step.missing.remove((level, slot))
        if slot.attempt == step.order.attempt:
            slot.run(level, step.barriers if level == 0 else (), step.sent.pop(slot.index, []))
            for target, element in slot.emitted:
                step.sent.setdefault(target, []).append((slot.index, element))
            slot.emitted.clear()
        if not step.missing:
            self.step = None
            if self.region.step_through(step.order.attempt, step.order.step) is not None:
                reports = [each.report() for each in self.slots]
                self.next_step.through(reports, now=self.world.now, discovery_seconds=None)

    def receive(self, slot: Slot) -> None:
        coordinator, now = self.world.coordinator, self.world.now
        match slot.to_driver.popleft():
            case ("deployed", attempt):
                if self.region.deployed(slot.index, attempt):
                    self.next_step.deployed()
            case ("wake", _):
                self.next_step.call()
            case ("ack", written):
                self.world.carry_out(coordinator.acknowledged(written, now))
            case ("decline", refusal):
                self.world.carry_out(coordinator.declined(refusal, now))

    def fail(self) -> None:
        if self.region.fail(self.region.attempt, TROUBLE) is not None:
            self.failed()

    def failed(self) -> None:
        self.world.carry_out(self.world.coordinator.region_failed(self.world.now))
        self.reset()

    def reset(self) -> None:
        self.region.restart()
        self.step = None

    def assert_exact(self, checkpoint: Checkpoint) -> None:
        """The sinks of a checkpoint have what its sources have read, each record once."""
        states, taken, read = states_of(checkpoint), Counter(), Counter()
        for slot in self.slots:
            taken += states[SubtaskId(self.sink, slot.index)]
            position = states[SubtaskId(self.source, slot.index)]
            read.update((slot.index, place) for place in range(position))
        assert taken == read


class World:
    """A job whose checkpoints a store writes one after the other."""

    def __init__(self, pipelines: int, slots: int, rnd: random.Random) -> None:
        self.rnd, self.now = rnd, 0.0
        self.trouble = 0
        self.store_pace = 1.0
        self.can_stop = True
        """Whether the savepoint of a stop can be written."""
        self.stopped_with: Checkpoint | None = None
        self.store: deque[TriggerCheckpoint | Publish] = deque()
        self.pipelines = [Pipeline(self, number, slots) for number in range(pipelines)]
        # Only ordered ones: the barrier of a periodic checkpoint would wake forgotten pipelines.
        settings = CheckpointSettings(
            interval=None,
            timeout=timedelta(seconds=60),
            max_concurrent=2,
            tolerable_failures=10**6,
        )
        vertices = range(2 * pipelines)
        job = played_job([slots for _ in vertices], vertices[::2], [v // 2 for v in vertices])
        self.coordinator = CheckpointCoordinator(settings, job, now=0.0)

        self.regions = {pipeline.number: pipeline.region for pipeline in self.pipelines}

    @property
    def slots(self) -> list[Slot]:
        return [slot for pipeline in self.pipelines for slot in pipeline.slots]

    def has_trouble(self) -> bool:
        """Whether writing currently fails."""
        self.trouble = max(0, self.trouble - 1)
        return self.trouble == 1

    def chance(self, probability: float) -> bool:
        return self.rnd.random() < probability

    def change_pace(self, paces: Sequence[float] = (1.0, 0.2, 0.02)) -> None:
        """Make the store and each slot faster or slower."""
        self.store_pace = self.rnd.choice(paces)
        for slot in self.slots:
            slot.hearing_pace = self.rnd.choice(paces)
            slot.working_pace = self.rnd.choice(paces)

    def hold_up(self, what: str) -> None:
        """Make one thing hang, and the others fast."""
        self.change_pace([1.0])
        if what == "store":
            self.store_pace = 0.0
        for slot in self.slots:
            if what == "lines":
                slot.hearing_pace = 0.0
            elif what == "steps":
                slot.working_pace = 0.0

    # --- what happens -------------------------------------------------------------------------

    def advance(self, count: int) -> None:
        for _ in range(count):
            if self.stopped_with is not None:
                return
            actions = [each for pipeline in self.pipelines for each in pipeline.actions()]
            actions += [self.use_store] if self.store and self.chance(self.store_pace) else []
            if actions:
                self.rnd.choice(actions)()
            self.look()

    def look(self) -> None:
        instructions, _ = self.coordinator.look(self.now, self.now, self.regions)
        self.carry_out(instructions)

    def order(self, kind: BarrierKind, *, drains: bool = False, awaits_next: bool = False) -> None:
        target = None if kind is BarrierKind.CHECKPOINT else TARGET
        self.coordinator.request(SnapshotRequest(kind, target, drains, awaits_next=awaits_next))
        self.look()

    def use_store(self) -> None:
        match self.store.popleft():
            case TriggerCheckpoint(barrier, pipelines) if self.has_trouble():
                self.carry_out(self.coordinator.not_begun(barrier.checkpoint_id, TROUBLE, self.now))
            case TriggerCheckpoint(barrier, pipelines):
                if self.coordinator.begun(barrier.checkpoint_id):
                    for number in pipelines:
                        self.pipelines[number].next_step.trigger(barrier)
            case Publish(checkpoint, barrier) if self.has_trouble() or not self._has_room(barrier):
                number = checkpoint.checkpoint_id
                self.carry_out(self.coordinator.not_published(number, TROUBLE, self.now))
            case Publish(checkpoint):
                for pipeline in self.pipelines:
                    pipeline.assert_exact(checkpoint)
                self.carry_out(self.coordinator.published(checkpoint, self.now, self.regions))

    def _has_room(self, barrier: Barrier) -> bool:
        return self.can_stop or barrier.kind is not BarrierKind.STOP

    def carry_out(self, instructions: list) -> None:
        for instruction in instructions:
            match instruction:
                case TriggerCheckpoint() | Publish():
                    self.store.append(instruction)
                case NotifyAborted(number):
                    for pipeline in self.pipelines:
                        if pipeline.is_running:
                            pipeline.next_step.abort(number)
                            pipeline.tell("abort", pipeline.region.attempt, number)
                case GoBack(pipelines):
                    for number in pipelines:
                        if self.pipelines[number].is_running:
                            self.pipelines[number].reset()
                    self.carry_out(self.coordinator.region_failed(self.now))
                case NotifyComplete():
                    self.stopped_with = self.coordinator.retained.stop_point

    # --- the end --------------------------------------------------------------------------------

    def recover(self) -> None:
        """Without further faults, the job is stopped, or all of it continues within two minutes."""
        self.trouble = 0
        self.change_pace([1.0])
        before: dict[Slot, int] | None = None
        for _ in range(120):
            self.advance(50)
            self.now += 1.0
            if self.stopped_with is not None:
                return
            if before is None and self.coordinator.is_idle and all(s.attempt for s in self.slots):
                before = {slot: slot.position for slot in self.slots}
            elif before is not None and all(slot.position > before[slot] for slot in self.slots):
                return
        states = [(pipeline.number, pipeline.region.state.name) for pipeline in self.pipelines]
        raise AssertionError(f"not all pipelines go on: {states}")
