"""How much a step carries, and when the next one is due. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import timedelta

from tidegate.connectors.source import InputStatus
from tidegate.core.ids import CheckpointId
from tidegate.protocol.messages import SlotReport, SourceReport
from tidegate.protocol.region import RunStep
from tidegate.stream.elements import Barrier

_FIRST_SLICE = 4096
_FASTEST_GROWTH = 4.0
_FASTEST_SHRINKING = 0.25
_FIXED_COST_SHARE = 0.25
_FORGETTING = 1.2
_LONGEST_STEP = 2.0
_SHORTEST_LOOK = 0.001
LONGEST_LOOK = 0.01
LONG_IDLE_FACTOR = 10
"""By how much a slot looks less often after `LONG_IDLE_LOOKS` looks since it read a record."""
LONG_IDLE_LOOKS = 100
LONGEST_SLEEP = 1.0
"""Work that cannot come before is looked for nevertheless: clocks are set, and code has faults."""


class SliceSize:
    """How many records a source subtask may read, so that a full step takes the target time.

    Even an empty step has a cost: Spark's scheduling. Where that cost eats up the target, on a slow
    or busy cluster, steps get longer rather than ever smaller.
    """

    def __init__(self, target_seconds: float, maximum: int) -> None:
        self._target = target_seconds
        self._maximum = maximum
        self._fixed_cost = math.inf
        self.records = min(_FIRST_SLICE, maximum)

    def observe(self, seconds: float, busy_seconds: float, largest_slice: int) -> None:
        """Adapt to a step that took `seconds`, of which its busiest slot worked `busy_seconds`.

        `largest_slice` is what its busiest source subtask read. A step that was not full does not
        tell how long a full one would take.
        """
        # The recent minimum: the load of a cluster changes.
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
    """When the next step of a pipeline is due, and which barriers it carries.

    While little input arrives, steps start `pace` seconds apart, because each has a fixed cost.
    Barriers, timers and sources that fill their slices do not wait for that.
    """

    def __init__(self, pace: float = 0.0) -> None:
        self.due: float | None = None
        """Wall-clock seconds; None until something needs a step."""
        self._pace = pace
        self._paced_until = 0.0
        """On the monotonic clock, because the wall clock may be set back."""
        self._is_woken = False
        self._waiting: list[Barrier] = []
        self._carried: tuple[Barrier, ...] = ()

    def call(self) -> None:
        """Make the step due now."""
        self.due = 0.0

    def wake(self) -> None:
        """Note that a source has input, or that a timer is due."""
        self._is_woken = True

    def seconds_left(self, wall: float, now: float) -> float | None:
        """Seconds until it is due, by the wall and the monotonic clock; None: nothing needs it."""
        left = [] if self.due is None else [self.due - wall]
        if self._is_woken:
            left.append(self._paced_until - now)
        return max(0.0, min(left)) if left else None

    def deployed(self) -> None:
        """Start a new attempt: barriers of the previous one are dropped."""
        self._waiting.clear()
        self.call()

    def trigger(self, barrier: Barrier) -> None:
        """Carry a barrier to the sources."""
        self._waiting.append(barrier)
        self.call()

    def abort(self, checkpoint_id: CheckpointId) -> None:
        """Drop the barrier of an aborted checkpoint."""
        self._waiting = [each for each in self._waiting if each.checkpoint_id != checkpoint_id]

    def begin(self, order: RunStep, now: float = 0.0) -> tuple[Barrier, ...]:
        """Begin or retry a step; returns the barriers it carries, the same for every try.

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
        """Schedule the next step from the reports of a finished one.

        `discovery_seconds`: how often to ask enumerators for new splits; None if all are exhausted
        and everything found is assigned.
        """
        due = [] if self.due is None else [self.due]  # something needed a step meanwhile
        if discovery_seconds is not None:
            due.append(now + discovery_seconds)
        reports = list(reports)
        may_read = room_of(reports) != 0
        for report in reports:
            statuses = [source.status for source in report.sources.values()]
            if may_read and InputStatus.MORE_AVAILABLE in statuses:
                due.append(0.0)
            if likely_has_more(report.sources.values()):
                self.wake()
            if report.timer_in is not None:
                due.append(now + report.timer_in)
        self.due = min(due, default=None)


def likely_has_more(sources: Iterable[SourceReport]) -> bool:
    """Whether a source has read something, up to the end: another step follows unrequested."""
    nothing = InputStatus.NOTHING_AVAILABLE
    return any(source.status is nothing and source.records for source in sources)


def room_of(reports: Iterable[SlotReport]) -> int | None:
    """How many records a source may read for the operator with the least room; None: any number."""
    return min((report.room for report in reports if report.room is not None), default=None)


def look_seconds(latency_target: timedelta) -> float:
    """How often a slot looks for work that it cannot foresee, so that no record waits longer."""
    return min(max(latency_target.total_seconds(), _SHORTEST_LOOK), LONGEST_LOOK)


class StepCaller:
    """Requests the next step of a pipeline on behalf of one slot, once per step.

    Aborted checkpoints wait for a step, so that the records they release travel through its levels
    in order. A new deployment is stepped without a request. `look_seconds` is how often the slot
    looks for work that it cannot foresee.
    """

    def __init__(self, look_seconds: float = LONGEST_LOOK) -> None:
        self._look_seconds = look_seconds
        self._aborted: list[CheckpointId] = []
        self._has_called = True
        self._looks = 0

    def abort(self, checkpoint_id: CheckpointId) -> None:
        """Carry out the abort of a checkpoint in the next step."""
        self._aborted.append(checkpoint_id)

    def begin(self) -> list[CheckpointId]:
        """Begin a step; returns the aborted checkpoints to carry out first."""
        aborted, self._aborted = self._aborted, []
        return aborted

    def ran(self, sources: Iterable[SourceReport] = ()) -> None:
        """Note that the slot ran its part of a level: anything new needs another step.

        `sources`: what the slot has read in this step.
        """
        sources = list(sources)
        self._has_called = likely_has_more(sources)
        if any(source.records for source in sources):
            self._looks = 0

    def calls(self, is_available: Callable[[], bool]) -> bool:
        """Whether to call the driver; `is_available` tells whether operators have work."""
        self._looks += 1
        if not self._has_called and (self._aborted or is_available()):
            self._has_called = True
            return True
        return False

    @property
    def has_called(self) -> bool:
        """Whether a step will come, and look for all work there is."""
        return self._has_called

    def first_look(self) -> float:
        """In how many seconds to look after an action, with which work may have come."""
        return LONGEST_SLEEP if self._has_called else self._look_seconds

    def next_look(self, work_in: Iterable[float]) -> float:
        """In how many seconds to look again, if work may come in any of so many; 0: unknown."""
        look = self._look_seconds
        unknown = LONG_IDLE_FACTOR * look if self._looks > LONG_IDLE_LOOKS else look
        waits = [max(seconds, look) if seconds > 0 else unknown for seconds in work_in]
        return min([*waits, LONGEST_SLEEP])
