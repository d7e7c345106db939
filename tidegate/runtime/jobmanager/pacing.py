"""How much a step carries and when the next one is due. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.connectors.source import InputStatus
from tidegate.runtime.messages import SlotReport

_FIRST_SLICE = 4096
_FASTEST_GROWTH = 4.0
_FASTEST_SHRINKING = 0.25


class SliceSize:
    """Records a source subtask may put into a step, such that a full step takes the target time."""

    def __init__(self, target_seconds: float, maximum: int) -> None:
        self._target = target_seconds
        self._maximum = maximum
        self.records = min(_FIRST_SLICE, maximum)

    def observe(self, seconds: float, largest_slice: int) -> None:
        """A step took this long; `largest_slice` is what its busiest source subtask read.

        A step that was not full says nothing about what a full one would take, unless it took
        too long already.
        """
        is_full = largest_slice >= 0.9 * self.records
        if not is_full and seconds <= self._target:
            return
        change = self._target / max(seconds, 1e-3)
        change = min(max(change, _FASTEST_SHRINKING), _FASTEST_GROWTH)
        base = self.records if is_full else max(largest_slice, 1)
        if not is_full and change * base > self.records:
            return
        self.records = max(1, min(int(base * change), self._maximum))


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
