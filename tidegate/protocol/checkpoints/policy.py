"""When a checkpoint starts, and how many may fail before the job fails."""

from __future__ import annotations

import bisect
from dataclasses import dataclass

from tidegate.core.checkpoint_settings import CheckpointSettings
from tidegate.core.ids import CheckpointId
from tidegate.stream.elements import BarrierKind, SnapshotRequest

MAX_QUEUED = 1000


@dataclass(frozen=True, slots=True)
class Wait:
    """Start nothing before this time unless something happens; None: at no time."""

    until: float | None


class CheckpointSchedule:
    """Decides which checkpoint starts next. Times are readings of one monotonic clock.

    Periodic checkpoints respect the minimum pause and the maximum number of concurrent checkpoints,
    requested checkpoints only the maximum, savepoints neither.
    """

    def __init__(self, settings: CheckpointSettings, *, now: float) -> None:
        self._max_concurrent = settings.max_concurrent
        self._min_pause = settings.min_pause.total_seconds()
        self._interval = None
        if settings.interval is not None:
            self._interval = max(settings.interval.total_seconds(), self._min_pause)
        self._next_periodic = None if self._interval is None else now + self._interval
        self._earliest = now
        self.queue: list[SnapshotRequest] = []
        """Waiting requests, the next one first."""

    def submit(self, request: SnapshotRequest) -> bool:
        """Queue a request; False if the queue is full."""
        if len(self.queue) >= MAX_QUEUED:
            return False
        # Savepoints and stops come before checkpoints; otherwise first come, first served.
        bisect.insort(self.queue, request, key=lambda each: each.kind is BarrierKind.CHECKPOINT)
        return True

    def withdraw_all(self) -> tuple[SnapshotRequest, ...]:
        """Drop all waiting requests, and return them."""
        withdrawn, self.queue = tuple(self.queue), []
        return withdrawn

    def ended(self, now: float) -> None:
        """Start the minimum pause: a checkpoint completed or was aborted."""
        self._earliest = max(self._earliest, now + self._min_pause)

    def pause_periodic(self) -> None:
        """Take no more periodic checkpoints: the job is being stopped or restarted."""
        self._next_periodic = None

    def decide(self, now: float, *, under_way: int) -> SnapshotRequest | Wait:
        """What to start now, while `under_way` checkpoints are pending."""
        if self.queue:
            first = self.queue[0]
            if first.kind is not BarrierKind.CHECKPOINT or under_way < self._max_concurrent:
                return self.queue.pop(0)
        if self._next_periodic is None or self._interval is None:
            return Wait(None)
        due = max(self._next_periodic, self._earliest)
        if now < due:
            return Wait(due)
        if under_way >= self._max_concurrent:
            return Wait(None)
        self._next_periodic = now + self._interval
        return SnapshotRequest()


class FailureTolerance:
    """Counts checkpoints that failed in a row, each once."""

    def __init__(self, tolerable: int) -> None:
        self._tolerable = tolerable
        self._counted: set[CheckpointId] = set()
        self._succeeded = CheckpointId(0)

    def failed(self, checkpoint_id: CheckpointId) -> bool:
        """Count a failed checkpoint; True if the job must fail."""
        if checkpoint_id > self._succeeded:
            self._counted.add(checkpoint_id)
        if len(self._counted) <= self._tolerable:
            return False
        self._counted.clear()
        return True

    def succeeded(self, checkpoint_id: CheckpointId) -> None:
        """Forget the failures before a checkpoint that completed."""
        if checkpoint_id > self._succeeded:
            self._succeeded = checkpoint_id
            self._counted.clear()
