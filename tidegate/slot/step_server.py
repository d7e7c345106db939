"""Serves units of a slot: the same unit always gets the same answer."""

from __future__ import annotations

import pickle
import queue

from tidegate.core.errors import ProtocolViolation
from tidegate.exchange.framing import decode_packet, encode_header
from tidegate.exchange.spill import loaded
from tidegate.exchange.unit_protocol import Frame
from tidegate.protocol.messages import UnitOrder
from tidegate.protocol.packet import FailureMark, Packet
from tidegate.protocol.units import Stale, UnitKey
from tidegate.slot.pipeline_host import UnitAnswer
from tidegate.slot.pump_lines import PumpLines
from tidegate.slot.slot_host import SlotHost
from tidegate.transport.wire import Connection


class StepServer:
    """Serves the lines of step tasks, pumps and the driver; used by one thread per line."""

    def __init__(self, host: SlotHost) -> None:
        self._host = host
        self._pumps = PumpLines(host.slot, host.run_unit, host.workers)

    def serve(self, connection: Connection) -> None:
        """Answer until the other end closes the line."""
        kind, payload = connection.receive()
        match kind:
            case Frame.ATTEND:
                self._pumps.attend(connection, payload)
            case Frame.PUMP:
                self._pumps.pump(connection, payload)
            case Frame.OPEN:
                self._serve_task(connection, pickle.loads(payload))
            case _:
                raise ProtocolViolation(f"a line began with a frame of kind {kind}")

    def _serve_task(self, connection: Connection, order: UnitOrder) -> None:
        while True:
            packets, marks = _receive_input(connection)
            key = UnitKey(order.attempt, order.step, order.level)
            found: queue.SimpleQueue[UnitAnswer | Stale] = queue.SimpleQueue()
            self._host.run_unit(order.pipeline, key, packets, marks, order.request, found.put)
            answer = found.get()
            if isinstance(answer, UnitAnswer):
                _send_answer(connection, answer)
            else:
                connection.send(Frame.REFUSED, pickle.dumps(answer.reason))
            kind, payload = connection.receive()
            if kind != Frame.OPEN:
                raise ProtocolViolation(f"a step task sent a frame of kind {kind}")
            order = pickle.loads(payload)


def _receive_input(connection: Connection) -> tuple[list[Packet], list[FailureMark]]:
    packets: list[Packet] = []
    marks: list[FailureMark] = []
    while True:
        kind, payload = connection.receive()
        match kind:
            case Frame.PACKET:
                packets.append(decode_packet(payload))
            case Frame.MARK:
                marks.append(pickle.loads(payload))
            case Frame.RUN:
                return packets, marks
            case _:
                raise ProtocolViolation(f"a step task sent a frame of kind {kind}")


def _send_answer(connection: Connection, answer: UnitAnswer) -> None:
    for packet in answer.packets:
        connection.send(Frame.PACKET, encode_header(packet.header), loaded(packet.body))
    for mark in answer.marks:
        connection.send(Frame.MARK, pickle.dumps(mark))
    connection.send(Frame.REPORT, pickle.dumps(answer.report))
