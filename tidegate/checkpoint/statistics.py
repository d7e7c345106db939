"""The history of a job's checkpoints, for the live line, logs and the REST API.

Records are immutable, so any thread may read what `CheckpointHistory` returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from tidegate.core.ids import CheckpointId, SubtaskId
from tidegate.stream.elements import Barrier, BarrierKind


class CheckpointStatus(Enum):
    """The status of a checkpoint, in Flink's terms."""

    IN_PROGRESS = auto()
    COMPLETED = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskStatistics:
    """Statistics of one subtask in a checkpoint, in seconds."""

    acknowledged_at: float = 0.0
    """Seconds since the epoch, by the driver's clock."""
    start_delay: float = 0.0
    """From the trigger to the first barrier."""
    alignment: float = 0.0
    """From the first barrier to the last."""
    alignment_bytes: int = 0
    """Bytes held back meanwhile."""
    sync: float = 0.0
    """How long records waited while the state was frozen."""
    asynchronous: float = 0.0
    """How long writing took, while records flowed."""
    size: int = 0
    """Bytes that a restore reads."""
    incremental_size: int = 0
    """Bytes written for this checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecord:
    """One checkpoint of the history."""

    checkpoint_id: CheckpointId
    kind: BarrierKind
    status: CheckpointStatus = CheckpointStatus.IN_PROGRESS
    triggered_at: float
    ended_at: float | None = None
    awaited: int
    """How many subtasks take part."""
    subtasks: Mapping[SubtaskId, SubtaskStatistics] = field(default_factory=dict)
    path: str | None = None
    """Its location; None: in the driver's memory, or not complete."""
    failure: str | None = None
    is_discarded: bool = False

    @property
    def duration(self) -> float | None:
        """From trigger to completion."""
        return None if self.ended_at is None else self.ended_at - self.triggered_at

    @property
    def size(self) -> int:
        return sum(each.size for each in self.subtasks.values())

    @property
    def incremental_size(self) -> int:
        return sum(each.incremental_size for each in self.subtasks.values())

    @property
    def alignment_bytes(self) -> int:
        return sum(each.alignment_bytes for each in self.subtasks.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRecord:
    """The last restore of the job, or of one of its regions."""

    checkpoint_id: CheckpointId
    kind: BarrierKind
    restored_at: float
    path: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCounts:
    """Counts since the start of the job."""

    triggered: int = 0
    in_progress: int = 0
    completed: int = 0
    failed: int = 0
    restored: int = 0


@dataclass(slots=True)
class CheckpointHistory:
    """The last checkpoints, and the latest of each kind at any age. Written by one thread."""

    limit: int = 100
    counts: CheckpointCounts = field(default_factory=CheckpointCounts)
    latest_completed: CheckpointRecord | None = None
    latest_savepoint: CheckpointRecord | None = None
    latest_failed: CheckpointRecord | None = None
    latest_restored: RestoreRecord | None = None
    _records: dict[CheckpointId, CheckpointRecord] = field(default_factory=dict)

    def records(self) -> tuple[CheckpointRecord, ...]:
        """Newest first."""
        return tuple(sorted(self._records.copy().values(), key=lambda r: -r.checkpoint_id))

    def record(self, checkpoint_id: CheckpointId) -> CheckpointRecord | None:
        return self._records.get(checkpoint_id)

    def triggered(self, barrier: Barrier, awaited: int) -> None:
        self._records[barrier.checkpoint_id] = CheckpointRecord(
            checkpoint_id=barrier.checkpoint_id,
            kind=BarrierKind.CHECKPOINT if barrier.savepoint is None else barrier.kind,
            triggered_at=barrier.triggered_at,
            awaited=awaited,
        )
        self._count(triggered=1, in_progress=1)
        ended = [id for id, r in self._records.items() if r.ended_at is not None]
        for id in sorted(ended)[: max(0, len(self._records) - self.limit)]:
            del self._records[id]

    def acknowledged(
        self, checkpoint_id: CheckpointId, subtask: SubtaskId, facts: SubtaskStatistics
    ) -> None:
        record = self._records.get(checkpoint_id)
        if record is not None and record.status is CheckpointStatus.IN_PROGRESS:
            subtasks = {**record.subtasks, subtask: facts}
            self._records[checkpoint_id] = replace(record, subtasks=subtasks)

    def completed(
        self, checkpoint_id: CheckpointId, wall: float, path: str | None
    ) -> CheckpointRecord | None:
        record = self._ended(checkpoint_id, wall, CheckpointStatus.COMPLETED, path=path)
        if record is not None:
            self._count(in_progress=-1, completed=1)
            if record.kind is BarrierKind.CHECKPOINT:
                self.latest_completed = record
            else:
                self.latest_savepoint = record
        return record

    def failed(self, checkpoint_id: CheckpointId, wall: float, reason: str) -> None:
        record = self._ended(checkpoint_id, wall, CheckpointStatus.FAILED, failure=reason)
        if record is not None:
            self._count(in_progress=-1, failed=1)
            self.latest_failed = record

    def restored(self, restore: RestoreRecord) -> None:
        self.latest_restored = restore
        self._count(restored=1)

    def discarded(self, checkpoint_id: CheckpointId) -> None:
        record = self._records.get(checkpoint_id)
        if record is not None:
            self._records[checkpoint_id] = replace(record, is_discarded=True)

    def _ended(
        self,
        checkpoint_id: CheckpointId,
        wall: float,
        status: CheckpointStatus,
        *,
        path: str | None = None,
        failure: str | None = None,
    ) -> CheckpointRecord | None:
        record = self._records.get(checkpoint_id)
        if record is None or record.status is not CheckpointStatus.IN_PROGRESS:
            return None
        record = replace(record, status=status, ended_at=wall, path=path, failure=failure)
        self._records[checkpoint_id] = record
        return record

    def _count(self, **more: int) -> None:
        counts = {name: getattr(self.counts, name) + number for name, number in more.items()}
        self.counts = replace(self.counts, **counts)
