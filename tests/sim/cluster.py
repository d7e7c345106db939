"""Spark as one driver sees it: slot processes, lines to them, and jobs for steps."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tests.sim.clockwork import Process, Wrong
from tests.sim.plans import HEARTBEAT_SECONDS
from tests.sim.pumped.lines import LineEnd, connected
from tests.sim.pumped.pumps import PumpedExchange
from tests.sim.pumped.threads import SimulatedThread
from tests.sim.tasks import EXECUTORS, StepJob
from tidegate.core.errors import LineClosed, TidegateError
from tidegate.core.ids import Address, PipelineId, SlotIndex
from tidegate.core.permit import Permit
from tidegate.driver.cluster import ClusterEvent, FromSlot, LineEnded, SlotJobEnded
from tidegate.exchange.contract import Exchange, StepAnswer, StepCanceled
from tidegate.exchange.shuffle import _stages
from tidegate.graph.job_graph import Pipeline
from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.messages import (
    Accepted,
    CheckpointAborted,
    CheckpointCompleted,
    Deploy,
    DeployFailed,
    DriverHeartbeat,
    DriverMessage,
    Register,
    SlotHeartbeat,
    SlotMessage,
    StepRequest,
    Wake,
)
from tidegate.slot.slot_host import SlotHost
from tidegate.slot.step_server import StepServer
from tidegate.transport.versions import versions

if TYPE_CHECKING:
    from tests.sim.drivers import DriverProcess
    from tests.sim.world import World

CLOSING_SECONDS = 20.0
NOWHERE = Path("/simulated")
MOST_TASK_ATTEMPTS = 4
_MOMENTS = {
    Deploy: "a deployment arrives",
    CheckpointAborted: "an abort arrives",
    CheckpointCompleted: "a completion arrives",
}
_UNCHANGING = (SlotHeartbeat, DriverHeartbeat, Wake)
"""Messages that need not be copied, because they do not change."""


class SlotProcess(Process):
    """The process of a slot, driven by events."""

    def __init__(self, cluster: SimulatedCluster, incarnation: Incarnation) -> None:
        world = cluster.world
        super().__init__(world.sim, f"slot {incarnation.slot}.{len(world.slots)}")
        self.world, self.cluster, self.incarnation = world, cluster, incarnation
        self.number = len(world.slots)
        self.executor = incarnation.slot % (EXECUTORS - 1)
        world.slots.append(self)
        self.is_cut = self.is_out_of_reach = self.has_left = False
        self.has_been_accepted = False
        self.dozes = 0.0
        """How long it sleeps when it next checks its permission."""
        self.dozes_before_acting = False
        """Whether it only sleeps before something that cannot be undone."""
        self.on_doze: Callable[[], None] = lambda: None
        self.waiting: list[Callable[[], None]] = []
        """Step tasks that wait for an answer: called when there will be none."""
        self._clear_at = {"to": 0.0, "from": 0.0}
        self._received: deque[DriverMessage | bytes] = deque()
        self._sent: deque[ClusterEvent | bytes] = deque()
        self.later(self.sim.delay(0.05), "starts", self._start)

    def _start(self) -> None:
        if not self.cluster.driver.is_alive:
            self.die()
            return
        self.host = SlotHost(
            self.incarnation,
            self._send,
            self,
            NOWHERE,
            now=self._now,
            closing_seconds=CLOSING_SECONDS,
            on_stuck=self.die,
            workers=self.workers,
        )
        self.host.permit = Permit(self._may_act)
        self._server = StepServer(self.host)
        address = Address("slot", self.number)
        self.world.moment("a process registers")
        self._send(Register(self.incarnation, address, versions(), self.number))
        self._beat_later()

    def _now(self) -> float:
        """A permission check reads the clock first, and may be delayed here."""
        if self.dozes and not self.dozes_before_acting:
            self.doze()
        return self.monotonic()

    def _may_act(self) -> bool:
        if self.dozes and self.dozes_before_acting:
            self.doze()
        return self.host._has_lease()

    def doze(self) -> None:
        if self.sim.current is self:
            seconds, self.dozes = self.dozes, 0.0
            self.sim.note(f"{self.name} sleeps for {seconds:.1f} s")
            self.on_doze()
            self.sim.meanwhile(seconds, is_asleep=True)

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
        self.world.checks.left(self)
        super().die()
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
        self._post(LineEnded(self.incarnation))
        self.cluster.process_ended(self, reason, comes_back=comes_back)

    # --- the lines of its step server -----------------------------------------------------------

    def dialed(self, caller: Process | None) -> LineEnd:
        """The other end of a line that it serves."""
        if not self.is_alive or self.has_left or not hasattr(self, "host"):
            raise LineClosed(f"{self.name} does not answer")
        near, far = connected(
            self.sim, caller, self, lambda: self.sim.chance(self.world.breaks / 10)
        )
        self.later(self.sim.delay(0.001), "a line is opened", lambda: self._serve(far))
        return near

    def _serve(self, line: LineEnd) -> None:
        def meet() -> None:
            try:
                self._server.serve(line)  # type: ignore[arg-type]
            except LineClosed:
                pass
            except TidegateError as error:
                raise Wrong(f"{self.name} does not understand a line: {error}") from error
            finally:
                line.close()

        SimulatedThread(meet, name="a line").start()

    # --- its line to the driver -----------------------------------------------------------------

    def _send(self, message: SlotMessage) -> None:
        if isinstance(message, DeployFailed):
            self.world.moment("a deployment fails")
        if isinstance(message, _UNCHANGING):
            self._post(FromSlot(self.incarnation, message))
        else:
            self._post(pickle.dumps(message))

    def _post(self, event: ClusterEvent | bytes) -> None:
        if not self.is_cut:
            self._sent.append(event)
            self.sim.later(self._in_order("from"), "a message", self._arrive, self.cluster.driver)

    def _arrive(self) -> None:
        """Messages arrive in the order in which they were sent, however late."""
        event = self._sent.popleft()
        if isinstance(event, bytes):
            event = FromSlot(self.incarnation, pickle.loads(event))
        self.cluster.post(event)

    def receive(self, message: DriverMessage) -> None:
        if not self.is_cut:
            is_copied = not isinstance(message, _UNCHANGING)
            self._received.append(pickle.dumps(message) if is_copied else message)
            self.later(self._in_order("to"), type(message).__name__, self._handle)

    def _handle(self) -> None:
        message = self._received.popleft()
        if not self.has_left and (not self.is_cut or self.is_out_of_reach):
            if isinstance(message, bytes):
                message = pickle.loads(message)
            self.has_been_accepted = self.has_been_accepted or isinstance(message, Accepted)
            if type(message) in _MOMENTS:
                self.world.moment(_MOMENTS[type(message)])
            self.host.handle(message)
            if isinstance(message, DriverHeartbeat):
                self.world.checks.leased(self)

    def _in_order(self, direction: str) -> float:
        at = max(self._clear_at[direction], self.sim.now + self.sim.delay())
        self._clear_at[direction] = at
        return at - self.sim.now

    def line_breaks(self, *, is_noticed: bool) -> None:
        """Break the line, with a reset or silently."""
        self.is_cut = True
        self.is_out_of_reach = not is_noticed
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
    """What `SparkCluster` and an exchange are to the driver."""

    def __init__(self, world: World, driver: DriverProcess) -> None:
        self.world, self.driver, self.sim = world, driver, world.sim
        self._step_jobs = StepJobs(self)
        mode = world.plan.exchange
        self.pumped = None if mode == "jobs" else PumpedExchange(self, self._step_jobs, mode)
        self._exchange: Exchange = self.pumped or self._step_jobs
        self._post: Callable[[ClusterEvent], None] = lambda event: None
        self._jobs: dict[SlotIndex, int] = {}
        self._running: dict[SlotIndex, SlotProcess] = {}
        self._processes: dict[Incarnation, SlotProcess] = {}

    def start(self, post: Callable[[ClusterEvent], None]) -> None:
        self._post = post

    def post(self, event: ClusterEvent) -> None:
        if self.driver.is_alive:
            self._post(event)

    def shortage(self) -> None:
        """None, but Spark may take longer to say so than a lease lasts."""
        self.sim.meanwhile(self.sim.delay(3.0 if self.sim.chance(0.05) else 0.02))

    def launch(self, slot: SlotIndex, number: int) -> None:
        self._jobs[slot] = number
        self._start(slot, number, 0)

    def _start(self, slot: SlotIndex, number: int, attempt: int) -> None:
        if self.driver.is_alive and self._jobs.get(slot) == number:
            process = SlotProcess(self, Incarnation.create(slot, number, attempt))
            self._running[slot] = self._processes[process.incarnation] = process

    def start_again(self, slot: SlotIndex) -> None:
        """Spark considers a living process lost."""
        if slot in self._running and slot in self._jobs:
            incarnation = self._running[slot].incarnation
            self._start(slot, incarnation.launch, incarnation.task_attempt + 1)

    def send(self, incarnation: Incarnation, message: DriverMessage) -> None:
        if (process := self._processes.get(incarnation)) is not None:
            process.receive(message)

    def kill(self, slot: SlotIndex) -> None:
        if self._jobs.pop(slot, None) is not None:
            process = self._running.pop(slot, None)
            is_awake = process is not None and process.asleep_until <= self.sim.now
            if process is not None and is_awake and not process.is_out_of_reach:
                process.die()
            self.post(SlotJobEnded(slot, "killed"))

    def give_up(self, slot: SlotIndex) -> None:
        """Spark ends the job of a slot; its process may not notice."""
        if self._jobs.pop(slot, None) is not None:
            self._running.pop(slot, None)
            self.post(SlotJobEnded(slot, "Spark gave it up"))

    def on_executor(self, number: int) -> list[SlotProcess]:
        """The processes of its slots; those that were replaced, too."""
        return [p for p in self._processes.values() if p.is_alive and p.executor == number]

    def lose_executor(self, number: int) -> None:
        """With slots, pumps, and what tasks have left there. The running process ends by itself."""
        for process in self.on_executor(number):
            if process is not self.sim.current:
                process.die()
        if self.pumped is not None:
            self.pumped.spark.lose_executor(number)
        self._step_jobs.lose(number)

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
        self.world.moment("a step starts")
        if request.barriers:
            self.world.moment("a barrier starts")
        addresses = tuple(slots.get(SlotIndex(i)) for i in range(pipeline.slots))
        self.world.checks.steps(self.driver, request, addresses)
        self._exchange.run_step(pipeline, request, slots, answer)

    def try_step(
        self,
        pipeline: Pipeline,
        request: StepRequest,
        slots: Mapping[SlotIndex, Address],
        answer: StepAnswer,
    ) -> bool:
        addresses = tuple(slots.get(SlotIndex(i)) for i in range(pipeline.slots))
        is_run = self._exchange.try_step(pipeline, request, slots, answer)
        if is_run:
            self.world.moment("a step starts")
            self.world.checks.steps(self.driver, request, addresses)
        return is_run

    def cancel_step(self, pipeline: Pipeline) -> None:
        self._exchange.cancel_step(pipeline)

    def end_steps(self) -> None:
        self._exchange.end_steps()


class StepJobs(Exchange):
    """What `ShuffleExchange` is to the driver."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._steps: dict[PipelineId, StepJob] = {}

    def run_step(
        self,
        pipeline: Pipeline,
        request: StepRequest,
        slots: Mapping[SlotIndex, Address],
        answer: StepAnswer,
    ) -> None:
        addresses = tuple(slots.get(SlotIndex(i)) for i in range(pipeline.slots))
        stages = _stages(pipeline, request, addresses, b"")
        self._steps[pipeline.id] = StepJob(self._cluster, stages, pipeline.slots, answer)

    def cancel_step(self, pipeline: Pipeline) -> None:
        if pipeline.id in self._steps:
            self._steps[pipeline.id].end(StepCanceled("it was canceled"))

    def lose(self, executor: int) -> None:
        for job in self._steps.values():
            job.lose(executor)

    def end_steps(self) -> None:
        """Nothing is held for them."""
