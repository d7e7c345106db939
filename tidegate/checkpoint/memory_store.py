"""The checkpoints of one job in the memory of its driver."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.checkpoint.checkpoint import NOT_ADDRESSABLE
from tidegate.checkpoint.metadata import CheckpointMetadata
from tidegate.checkpoint.store import Retained
from tidegate.core.ids import CheckpointId
from tidegate.state.pointers import SubtaskSnapshot


class MemoryCheckpointStore:
    """A `CheckpointStore` in the driver's memory: nothing survives the driver."""

    directory = None
    ownership = None

    def __init__(self) -> None:
        self._kept: dict[CheckpointId, CheckpointMetadata] = {}
        self.highest_id = CheckpointId(0)

    def retained(self) -> Retained:
        return Retained(tuple(self._kept[id] for id in sorted(self._kept)), ())

    def still_owned(self) -> bool:
        return True

    def check_owned(self) -> None:
        """Nobody else can own it."""

    def begin(self, checkpoint_id: CheckpointId, base: CheckpointId | None = None) -> None:
        self.highest_id = max(self.highest_id, checkpoint_id)

    def publish(self, metadata: CheckpointMetadata) -> str:
        self._kept[metadata.checkpoint_id] = metadata
        return NOT_ADDRESSABLE

    def is_published(self, checkpoint_id: CheckpointId) -> bool:
        return checkpoint_id in self._kept

    def rule_out(self, checkpoint_id: CheckpointId) -> None:
        """Nothing arrives late."""

    def stop(self, checkpoint_id: CheckpointId, savepoint: str) -> None:
        """Nobody can take over the job."""

    def do_not_stop(self, checkpoint_id: CheckpointId) -> None:
        """Nothing was recorded."""

    def end(self) -> None:
        """Nobody can restart it."""

    def discard(self, checkpoint_id: CheckpointId) -> None:
        self._kept.pop(checkpoint_id, None)

    def abandon(
        self,
        checkpoint_id: CheckpointId,
        snapshots: Iterable[SubtaskSnapshot],
        *,
        is_whole: bool = True,
    ) -> None:
        """Nothing was written."""

    def clean_leftovers(self) -> list[str]:
        return []

    def remove_if_empty(self) -> None:
        """There is nothing to remove."""
