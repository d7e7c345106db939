"""Answers the step tasks that come to a slot: same unit, same answer."""

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
from tidegate.slot.slot_host import SlotHost
from tidegate.transport.wire import Connection


class StepServer:
    """Serves one connection after the other's request; used by one thread per connection."""

    def __init__(self, host: SlotHost) -> None:
        self._host = host

    def serve(self, connection: Connection) -> None:
        """Answer units until the task closes the line."""
        while True:
            order, packets, marks = _receive_unit(connection)
            key = UnitKey(order.attempt, order.step, order.level)
            answers: queue.SimpleQueue[UnitAnswer | Stale] = queue.SimpleQueue()
            self._host.run_unit(order.pipeline, key, packets, marks, order.request, answers.put)
            answer = answers.get()
            if isinstance(answer, UnitAnswer):
                _send_answer(connection, answer)
            else:
                connection.send(Frame.REFUSED, pickle.dumps(answer.reason))


def _receive_unit(connection: Connection) -> tuple[UnitOrder, list[Packet], list[FailureMark]]:
    order: UnitOrder | None = None
    packets: list[Packet] = []
    marks: list[FailureMark] = []
    while True:
        kind, payload = connection.receive()
        match kind:
            case Frame.OPEN:
                order = pickle.loads(payload)
            case Frame.PACKET:
                packets.append(decode_packet(payload))
            case Frame.MARK:
                marks.append(pickle.loads(payload))
            case Frame.RUN if order is not None:
                return order, packets, marks
            case _:
                raise ProtocolViolation(f"a step task sent a frame of kind {kind}")


def _send_answer(connection: Connection, answer: UnitAnswer) -> None:
    for packet in answer.packets:
        connection.send(Frame.PACKET, encode_header(packet.header), loaded(packet.body))
    for mark in answer.marks:
        connection.send(Frame.MARK, pickle.dumps(mark))
    connection.send(Frame.REPORT, pickle.dumps(answer.report))
