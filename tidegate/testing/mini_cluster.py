"""A whole cluster in one process: the real driver and the real slots, joined without Spark.

Not simulated: processes (user classes are shared), Spark's scheduling and retries, sockets.
Messages and packets are encoded exactly as between processes.
"""

from __future__ import annotations

import pickle
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tidegate.core.clock import Clock, SystemClock
from tidegate.core.config import Settings
from tidegate.core.ids import Address, Level, SlotIndex
from tidegate.driver.checkpoint_home import CheckpointHome
from tidegate.driver.checkpoints import JobCheckpoints
from tidegate.driver.cluster import ClusterEvent, FromSlot, LineEnded, SlotJobEnded
from tidegate.driver.collectors import Collectors
from tidegate.driver.job_handle import JobHandle, Replan
from tidegate.driver.job_master import JobMaster
from tidegate.driver.live_line import Console
from tidegate.graph.job_graph import JobGraph, Pipeline
from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.messages import (
    DriverMessage,
    Register,
    SlotHeartbeat,
    SlotMessage,
    StepOutcome,
    StepRequest,
)
from tidegate.protocol.packet import FailureMark, Packet, SlotOutOfReach
from tidegate.protocol.units import UnitKey
from tidegate.slot.pipeline_host import UnitAnswer
from tidegate.slot.slot_host import SlotHost
from tidegate.transport.shipping import pack, to_slot
from tidegate.transport.versions import versions

_CLOSE_SECONDS = 5.0
_BEAT_SECONDS = 1.0


class MiniCluster:
    """Slots as threads; `kill` ends one as abruptly as threads allow."""

    def __init__(self, clock: Clock | None = None, *, closing_seconds: float = 180.0) -> None:
        self._clock = clock or SystemClock()
        self._closing_seconds = closing_seconds
        self._slots: dict[SlotIndex, _MiniSlot] = {}
        self._directory = tempfile.TemporaryDirectory(prefix="tidegate-mini-")
        self._post: Callable[[ClusterEvent], None] = lambda event: None

    def start(self, post: Callable[[ClusterEvent], None]) -> None:
        self._post = post

    def shortage(self) -> None:
        """Threads always find room."""

    def launch(self, slot: SlotIndex, number: int) -> None:
        incarnation = Incarnation.create(slot, number, 0)
        self._slots[slot] = _MiniSlot(
            incarnation,
            self._post,
            self._clock,
            Path(self._directory.name),
            self._closing_seconds,
            on_stuck=lambda: self._replace(incarnation),
        )

    def _replace(self, incarnation: Incarnation) -> None:
        """A process would end itself."""
        slot = self._slots.get(incarnation.slot)
        if slot is not None and slot.incarnation == incarnation:
            self.kill(incarnation.slot)

    def send(self, incarnation: Incarnation, message: DriverMessage) -> None:
        slot = self._slots.get(incarnation.slot)
        if slot is not None and slot.incarnation == incarnation:
            slot.receive(pickle.dumps(message))

    def kill(self, slot: SlotIndex) -> None:
        killed = self._slots.pop(slot)
        killed.die()
        self._post(LineEnded(killed.incarnation))
        self._post(SlotJobEnded(slot, "killed"))

    def close(self) -> None:
        for slot in self._slots.values():
            slot.end()
        self._slots.clear()
        self._directory.cleanup()

    # --- the exchange -----------------------------------------------------------------------

    def run_step(
        self, pipeline: Pipeline, request: StepRequest, slots: Mapping[SlotIndex, Address]
    ) -> Sequence[StepOutcome]:
        wire = to_slot(request)
        inputs: dict[int, list[Packet]] = {i: [] for i in range(pipeline.slots)}
        marks: list[FailureMark] = []
        reports: dict[int, StepOutcome] = {}
        for level in range(pipeline.levels):
            key = UnitKey(request.attempt, request.step, Level(level))
            arriving, inputs = inputs, {i: [] for i in range(pipeline.slots)}
            marking, marks = marks, []
            for i in range(pipeline.slots):
                answer = self._run_unit(
                    SlotIndex(i), pipeline, key, arriving[i], marking, pickle.loads(wire)
                )
                if isinstance(answer, SlotOutOfReach):
                    marks.append(FailureMark(answer.slot, answer.as_error()))
                    reports[i] = answer
                    continue
                for packet in answer.packets:
                    inputs[packet.header.target_subtask].append(packet)
                marks += answer.marks
                reports[i] = answer.report
        return list(reports.values())

    def cancel_step(self, pipeline: Pipeline) -> None:
        """A step of this cluster ends by itself when its slots have."""

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
        answer = found.host.run_unit(pipeline.id, key, packets, marks, first)
        if isinstance(answer, UnitAnswer):
            return answer
        return SlotOutOfReach(slot, answer.reason)


class _MiniSlot:
    """A slot with its control line, both as threads."""

    def __init__(
        self,
        incarnation: Incarnation,
        post: Callable[[ClusterEvent], None],
        clock: Clock,
        directory: Path,
        closing_seconds: float,
        on_stuck: Callable[[], None],
    ) -> None:
        self.incarnation = incarnation
        self._post = post
        self._is_dead = False
        self._inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.host = SlotHost(
            incarnation.slot,
            self._send,
            clock,
            directory,
            closing_seconds=closing_seconds,
            on_stuck=on_stuck,
        )
        name = f"mini-slot-{incarnation.slot}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._send(Register(incarnation, Address("", 0), versions(), 0))

    def receive(self, message: bytes) -> None:
        self._inbox.put(message)

    def die(self) -> None:
        self._is_dead = True
        self._inbox.put(None)
        self.host.abandon()

    def end(self) -> None:
        self._inbox.put(None)
        self._thread.join(_CLOSE_SECONDS)
        self.host.close(_CLOSE_SECONDS)

    def _send(self, message: SlotMessage) -> None:
        if not self._is_dead:
            self._post(FromSlot(self.incarnation, pickle.loads(pickle.dumps(message))))

    def _run(self) -> None:
        beat_at = time.monotonic() + _BEAT_SECONDS
        while True:
            patience = beat_at - time.monotonic()
            if patience <= 0:
                self._send(SlotHeartbeat())
                beat_at += _BEAT_SECONDS
                continue
            try:
                message = self._inbox.get(timeout=patience)
            except queue.Empty:
                continue
            if message is None:
                return
            self.host.handle(pickle.loads(message))


def run(
    graph: JobGraph,
    settings: Settings | None = None,
    replan: Replan | None = None,
    slot_clock: Clock | None = None,
) -> JobHandle:
    """Start a job on a cluster of its own and return it running.

    Args:
        graph: the job.
        settings: of the job.
        replan: how it is planned for another parallelism.
        slot_clock: what user code takes for the time; by default the machine's.
    """
    settings = settings or Settings()
    collectors = Collectors()
    console = Console(settings.engine.live_line)
    clock = SystemClock()

    def start(graph: JobGraph, predecessor: CheckpointHome | None) -> JobMaster:
        patience = settings.engine.cancellation_timeout.total_seconds()
        cluster = MiniCluster(slot_clock, closing_seconds=patience)
        checkpoints = JobCheckpoints.open(graph, settings, clock, predecessor)
        return JobMaster(
            pack(checkpoints.job_id, checkpoints.graph, settings.as_mapping()),
            settings,
            checkpoints,
            cluster,
            cluster,
            clock,
            collectors.outputs(console),
        )

    return JobHandle(graph, start, collectors, console, replan)
