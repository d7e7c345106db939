"""Checkpoint storages as values, for `CheckpointConfig.set_checkpoint_storage`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from tidegate.common.java_only import java_only
from tidegate.core.modes import CheckpointStorageType


class CheckpointStorage(ABC):
    """Where checkpoints are written."""

    @abstractmethod
    def settings(self) -> list[tuple[str, object]]:
        """The settings that choose this storage, by their key."""


@dataclass(frozen=True, slots=True)
class JobManagerCheckpointStorage(CheckpointStorage):
    """Checkpoints in the memory of the driver; they are lost when it ends."""

    DEFAULT_MAX_STATE_SIZE: ClassVar[int] = 5 << 20

    checkpoint_path: str | None = None
    max_state_size: int = DEFAULT_MAX_STATE_SIZE

    def get_checkpoint_path(self) -> str | None:
        """The directory of checkpoints; None: they are in memory."""
        return self.checkpoint_path

    def get_max_state_size(self) -> int:
        """The maximum state of a subtask, in bytes."""
        return self.max_state_size

    def settings(self) -> list[tuple[str, object]]:
        chosen: list[tuple[str, object]] = [
            ("execution.checkpointing.storage", CheckpointStorageType.JOBMANAGER),
            ("tidegate.checkpoint.max-state-in-memory", self.max_state_size),
        ]
        if self.checkpoint_path is not None:
            chosen.append(("execution.checkpointing.dir", self.checkpoint_path))
        return chosen


@dataclass(frozen=True, slots=True)
class FileSystemCheckpointStorage(CheckpointStorage):
    """Checkpoints as files, in a directory that the driver and all slots can reach."""

    checkpoint_path: str
    file_state_size_threshold: int | None = None
    write_buffer_size: int = -1

    def get_checkpoint_path(self) -> str:
        """The directory of checkpoints."""
        return self.checkpoint_path

    def get_min_file_size_threshold(self) -> int:
        """Smaller state is stored in the metadata."""
        threshold = self.file_state_size_threshold
        return 20 << 10 if threshold is None else threshold

    def get_write_buffer_size(self) -> int:
        """The size of the write buffer."""
        return self.write_buffer_size

    def settings(self) -> list[tuple[str, object]]:
        return [
            ("execution.checkpointing.storage", CheckpointStorageType.FILESYSTEM),
            ("execution.checkpointing.dir", self.checkpoint_path),
            ("execution.checkpointing.data-inline-threshold", self.get_min_file_size_threshold()),
        ]


CustomCheckpointStorage = java_only(
    "CustomCheckpointStorage",
    "Use FileSystemCheckpointStorage, with a directory on a file system, S3 or HDFS.",
)
