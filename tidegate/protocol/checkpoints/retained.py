"""Which checkpoints a job keeps, and which one it resumes from."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.core.ids import CheckpointId
from tidegate.stream.elements import BarrierKind


class RetainedCheckpoints:
    """The job's own checkpoints, oldest first, and those it was started from."""

    def __init__(
        self,
        limit: int,
        own: Iterable[Checkpoint] = (),
        origins: Iterable[Checkpoint] = (),
        *,
        claims: bool = False,
    ) -> None:
        """Set the checkpoints that exist at the start.

        Args:
            limit: how many checkpoints of its own the job keeps.
            own: checkpoints that an earlier run of the job has left.
            origins: foreign checkpoints to start from, the preferred one last.
            claims: whether the job deletes its origins when it no longer needs them.
        """
        self._limit = limit
        self._kept = sorted(own, key=lambda each: each.checkpoint_id)
        self._origins = list(origins)
        self._claimed = self._origins.copy() if claims else []
        self.stop_point: Checkpoint | None = None
        """The checkpoint that the job ends with, once complete."""

    @property
    def own(self) -> tuple[Checkpoint, ...]:
        """Checkpoints whose files belong to the job; a stop's savepoint belongs to the user."""
        return tuple(each for each in self._kept if each.metadata.kind is BarrierKind.CHECKPOINT)

    @property
    def latest(self) -> Checkpoint | None:
        return self._kept[-1] if self._kept else None

    @property
    def restore_point(self) -> Checkpoint | None:
        """Where a recovery resumes; None: from an empty state."""
        if self._kept:
            return self._kept[-1]
        return self._origins[-1] if self._origins else None

    def add(self, checkpoint: Checkpoint, *, ends_the_job: bool = False) -> tuple[Checkpoint, ...]:
        """Keep a newly published checkpoint; returns the claimed ones that it replaces.

        A plain savepoint belongs to the user: the job never resumes from it.
        """
        if checkpoint.metadata.kind is BarrierKind.SAVEPOINT:
            return ()
        self._kept.append(checkpoint)
        self._kept.sort(key=lambda each: each.checkpoint_id)
        if ends_the_job:
            self.stop_point = checkpoint
        if checkpoint.metadata.kind is not BarrierKind.CHECKPOINT:
            return ()
        replaced, self._claimed = tuple(self._claimed), []
        return replaced

    def trim(self) -> tuple[Checkpoint, ...]:
        """Keep no more than the limit; returns the job's own checkpoints to discard."""
        surplus = self._kept[: max(0, len(self._kept) - self._limit)]
        del self._kept[: len(surplus)]
        return tuple(each for each in surplus if each.metadata.kind is BarrierKind.CHECKPOINT)

    def drop(self, checkpoint_id: CheckpointId) -> None:
        """Never resume from this checkpoint: it cannot be read."""
        if any(each.checkpoint_id == checkpoint_id for each in self._kept):
            self._kept = [each for each in self._kept if each.checkpoint_id != checkpoint_id]
        elif self._origins and self._origins[-1].checkpoint_id == checkpoint_id:
            self._origins.pop()
