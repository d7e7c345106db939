"""The progress of a pipeline's slots in restoring a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.core.ids import CheckpointId, SlotIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreProgress:
    """The bytes of a checkpoint read so far, and their total."""

    checkpoint_id: CheckpointId
    size: int
    """Bytes in files; 0 if all state is inline."""
    read: int
    is_complete: bool
    """Whether all subtasks are restored."""


class Restoring:
    """Progress of one attempt of a pipeline. Written by the job master, read by any thread."""

    def __init__(self, checkpoint_id: CheckpointId, sizes: Mapping[SlotIndex, int]) -> None:
        self._checkpoint_id = checkpoint_id
        self._sizes = dict(sizes)
        self._read = dict.fromkeys(sizes, 0)
        self._unopened = len(sizes)

    def read(self, slot: SlotIndex, size: int) -> None:
        """Count bytes that a slot has read."""
        # Reads may include gaps between segments, so the sum can exceed the size.
        self._read[slot] = min(self._read[slot] + size, self._sizes[slot])

    def opened(self, slot: SlotIndex) -> None:
        self._read[slot] = self._sizes[slot]
        self._unopened -= 1

    @property
    def progress(self) -> RestoreProgress:
        return RestoreProgress(
            checkpoint_id=self._checkpoint_id,
            size=sum(self._sizes.values()),
            read=sum(self._read.values()),
            is_complete=self._unopened == 0,
        )


def together(pipelines: Sequence[RestoreProgress]) -> RestoreProgress | None:
    """The combined progress of all pipelines of a job that were restored from a checkpoint."""
    if not pipelines:
        return None
    return RestoreProgress(
        checkpoint_id=max(each.checkpoint_id for each in pipelines),
        size=sum(each.size for each in pipelines),
        read=sum(each.read for each in pipelines),
        is_complete=all(each.is_complete for each in pipelines),
    )
