"""How much a step carries and when the next one is due. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.connectors.source import InputStatus
from tidegate.protocol.messages import SlotReport

_FIRST_SLICE = 4096
_FASTEST_GROWTH = 4.0
_FASTEST_SHRINKING = 0.25
_FIXED_COST_SHARE = 0.25
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
        self._fixed_cost = min(self._fixed_cost, max(0.0, seconds - busy_seconds))
        if largest_slice < 0.9 * self.records:
            return
        desired = max(self._target, min(self._fixed_cost / _FIXED_COST_SHARE, _LONGEST_STEP))
        work = max(seconds - self._fixed_cost, 1e-3)
        change = (desired - min(self._fixed_cost, desired)) / work
        change = min(max(change, _FASTEST_SHRINKING), _FASTEST_GROWTH)
        self.records = max(1, min(int(self.records * change), self._maximum))


@dataclass(frozen=True, slots=True)
class NextStep:
    """When the next step of a pipeline is due if no slot calls before: wall-clock seconds."""

    at: float | None

    @classmethod
    def now(cls) -> NextStep:
        return cls(0.0)


def next_step(
    reports: Iterable[SlotReport],
    *,
    now: float,
    has_barriers: bool,
    discovery_seconds: float | None,
) -> NextStep:
    """Decide from what the slots said of the last step.

    `discovery_seconds`: how often enumerators that may find more splits are asked; None if
    all of them are exhausted and everything found is assigned.
    """
    due: list[float] = []
    if has_barriers:
        return NextStep.now()
    for report in reports:
        for source in report.sources.values():
            if source.status is InputStatus.MORE_AVAILABLE:
                return NextStep.now()
        if report.next_timer is not None:
            due.append(report.next_timer)
    if discovery_seconds is not None:
        due.append(now + discovery_seconds)
    return NextStep(min(due, default=None))
