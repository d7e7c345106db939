"""Pending inspections of slots."""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tidegate.core.errors import ExternalError
from tidegate.core.ids import SlotIndex
from tidegate.driver.slots import Slots
from tidegate.protocol.messages import Inspect, Inspected, Inspection

_MOST = 100


@dataclass(frozen=True, slots=True)
class InspectionOrder:
    """A request to inspect a slot."""

    slot: SlotIndex
    what: Inspection
    answer: Future[Any] = field(default_factory=Future)


class Inspections:
    """Inspections without an answer so far. Used by the job master's thread."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._waiting: dict[int, InspectionOrder] = {}
        self._last = 0

    def order(self, order: InspectionOrder) -> None:
        if order.slot not in self._slots.pool.ready():
            self._fail(order, f"slot {order.slot} is not running")
            return
        if len(self._waiting) >= _MOST:
            self._fail(self._waiting.pop(next(iter(self._waiting))), "too many inspections")
        self._last += 1
        self._waiting[self._last] = order
        self._slots.tell([order.slot], Inspect(self._last, order.what))

    def answered(self, message: Inspected) -> None:
        order = self._waiting.pop(message.number, None)
        if order is not None:
            with suppress(InvalidStateError):  # the requester may have given up
                order.answer.set_result(message.found)

    def slot_gone(self, slot: SlotIndex) -> None:
        for number, order in list(self._waiting.items()):
            if order.slot == slot:
                del self._waiting[number]
                self._fail(order, f"slot {slot} is gone")

    def _fail(self, order: InspectionOrder, reason: str) -> None:
        with suppress(InvalidStateError):
            order.answer.set_exception(ExternalError(reason))
