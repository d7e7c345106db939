"""What one line brings for the units of a level, until a unit has all of its input. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidegate.core.ids import Attempt, SlotIndex, StepNumber
from tidegate.protocol.packet import FailureMark, Packet


@dataclass(frozen=True, slots=True)
class Cargo:
    """A part of what one slot sends to another in a step."""

    attempt: Attempt
    step: StepNumber
    source: SlotIndex
    is_last: bool
    """Whether nothing of this step follows from that slot."""
    packets: tuple[Packet, ...] = ()
    marks: tuple[FailureMark, ...] = ()


@dataclass(slots=True)
class UnitInput:
    """The input of a unit, as far as it has come."""

    attempt: Attempt
    step: StepNumber
    packets: list[Packet] = field(default_factory=list)
    marks: list[FailureMark] = field(default_factory=list)
    complete: set[SlotIndex] = field(default_factory=set)
    """The slots of which everything is here."""


class Arrivals:
    """The cargo of one line: only what one and the same job has carried makes up a unit.

    Steps follow each other, so cargo of a later step drops what an earlier one lacks, and cargo of
    an earlier step is ignored.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._input = UnitInput(Attempt(0), StepNumber(0))

    def take(self, cargo: Cargo) -> UnitInput | None:
        """Returns the whole input of a unit when its last part has come."""
        place, current = (cargo.attempt, cargo.step), (self._input.attempt, self._input.step)
        if place < current:
            return None
        if place > current:
            self._input = UnitInput(cargo.attempt, cargo.step)
        found = self._input
        if cargo.source in found.complete:
            return None
        found.packets += cargo.packets
        found.marks += cargo.marks
        if not cargo.is_last:
            return None
        found.complete.add(cargo.source)
        return found if len(found.complete) == self._slots else None


def shares(packets: Iterable[Packet], slots: int) -> list[list[Packet]]:
    """The packets that go to each slot."""
    shares: list[list[Packet]] = [[] for _ in range(slots)]
    for packet in packets:
        shares[packet.header.target_subtask].append(packet)
    return shares
