"""Spark jobs for steps: tasks are repeated, duplicated and delayed, and lose their output."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tests.sim.clockwork import Wrong
from tests.sim.plans import BETWEEN_LEVELS
from tidegate.core.errors import LineClosed
from tidegate.exchange import step_task
from tidegate.exchange.contract import StepAnswer, StepBroken
from tidegate.exchange.step_task import StageTask
from tidegate.exchange.unit_protocol import Cargo, Frame
from tidegate.protocol.units import Stale, UnitKey
from tidegate.slot.pipeline_host import UnitAnswer
from tidegate.slot.step_server import _receive_input, _send_answer

if TYPE_CHECKING:
    from tests.sim.cluster import SimulatedCluster

EXECUTORS = 3
"""They take turns with the tasks and the pumps; all but the last one do so with the slots."""


def executor_of(slot: int, level: int) -> int:
    return (slot + level + EXECUTORS - 1) % EXECUTORS


class StepJob:
    """A Spark job for a step; its tasks may outlive it."""

    def __init__(
        self, cluster: SimulatedCluster, stages: Sequence[StageTask], width: int, answer: StepAnswer
    ) -> None:
        self.cluster, self.world, self.sim = cluster, cluster.world, cluster.sim
        self._stages, self._width, self._answer = stages, width, answer
        self._is_over = False
        self._level = -1
        self._inputs: list[dict[int, list[Any]]] = []
        """What the tasks of each level so far were started with."""
        self._before: dict[int, list[Any]] = {}
        """The output of the level before."""
        self._lost: set[int] = set()
        """The tasks of that level whose output is lost."""
        self._results: dict[int, list[Any]] = {}
        self._whole: set[int] = set()
        self._go_on()

    def end(self, outcome: Any) -> None:
        if not self._is_over:
            self._is_over = True
            self.sim.later(
                self.sim.delay(0.005),
                "a step ends",
                lambda: self._answer(outcome),
                self.cluster.driver,
            )

    def lose(self, executor: int) -> None:
        """What tasks have left on an executor is lost: they run again, then those after them."""
        if self._is_over:
            return

        def lost(level: int) -> list[int]:
            return [slot for slot in range(self._width) if executor_of(slot, level) == executor]

        if self._level + 1 < len(self._stages):
            for slot in lost(self._level):
                if self._results.pop(slot, None) is not None:
                    self._whole.discard(slot)
                    self._start(self._level, slot)
        if self._level > 0:
            self._lost.update(lost(self._level - 1))
            for slot in lost(self._level - 1):
                self._start(self._level - 1, slot)

    def _go_on(self) -> None:
        self._level += 1
        self._before, self._results = self._results, {}
        self._whole = set()
        self._lost = set()
        self._inputs.append({})
        self._gather()
        for slot in range(self._width):
            self._start(self._level, slot)
            if self.sim.chance(self.world.twins):
                self._start(self._level, slot, late=self.sim.chance(0.3))
        if self._level > 0:
            self.world.moment(BETWEEN_LEVELS)

    def _gather(self) -> None:
        """Fetch the output of the level before."""
        by_slot: dict[int, list[Any]] = defaultdict(list)
        for outputs in self._before.values():
            for target, cargo in outputs:
                by_slot[target].append((target, cargo))
        self._inputs[self._level] = by_slot

    def _start(self, level: int, slot: int, late: bool = False) -> None:
        self.sim.rnd.shuffle(shipments := list(self._inputs[level][slot]))
        delay = self.sim.delay(1.0 if late else 0.005)
        Task(self, level, self._stages[level], slot, shipments, delay)

    def _repeated(self, task: Task, outputs: list[Any]) -> None:
        """A task of the level before has run again; its slot may be gone since."""
        if task.slot in self._lost:
            self._lost.remove(task.slot)
            self._before[task.slot] = outputs
            if not self._lost:
                self._gather()
                for slot in range(self._width):
                    if slot not in self._results:
                        self._start(self._level, slot)

    def done(self, task: Task, outputs: list[Any]) -> None:
        if self._is_over:
            return
        if task.level == self._level - 1:
            self._repeated(task, outputs)
        if task.level != self._level:
            return
        if task.slot not in self._results and self.sim.chance(self.world.twins / 3):
            self._start(task.level, task.slot)  # its output is lost
            return
        if self.sim.chance(self.world.breaks / self._width):
            self.end(StepBroken("fetch failed"))
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
        if self._level + 1 < len(self._stages):
            self._go_on()
            return
        everything = [output for outputs in self._results.values() for output in outputs]
        self.end([pickle.loads(outcome) for outcome in everything])


class _Ask(Exception):
    """A task has sent a unit and waits for its answer."""

    def __init__(self, frames: list[Cargo]) -> None:
        self.frames = frames


class Task:
    """One attempt of a Spark task: its code restarts whenever an answer arrives."""

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
        """Whether the slot has answered everything: it refuses what it is asked after its end."""
        return not any(each is None or each[0][0] is Frame.REFUSED for each in self._answers)

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

    @property
    def _loss(self) -> float:
        return max(0.002, self.job.world.breaks / 10)

    def _deliver(self, frames: list[Cargo]) -> None:
        address = self.stage.addresses[self.slot]
        assert address is not None
        process = self.job.world.slots[address.port]
        if not process.is_alive or process.has_left or self.job.sim.chance(self._loss):
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
        """Shuffle and repeat packets."""
        first, *packets, last = frames
        packets += [each for each in packets if self.job.sim.chance(self.job.world.twins)]
        self.job.sim.rnd.shuffle(packets)
        return [first, *packets, last]

    def _answered(self, answer: list[Cargo] | None) -> None:
        self._answers.append(answer)
        self.job.sim.later(self.job.sim.delay(0.003), f"an answer of slot {self.slot}", self._run)


class _Line:
    """The connection of a task, which replays the answers so far."""

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

    def close(self) -> None:
        """Nobody waits at the other end."""


class _Sent:
    """The other end of a connection."""

    def __init__(self, frames: list[Cargo]) -> None:
        self._frames = frames

    def receive(self) -> Cargo:
        return self._frames.pop(0)


class _Recorder:
    def __init__(self) -> None:
        self.frames: list[Cargo] = []

    def send(self, kind: Frame, *parts: bytes) -> None:
        self.frames.append((kind, b"".join(parts)))


def _encoded(answer: UnitAnswer | Stale) -> list[Cargo]:
    recorder: Any = _Recorder()
    if isinstance(answer, UnitAnswer):
        _send_answer(recorder, answer)
    else:
        recorder.send(Frame.REFUSED, pickle.dumps(answer.reason))
    frames: list[Cargo] = recorder.frames
    return frames
