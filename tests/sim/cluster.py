"""Spark as one driver sees it: processes for its slots, lines to them, and jobs for its steps."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.sim.clockwork import Process, Wrong
from tidegate.core.clock import SystemClock
from tidegate.core.errors import LineClosed, TidegateError
from tidegate.core.ids import Address, PipelineId, SlotIndex
from tidegate.driver.cluster import ClusterEvent, FromSlot, LineEnded, SlotJobEnded
from tidegate.exchange import step_task
from tidegate.exchange.contract import StepAnswer, StepBroken, StepCanceled
from tidegate.exchange.shuffle import _stages
from tidegate.exchange.step_task import StageTask
from tidegate.exchange.unit_protocol import Cargo, Frame
from tidegate.graph.job_graph import Pipeline
from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.messages import DriverMessage, Register, SlotMessage, StepRequest
from tidegate.protocol.units import Stale, UnitKey
from tidegate.slot.pipeline_host import UnitAnswer
from tidegate.slot.slot_host import SlotHost
from tidegate.slot.step_server import _receive_input, _send_answer
from tidegate.transport.versions import versions

if TYPE_CHECKING:
    from tests.sim.world import World

HEARTBEAT_SECONDS = 1.0
LEASE_SECONDS = 5.0
CLOSING_SECONDS = 20.0
NOWHERE = Path("/simulated")
MOST_TASK_ATTEMPTS = 4


class SlotProcess(Process):
    """The process of a slot: what `_Slot` does, by events."""

    def __init__(self, cluster: SimulatedCluster, incarnation: Incarnation) -> None:
        world = cluster.world
        super().__init__(world.sim, f"slot {incarnation.slot}.{len(world.slots)}")
        self.world, self.cluster, self.incarnation = world, cluster, incarnation
        self.number = len(world.slots)
        world.slots.append(self)
        self.is_cut = self.has_left = False
        self.dozes = 0.0
        """How long it sleeps when it next asks what it may do."""
        self.waiting: list[Callable[[], None]] = []
        """Step tasks that wait for an answer: called when there will be none."""
        self._clear_at = {"to": 0.0, "from": 0.0}
        self.later(self.sim.delay(0.05), "starts", self._start)

    def _start(self) -> None:
        self.host = SlotHost(
            self.incarnation,
            self._send,
            SystemClock(),
            NOWHERE,
            now=self._now,
            closing_seconds=CLOSING_SECONDS,
            on_stuck=self.die,
            workers=self.workers,
        )
        address = Address("slot", self.number)
        self._send(Register(self.incarnation, address, versions(), self.number))
        self._beat_later()

    def _now(self) -> float:
        """Whoever asks what it may do reads the clock first: it may take long to get there."""
        seconds, self.dozes = self.dozes, 0.0
        if seconds and self.sim.current is self:
            self.sim.note(f"{self.name} sleeps")
            self.sim.meanwhile(seconds)
        return self.monotonic()

    def _beat_later(self) -> None:
        self.later(HEARTBEAT_SECONDS, "beats", self._beat)

    def _beat(self) -> None:
        self.host.beat()
        self._beat_later()

    def look(self) -> None:
        if self.has_left or not hasattr(self, "host") or not self.host.is_over.is_set():
            return
        self.has_left = True
        self.later(self.sim.delay(0.01), "leaves", self._leave)

    def _leave(self) -> None:
        self.host.close(CLOSING_SECONDS)
        self.is_alive = False
        self._ended("it returned", comes_back=False)

    def die(self) -> None:
        if self.is_alive:
            super().die()
            self.sim.note(f"{self.name} dies")
            self.world.lost(self)
            self._ended("killed", comes_back=self.sim.chance(0.5))

    def _ended(self, reason: str, *, comes_back: bool) -> None:
        waiting, self.waiting = self.waiting, []
        for give_up in waiting:
            give_up()
        if not self.is_cut:
            self._to_driver(lambda: self.cluster.post(LineEnded(self.incarnation)))
        self.cluster.process_ended(self, reason, comes_back=comes_back)

    # --- its line to the driver -----------------------------------------------------------------

    def _send(self, message: SlotMessage) -> None:
        wire = pickle.dumps(message)
        if not self.is_cut:
            post = self.cluster.post
            self._to_driver(lambda: post(FromSlot(self.incarnation, pickle.loads(wire))))

    def _to_driver(self, act: Callable[[], None]) -> None:
        self.sim.later(self._in_order("from"), "", act, self.cluster.driver)

    def receive(self, message: DriverMessage) -> None:
        if not self.is_cut:
            wire = pickle.dumps(message)
            name = type(message).__name__
            self.later(self._in_order("to"), name, lambda: self._handle(wire))

    def _handle(self, wire: bytes) -> None:
        if not self.is_cut and not self.has_left:
            self.host.handle(pickle.loads(wire))

    def _in_order(self, direction: str) -> float:
        at = max(self._clear_at[direction], self.sim.now + self.sim.delay())
        self._clear_at[direction] = at
        return at - self.sim.now

    def line_breaks(self, *, is_noticed: bool) -> None:
        """By a reset, or without a word."""
        self.is_cut = True
        if is_noticed:
            lost = LineEnded(self.incarnation, is_certain=False)
            self.sim.later(self.sim.delay(), "a line is reset", lambda: self.cluster.post(lost))
            self.later(self.sim.delay(), "its line is reset", self._line_ended)

    def _line_ended(self) -> None:
        if hasattr(self, "host"):
            self.host.leave("the control line has ended")

    def driver_is_gone(self) -> None:
        self.later(self.sim.delay(0.5), "its driver is gone", self._line_ended)


class SimulatedCluster:
    """What `SparkCluster` and `ShuffleExchange` are to the driver."""

    def __init__(self, world: World, driver: Process) -> None:
        self.world, self.driver, self.sim = world, driver, world.sim
        self._post: Callable[[ClusterEvent], None] = lambda event: None
        self._jobs: dict[SlotIndex, int] = {}
        self._running: dict[SlotIndex, SlotProcess] = {}
        self._steps: dict[PipelineId, StepJob] = {}

    def start(self, post: Callable[[ClusterEvent], None]) -> None:
        self._post = post

    def post(self, event: ClusterEvent) -> None:
        if self.driver.is_alive:
            self._post(event)

    def shortage(self) -> TidegateError | None:
        return None

    def launch(self, slot: SlotIndex, number: int) -> None:
        self._jobs[slot] = number
        self._start(slot, number, 0)

    def _start(self, slot: SlotIndex, number: int, attempt: int) -> None:
        if self.driver.is_alive and self._jobs.get(slot) == number:
            self._running[slot] = SlotProcess(self, Incarnation.create(slot, number, attempt))

    def start_again(self, slot: SlotIndex) -> None:
        """Spark takes a process for lost that is not."""
        if slot in self._running and slot in self._jobs:
            incarnation = self._running[slot].incarnation
            self._start(slot, incarnation.launch, incarnation.task_attempt + 1)

    def send(self, incarnation: Incarnation, message: DriverMessage) -> None:
        for process in self.world.slots:
            if process.incarnation is incarnation or process.incarnation == incarnation:
                process.receive(message)

    def kill(self, slot: SlotIndex) -> None:
        if self._jobs.pop(slot, None) is not None:
            process = self._running.pop(slot, None)
            if process is not None and process.asleep_until <= self.sim.now:
                process.die()
            self.post(SlotJobEnded(slot, "killed"))

    def give_up(self, slot: SlotIndex) -> None:
        """Spark ends the job of a slot; its process may not notice."""
        if self._jobs.pop(slot, None) is not None:
            self._running.pop(slot, None)
            self.post(SlotJobEnded(slot, "Spark gave it up"))

    def process_ended(self, process: SlotProcess, reason: str, *, comes_back: bool) -> None:
        slot, launch = process.incarnation.slot, process.incarnation.launch
        if self._running.get(slot) is not process:
            return
        del self._running[slot]
        attempt = process.incarnation.task_attempt + 1
        if comes_back and attempt < MOST_TASK_ATTEMPTS:
            self.sim.later(
                self.sim.delay(0.1), "a task is retried", lambda: self._start(slot, launch, attempt)
            )
        elif self._jobs.get(slot) == launch:
            del self._jobs[slot]
            ended = SlotJobEnded(slot, reason)
            self.sim.later(self.sim.delay(), "a job ends", lambda: self.post(ended), self.driver)

    def close(self) -> None:
        for process in list(self._running.values()):
            self.sim.later(0.5, "is interrupted", process.die, process)
        self._jobs.clear()

    # --- steps ----------------------------------------------------------------------------------

    def run_step(
        self,
        pipeline: Pipeline,
        request: StepRequest,
        slots: Mapping[SlotIndex, Address],
        answer: StepAnswer,
    ) -> None:
        addresses = tuple(slots.get(SlotIndex(i)) for i in range(pipeline.slots))
        stages = _stages(pipeline, request, addresses, b"")
        self._steps[pipeline.id] = StepJob(self, stages, pipeline.slots, answer)

    def cancel_step(self, pipeline: Pipeline) -> None:
        if pipeline.id in self._steps:
            self._steps[pipeline.id].end(StepCanceled("it was canceled"))

    def end_steps(self) -> None:
        """Nothing is held for them."""


class StepJob:
    """A Spark job for a step; its tasks may outlive it."""

    def __init__(
        self, cluster: SimulatedCluster, stages: Sequence[StageTask], width: int, answer: StepAnswer
    ) -> None:
        self.cluster, self.world, self.sim = cluster, cluster.world, cluster.sim
        self._stages, self._width, self._answer = stages, width, answer
        self._is_over = False
        self._level = -1
        self._results: dict[int, list[Any]] = {}
        self._whole: set[int] = set()
        self._go_on([])

    def end(self, outcome: Any) -> None:
        if not self._is_over:
            self._is_over = True
            self.sim.later(
                self.sim.delay(0.005),
                "a step ends",
                lambda: self._answer(outcome),
                self.cluster.driver,
            )

    def _go_on(self, shipments: list[Any]) -> None:
        self._level += 1
        self._results = {}
        self._whole = set()
        by_slot: dict[int, list[Any]] = defaultdict(list)
        for target, cargo in shipments:
            by_slot[target].append((target, cargo))
        for slot in range(self._width):
            task = self._stages[self._level], slot, by_slot[slot]
            self._start(*task)
            if self.sim.chance(self.world.twins):
                self._start(*task, late=self.sim.chance(0.3))

    def _start(self, stage: StageTask, slot: int, shipments: list[Any], late: bool = False) -> None:
        self.sim.rnd.shuffle(shipments := list(shipments))
        Task(self, self._level, stage, slot, shipments, self.sim.delay(1.0 if late else 0.005))

    def done(self, task: Task, outputs: list[Any]) -> None:
        if self._is_over or task.level != self._level:
            return
        if task.slot not in self._results and self.sim.chance(self.world.twins / 3):
            self._start(task.stage, task.slot, task.shipments)  # its output is lost
            return
        first = self._results.setdefault(task.slot, outputs)
        if (
            task.is_whole
            and task.slot in self._whole
            and sorted(map(repr, first)) != sorted(map(repr, outputs))
        ):
            raise Wrong("two tasks got different answers from one unit")
        if task.is_whole and first is outputs:
            self._whole.add(task.slot)
        if len(self._results) < self._width:
            return
        if self.sim.chance(self.world.breaks):
            self.end(StepBroken("fetch failed"))
            return
        everything = [output for outputs in self._results.values() for output in outputs]
        if self._level + 1 < len(self._stages):
            self._go_on(everything)
        else:
            self.end([pickle.loads(outcome) for outcome in everything])


class _Ask(Exception):
    """A task has sent a unit and waits for an answer that is not there yet."""

    def __init__(self, frames: list[Cargo]) -> None:
        self.frames = frames


class Task:
    """One try of Spark's at a task: its code runs from the start whenever an answer has come."""

    def __init__(
        self,
        job: StepJob,
        level: int,
        stage: StageTask,
        slot: int,
        shipments: list[Any],
        delay: float,
    ) -> None:
        self.job, self.level, self.stage, self.slot = job, level, stage, slot
        self.shipments = shipments
        self._answers: list[list[Cargo] | None] = []
        job.sim.later(delay, f"a task for slot {slot}", self._run)

    @property
    def is_whole(self) -> bool:
        """Whether the slot has answered all that it was asked."""
        return None not in self._answers

    def _run(self) -> None:
        lines = step_task._connections
        lines.clear()
        try:
            with_dial: Any = step_task
            dial, with_dial.dial = step_task.dial, lambda address, secret: _Line(self._answers)
            outputs = list(self.stage(self.slot, self.shipments))
        except _Ask as ask:
            self._deliver(ask.frames)
        else:
            self.job.done(self, outputs)
        finally:
            with_dial.dial = dial
            lines.clear()

    def _deliver(self, frames: list[Cargo]) -> None:
        address = self.stage.addresses[self.slot]
        assert address is not None
        process = self.job.world.slots[address.port]
        if not process.is_alive or process.has_left or self.job.sim.chance(0.002):
            self._answered(None)
            return
        give_up = lambda: self._answered(None)  # noqa: E731
        process.waiting.append(give_up)
        answers = len(self._answers)

        def answered(answer: UnitAnswer | Stale) -> None:
            if give_up in process.waiting and len(self._answers) == answers:
                process.waiting.remove(give_up)
                self._answered(_encoded(answer))

        def serve() -> None:
            (_, opened), *cargo = self._disturbed(frames)
            order, (packets, marks) = pickle.loads(opened), _receive_input(_Sent(cargo))
            key = UnitKey(order.attempt, order.step, order.level)
            process.host.run_unit(order.pipeline, key, packets, marks, order.request, answered)

        process.later(self.job.sim.delay(0.003), f"unit of level {self.level}", serve)

    def _disturbed(self, frames: list[Cargo]) -> list[Cargo]:
        """Packets come in any order, and more than once."""
        first, *packets, last = frames
        packets += [each for each in packets if self.job.sim.chance(self.job.world.twins)]
        self.job.sim.rnd.shuffle(packets)
        return [first, *packets, last]

    def _answered(self, answer: list[Cargo] | None) -> None:
        self._answers.append(answer)
        self.job.sim.later(self.job.sim.delay(0.003), f"an answer of slot {self.slot}", self._run)


class _Line:
    """The connection of a task, which plays the answers that are there."""

    def __init__(self, answers: list[list[Cargo] | None]) -> None:
        self._answers = iter(answers)
        self._sent: list[Cargo] = []
        self._frames: list[Cargo] = []

    def send(self, kind: Frame, *parts: bytes) -> None:
        self._sent.append((kind, b"".join(parts)))
        if kind is Frame.RUN:
            missing: list[Cargo] = []
            answer = next(self._answers, missing)
            if answer is missing:
                raise _Ask(self._sent)
            if answer is None:
                raise LineClosed("the slot is gone")
            self._frames, self._sent = list(answer), []

    def receive(self) -> Cargo:
        return self._frames.pop(0)


class _Sent:
    """What comes out of a connection at its other end."""

    def __init__(self, frames: list[Cargo]) -> None:
        self._frames = frames

    def receive(self) -> Cargo:
        return self._frames.pop(0)


def _encoded(answer: UnitAnswer | Stale) -> list[Cargo]:
    class Recorder:
        frames: list[Cargo] = []  # noqa: RUF012

        def send(self, kind: Frame, *parts: bytes) -> None:
            self.frames.append((kind, b"".join(parts)))

    recorder: Any = Recorder()
    recorder.frames = []
    if isinstance(answer, UnitAnswer):
        _send_answer(recorder, answer)
    else:
        recorder.send(Frame.REFUSED, pickle.dumps(answer.reason))
    frames: list[Cargo] = recorder.frames
    return frames
