"""The lines of a slot to the endless Spark jobs of its pipelines, and to the driver.

The driver connects first and announces an *epoch*, which grows with every job of a pipeline. Only
pumps of that job are admitted, so that packets of earlier jobs cannot get in.
"""

from __future__ import annotations

import logging
import pickle
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from tidegate.core.errors import LineClosed, ProtocolViolation
from tidegate.core.ids import Level, PipelineId, SlotIndex
from tidegate.core.workers import Worker, Workers
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

_FRAME_BYTES: Final = 1024
"""What a small frame takes up in the buffers of a line, roughly."""
_log = logging.getLogger("tidegate.transport")

RunUnit = Callable[
    [
        PipelineId,
        UnitKey,
        Sequence[Packet],
        Sequence[FailureMark],
        StepRequest | None,
        Callable[[UnitAnswer | Stale], None],
        Callable[[Packet], None] | None,
    ],
    None,
]
"""See `SlotHost.run_unit`."""


class PumpLines:
    """All such lines of one slot. Each has a thread that receives; the mailboxes send."""

    def __init__(self, slot: SlotIndex, run_unit: RunUnit, workers: Workers) -> None:
        self._slot = slot
        self._run_unit = run_unit
        self._workers = workers
        self._admissions = PumpedJobs()
        self._jobs: dict[PipelineId, _LinesOfJob] = {}
        self._lock = threading.Lock()

    def attend(self, connection: Connection, greeting: bytearray) -> None:
        """Serve the driver: run the first level of every requested step."""
        attendance: Attendance = pickle.loads(greeting)
        job = _LinesOfJob(self._slot, attendance, connection, self._run_unit, self._workers)
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
        self,
        slot: SlotIndex,
        attendance: Attendance,
        driver: Connection,
        run_unit: RunUnit,
        workers: Workers,
    ) -> None:
        self._slot = slot
        self._job = attendance
        self._driver = driver
        self._run_unit = run_unit
        self._sender = Sender(workers, f"tidegate-send-{attendance.pipeline}", self._break)
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
        self._driver.hang_up()
        with self._lock:
            self._pumps.end()
            first = self._connections.get(Level(0))
        # The pump may have stopped: a newer job must not wait for it.
        self._sender.end(first, lambda: None if first is None else _end(first))

    def _break(self) -> None:
        if self._pumps.needs_all_pumps:
            try:
                self._driver.send(Frame.BROKEN)
            except LineClosed:
                self._driver.hang_up()  # it may live, and the driver would wait for ever

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
        """Have a unit run; what follows is up to the mailbox, on whose thread it is answered."""
        sent: set[PacketPosition] = set()
        on_packet = None if self._is_last(key) else partial(self._send_early, key, sent)
        answered = partial(self._answered, key, sent)
        self._run_unit(self._job.pipeline, key, packets, marks, request, answered, on_packet)

    def _is_last(self, key: UnitKey) -> bool:
        return key.level == self._job.levels - 1

    def _answered(
        self, key: UnitKey, sent: set[PacketPosition], answer: UnitAnswer | Stale
    ) -> None:
        """Send the answer of a unit, then run the next level unless packets are in transit."""
        with self._sender.breaking():
            self._pass_on(key, sent, answer)

    def _pass_on(self, key: UnitKey, sent: set[PacketPosition], answer: UnitAnswer | Stale) -> None:
        report: StepOutcome
        if isinstance(answer, UnitAnswer):
            out, marks, report = answer.packets, answer.marks, answer.report
        else:
            report = SlotOutOfReach(self._slot, answer.reason)
            out, marks = (), (FailureMark(self._slot, report.as_error()),)
        if self._is_last(key):
            payload = pickle.dumps(report, protocol=5)
            size = len(payload)
            self._sender.send(self._driver, size, lambda: self._driver.send(Frame.REPORT, payload))
            return
        rest = [packet for packet in out if packet.header.position not in sent]
        to_each = _FRAME_BYTES + sum(_FRAME_BYTES + len(pickle.dumps(mark)) for mark in marks)
        size = sum(len(packet.body) for packet in rest) + to_each * self._job.slots
        self._send_by_pump(key, size, lambda: self._send(key, rest, marks))
        # Local packets do not travel, so only this mark is missing from the slot itself.
        own = Cargo(key.attempt, key.step, self._slot, True, marks=tuple(marks))
        found = self._arrived(level := Level(key.level + 1), own)
        if found is not None:
            self._run(UnitKey(key.attempt, key.step, level), found.packets, found.marks, None)

    def _send_early(self, key: UnitKey, sent: set[PacketPosition], packet: Packet) -> None:
        """Send a packet while its unit runs: it travels while the next one is computed."""
        sent.add(packet.header.position)
        target = packet.header.target_subtask
        cargo = encode_cargo(key, self._slot, [packet], is_last=False)
        self._send_by_pump(key, len(packet.body), lambda: self._send_cargo(key, target, cargo))

    def _send_by_pump(self, key: UnitKey, size: int, send: Callable[[], None]) -> None:
        if self._job.slots > 1:
            self._sender.send(self._connections[key.level], size, send)

    def _send(self, key: UnitKey, packets: Sequence[Packet], marks: Sequence[FailureMark]) -> None:
        for target, share in enumerate(shares(packets, self._job.slots)):
            if target != self._slot:
                self._send_cargo(key, target, encode_cargo(key, self._slot, share, marks))

    def _send_cargo(self, key: UnitKey, target: int, cargo: Iterable[list[Part]]) -> None:
        for parts in cargo:
            self._connections[key.level].send(Frame.CARGO, _TARGET.pack(target), *parts)


class Sender:
    """Sends in order, without keeping the caller waiting for the other end of a line.

    A failure breaks the job: the driver repeats the step. Nothing follows what was not sent: the
    last cargo of a unit completes the input of another, which must not lack a packet.
    """

    def __init__(self, workers: Workers, name: str, on_failure: Callable[[], None]) -> None:
        self._workers = workers
        self._name = name
        self._on_failure = on_failure
        self._worker: Worker | None = None
        self._waiting = 0
        self._is_cut_off = False
        self._lock = threading.Lock()

    def send(self, line: Connection, size: int, send: Callable[[], None]) -> None:
        """Send now, if about `size` bytes fit into the line, otherwise on a thread."""
        with self._lock:
            if self._is_cut_off:
                return
            is_prompt = self._is_prompt(line, size, lambda: self._send_unless_cut_off(send))
        if is_prompt:
            self._try(send)

    def end(self, line: Connection | None, send: Callable[[], None]) -> None:
        """Send only this from now on; what is being sent fails when its line ends."""
        with self._lock:
            self._is_cut_off = True
            is_prompt = line is not None and self._is_prompt(line, 0, lambda: self._try(send))
            worker = self._worker
        if is_prompt:
            self._try(send)
        if worker is not None:
            worker.stop(0.0)

    def _is_prompt(self, line: Connection, size: int, send: Callable[[], None]) -> bool:
        """Whether the caller should send; otherwise a thread does."""
        if not self._waiting and line.has_room_for(size):
            return True
        if self._worker is None:
            self._worker = self._workers.start(self._name)
        self._waiting += 1
        self._worker.post(lambda: self._send_waiting(send))
        return False

    def _send_waiting(self, send: Callable[[], None]) -> None:
        send()
        with self._lock:
            self._waiting -= 1

    def _send_unless_cut_off(self, send: Callable[[], None]) -> None:
        if not self._is_cut_off:
            self._try(send)

    def _try(self, send: Callable[[], None]) -> None:
        with self.breaking():
            send()

    @contextmanager
    def breaking(self) -> Iterator[None]:
        try:
            yield
        except Exception as failure:
            self._is_cut_off = True
            if not isinstance(failure, LineClosed):
                _log.exception("what a unit has sent is lost")
            self._on_failure()  # also for a line: without memory, the system refuses a living one


def _end(connection: Connection) -> None:
    with suppress(LineClosed):
        connection.send(Frame.END)
