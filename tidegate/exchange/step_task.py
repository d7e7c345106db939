"""The Spark tasks of a step: they carry bytes between the shuffle and the slots.

Runs in Python workers that are started for every step, so it imports almost nothing.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidegate.core.errors import LineClosed, NotAuthorized
from tidegate.core.ids import Address, SlotIndex
from tidegate.exchange.framing import target_of
from tidegate.exchange.unit_protocol import (
    Cargo,
    Frame,
    UnitRefused,
    receive_answer,
    send_unit,
)
from tidegate.protocol.packet import FailureMark, SlotOutOfReach
from tidegate.transport.wire import Connection, dial

_connections: dict[Address, Connection] = {}
"""This worker's connections to slots: workers are reused, so a step need not reconnect."""


@dataclass(frozen=True, slots=True)
class StageTask:
    """The function of one stage. Step tasks are stateless and never look into packets."""

    orders: tuple[bytes, ...]
    """The units to run, in sequence, in the slot of the partition."""
    addresses: tuple[Address | None, ...]
    secret: bytes
    is_last: bool

    def __call__(self, slot: int, shipments: Iterable[object]) -> Iterator[object]:
        _settle_in()
        cargo = [item[1] for item in shipments if isinstance(item, tuple)]
        for order in self.orders:
            is_last_order = order is self.orders[-1]
            marks: list[Cargo] = []
            for frame, payload in self._run_unit(slot, order, cargo):
                if frame is Frame.REPORT:
                    if self.is_last and is_last_order:
                        yield bytes(payload)
                elif frame is Frame.PACKET:
                    yield target_of(payload), (frame, payload)
                elif not is_last_order:
                    marks.append((frame, payload))
                elif not self.is_last:
                    for target in range(len(self.addresses)):
                        yield target, (frame, payload)
            cargo = marks

    def _run_unit(self, slot: int, order: bytes, cargo: Iterable[Cargo]) -> Iterator[Cargo]:
        address, connection = self.addresses[slot], None
        try:
            if address is None:
                raise LineClosed("it is not registered")
            connection = _connections.pop(address, None) or dial(address, self.secret)
            send_unit(connection, order, cargo)
            yield from receive_answer(connection)
            # Only an idle connection can be reused: a task that is stopped halfway loses its own.
            _connections[address] = connection
        except (LineClosed, NotAuthorized, UnitRefused) as failure:
            if connection is not None:
                connection.close()
            missing = SlotOutOfReach(SlotIndex(slot), str(failure))
            mark = FailureMark(missing.slot, missing.as_error())
            yield Frame.MARK, pickle.dumps(mark)
            yield Frame.REPORT, pickle.dumps(missing)


def _settle_in() -> None:
    """Make garbage collection cheap in this worker: Spark's daemon collects after every task.

    Objects loaded by the first task stay, and scanning them repeatedly would cost more than the
    tasks.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def same_slot(slot: int) -> int:
    return slot
