"""The slots of a job as the driver sees them, and which process serves each.

                 ┌───────────────── its Spark job ended ─────────────────────┐
                 ▼                                                           │
    ABSENT ──launch──▶ LAUNCHED ──registered──▶ WAITING ──nobody before──▶ READY
                          ▲                        │       it may act        │
                          └── line ended · silent for its lease ─────────────┘

A newer registration supersedes the previous process: its heartbeats get no more answers, so its
lease expires even if no message reaches it. Nothing is deployed to the newer process while the
older one may still act. Times are readings of the driver's monotonic clock, in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from tidegate.core.ids import SlotIndex
from tidegate.protocol.incarnation import Incarnation

LEASE_SLACK = 1.05
"""How much longer than the lease the driver waits: clock speeds differ slightly."""
FIRST_RELAUNCH_DELAY = 0.1
LONGEST_RELAUNCH_DELAY = 10.0


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a Spark job for this slot; its processes carry the number in their incarnation."""

    slot: SlotIndex
    number: int


@dataclass(frozen=True, slots=True)
class CancelLaunch:
    """Cancel the Spark job of a slot whose process does not answer; `job_ended` follows."""

    slot: SlotIndex


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Tell this incarnation to exit, and why; it gets no further messages."""

    incarnation: Incarnation
    reason: str


@dataclass(frozen=True, slots=True)
class SlotReady:
    """The incarnation is ready for deployment: nobody else can act for the slot."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class SlotGone:
    """Everything deployed to this incarnation is lost: its regions fail."""

    incarnation: Incarnation
    reason: str


PoolInstruction = Launch | CancelLaunch | Dismiss | SlotReady | SlotGone


class WaitReason(Enum):
    """Why a slot is not ready yet."""

    SPARK = "Spark has not started its task: no core is free, or its executor is not up yet"
    RELAUNCH = "its last process ended too soon; the next start is delayed"
    OLD_LEASE = "its previous process may still act until its lease expires"


@dataclass(frozen=True, slots=True)
class MissingSlot:
    """A slot that is not ready."""

    slot: SlotIndex
    since: float
    reason: WaitReason
    failed_starts: int
    """Consecutive Spark jobs that ended before the slot was ready."""


class _Phase(Enum):
    ABSENT = auto()
    LAUNCHED = auto()
    WAITING = auto()
    READY = auto()


_WAIT_REASONS = {
    _Phase.ABSENT: WaitReason.RELAUNCH,
    _Phase.LAUNCHED: WaitReason.SPARK,
    _Phase.WAITING: WaitReason.OLD_LEASE,
}


@dataclass(slots=True)
class _PooledSlot:
    index: SlotIndex
    since: float
    phase: _Phase = _Phase.ABSENT
    launch: int = 0
    launch_at: float = 0.0
    was_ready: bool = False
    """Whether the slot was ready under the current launch."""
    failed_starts: int = 0
    current: Incarnation | None = None
    leased_until: float = 0.0
    newest: tuple[int, int] = (0, 0)
    """Registrations with a lower age are outdated."""
    given_up: set[Incarnation] = field(default_factory=set)
    """Abandoned processes of the current launch: they cannot come back."""
    old_leases: dict[Incarnation, float] = field(default_factory=dict)
    """Until when abandoned processes that were not seen to end may still act."""


class SlotPool:
    """Tracks which process serves each slot. Every event returns what to do, in order."""

    def __init__(self, slots: int, *, lease: float, now: float) -> None:
        self._lease = lease
        self._slots = {SlotIndex(i): _PooledSlot(SlotIndex(i), now) for i in range(slots)}
        self._shut_down = False

    def start(self, now: float) -> list[PoolInstruction]:
        return [self._launch(slot, now) for slot in self._slots.values()]

    def registered(self, incarnation: Incarnation, now: float) -> list[PoolInstruction]:
        """Accept a process that registers for a slot, unless it is dismissed here."""
        slot = self._slots.get(incarnation.slot)
        if slot is None or self._shut_down:
            return [Dismiss(incarnation, "the job does not need this slot")]
        if incarnation == slot.current:
            return []
        if incarnation.age < slot.newest or incarnation in slot.given_up:
            return [Dismiss(incarnation, "a newer process serves, or will serve, the slot")]
        instructions: list[PoolInstruction] = []
        if slot.current is not None:
            reason = f"superseded by {incarnation}"
            instructions.append(Dismiss(slot.current, reason))
            instructions += self._give_up(slot, reason, now, may_act=True)
        slot.phase, slot.since = _Phase.WAITING, now
        slot.current, slot.newest = incarnation, incarnation.age
        slot.leased_until = self._lease_end(now)
        return instructions + self._ready_if_alone(slot, now)

    def beat(self, incarnation: Incarnation, now: float) -> bool:
        """Renew a lease on a heartbeat; True: answer it now. Only current processes get answers."""
        slot = self._slots.get(incarnation.slot)
        if slot is None or incarnation != slot.current or now >= slot.leased_until:
            return False
        slot.leased_until = self._lease_end(now)
        return True

    def line_ended(
        self, incarnation: Incarnation, now: float, *, is_certain: bool = True
    ) -> list[PoolInstruction]:
        """A line ended, which means that its process is dead or about to exit.

        Unless `is_certain`, something in between may have cut the line, and the process may act
        until its lease expires.
        """
        slot = self._slots.get(incarnation.slot)
        if slot is None:
            return []
        if incarnation == slot.current:
            return self._give_up(slot, "its control line ended", now, may_act=not is_certain)
        if is_certain:
            slot.old_leases.pop(incarnation, None)
        return self._ready_if_alone(slot, now)

    def job_ended(self, index: SlotIndex, now: float) -> list[PoolInstruction]:
        """The Spark job of a slot ended, so Spark will not restart its process.

        The process may outlive the job if Spark lost track of it, so its lease still counts.
        """
        slot = self._slots[index]
        if slot.phase is _Phase.ABSENT:
            return []
        instructions: list[PoolInstruction] = []
        if not slot.was_ready:
            slot.failed_starts += 1
        if slot.current is not None:
            instructions.append(Dismiss(slot.current, "its Spark job ended"))
            instructions += self._give_up(slot, "its Spark job ended", now, may_act=True)
        slot.phase = _Phase.ABSENT
        # Processes of this job that register late are outdated.
        slot.newest = (slot.launch + 1, 0)
        slot.launch_at = now + _relaunch_delay(slot.failed_starts)
        return instructions + self._launch_if_due(slot, now)

    def tick(self, now: float) -> list[PoolInstruction]:
        """Handle leases that expired and launches that are due."""
        instructions: list[PoolInstruction] = []
        for slot in self._slots.values():
            if slot.current is not None and now >= slot.leased_until:
                reason = f"it was silent for {self._lease:g} s"
                instructions.append(Dismiss(slot.current, reason))
                instructions += self._give_up(slot, reason, now, may_act=False)
                instructions.append(CancelLaunch(slot.index))
            if slot.phase is _Phase.WAITING:
                instructions += self._ready_if_alone(slot, now)
            elif slot.phase is _Phase.ABSENT:
                instructions += self._launch_if_due(slot, now)
        return instructions

    def next_tick(self) -> float | None:
        """When to call `tick` next if nothing else happens."""
        times: list[float] = []
        for slot in self._slots.values():
            if slot.phase is _Phase.WAITING:
                times += slot.old_leases.values()
            if slot.current is not None:
                times.append(slot.leased_until)
            if slot.phase is _Phase.ABSENT and not self._shut_down:
                times.append(slot.launch_at)
        return min(times, default=None)

    def shut_down(self) -> list[PoolInstruction]:
        """The job has ended: stop all slots."""
        self._shut_down = True
        return [
            Dismiss(slot.current, "the job has ended")
            for slot in self._slots.values()
            if slot.current is not None
        ]

    def ready(self) -> dict[SlotIndex, Incarnation]:
        """The incarnation of every slot that is ready."""
        return {
            slot.index: slot.current
            for slot in self._slots.values()
            if slot.current is not None and slot.phase is _Phase.READY
        }

    def is_current(self, incarnation: Incarnation) -> bool:
        """Whether messages of this incarnation count."""
        slot = self._slots.get(incarnation.slot)
        return slot is not None and slot.current == incarnation

    def missing(self) -> list[MissingSlot]:
        return [
            MissingSlot(slot.index, slot.since, _WAIT_REASONS[slot.phase], slot.failed_starts)
            for slot in self._slots.values()
            if slot.phase is not _Phase.READY
        ]

    def _launch(self, slot: _PooledSlot, now: float) -> Launch:
        slot.phase, slot.since = _Phase.LAUNCHED, now
        slot.launch, slot.was_ready = slot.launch + 1, False
        slot.newest = (slot.launch, 0)
        slot.given_up.clear()
        return Launch(slot.index, slot.launch)

    def _launch_if_due(self, slot: _PooledSlot, now: float) -> list[PoolInstruction]:
        due = slot.phase is _Phase.ABSENT and slot.launch > 0 and now >= slot.launch_at
        return [self._launch(slot, now)] if due and not self._shut_down else []

    def _give_up(
        self, slot: _PooledSlot, reason: str, now: float, *, may_act: bool
    ) -> list[PoolInstruction]:
        incarnation = slot.current
        assert incarnation is not None
        was_ready = slot.phase is _Phase.READY
        if may_act and was_ready:
            slot.old_leases[incarnation] = slot.leased_until
        slot.given_up.add(incarnation)
        slot.current = None
        slot.phase, slot.since = _Phase.LAUNCHED, now
        return [SlotGone(incarnation, reason)] if was_ready else []

    def _ready_if_alone(self, slot: _PooledSlot, now: float) -> list[PoolInstruction]:
        slot.old_leases = {old: end for old, end in slot.old_leases.items() if now < end}
        if slot.phase is not _Phase.WAITING or slot.old_leases:
            return []
        assert slot.current is not None
        slot.phase, slot.was_ready, slot.failed_starts = _Phase.READY, True, 0
        return [SlotReady(slot.current)]

    def _lease_end(self, now: float) -> float:
        return now + self._lease * LEASE_SLACK


def _relaunch_delay(failed_starts: int) -> float:
    """No delay after a slot that was ready; a growing delay after failed starts."""
    if failed_starts == 0:
        return 0.0
    return float(
        min(FIRST_RELAUNCH_DELAY * 2 ** min(failed_starts - 1, 20), LONGEST_RELAUNCH_DELAY)
    )
