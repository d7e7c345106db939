"""The frames on the lines of a slot's step server. The first one tells the purpose of a line.

Steps as Spark jobs: a step task requests a unit, gets its answer, and requests the next.

    task   ▶ OPEN(unit) · PACKET* · MARK* · RUN
    slot   ▶ PACKET* · MARK* · REPORT          or    REFUSED(reason)

Steps over an endless Spark job: the driver requests a step, pumps carry cargo between the slots,
and the slots report when their last level is complete.

    driver ▶ ATTEND(attendance) · STEP(unit)*          slot ▶ READY{1,2} · REPORT* · BROKEN
    pump   ▶ PUMP(epoch, pipeline, level) · CARGO*     slot ▶ CARGO(target, cargo)* · END
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from enum import IntEnum

from tidegate.core.errors import ProtocolViolation
from tidegate.transport.wire import Connection


class Frame(IntEnum):
    """Kinds of frames; 0 is used by the handshake."""

    OPEN = 1
    PACKET = 2
    MARK = 3
    RUN = 4
    REPORT = 5
    REFUSED = 6
    PUMP = 7
    CARGO = 8
    END = 9
    ATTEND = 10
    READY = 11
    STEP = 12
    BROKEN = 13


class UnitRefused(Exception):
    """The slot will not run the unit; its text says why."""


Cargo = tuple[Frame, bytes | bytearray]
"""A packet or a mark, as opaque bytes."""


def send_unit(connection: Connection, order: bytes, cargo: Iterable[Cargo]) -> None:
    """Send the whole input of a unit."""
    connection.send(Frame.OPEN, order)
    for frame, payload in cargo:
        connection.send(frame, payload)
    connection.send(Frame.RUN)


def receive_answer(connection: Connection) -> Iterator[Cargo]:
    """Yield what the unit emitted as it arrives; the report comes last.

    Raises:
        UnitRefused: the slot will not run it.
        LineClosed: the slot is gone.
    """
    while True:
        kind, payload = connection.receive()
        match kind:
            case Frame.PACKET | Frame.MARK:
                yield Frame(kind), payload
            case Frame.REPORT:
                yield Frame.REPORT, payload
                return
            case Frame.REFUSED:
                raise UnitRefused(pickle.loads(payload))
            case _:
                raise ProtocolViolation(f"a slot answered with a frame of kind {kind}")
