"""How much a step carries, when the next one is due and what waits for it. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from tidegate.connectors.source import InputStatus
from tidegate.core.ids import CheckpointId
from tidegate.protocol.messages import SlotReport
from tidegate.protocol.region import RunStep
from tidegate.stream.elements import Barrier

_FIRST_SLICE = 4096
_FASTEST_GROWTH = 4.0
_FASTEST_SHRINKING = 0.25
_FIXED_COST_SHARE = 0.25
_FORGETTING = 1.2
_LONGEST_STEP = 2.0


class SliceSize:
    """Records a source subtask may put into a step, such that a full step takes the target time.

    A step costs something even when it carries nothing: what Spark needs to schedule it. Where that
    eats up the target, on a slow or busy cluster, steps become longer instead of ever smaller.
    """

    def __init__(self, target_seconds: float, maximum: int) -> None:
        self._target = target_seconds
        self._maximum = maximum
        self._fixed_cost = math.inf
        self.records = min(_FIRST_SLICE, maximum)

    def observe(self, seconds: float, busy_seconds: float, largest_slice: int) -> None:
        """A step took this long, for `busy_seconds` of which its busiest slot worked.

        `largest_slice` is what its busiest source subtask read. A step that was not full says
        nothing about what a full one would take.
        """
        # The least of late: a cluster that was idle once may be busy now.
        least = _FORGETTING * self._fixed_cost + 1e-3
        self._fixed_cost = fixed = min(least, max(0.0, seconds - busy_seconds))
        if largest_slice < 0.9 * self.records:
            return
        desired = max(self._target, min(fixed / _FIXED_COST_SHARE, _LONGEST_STEP))
        work = max(seconds - fixed, 1e-3)
        change = max(desired - fixed, _FIXED_COST_SHARE * fixed) / work
        change = min(max(change, _FASTEST_SHRINKING), _FASTEST_GROWTH)
        self.records = max(1, min(int(self.records * change), self._maximum))


class NextStep:
    """What waits for the next step of a pipeline: when it is due, and the barriers it carries.

    While sources trickle, steps begin `pace` seconds apart: each costs something however little it
    carries. Barriers, timers and sources that fill their slices do not wait for that.
    """

    def __init__(self, pace: float = 0.0) -> None:
        self.due: float | None = None
        """Wall-clock seconds; None until something calls for it."""
        self._pace = pace
        self._paced_until = 0.0
        """By the monotonic clock: the other one may be set back."""
        self._is_woken = False
        self._waiting: list[Barrier] = []
        self._carried: tuple[Barrier, ...] = ()

    def call(self) -> None:
        """Something waits for it, so it is due now."""
        self.due = 0.0

    def wake(self) -> None:
        """A source has something to read, or a timer is due."""
        self._is_woken = True

    def seconds_left(self, wall: float, now: float) -> float | None:
        """Until it is due, by the wall clock and the monotonic one; None: nothing calls for it."""
        left = [] if self.due is None else [self.due - wall]
        if self._is_woken:
            left.append(self._paced_until - now)
        return max(0.0, min(left)) if left else None

    def deployed(self) -> None:
        """A new attempt runs: no barrier of an older one is meant for it."""
        self._waiting.clear()
        self.call()

    def trigger(self, barrier: Barrier) -> None:
        """Carry a barrier to the sources."""
        self._waiting.append(barrier)
        self.call()

    def abort(self, checkpoint_id: CheckpointId) -> None:
        """A checkpoint is aborted: its barrier is not sent any more."""
        self._waiting = [each for each in self._waiting if each.checkpoint_id != checkpoint_id]

    def begin(self, order: RunStep, now: float = 0.0) -> tuple[Barrier, ...]:
        """A step begins, or is tried again; returns what it carries, the same in every try.

        `now` is a reading of the monotonic clock.
        """
        if order.tries == 1:
            self.due = None
            self._is_woken = False
            self._paced_until = now + self._pace
            self._carried, self._waiting = tuple(self._waiting), []
        return self._carried

    def through(
        self, reports: Iterable[SlotReport], *, now: float, discovery_seconds: float | None
    ) -> None:
        """A step is through, and this is what the slots said of it.

        `discovery_seconds`: how often enumerators that may find more splits are asked; None if
        all of them are exhausted and everything found is assigned.
        """
        due = [] if self.due is None else [self.due]  # something called during the step
        if discovery_seconds is not None:
            due.append(now + discovery_seconds)
        reports = list(reports)
        may_read = room_of(reports) != 0
        for report in reports:
            for source in report.sources.values() if may_read else ():
                if source.status is InputStatus.MORE_AVAILABLE:
                    due.append(0.0)
                elif source.status is InputStatus.NOTHING_AVAILABLE and source.records:
                    self.wake()  # what flows keeps flowing
            if report.next_timer is not None:
                due.append(report.next_timer)
        self.due = min(due, default=None)


def room_of(reports: Iterable[SlotReport]) -> int | None:
    """How many records a source may read for the operator with the least room; None: any number."""
    return min((report.room for report in reports if report.room is not None), default=None)


class StepCaller:
    """What waits in one slot for the next step of a pipeline, and calls for it: once per step.

    Aborted checkpoints wait for it, so that what they release travels through the levels of a step
    in their order. A new deployment is stepped without a call.
    """

    def __init__(self) -> None:
        self._aborted: list[CheckpointId] = []
        self._has_called = True

    def abort(self, checkpoint_id: CheckpointId) -> None:
        """A checkpoint is aborted; the next step carries it out."""
        self._aborted.append(checkpoint_id)

    def begin(self) -> list[CheckpointId]:
        """A step begins; returns the aborted checkpoints to carry out before anything else."""
        aborted, self._aborted = self._aborted, []
        return aborted

    def ran(self) -> None:
        """The slot has done its part of a level: what waits from now on needs another step."""
        self._has_called = False

    def calls(self, is_available: Callable[[], bool]) -> bool:
        """Whether to call the driver now; `is_available` says if operators have something to do."""
        if not self._has_called and (self._aborted or is_available()):
            self._has_called = True
            return True
        return False
