"""How far the slots of a pipeline have come with what they take over from a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.core.ids import CheckpointId, SlotIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreProgress:
    """The bytes of a checkpoint read so far, and their total."""

    checkpoint_id: CheckpointId
    size: int
    """Of what is in files; 0 if all state is small."""
    read: int
    is_complete: bool
    """Whether all subtasks have what is theirs."""


class Restoring:
    """Of one attempt of one pipeline. Written by the job master's thread, read by any."""

    def __init__(self, checkpoint_id: CheckpointId, sizes: Mapping[SlotIndex, int]) -> None:
        self._checkpoint_id = checkpoint_id
        self._sizes = dict(sizes)
        self._read = dict.fromkeys(sizes, 0)
        self._unopened = len(sizes)

    def read(self, slot: SlotIndex, size: int) -> None:
        """A slot has read so much more."""
        # What lies between two pieces may be read with them.
        self._read[slot] = min(self._read[slot] + size, self._sizes[slot])

    def opened(self, slot: SlotIndex) -> None:
        """A slot has everything."""
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
    """That of a job whose pipelines have gone on from a checkpoint, the same one or several."""
    if not pipelines:
        return None
    return RestoreProgress(
        checkpoint_id=max(each.checkpoint_id for each in pipelines),
        size=sum(each.size for each in pipelines),
        read=sum(each.read for each in pipelines),
        is_complete=all(each.is_complete for each in pipelines),
    )
