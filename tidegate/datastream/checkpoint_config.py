"""`CheckpointConfig`: the checkpoint settings of an environment, under PyFlink's names."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Self, TypeAlias

from tidegate.core.durations import Duration, DurationLike, as_milliseconds
from tidegate.core.modes import (
    CheckpointingMode,
    CheckpointStorageType,
    ExternalizedCheckpointRetention,
)
from tidegate.core.setting_groups import UNLIMITED
from tidegate.datastream.checkpoint_storage import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from tidegate.datastream.execution.job_configuration import JobConfiguration

ExternalizedCheckpointCleanup: TypeAlias = ExternalizedCheckpointRetention
"""Its name in PyFlink 1.x."""


class CheckpointConfig:
    """A view of the environment's settings.

    A duration is a timedelta, a number of milliseconds, or text like "30 s". Getters return
    milliseconds, as in PyFlink.
    """

    DEFAULT_MODE = CheckpointingMode.EXACTLY_ONCE
    DEFAULT_TIMEOUT = 10 * 60 * 1000
    DEFAULT_MIN_PAUSE_BETWEEN_CHECKPOINTS = 0
    DEFAULT_MAX_CONCURRENT_CHECKPOINTS = 1
    ExternalizedCheckpointCleanup: TypeAlias = ExternalizedCheckpointRetention

    def __init__(self, configuration: JobConfiguration) -> None:
        self._configuration = configuration

    def is_checkpointing_enabled(self) -> bool:
        """Whether checkpoints are enabled."""
        return self._configuration.is_set("execution.checkpointing.interval")

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> Self:
        """Set exactly once or at least once."""
        return self._set("mode", checkpointing_mode)

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Exactly once, or at least once."""
        mode: CheckpointingMode = self._get("mode")
        return mode

    def set_checkpoint_interval(self, checkpoint_interval: DurationLike) -> Self:
        """Set how often a checkpoint is taken."""
        return self._set("interval", checkpoint_interval)

    def get_checkpoint_interval(self) -> int:
        """Milliseconds; -1 while checkpointing is off."""
        interval: timedelta | None = self._get("interval")
        return -1 if interval is None else as_milliseconds(interval)

    def set_checkpoint_timeout(self, checkpoint_timeout: DurationLike) -> Self:
        """Set how long a checkpoint may take."""
        return self._set("timeout", checkpoint_timeout)

    def get_checkpoint_timeout(self) -> int:
        """How long a checkpoint may take."""
        return as_milliseconds(self._get("timeout"))

    def set_min_pause_between_checkpoints(
        self, min_pause_between_checkpoints: DurationLike
    ) -> Self:
        """Set the shortest time between two checkpoints."""
        return self._set("min-pause", min_pause_between_checkpoints)

    def get_min_pause_between_checkpoints(self) -> int:
        """The shortest time between two checkpoints."""
        return as_milliseconds(self._get("min-pause"))

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> Self:
        """Set how many checkpoints may be in flight."""
        return self._set("max-concurrent-checkpoints", max_concurrent_checkpoints)

    def get_max_concurrent_checkpoints(self) -> int:
        """How many checkpoints may be in flight."""
        return int(self._get("max-concurrent-checkpoints"))

    def set_tolerable_checkpoint_failure_number(
        self, tolerable_checkpoint_failure_number: int
    ) -> Self:
        """Set how many checkpoints may fail in a row."""
        return self._set("tolerable-failed-checkpoints", tolerable_checkpoint_failure_number)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """How many checkpoints may fail in a row."""
        return int(self._get("tolerable-failed-checkpoints"))

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> Self:
        """Set whether a failed checkpoint fails the job."""
        tolerable = 0 if fail_on_checkpointing_errors else UNLIMITED
        return self.set_tolerable_checkpoint_failure_number(tolerable)

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Whether a failed checkpoint fails the job."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> Self:
        """Set what is kept when the job is cancelled or fails."""
        return self._set("externalized-checkpoint-retention", retention_mode)

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """What is kept when the job is cancelled or fails."""
        mode: ExternalizedCheckpointRetention = self._get("externalized-checkpoint-retention")
        return mode

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Whether checkpoints are kept when the job is cancelled or fails."""
        off = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        return self.get_externalized_checkpoint_retention() is not off

    enable_externalized_checkpoints = set_externalized_checkpoint_retention
    set_externalized_checkpoint_cleanup = set_externalized_checkpoint_retention
    get_externalized_checkpoint_cleanup = get_externalized_checkpoint_retention

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> Self:
        """Let barriers overtake records, which are stored in the checkpoint."""
        return self._set("unaligned.enabled", enabled)

    def disable_unaligned_checkpoints(self) -> Self:
        """Let barriers align, the default."""
        return self.enable_unaligned_checkpoints(False)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Whether barriers overtake records."""
        return bool(self._get("unaligned.enabled"))

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> Self:
        """Take unaligned checkpoints even where Flink would refuse it."""
        return self._set("unaligned.forced", force_unaligned_checkpoints)

    def is_force_unaligned_checkpoints(self) -> bool:
        """Whether checkpoints are unaligned even where Flink would refuse it."""
        return bool(self._get("unaligned.forced"))

    def set_aligned_checkpoint_timeout(self, alignment_timeout: DurationLike) -> Self:
        """Set how long an unaligned checkpoint tries to align first."""
        return self._set("aligned-checkpoint-timeout", alignment_timeout)

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """How long an unaligned checkpoint tries to align first."""
        return Duration(seconds=self._get("aligned-checkpoint-timeout").total_seconds())

    set_alignment_timeout = set_aligned_checkpoint_timeout
    get_alignment_timeout = get_aligned_checkpoint_timeout

    def set_checkpoint_storage(self, storage: CheckpointStorage | str) -> Self:
        """Set where checkpoints are stored: a path, a URL, or a storage."""
        if isinstance(storage, str):
            return self.set_checkpoint_storage_dir(storage)
        self._configuration.unset("execution.checkpointing.dir")
        self._configuration.update(storage.settings())
        return self

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> Self:
        """Set the directory of checkpoints."""
        return self.set_checkpoint_storage(FileSystemCheckpointStorage(checkpoint_path))

    def get_checkpoint_storage(self) -> CheckpointStorage | None:
        """The configured storage, or None."""
        kind: CheckpointStorageType | None = self._get("storage")
        directory: str | None = self._get("dir")
        if kind is CheckpointStorageType.JOBMANAGER:
            size = self._configuration.get("tidegate.checkpoint.max-state-in-memory")
            return JobManagerCheckpointStorage(directory, size.get_bytes())
        if directory is not None:
            threshold = self._get("data-inline-threshold").get_bytes()
            return FileSystemCheckpointStorage(directory, threshold)
        return None

    def _set(self, name: str, value: object) -> Self:
        self._configuration.set(f"execution.checkpointing.{name}", value)
        return self

    def _get(self, name: str) -> Any:
        return self._configuration.get(f"execution.checkpointing.{name}")
