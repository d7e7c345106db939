"""What a slot may do: a lease from the driver, and one attempt of each pipeline deployed in it.

    STARTED ──accepted──▶ REGISTERED ──deploy──▶ (an attempt per pipeline) ──undeploy──▶ REGISTERED
       │                      │
       └──────────────────────┴── line ended · superseded · lease ran out · told to ──▶ EXITING

The lease is counted from the moment at which the slot *sent* the beat that the driver answered.
The driver answers no earlier than that, so it knows, without comparing clocks, that the lease has
ended once its own last answer is older than the lease (`tidegate.protocol.slot_pool`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from tidegate.core.errors import ProtocolViolation
from tidegate.core.ids import Attempt, PipelineId
from tidegate.protocol.incarnation import Incarnation


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


@dataclass(frozen=True, slots=True)
class OpenSubtasks:
    """Close the attempt named by `replaces`, if any, then open the subtasks of this one."""

    pipeline: PipelineId
    attempt: Attempt
    replaces: Attempt | None


@dataclass(frozen=True, slots=True)
class CloseSubtasks:
    """Close the subtasks of a pipeline."""

    pipeline: PipelineId
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Ignore:
    """Do nothing: the order is old or was carried out before."""

    reason: str


@dataclass(frozen=True, slots=True)
class Exit:
    """Run nothing more, commit nothing more, end the process."""

    reason: str


class SlotMachine:
    """The slot's own view of itself. Times are readings of its monotonic clock, in seconds.

    One thread may beat while another hears the driver and others ask what they may do.
    """

    def __init__(self, incarnation: Incarnation) -> None:
        self.incarnation = incarnation
        self._phase = SlotPhase.STARTED
        self._lease = 0.0
        self._leased_until = 0.0
        self._beats: dict[int, float] = {}
        self._last_beat = 0
        self._deployed: dict[PipelineId, Attempt] = {}
        self._highest: dict[PipelineId, Attempt] = {}

    @property
    def phase(self) -> SlotPhase:
        return self._phase

    @property
    def deployed(self) -> dict[PipelineId, Attempt]:
        """The attempt of every pipeline that is deployed here."""
        return dict(self._deployed)

    def accepted(self, lease: float, asked_at: float) -> None:
        """The driver took the registration that was sent at `asked_at`."""
        self._move(SlotPhase.REGISTERED)
        self._lease = lease
        self._leased_until = asked_at + lease

    def beat(self, now: float) -> int:
        """Return the number of a heartbeat that is sent now."""
        self._last_beat += 1
        self._beats[self._last_beat] = now
        return self._last_beat

    def answered(self, number: int, now: float) -> None:
        """The driver answered a beat: the lease runs from when that was sent.

        A lease that has run out stays so: the driver may have given the slot to another.
        """
        sent = self._beats.get(number)
        for beat in tuple(self._beats):
            if beat <= number:
                self._beats.pop(beat, None)
        if sent is not None and self._phase is SlotPhase.REGISTERED and now < self._leased_until:
            self._leased_until = max(self._leased_until, sent + self._lease)

    def may_act(self, now: float) -> bool:
        """Whether anything may be run, committed or aborted now: asked before each."""
        return self._phase is SlotPhase.REGISTERED and now < self._leased_until

    def refusal(self, pipeline: PipelineId, attempt: Attempt, now: float) -> str | None:
        """Why a step of this attempt may not run here now; None when it may."""
        if not self.may_act(now):
            return f"{self.incarnation} may not act: its lease has ended"
        deployed = self._deployed.get(pipeline)
        if deployed is None:
            return f"pipeline {pipeline} is not deployed in {self.incarnation}"
        if deployed != attempt:
            return f"attempt {deployed} of pipeline {pipeline} is deployed, not {attempt}"
        return None

    def check(self, now: float) -> Exit | None:
        """Called now and then, and whenever a time from `lease_ends` has come."""
        if self._phase is SlotPhase.REGISTERED and now >= self._leased_until:
            return self.exit(f"the driver was not heard of for {self._lease:g} s")
        return None

    def lease_ends(self) -> float:
        """When `check` will say Exit, if no beat is answered before."""
        return self._leased_until

    def deploy(
        self, pipeline: PipelineId, attempt: Attempt, now: float
    ) -> OpenSubtasks | Ignore | Exit:
        """The driver wants this attempt here; anything older of the pipeline is over."""
        expired = self.check(now)
        if expired is not None:
            return expired
        if self._phase is not SlotPhase.REGISTERED:
            return Ignore(f"{self.incarnation} is {self._phase.name}")
        highest = self._highest.get(pipeline, Attempt(0))
        if attempt <= highest:
            return Ignore(f"attempt {highest} of pipeline {pipeline} was deployed already")
        replaces = self._deployed.get(pipeline)
        self._highest[pipeline] = self._deployed[pipeline] = attempt
        return OpenSubtasks(pipeline, attempt, replaces)

    def undeploy(self, pipeline: PipelineId) -> CloseSubtasks | Ignore:
        """The driver wants nothing of this pipeline here any more."""
        attempt = self._deployed.pop(pipeline, None)
        if attempt is None:
            return Ignore(f"pipeline {pipeline} is not deployed")
        return CloseSubtasks(pipeline, attempt)

    def exit(self, reason: str) -> Exit:
        """The line ended, a newer incarnation took over, or the driver said so."""
        if self._phase is not SlotPhase.EXITING:
            self._move(SlotPhase.EXITING)
        self._deployed.clear()
        return Exit(reason)

    def _move(self, phase: SlotPhase) -> None:
        if phase not in LEGAL_MOVES[self._phase]:
            raise ProtocolViolation(
                f"{self.incarnation} cannot go from {self._phase.name} to {phase.name}"
            )
        self._phase = phase
