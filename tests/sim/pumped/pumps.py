"""Endless Spark jobs: pumps that start late, are lost, repeated or left over from an earlier job.

The slots' and the driver's side of the exchange are real; what runs in the JVM is played.
"""

from __future__ import annotations

import struct
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.sim.clockwork import Wrong
from tests.sim.pumped.lines import LineEnd
from tests.sim.pumped.threads import SimulatedThread, current_thread, wait
from tests.sim.tasks import executor_of
from tidegate.core.errors import LineClosed
from tidegate.core.ids import Address, JobId, PipelineId, SlotIndex
from tidegate.exchange.choice import FallbackExchange
from tidegate.exchange.contract import Exchange, StepAnswer
from tidegate.exchange.pipelined.cargo import decode_cargo
from tidegate.exchange.pipelined.exchange import PipelinedExchange
from tidegate.exchange.unit_protocol import Frame
from tidegate.graph.job_graph import Pipeline
from tidegate.protocol.messages import StepRequest

if TYPE_CHECKING:
    from tests.sim.cluster import SimulatedCluster

_GREETING = struct.Struct(">QII")
_TARGET_BYTES = 4


class PumpedExchange:
    """The exchange of a driver. Its steps do not keep the caller waiting, but each other."""

    def __init__(self, cluster: SimulatedCluster, steady: Exchange, mode: str) -> None:
        self.spark = SimulatedSpark(cluster)
        context: Any = self.spark
        fast = PipelinedExchange(context, JobId("simulated"), b"")
        self._exchange: Exchange = fast
        if mode == "either":
            self._exchange = FallbackExchange(fast, steady, now=cluster.driver.monotonic)
        self._steps: dict[PipelineId, deque[Callable[[], None]]] = defaultdict(deque)

    def run_step(
        self,
        pipeline: Pipeline,
        request: StepRequest,
        slots: Mapping[SlotIndex, Address],
        answer: StepAnswer,
    ) -> None:
        def run() -> None:
            try:
                self._exchange.run_step(pipeline, request, slots, answer)
            except Exception as error:
                answer(error)  # type: ignore[arg-type]

        steps = self._steps[pipeline.id]
        steps.append(run)
        if len(steps) == 1:
            SimulatedThread(partial(_run_all, steps), name="a step").start()

    def try_step(
        self,
        pipeline: Pipeline,
        request: StepRequest,
        slots: Mapping[SlotIndex, Address],
        answer: StepAnswer,
    ) -> bool:
        return not self._steps[pipeline.id] and self._exchange.try_step(
            pipeline, request, slots, answer
        )

    def cancel_step(self, pipeline: Pipeline) -> None:
        self._exchange.cancel_step(pipeline)

    def end_steps(self) -> None:
        SimulatedThread(self._exchange.end_steps, name="steps end").start()


def _run_all(steps: deque[Callable[[], None]]) -> None:
    """A pipeline has one thread for its steps."""
    while steps:
        steps[0]()
        steps.popleft()


class SimulatedSpark:
    """As much of a SparkContext as the exchange uses."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.jobs: list[PumpJob] = []
        pumps = SimpleNamespace(run=self._run)
        self._jvm = SimpleNamespace(
            java=SimpleNamespace(lang=SimpleNamespace(String=str)),
            tidegate=SimpleNamespace(exchange=SimpleNamespace(Pumps=pumps)),
        )
        self._gateway = SimpleNamespace(new_array=lambda kind, size: [None] * size)
        self._jsc = SimpleNamespace(sc=lambda: None)

    def setJobGroup(self, group: str, description: str, interruptOnCancel: bool) -> None:  # noqa: N803
        current_thread().group = group

    def addJobTag(self, tag: str) -> None:
        """Nobody asks for it."""

    def cancelJobGroup(self, group: str) -> None:
        for job in self.jobs:
            if job.group == group:
                job.end("it was canceled")

    def lose_executor(self, number: int) -> None:
        for job in self.jobs:
            for pump in list(job.pumps.values()):
                if not job.is_over and executor_of(pump.slot, pump.level) == number:
                    pump.die()

    def stop(self) -> None:
        """The driver is gone, and its jobs with it."""
        for job in self.jobs:
            job.end("the driver is gone")

    def _run(
        self, sc: Any, slots: list[str], levels: int, secret: bytes, epoch: int, pipeline: int
    ) -> None:
        ports = [int(slot.rpartition(":")[2]) for slot in slots]
        PumpJob(self, ports, levels, epoch, pipeline).run()


class PumpJob:
    """One endless job. It is over when all pumps have run dry, or one of them has failed."""

    def __init__(
        self, spark: SimulatedSpark, slots: list[int], levels: int, epoch: int, pipeline: int
    ) -> None:
        self.spark, self.world, self.sim = spark, spark.cluster.world, spark.cluster.sim
        self.slots, self.levels, self.epoch, self.pipeline = slots, levels, epoch, pipeline
        self.group = ""
        self.pumps: dict[tuple[int, int], Pump] = {}
        self._done: set[tuple[int, int]] = set()
        self._clear_at: dict[tuple[int, int, int], float] = defaultdict(float)
        self._outcome: str | None = None
        self._carried: dict[Any, list[Any]] = defaultdict(list)

    def run(self) -> None:
        """Runs it to its end."""
        if self.world.has_no_room:
            raise RuntimeError("[INSUFFICIENT_SLOT] there are too few task slots")
        self._waiting = current_thread()
        self.group = self._waiting.group
        self.spark.jobs.append(self)
        self.world.moment("pumps start")
        for level in range(self.levels):
            for slot in range(len(self.slots)):
                self.start_pump(level, slot)
        while self._outcome is None:
            wait()
        if self._outcome:
            raise RuntimeError(self._outcome)

    def start_pump(self, level: int, slot: int) -> None:
        self.pumps[level, slot] = Pump(self, level, slot)

    @property
    def is_over(self) -> bool:
        return self._outcome is not None

    def end(self, reason: str) -> None:
        """Its tasks are interrupted, which takes a while."""
        if self._outcome is None:
            self._settle(reason)
            for pump in self.pumps.values():
                late = self.sim.chance(0.2 + self.world.lag)
                seconds = self.sim.delay(1.0 if late else 0.02)
                self.sim.later(seconds, f"{pump} is interrupted", pump.interrupt)

    def _settle(self, outcome: str) -> None:
        self._outcome = outcome
        self._waiting.process.later(0.0, "a job ends", self._waiting.resume)

    def task_failed(self, pump: Pump, reason: str) -> None:
        """Spark runs it again, or gives the job up."""
        if self._outcome is None and self.pumps[pump.level, pump.slot] is pump:
            if self.sim.chance(0.5):
                self.start_pump(pump.level, pump.slot)
            else:
                self.end(reason)

    def task_done(self, pump: Pump) -> None:
        self._done.add((pump.level, pump.slot))
        if all((pump.level, slot) in self._done for slot in range(len(self.slots))):
            for slot in range(len(self.slots)):
                if (last := self.pumps.get((pump.level + 1, slot))) is not None:
                    self.sim.later(self.sim.delay(0.005), f"{last} runs dry", last.run_dry)
        if len(self._done) == len(self.pumps) and self._outcome is None:
            self._settle("")

    def shuffle(self, pump: Pump, target: int, cargo: bytes) -> None:
        """From one pump to another of the next level: in order, perhaps much later."""
        self.world.moment("cargo travels")
        self._check(pump, target, cargo)
        lane = pump.level, pump.slot, target
        delay = self.sim.delay(0.5 if self.sim.chance(self.world.lag) else 0.003)
        self._clear_at[lane] = max(self._clear_at[lane], self.sim.now + delay)
        receiver = self.pumps[pump.level + 1, target]
        self.sim.later(
            self._clear_at[lane] - self.sim.now,
            f"cargo for {receiver}",
            lambda: receiver.push(cargo),
        )
        if self.sim.chance(self.world.breaks / 10):
            self.end("fetch failed")

    def _check(self, pump: Pump, target: int, cargo: bytes) -> None:
        """A unit that is asked again says the same, whichever job carries it."""
        found = decode_cargo(cargo)
        if found.source != pump.slot:
            raise Wrong(f"{pump} carries what slot {found.source} has sent")
        key = found.attempt, found.step, pump.level, found.source, target
        carried = self._carried[key]
        carried += [(packet.header, bytes(packet.body)) for packet in found.packets]  # type: ignore[arg-type]
        if found.is_last and not found.marks:
            of_driver = id(self.spark.cluster.driver.master), self.pipeline
            before = self.world.carried.setdefault((of_driver, key), carried)
            if before != carried:
                raise Wrong(f"the unit {key} sends something else when it is asked again")


class Pump:
    """One try at a task: it carries cargo from its slot to other pumps, and from these to it."""

    def __init__(self, job: PumpJob, level: int, slot: int) -> None:
        self.job, self.level, self.slot = job, level, slot
        self.line: LineEnd | None = None
        self._waiting: list[bytes] = []
        self._is_over = self._is_dry = False
        late = job.sim.chance(0.05 + job.world.lag / 3)
        job.sim.later(job.sim.delay(1.0 if late else 0.01), f"{self} starts", self._start)

    def __str__(self) -> str:
        return f"pump {self.level}.{self.slot} of job {self.job.epoch}"

    def _start(self) -> None:
        if self._is_over:
            return
        job = self.job
        try:
            self.line = job.world.slots[job.slots[self.slot]].dialed(None)
        except LineClosed:
            self._fail("its slot cannot be reached")
            return
        self.line.on_frame, self.line.on_end = self._take, self._line_ended
        self.line.epoch = job.epoch
        self.line.send(Frame.PUMP, _GREETING.pack(job.epoch, job.pipeline, self.level))
        waiting, self._waiting = self._waiting, []
        for cargo in waiting:
            self.push(cargo)
        if self._is_dry:
            self.line.shut()

    def push(self, cargo: bytes) -> None:
        if self.line is None:
            self._waiting.append(cargo)
        elif not self._is_over:
            try:
                self.line.send(Frame.CARGO, cargo)
            except LineClosed:
                self._fail("its slot has gone")

    def run_dry(self) -> None:
        self._is_dry = True
        if self.line is not None:
            self.line.shut()

    def _take(self, kind: int, payload: bytearray) -> None:
        if self._is_over:
            return
        if kind == Frame.END:
            self.interrupt()
            self.job.task_done(self)
        else:
            target = int.from_bytes(payload[:_TARGET_BYTES], "big")
            self.job.shuffle(self, target, bytes(payload[_TARGET_BYTES:]))

    def _line_ended(self) -> None:
        self._fail("the slot closed its line")

    def _fail(self, reason: str) -> None:
        if not self._is_over:
            self.interrupt()
            self.job.task_failed(self, reason)

    def interrupt(self) -> None:
        self._is_over = True
        if self.line is not None:
            self.line.close()

    def die(self) -> None:
        """Its executor is lost, or runs out of memory."""
        self._fail("it was lost")
