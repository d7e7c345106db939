"""Checkpoints that are durable, and how many of them stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidegate.checkpoint.metadata import CheckpointMetadata
from tidegate.checkpoint.statistics import NOT_ADDRESSABLE
from tidegate.core.ids import Attempt, CheckpointId, SubtaskId, VertexId
from tidegate.state.snapshot_reader import CheckpointLocation
from tidegate.storage.locations import below, shown
from tidegate.stream.elements import BarrierKind, SavepointTarget

H = TypeVar("H")


def kept_as(kind: BarrierKind, savepoint: SavepointTarget | None) -> BarrierKind:
    """What it is to those who look at it later.

    The one with which a job stops to go on under another plan is its own, and a checkpoint.
    """
    return BarrierKind.CHECKPOINT if savepoint is None else kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement(Generic[H]):
    """A subtask has written its part of a checkpoint; `snapshot` says where."""

    checkpoint_id: CheckpointId
    subtask: SubtaskId
    attempt: Attempt
    snapshot: H
    size: int = 0
    """Bytes that a restore would read."""
    finished: bool = False
    """The subtask has ended: on restore it is not run again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedCheckpoint(Generic[H]):
    """What is published: a pointer to the state of every subtask, all of one moment."""

    checkpoint_id: CheckpointId
    kind: BarrierKind
    triggered_at: float
    completed_at: float
    snapshots: Mapping[SubtaskId, H]
    enumerators: Mapping[VertexId, bytes]
    """What the split enumerators of sources knew, pickled."""
    finished: frozenset[SubtaskId]
    size: int
    savepoint: SavepointTarget | None = None
    """Where it is, if not where checkpoints are."""

    @property
    def is_recovery_point(self) -> bool:
        """Whether a failed job may go back to it: a plain savepoint is the user's alone."""
        return self.kind is not BarrierKind.SAVEPOINT


class RetainedCheckpoints(Generic[H]):
    """The completed checkpoints that the job keeps, oldest first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: list[CompletedCheckpoint[H]] = []

    @property
    def kept(self) -> tuple[CompletedCheckpoint[H], ...]:
        return tuple(self._kept)

    @property
    def latest(self) -> CompletedCheckpoint[H] | None:
        """Where a recovery begins."""
        return self._kept[-1] if self._kept else None

    def drop(self, checkpoint_id: CheckpointId) -> None:
        """It cannot be read: never go back to it."""
        self._kept = [each for each in self._kept if each.checkpoint_id != checkpoint_id]

    def add(self, completed: CompletedCheckpoint[H]) -> tuple[CompletedCheckpoint[H], ...]:
        """Keep a checkpoint that was just published; returns those that are to be discarded.

        Plain savepoints are not kept here and discard nothing. The savepoint of a stop is kept as
        the point of recovery, and never returned: its files belong to the user.
        """
        if not completed.is_recovery_point:
            return ()
        self._kept.append(completed)
        self._kept.sort(key=lambda each: each.checkpoint_id)
        surplus = self._kept[: max(0, len(self._kept) - self._limit)]
        del self._kept[: len(surplus)]
        return tuple(each for each in surplus if each.savepoint is None)


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """A checkpoint that a job can go on from."""

    metadata: CheckpointMetadata
    location: CheckpointLocation | None
    """Where its files are; None: it is in the driver's memory and has none."""

    @property
    def path(self) -> str:
        if self.location is None:
            return NOT_ADDRESSABLE
        return shown(below(self.location.job_directory, self.location.name))
