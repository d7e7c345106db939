"""The lines of a slot to the endless Spark jobs of its pipelines, and to the driver.

The driver connects first and announces an *epoch*, which grows with every job of a pipeline. Only
pumps of that job are admitted, so that packets of earlier jobs cannot get in.
"""

from __future__ import annotations

import pickle
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from tidegate.core.errors import LineClosed, ProtocolViolation
from tidegate.core.ids import Level, PipelineId, SlotIndex
from tidegate.exchange.pipelined.cargo import Part, decode_cargo, encode_cargo
from tidegate.exchange.unit_protocol import Frame
from tidegate.protocol.arrivals import (
    Arrivals,
    Cargo,
    PumpArrival,
    PumpedJobs,
    Pumps,
    UnitInput,
    shares,
)
from tidegate.protocol.messages import Attendance, StepOutcome, StepRequest, UnitOrder
from tidegate.protocol.packet import FailureMark, Packet, PacketPosition, SlotOutOfReach
from tidegate.protocol.units import Stale, UnitKey
from tidegate.slot.pipeline_host import UnitAnswer
from tidegate.transport.wire import Connection

_GREETING: Final = struct.Struct(">QII")
_TARGET: Final = struct.Struct(">I")

RunUnit = Callable[
    [
        PipelineId,
        UnitKey,
        Sequence[Packet],
        Sequence[FailureMark],
        StepRequest | None,
        Callable[[Packet], None] | None,
    ],
    UnitAnswer | Stale,
]
"""Runs a unit, or waits for the thread that does, and returns its answer.

The last argument is called with the first packets of the answer while the unit still runs.
"""


class PumpLines:
    """All such lines of one slot; each is served by its own thread."""

    def __init__(self, slot: SlotIndex, run_unit: RunUnit) -> None:
        self._slot = slot
        self._run_unit = run_unit
        self._admissions = PumpedJobs()
        self._jobs: dict[PipelineId, _LinesOfJob] = {}
        self._lock = threading.Lock()

    def attend(self, connection: Connection, greeting: bytearray) -> None:
        """Serve the driver: run the first level of every requested step."""
        attendance: Attendance = pickle.loads(greeting)
        job = _LinesOfJob(self._slot, attendance, connection, self._run_unit)
        with self._lock:
            if not self._admissions.announce(attendance.pipeline, attendance.epoch):
                return
            older = self._jobs.get(attendance.pipeline)
            self._jobs[attendance.pipeline] = job
        if older is not None:
            older.end()
        try:
            job.serve_driver()
        finally:
            job.end()

    def pump(self, connection: Connection, greeting: bytearray) -> None:
        """Serve a pump: run the units of its level when their input is complete."""
        epoch, pipeline, level = _GREETING.unpack(greeting)
        with self._lock:
            if not self._admissions.admits(PipelineId(pipeline), epoch):
                return
            job = self._jobs[PipelineId(pipeline)]
        job.serve_pump(connection, Level(level))


class _LinesOfJob:
    def __init__(
        self, slot: SlotIndex, attendance: Attendance, driver: Connection, run_unit: RunUnit
    ) -> None:
        self._slot = slot
        self._job = attendance
        self._driver = driver
        self._run_unit = run_unit
        self._pumps = Pumps(attendance.levels)
        self._connections: dict[Level, Connection] = {}
        self._arrivals = [Arrivals(attendance.slots) for _ in range(attendance.levels)]
        self._lock = threading.Lock()

    def serve_driver(self) -> None:
        self._driver.send(Frame.READY)  # for pumps; once all are here, for steps
        while True:
            kind, payload = self._driver.receive()
            if kind != Frame.STEP:
                raise ProtocolViolation(f"the driver sent a frame of kind {kind} to a slot")
            order: UnitOrder = pickle.loads(payload)
            self._run(UnitKey(order.attempt, order.step, Level(0)), (), (), order.request)

    def serve_pump(self, connection: Connection, level: Level) -> None:
        with self._lock:
            arrival = self._pumps.arrive(level)
            if arrival in (PumpArrival.AWAITING_OTHERS, PumpArrival.COMPLETE):
                self._connections[level] = connection
        match arrival:
            case PumpArrival.TOO_LATE:
                _end(connection)
                return
            case PumpArrival.REPEATED:
                self._break()
                return
            case PumpArrival.COMPLETE:
                self._driver.send(Frame.READY)
        try:
            while True:
                kind, payload = connection.receive()
                if kind != Frame.CARGO:
                    raise ProtocolViolation(f"a pump sent a frame of kind {kind} to a slot")
                if (found := self._arrived(level, decode_cargo(payload))) is not None:
                    key = UnitKey(found.attempt, found.step, level)
                    self._run(key, found.packets, found.marks, None)
        finally:
            self._break()
            _end(connection)

    def end(self) -> None:
        """End the job: without input from the first pumps, the others would wait forever."""
        self._driver.close()
        with self._lock:
            self._pumps.end()
            first = self._connections.get(Level(0))
        if first is not None:
            _end(first)

    def _break(self) -> None:
        if self._pumps.needs_all_pumps:
            with suppress(LineClosed):
                self._driver.send(Frame.BROKEN)

    def _arrived(self, level: Level, cargo: Cargo) -> UnitInput | None:
        with self._lock:
            return self._arrivals[level].take(cargo)

    def _run(
        self,
        key: UnitKey,
        packets: Sequence[Packet],
        marks: Sequence[FailureMark],
        request: StepRequest | None,
    ) -> None:
        """Run a unit, and those of higher levels that have no packets in transit."""
        while True:
            is_last = key.level == self._job.levels - 1
            sent: set[PacketPosition] = set()
            on_packet = None if is_last else partial(self._send_early, key, sent)
            answer = self._run_unit(self._job.pipeline, key, packets, marks, request, on_packet)
            report: StepOutcome
            if isinstance(answer, UnitAnswer):
                out, marks, report = answer.packets, answer.marks, answer.report
            else:
                report = SlotOutOfReach(self._slot, answer.reason)
                out, marks = (), (FailureMark(self._slot, report.as_error()),)
            # A line that has ended belongs to a job that broke: the driver repeats the step.
            with suppress(LineClosed):
                if is_last:
                    self._driver.send(Frame.REPORT, pickle.dumps(report, protocol=5))
                else:
                    rest = [packet for packet in out if packet.header.position not in sent]
                    self._send(key, rest, marks)
            if is_last:
                return
            # Local packets do not travel, so only this mark is missing from the slot itself.
            own = Cargo(key.attempt, key.step, self._slot, True, marks=tuple(marks))
            found = self._arrived(level := Level(key.level + 1), own)
            if found is None:
                return
            key = UnitKey(key.attempt, key.step, level)
            packets, marks, request = found.packets, found.marks, None

    def _send_early(self, key: UnitKey, sent: set[PacketPosition], packet: Packet) -> None:
        """Send a packet while its unit runs: it travels while the next one is computed."""
        sent.add(packet.header.position)
        with suppress(LineClosed):
            target = packet.header.target_subtask
            self._send_cargo(key, target, encode_cargo(key, self._slot, [packet], is_last=False))

    def _send(self, key: UnitKey, packets: Sequence[Packet], marks: Sequence[FailureMark]) -> None:
        for target, share in enumerate(shares(packets, self._job.slots)):
            if target != self._slot:
                self._send_cargo(key, target, encode_cargo(key, self._slot, share, marks))

    def _send_cargo(self, key: UnitKey, target: int, cargo: Iterable[list[Part]]) -> None:
        pump = self._connections.get(key.level)
        assert pump is not None, "a slot without pumps has nowhere to send packets"
        for parts in cargo:
            pump.send(Frame.CARGO, _TARGET.pack(target), *parts)


def _end(connection: Connection) -> None:
    with suppress(LineClosed):
        connection.send(Frame.END)
