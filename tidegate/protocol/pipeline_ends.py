"""Pipelines that have ended, until all their slots know that the end is saved."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.core.ids import CheckpointId, PipelineId, SlotIndex


class PipelineEnds:
    """For each, the checkpoint that says so, and who has not yet heard it."""

    def __init__(self) -> None:
        self._ends: dict[PipelineId, tuple[CheckpointId, set[SlotIndex]]] = {}

    def __contains__(self, pipeline: PipelineId) -> bool:
        return pipeline in self._ends

    def add(
        self, pipeline: PipelineId, saved_by: CheckpointId, unaware: Iterable[SlotIndex]
    ) -> None:
        """The first checkpoint that says so counts."""
        self._ends.setdefault(pipeline, (saved_by, set(unaware)))

    def heard(self, pipeline: PipelineId, checkpoint_id: CheckpointId, slot: SlotIndex) -> None:
        """A slot knows of a checkpoint, and so of each one before it."""
        saved_by, unaware = self._ends.get(pipeline, (None, set()))
        if saved_by is not None and checkpoint_id >= saved_by:
            unaware.discard(slot)

    def known_to_all(self) -> list[PipelineId]:
        return [pipeline for pipeline, (_, unaware) in self._ends.items() if not unaware]

    def remove(self, pipeline: PipelineId) -> None:
        self._ends.pop(pipeline, None)

    def clear(self) -> None:
        self._ends.clear()
