"""A region: one pipeline of the job, which the driver steps, fails and restarts as a whole.

    CREATED ──deploy──▶ DEPLOYING ──all slots opened it──▶ RUNNING ──▶ FINISHED
                          ▲    │                              │            │
                          │    └───▶ FAILING ◀─── a failure ──┤            │ another region
                          │             │ │                   │            │ failed, and the
                       deploy           │ └──▶ FAILED         │            │ failover is full
                          │             ▼                     │            │
                          └──────── RESTARTING ◀──────────────┴────────────┘

    all but the ends ──cancel──▶ CANCELLING ──▶ CANCELED

Every deployment has an attempt number; events of other attempts are ignored. Step numbers continue
across attempts, so that each identifies one step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from tidegate.core.errors import ProtocolViolation, SlotLost, StepFailed, TidegateError
from tidegate.core.ids import Attempt, PipelineId, SlotIndex, StepNumber


class RegionState(Enum):
    """The life of a region; see the diagram above."""

    CREATED = auto()
    DEPLOYING = auto()
    RUNNING = auto()
    FAILING = auto()
    RESTARTING = auto()
    CANCELLING = auto()
    FINISHED = auto()
    CANCELED = auto()
    FAILED = auto()

    @property
    def is_terminal(self) -> bool:
        return self in (RegionState.FINISHED, RegionState.CANCELED, RegionState.FAILED)


LEGAL_MOVES: dict[RegionState, set[RegionState]] = {
    RegionState.CREATED: {RegionState.DEPLOYING, RegionState.CANCELLING},
    RegionState.DEPLOYING: {
        RegionState.RUNNING,
        RegionState.FAILING,
        RegionState.RESTARTING,
        RegionState.CANCELLING,
    },
    RegionState.RUNNING: {
        RegionState.FINISHED,
        RegionState.FAILING,
        RegionState.RESTARTING,
        RegionState.CANCELLING,
    },
    RegionState.FAILING: {RegionState.RESTARTING, RegionState.FAILED, RegionState.CANCELLING},
    RegionState.RESTARTING: {RegionState.DEPLOYING, RegionState.CANCELLING},
    RegionState.CANCELLING: {RegionState.CANCELED},
    RegionState.FINISHED: {RegionState.RESTARTING},
    RegionState.CANCELED: set(),
    RegionState.FAILED: set(),
}


@dataclass(frozen=True, slots=True)
class RunStep:
    """Run this step as a Spark job; `tries` counts the jobs for it, from 1."""

    attempt: Attempt
    step: StepNumber
    tries: int


@dataclass(frozen=True, slots=True)
class StepDone:
    """The step is complete; the next one may begin."""

    step: StepNumber


@dataclass(frozen=True, slots=True)
class RegionFails:
    """The attempt has failed: cancel `abandoned` if set, then ask the restart strategy."""

    attempt: Attempt
    cause: TidegateError
    abandoned: StepNumber | None = None


class Region:
    """One pipeline in the driver; `slots` host its subtasks."""

    def __init__(
        self, pipeline: PipelineId, slots: Iterable[SlotIndex], *, max_step_tries: int = 3
    ) -> None:
        self.pipeline = pipeline
        self.slots = frozenset(slots)
        self.state = RegionState.CREATED
        self.attempt = Attempt(0)
        """The latest attempt; 0 before the first."""
        self.last_step = StepNumber(0)
        """The latest step; 0 before the first."""
        self.step_in_flight: StepNumber | None = None
        self.some_ended = False
        """Whether some subtask of the attempt has processed its last record."""
        self.all_ended = False
        self.has_run = False
        """Whether some attempt completed a step after all sources had listed their input."""
        self._max_step_tries = max_step_tries
        self._awaited: set[SlotIndex] = set()
        self._tries = 0

    @property
    def was_deployed(self) -> bool:
        return self.attempt > 0

    def is_current(self, attempt: Attempt) -> bool:
        """Whether this attempt was deployed last."""
        return attempt == self.attempt

    def is_opening(self, attempt: Attempt) -> bool:
        """Whether some slots have not opened this attempt yet."""
        return self.state is RegionState.DEPLOYING and attempt == self.attempt

    def runs(self, attempt: Attempt, step: StepNumber) -> bool:
        """Whether this step is in flight."""
        return attempt == self.attempt and step == self.step_in_flight

    @property
    def may_step(self) -> bool:
        return self.state is RegionState.RUNNING and self.step_in_flight is None

    def deploy(self) -> Attempt:
        """Begin a new attempt, to be deployed to all its slots; they must be ready."""
        self._move(RegionState.DEPLOYING)
        self.attempt = Attempt(self.attempt + 1)
        self.some_ended = self.all_ended = False
        self._awaited = set(self.slots)
        return self.attempt

    def deployed(self, slot: SlotIndex, attempt: Attempt) -> bool:
        """A slot opened its subtasks; True if it was the last one, so that steps may begin."""
        if not self.is_opening(attempt):
            return False
        self._awaited.discard(slot)
        if self._awaited:
            return False
        self._move(RegionState.RUNNING)
        return True

    def begin_step(self) -> RunStep:
        """Start the next step; the previous one must be complete."""
        if not self.may_step:
            raise ProtocolViolation(
                f"pipeline {self.pipeline} cannot begin a step while the region is "
                f"{self.state.name} and step {self.step_in_flight} is in flight"
            )
        self.last_step = self.step_in_flight = StepNumber(self.last_step + 1)
        self._tries = 1
        return RunStep(self.attempt, self.last_step, self._tries)

    def step_through(
        self,
        attempt: Attempt,
        step: StepNumber,
        failures: Sequence[TidegateError] = (),
        *,
        some_ended: bool = False,
        all_ended: bool = False,
        is_ready: bool = True,
    ) -> StepDone | RegionFails | None:
        """The Spark job of a step succeeded; `failures` are the marks that it delivered.

        `is_ready`: all sources have listed their input.
        """
        if not self.runs(attempt, step):
            return None
        self.step_in_flight = None
        self.some_ended, self.all_ended = some_ended, all_ended
        if failures:
            return self.fail(attempt, failures[0])
        self.has_run = self.has_run or is_ready
        return StepDone(step)

    def step_broke(
        self, attempt: Attempt, step: StepNumber, reason: str
    ) -> RunStep | RegionFails | None:
        """Retry a step whose Spark job failed for Spark's own reasons, under the same number."""
        if not self.runs(attempt, step):
            return None
        if self._tries < self._max_step_tries:
            self._tries += 1
            return RunStep(attempt, step, self._tries)
        self.step_in_flight = None
        return self.fail(attempt, StepFailed(self.pipeline, step, self._tries, reason))

    def slot_gone(self, slot: SlotIndex, reason: str) -> RegionFails | None:
        """A slot of the region is lost, with everything in it."""
        if slot not in self.slots:
            return None
        return self.fail(self.attempt, SlotLost(slot, reason))

    def fail(self, attempt: Attempt, cause: TidegateError) -> RegionFails | None:
        """Fail an attempt; None if it is over or already failing."""
        is_live = self.state in (RegionState.DEPLOYING, RegionState.RUNNING)
        if attempt != self.attempt or not is_live:
            return None
        abandoned = self.step_in_flight
        self._end_attempt(RegionState.FAILING)
        return RegionFails(attempt, cause, abandoned)

    def restart(self) -> StepNumber | None:
        """Return to a checkpoint, after a failure or not; returns the step to cancel, if any."""
        abandoned = self.step_in_flight
        self._end_attempt(RegionState.RESTARTING)
        return abandoned

    def give_up(self) -> None:
        """Fail for good: the restart strategy allows no further attempt."""
        self._end_attempt(RegionState.FAILED)

    def finish(self) -> None:
        """Finish: all subtasks have ended, and the final checkpoint, if any, is complete."""
        if self.step_in_flight is not None:
            raise ProtocolViolation(
                f"pipeline {self.pipeline} cannot finish while step {self.step_in_flight} runs"
            )
        self._move(RegionState.FINISHED)

    def cancel(self) -> StepNumber | None:
        """Stop for good unless the region has ended; returns the step to cancel, if any."""
        if self.state.is_terminal or self.state is RegionState.CANCELLING:
            return None
        abandoned = self.step_in_flight
        self._end_attempt(RegionState.CANCELLING)
        return abandoned

    def canceled(self) -> None:
        """All slots have closed its subtasks, or are gone."""
        self._move(RegionState.CANCELED)

    def _end_attempt(self, state: RegionState) -> None:
        self._move(state)
        self.step_in_flight = None
        self._awaited.clear()

    def _move(self, state: RegionState) -> None:
        if state not in LEGAL_MOVES[self.state]:
            raise ProtocolViolation(
                f"pipeline {self.pipeline} cannot go from {self.state.name} to {state.name}"
            )
        self.state = state
