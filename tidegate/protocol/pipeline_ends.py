"""Pipelines that have ended, until all their slots know that the end is saved."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.core.ids import CheckpointId, PipelineId, SlotIndex


class PipelineEnds:
    """For each, the checkpoint that says so, and who has not yet heard it."""

    def __init__(self) -> None:
        self._ends: dict[PipelineId, tuple[CheckpointId, set[SlotIndex]]] = {}
        self._deadlines: dict[PipelineId, float] = {}

    def __contains__(self, pipeline: PipelineId) -> bool:
        return pipeline in self._ends

    def add(
        self,
        pipeline: PipelineId,
        saved_by: CheckpointId,
        unaware: Iterable[SlotIndex],
        deadline: float,
    ) -> None:
        """The first checkpoint that says so counts; all slots should know it by the deadline."""
        self._ends.setdefault(pipeline, (saved_by, set(unaware)))
        self._deadlines.setdefault(pipeline, deadline)

    def heard(self, pipeline: PipelineId, checkpoint_id: CheckpointId, slot: SlotIndex) -> None:
        """A slot knows of a checkpoint, and so of each one before it."""
        saved_by, unaware = self._ends.get(pipeline, (None, set()))
        if saved_by is not None and checkpoint_id >= saved_by:
            unaware.discard(slot)

    def overdue(self, now: float) -> tuple[CheckpointId, set[SlotIndex]] | None:
        """A checkpoint, and the slots that should have known it by now."""
        for pipeline, end in self._ends.items():
            if end[1] and now >= self._deadlines[pipeline]:
                return end
        return None

    def known_to_all(self) -> list[PipelineId]:
        return [pipeline for pipeline, (_, unaware) in self._ends.items() if not unaware]

    def remove(self, pipeline: PipelineId) -> None:
        self._ends.pop(pipeline, None)
        self._deadlines.pop(pipeline, None)

    def clear(self) -> None:
        self._ends.clear()
        self._deadlines.clear()
