"""Rules for what a slot may do: hold a lease, run one attempt per pipeline, run each unit once.

    STARTED ──accepted──▶ REGISTERED ──▶ EXITING    line ended · superseded · lease ran out

    deploy ──▶ open ──▶ run · complete · abort ──▶ closed      of each attempt of each pipeline
    (message)  (mailbox: checked when it is handled)

The lease starts when the slot *sends* the heartbeat that the driver answers. The driver answers
later than that, so it knows, without comparing clocks, that the lease has expired once its own
last answer is older than the lease (`tidegate.protocol.slot_pool`).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Generic, TypeVar

from tidegate.core.errors import ProtocolViolation
from tidegate.core.ids import Attempt, PipelineId
from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.packet import Packet
from tidegate.protocol.units import Pending, RunNow, Sealed, Stale, UnitKey, WorkUnits

A = TypeVar("A")
ACCEPTANCE_SECONDS = 60.0
"""How long a process waits to be accepted: its line may be cut silently."""


class SlotPhase(Enum):
    """The life of a slot process."""

    STARTED = auto()
    REGISTERED = auto()
    EXITING = auto()


LEGAL_MOVES = {
    SlotPhase.STARTED: {SlotPhase.REGISTERED, SlotPhase.EXITING},
    SlotPhase.REGISTERED: {SlotPhase.EXITING},
    SlotPhase.EXITING: set[SlotPhase](),
}


class SlotMachine(Generic[A]):
    """A slot's view of itself; `A` is the type of a unit's answer.

    Times are readings of the slot's monotonic clock, in seconds. Calls are serialized.
    """

    def __init__(self, incarnation: Incarnation, now: float) -> None:
        self.incarnation = incarnation
        self._phase = SlotPhase.STARTED
        self._asked_at = now
        self._lease = 0.0
        self._leased_until = 0.0
        self._beats: dict[int, float] = {}
        self._last_beat = 0
        self._units: dict[PipelineId, WorkUnits[A]] = {}
        self._open: dict[PipelineId, Attempt] = {}
        self._reason = "the driver has not accepted it"
        """Why it may not act."""

    # --- the lease --------------------------------------------------------------------------

    def accepted(self, lease: float) -> None:
        """The driver accepted the registration, which was sent after this machine was created."""
        if self.is_exiting:
            return
        self._move(SlotPhase.REGISTERED)
        self._lease = lease
        self._leased_until = self._asked_at + lease

    def beat(self, now: float) -> int:
        """The number of a heartbeat to be sent now."""
        self._last_beat += 1
        self._beats[self._last_beat] = now
        return self._last_beat

    def answered(self, number: int, now: float) -> None:
        """Renew the lease from the time at which the answered heartbeat was sent.

        An expired lease stays expired: another process may already serve the slot.
        """
        sent = self._beats.get(number)
        self._beats = {beat: at for beat, at in self._beats.items() if beat > number}
        if sent is not None and self.has_lease(now):
            self._leased_until = max(self._leased_until, sent + self._lease)

    def has_lease(self, now: float) -> bool:
        """Whether nobody else can act for the slot; check it before anything irreversible."""
        if self._phase is SlotPhase.STARTED and now >= self._asked_at + ACCEPTANCE_SECONDS:
            self.exit(f"the driver has not accepted it for {ACCEPTANCE_SECONDS:g} s")
        if self._phase is SlotPhase.REGISTERED and now >= self._leased_until:
            self.exit(f"the driver has not been heard from for {self._lease:g} s")
        return self._phase is SlotPhase.REGISTERED

    @property
    def is_exiting(self) -> bool:
        """Whether it will never act again."""
        return self._phase is SlotPhase.EXITING

    def exit(self, reason: str) -> None:
        """Stop for good: the line or the lease ended, or a newer incarnation took over."""
        if self._phase is not SlotPhase.EXITING:
            self._reason = reason
            self._move(SlotPhase.EXITING)

    # --- messages from the driver -----------------------------------------------------------

    def deploy(self, pipeline: PipelineId, attempt: Attempt) -> bool:
        """Deploy this attempt and nothing older; False if the attempt itself is outdated."""
        units = self._units.setdefault(pipeline, WorkUnits(Attempt(0)))
        if attempt <= units.attempt:
            return False
        units.reset(attempt)
        return True

    def undeploy(self, pipeline: PipelineId) -> None:
        if pipeline in self._units:
            self._units[pipeline].close()

    # --- calls from the mailbox -------------------------------------------------------------

    def open(self, pipeline: PipelineId, attempt: Attempt, now: float) -> bool:
        """Whether to open this attempt now; if so, it counts as open until `closed`."""
        if not self.has_lease(now) or self._units[pipeline].deployed != attempt:
            return False
        self._open[pipeline] = attempt
        return True

    def may_act(self, pipeline: PipelineId, attempt: Attempt, now: float) -> bool:
        """Whether the subtasks of this attempt are open and may act now."""
        is_open = self._open.get(pipeline) == attempt == self._units[pipeline].attempt
        return is_open and self.has_lease(now)

    def may_run(self, pipeline: PipelineId, key: UnitKey, now: float) -> bool:
        """Whether this unit is still awaited and may run now."""
        may_act = self.may_act(pipeline, key.attempt, now)
        return may_act and isinstance(self.ask(pipeline, key), Pending)

    def closed(self, pipeline: PipelineId) -> None:
        """Note that the subtasks of the pipeline are closed, or could not be opened."""
        if self._open.pop(pipeline, None) == self._units[pipeline].attempt:
            self._units[pipeline].close()

    # --- units ------------------------------------------------------------------------------

    def deliver(
        self, pipeline: PipelineId, key: UnitKey, packets: Iterable[Packet]
    ) -> RunNow | Pending | Sealed[A] | Stale:
        """Take a complete set of packets of a unit, delivered by one connection."""
        return self._refusal(pipeline, key) or self._units[pipeline].complete(key, packets)

    def ask(self, pipeline: PipelineId, key: UnitKey) -> Pending | Sealed[A] | Stale:
        """The state of a delivered unit."""
        return self._refusal(pipeline, key) or self._units[pipeline].ask(key)

    def seal(self, pipeline: PipelineId, key: UnitKey, answer: A) -> None:
        """Fix the answer of a unit that has run."""
        self._units[pipeline].seal(key, answer)

    def _refusal(self, pipeline: PipelineId, key: UnitKey) -> Stale | None:
        if self._phase is not SlotPhase.REGISTERED:
            return Stale(key, f"{self.incarnation} may not act: {self._reason}")
        if pipeline not in self._units:
            return Stale(key, f"pipeline {pipeline} is not deployed in {self.incarnation}")
        return None

    def _move(self, phase: SlotPhase) -> None:
        if phase not in LEGAL_MOVES[self._phase]:
            raise ProtocolViolation(
                f"{self.incarnation} cannot go from {self._phase.name} to {phase.name}"
            )
        self._phase = phase
