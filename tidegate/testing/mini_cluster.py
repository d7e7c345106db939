"""A whole cluster in one process: the real driver and the real slots, without Spark.

Not simulated: processes (user classes are shared), Spark's scheduling and retries, sockets.
Messages and packets are encoded exactly as between processes.
"""

from __future__ import annotations

import pickle
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tidegate.core.clock import Clock, SystemClock
from tidegate.core.config import Settings
from tidegate.core.ids import Address, Level, PipelineId, SlotIndex
from tidegate.driver.checkpoints.home import CheckpointHome
from tidegate.driver.checkpoints.lifecycle import JobCheckpoints
from tidegate.driver.cluster import ClusterEvent, FromSlot, LineEnded, SlotJobEnded
from tidegate.driver.collectors import Collectors
from tidegate.driver.job_handle import JobHandle, Replan
from tidegate.driver.job_master import JobMaster
from tidegate.driver.live_line import Console
from tidegate.exchange.contract import Exchange, StepAnswer, StepBroken
from tidegate.graph.job_graph import JobGraph, Pipeline
from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.messages import (
    DriverMessage,
    Register,
    SlotMessage,
    StepOutcome,
    StepRequest,
)
from tidegate.protocol.packet import FailureMark, Packet, SlotOutOfReach
from tidegate.protocol.units import Stale, UnitKey
from tidegate.slot.pipeline_host import UnitAnswer
from tidegate.slot.slot_host import SlotHost
from tidegate.transport.shipping import pack, to_slot
from tidegate.transport.versions import versions

_CLOSE_SECONDS = 5.0


class MiniCluster(Exchange):
    """Slots as threads; `kill`, `pause` and `cut` simulate failures of processes.

    Args:
        clock: the clock of user code; by default the machine's.
        closing_seconds: how long user code may continue after it should end.
        heartbeat_seconds: how often slots ask the driver to renew their leases, which last for the
            job's `heartbeat.timeout`.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        closing_seconds: float = 180.0,
        heartbeat_seconds: float = 1.0,
    ) -> None:
        self.clock = clock or SystemClock()
        self.closing_seconds = closing_seconds
        self.heartbeat_seconds = heartbeat_seconds
        self._slots: dict[SlotIndex, _MiniSlot] = {}
        self._lines: dict[Incarnation, _MiniSlot] = {}
        """All processes that have not ended, including those that Spark has lost track of."""
        self.post: Callable[[ClusterEvent], None] = lambda event: None
        self._directory = tempfile.TemporaryDirectory(prefix="tidegate-mini-")
        self._answers: dict[PipelineId, queue.SimpleQueue[UnitAnswer | Stale | None]] = {}
        """What the last step of a pipeline waits for; None when it stops waiting."""
        self._lock = threading.Lock()

    def start(self, post: Callable[[ClusterEvent], None]) -> None:
        self.post = post

    def shortage(self) -> None:
        """None: threads always have room."""

    def launch(self, slot: SlotIndex, number: int) -> None:
        incarnation = Incarnation.create(slot, number, 0)
        started = _MiniSlot(self, incarnation, Path(self._directory.name))
        self._slots[slot] = self._lines[incarnation] = started
        started.start()

    def send(self, incarnation: Incarnation, message: DriverMessage) -> None:
        if incarnation in self._lines:
            self._lines[incarnation].receive(message)

    def kill(self, slot: SlotIndex) -> None:
        """End a process at once; if it is unreachable, only its Spark job ends."""
        with self._lock:
            killed = self._slots.pop(slot, None)
        if killed is None:
            return
        if killed.is_within_reach:
            killed.die()
        else:
            for waiting in list(self._answers.values()):
                waiting.put(None)
        self.post(SlotJobEnded(slot, "killed"))

    def pause(self, slot: SlotIndex) -> Callable[[], None]:
        """Pause a process before it next checks its lease or sends; returns how to resume it."""
        return self._slots[slot].pause()

    def cut(self, slot: SlotIndex) -> None:
        """Drop all messages between driver and slot; neither of them notices."""
        self._slots[slot].is_cut = True

    def close(self) -> None:
        for slot in list(self._lines.values()):
            slot.end()
        self._directory.cleanup()

    def ended(self, slot: _MiniSlot) -> None:
        index = slot.incarnation.slot
        with self._lock:
            had_line = self._lines.pop(slot.incarnation, None) is not None and not slot.is_cut
            had_job = self._slots.get(index) is slot and self._slots.pop(index) is slot
        if had_line:
            self.post(LineEnded(slot.incarnation))
        if had_job:
            self.post(SlotJobEnded(index, "it returned"))

    # --- the exchange -----------------------------------------------------------------------

    def run_step(
        self,
        pipeline: Pipeline,
        request: StepRequest,
        slots: Mapping[SlotIndex, Address],
        answer: StepAnswer,
    ) -> None:
        wire = to_slot(request)
        inputs: dict[int, list[Packet]] = {i: [] for i in range(pipeline.slots)}
        marks: list[FailureMark] = []
        reports: dict[int, StepOutcome] = {}
        self._answers[pipeline.id] = queue.SimpleQueue()
        for level in range(pipeline.levels):
            key = UnitKey(request.attempt, request.step, Level(level))
            arriving, inputs = inputs, {i: [] for i in range(pipeline.slots)}
            marking, marks = marks, []
            for i in range(pipeline.slots):
                unit = self._run_unit(
                    SlotIndex(i), pipeline, key, arriving[i], marking, pickle.loads(wire)
                )
                if isinstance(unit, SlotOutOfReach):
                    marks.append(FailureMark(unit.slot, unit.as_error()))
                    reports[i] = unit
                    continue
                for packet in unit.packets:
                    inputs[packet.header.target_subtask].append(packet)
                marks += unit.marks
                reports[i] = unit.report
        answer(list(reports.values()))

    def end_steps(self) -> None:
        """Nothing outlives a step."""

    def cancel_step(self, pipeline: Pipeline) -> None:
        """Release everything that waits for a slot that does not answer."""
        if pipeline.id in self._answers:
            self._answers[pipeline.id].put(None)

    def _run_unit(
        self,
        slot: SlotIndex,
        pipeline: Pipeline,
        key: UnitKey,
        packets: list[Packet],
        marks: list[FailureMark],
        request: StepRequest,
    ) -> UnitAnswer | SlotOutOfReach:
        found = self._slots.get(slot)
        if found is None:
            return SlotOutOfReach(slot, "it is gone")
        first = request if key.level == 0 else None
        answers = self._answers[pipeline.id]
        found.host.run_unit(pipeline.id, key, packets, marks, first, answers.put)
        answer = answers.get()
        if answer is None:
            raise StepBroken("it was cancelled")
        return answer if isinstance(answer, UnitAnswer) else SlotOutOfReach(slot, answer.reason)


class _MiniSlot:
    """A slot with its control line, both as threads."""

    def __init__(self, cluster: MiniCluster, incarnation: Incarnation, directory: Path) -> None:
        self.incarnation = incarnation
        self.is_cut = False
        self._cluster = cluster
        self._is_dead = False
        self._runs = threading.Event()
        self._runs.set()
        self._inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.host = SlotHost(
            incarnation,
            self._send,
            cluster.clock,
            directory,
            now=self._now,
            closing_seconds=cluster.closing_seconds,
            on_stuck=self.die,
        )
        name = f"mini-slot-{incarnation.slot}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_within_reach(self) -> bool:
        return self._runs.is_set() and not self.is_cut

    def start(self) -> None:
        self._thread.start()
        self._send(Register(self.incarnation, Address("", 0), versions(), 0))

    def receive(self, message: DriverMessage) -> None:
        if not self.is_cut:
            self._inbox.put(pickle.dumps(message))

    def pause(self) -> Callable[[], None]:
        self._runs.clear()
        return self._runs.set

    def die(self) -> None:
        """Die like a killed process: send nothing more, close nothing."""
        self._is_dead = True
        self._runs.set()
        self.host.leave("killed")
        self._inbox.put(None)
        self._cluster.ended(self)

    def end(self) -> None:
        self._runs.set()
        self._inbox.put(None)
        self._thread.join(_CLOSE_SECONDS)

    def _now(self) -> float:
        """Every permission check reads the clock first, so a pause takes effect here."""
        self._runs.wait()
        return time.monotonic()

    def _send(self, message: SlotMessage) -> None:
        self._runs.wait()
        if not self._is_dead and not self.is_cut:
            self._cluster.post(FromSlot(self.incarnation, pickle.loads(pickle.dumps(message))))

    def _run(self) -> None:
        beat_at = time.monotonic() + self._cluster.heartbeat_seconds
        while not self.host.is_over.is_set():
            patience = beat_at - time.monotonic()
            if patience <= 0:
                self.host.beat()
                beat_at = time.monotonic() + self._cluster.heartbeat_seconds
                continue
            try:
                message = self._inbox.get(timeout=patience)
            except queue.Empty:
                continue
            self._runs.wait()
            if message is None:
                break
            self.host.handle(pickle.loads(message))
        self.host.close(0 if self._is_dead else _CLOSE_SECONDS)
        self._cluster.ended(self)


def run(
    graph: JobGraph,
    settings: Settings | None = None,
    replan: Replan | None = None,
    slot_clock: Clock | None = None,
) -> JobHandle:
    """Start a job on its own cluster.

    Args:
        graph: the job.
        settings: those of the job.
        replan: plans it for another parallelism.
        slot_clock: the clock of user code; by default the machine's.
    """
    settings = settings or Settings()
    collectors = Collectors()
    console = Console(settings.engine.live_line)
    clock = SystemClock()

    def start(graph: JobGraph, predecessor: CheckpointHome | None) -> JobMaster:
        patience = settings.engine.cancellation_timeout.total_seconds()
        cluster = MiniCluster(
            slot_clock,
            closing_seconds=patience,
            heartbeat_seconds=settings.engine.heartbeat_interval.total_seconds(),
        )
        checkpoints = JobCheckpoints.open(graph, settings, clock, predecessor)
        return JobMaster(
            pack(
                checkpoints.job_id,
                checkpoints.graph,
                settings.as_mapping(),
                to_other_processes=False,
            ),
            settings,
            checkpoints,
            cluster,
            cluster,
            clock,
            collectors.outputs(console),
        )

    return JobHandle(graph, start, collectors, console, replan)
