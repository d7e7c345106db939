"""What a slot accepts from the pumps of an endless Spark job. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from tidegate.core.ids import Attempt, Level, PipelineId, SlotIndex, StepNumber
from tidegate.protocol.packet import FailureMark, Packet


@dataclass(frozen=True, slots=True)
class Cargo:
    """A part of what one slot sends to another in a step."""

    attempt: Attempt
    step: StepNumber
    source: SlotIndex
    is_last: bool
    """Whether this is the slot's last cargo of the step."""
    packets: tuple[Packet, ...] = ()
    marks: tuple[FailureMark, ...] = ()


@dataclass(slots=True)
class UnitInput:
    """The input of a unit so far."""

    attempt: Attempt
    step: StepNumber
    packets: list[Packet] = field(default_factory=list)
    marks: list[FailureMark] = field(default_factory=list)
    complete: set[SlotIndex] = field(default_factory=set)
    """The slots that have sent everything."""


class PumpedJobs:
    """Which endless Spark job of each pipeline a slot serves: the latest one, by its epoch."""

    def __init__(self) -> None:
        self._epochs: dict[PipelineId, int] = {}

    def announce(self, pipeline: PipelineId, epoch: int) -> bool:
        """Whether the job is newer than all before it; only its pumps are admitted from then on."""
        known = self._epochs.get(pipeline)
        if known is not None and epoch <= known:
            return False
        self._epochs[pipeline] = epoch
        return True

    def admits(self, pipeline: PipelineId, epoch: int) -> bool:
        """Whether a pump belongs to the latest job of its pipeline."""
        return self._epochs.get(pipeline) == epoch


class PumpArrival(Enum):
    """What a pump that comes to a slot means for its job."""

    AWAITING_OTHERS = auto()
    COMPLETE = auto()
    """All pumps are here, so steps can run."""
    REPEATED = auto()
    """Spark has repeated a task: packets of the first attempt may be lost, so the job is broken."""
    TOO_LATE = auto()
    """The job has ended."""


class Pumps:
    """The pumps of one endless Spark job that have come to a slot: one for each level."""

    def __init__(self, levels: int) -> None:
        self._levels = levels
        self._present: set[Level] = set()
        self._has_ended = False

    def arrive(self, level: Level) -> PumpArrival:
        if self._has_ended:
            return PumpArrival.TOO_LATE
        if level in self._present:
            return PumpArrival.REPEATED
        self._present.add(level)
        is_complete = len(self._present) == self._levels
        return PumpArrival.COMPLETE if is_complete else PumpArrival.AWAITING_OTHERS

    def end(self) -> None:
        """The driver has left, or there is a newer job: pumps leave as intended from now on."""
        self._has_ended = True

    @property
    def needs_all_pumps(self) -> bool:
        """Whether the job is broken if a pump leaves."""
        return not self._has_ended


class Arrivals:
    """Assembles units from the cargo of one line, which belongs to one Spark job.

    Steps are sequential: cargo of a later step discards an incomplete earlier one, and cargo of an
    earlier step is ignored.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._input = UnitInput(Attempt(0), StepNumber(0))

    def take(self, cargo: Cargo) -> UnitInput | None:
        """Add a cargo; returns the input of a unit once it is complete."""
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
    shares: list[list[Packet]] = [[] for _ in range(slots)]
    for packet in packets:
        shares[packet.header.target_subtask].append(packet)
    return shares
