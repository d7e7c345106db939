"""State backends as values, for `StreamExecutionEnvironment.set_state_backend`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum, auto

from tidegate.common.java_only import java_only
from tidegate.core.modes import StateBackendType


class StateBackend(ABC):
    """Where keyed state lives while a job runs."""

    @abstractmethod
    def settings(self) -> list[tuple[str, object]]:
        """The settings that choose this backend, by their key."""


@dataclass(slots=True)
class HashMapStateBackend(StateBackend):
    """Keyed state as Python objects in the memory of the slots."""

    def settings(self) -> list[tuple[str, object]]:
        return [("state.backend.type", StateBackendType.HASHMAP)]


class PredefinedOptions(Enum):
    """Flink's sets of options for RocksDB."""

    DEFAULT = auto()
    SPINNING_DISK_OPTIMIZED = auto()
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = auto()
    FLASH_SSD_OPTIMIZED = auto()


@dataclass(slots=True)
class EmbeddedRocksDBStateBackend(StateBackend):
    """Keyed state in RocksDB on the local disk of the slots; it may exceed their memory.

    Incremental checkpoints write only what changed since the last one. As in Flink they are off by
    default; enable them here or with execution.checkpointing.incremental.
    """

    enable_incremental_checkpointing: bool | None = None
    _directories: tuple[str, ...] = field(default=(), repr=False)
    _transfer_threads: int | None = field(default=None, repr=False)
    _predefined_options: PredefinedOptions = field(
        default=PredefinedOptions.DEFAULT, repr=False, compare=False
    )

    def set_db_storage_paths(self, *paths: str) -> None:
        """Set the local directories of databases."""
        self._directories = paths

    def get_db_storage_paths(self) -> list[str]:
        """The local directories of databases."""
        return list(self._directories)

    def is_incremental_checkpoints_enabled(self) -> bool:
        """Whether checkpoints contain only new files."""
        return bool(self.enable_incremental_checkpointing)

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        """Set how many threads copy files of checkpoints."""
        self._transfer_threads = number_of_transfering_threads

    def get_number_of_transfer_threads(self) -> int:
        """How many threads copy files of checkpoints."""
        return self._transfer_threads or 4

    def set_predefined_options(self, options: PredefinedOptions) -> None:
        """Accepted for compatibility: one set of options serves all disks."""
        self._predefined_options = options

    def get_predefined_options(self) -> PredefinedOptions:
        """The set of options for databases."""
        return self._predefined_options

    def settings(self) -> list[tuple[str, object]]:
        chosen: list[tuple[str, object]] = [("state.backend.type", StateBackendType.ROCKSDB)]
        if self.enable_incremental_checkpointing is not None:
            incremental = self.enable_incremental_checkpointing
            chosen.append(("execution.checkpointing.incremental", incremental))
        if self._directories:
            chosen.append(("state.backend.rocksdb.localdir", self._directories))
        if self._transfer_threads is not None:
            key = "state.backend.rocksdb.checkpoint.transfer.thread.num"
            chosen.append((key, self._transfer_threads))
        return chosen


CustomStateBackend = java_only(
    "CustomStateBackend", "Use HashMapStateBackend or EmbeddedRocksDBStateBackend."
)
