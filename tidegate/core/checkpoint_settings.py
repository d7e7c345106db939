"""When checkpoints are taken, what they promise and where they go, under Flink's keys."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from tidegate.core.errors import ConfigError
from tidegate.core.memory_size import MemorySize
from tidegate.core.modes import (
    CheckpointingMode,
    CheckpointStorageType,
    ExternalizedCheckpointRetention,
    RestoreMode,
)
from tidegate.core.options import BOOLEAN, MEMORY, TEXT, choice, duration, integer, option

_MILLISECOND = timedelta(milliseconds=1)

LATEST = "latest"
"""Used instead of a path: the latest checkpoint of the last run of a job with this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """Checkpoints are off unless `interval` is set."""

    interval: timedelta | None = option(
        "execution.checkpointing.interval",
        duration(10 * _MILLISECOND),
        None,
        "Time between two checkpoints. Not set: no checkpoints are taken.",
    )
    mode: CheckpointingMode = option(
        "execution.checkpointing.mode",
        choice(CheckpointingMode),
        CheckpointingMode.EXACTLY_ONCE,
        "Whether a record's effect on state is counted once or at least once.",
    )
    timeout: timedelta = option(
        "execution.checkpointing.timeout",
        duration(10 * _MILLISECOND),
        timedelta(minutes=10),
        "A checkpoint that takes longer is aborted.",
    )
    min_pause: timedelta = option(
        "execution.checkpointing.min-pause",
        duration(),
        timedelta(0),
        "Minimum time between the end of a checkpoint and the start of the next.",
    )
    max_concurrent: int = option(
        "execution.checkpointing.max-concurrent-checkpoints",
        integer(1),
        1,
        "Maximum number of checkpoints in progress at the same time.",
    )
    tolerable_failures: int = option(
        "execution.checkpointing.tolerable-failed-checkpoints",
        integer(0),
        0,
        "Consecutive checkpoints that may fail before the job fails.",
    )
    retention: ExternalizedCheckpointRetention = option(
        "execution.checkpointing.externalized-checkpoint-retention",
        choice(ExternalizedCheckpointRetention),
        ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS,
        "What happens to the last checkpoints when the job is cancelled.",
    )
    num_retained: int = option(
        "execution.checkpointing.num-retained",
        integer(1),
        1,
        "Number of completed checkpoints to keep.",
        ("state.checkpoints.num-retained",),
    )
    unaligned: bool = option(
        "execution.checkpointing.unaligned.enabled",
        BOOLEAN,
        False,
        "Let barriers overtake records, which are then stored in the checkpoint.",
        ("execution.checkpointing.unaligned",),
    )
    unaligned_forced: bool = option(
        "execution.checkpointing.unaligned.forced",
        BOOLEAN,
        False,
        "Allow unaligned checkpoints even where Flink would refuse them.",
    )
    aligned_timeout: timedelta = option(
        "execution.checkpointing.aligned-checkpoint-timeout",
        duration(),
        timedelta(0),
        "How long an unaligned checkpoint tries to align first.",
        ("execution.checkpointing.alignment-timeout",),
    )
    after_tasks_finish: bool = option(
        "execution.checkpointing.checkpoints-after-tasks-finish",
        BOOLEAN,
        True,
        "Continue to take checkpoints after some sources have ended. If false, sinks do not "
        "commit what follows the last checkpoint.",
        ("execution.checkpointing.checkpoints-after-tasks-finish.enabled",),
    )
    incremental: bool = option(
        "execution.checkpointing.incremental",
        BOOLEAN,
        False,
        "Write only what changed since the last checkpoint, if the state backend supports it.",
        ("state.backend.incremental",),
    )
    storage: CheckpointStorageType | None = option(
        "execution.checkpointing.storage",
        choice(CheckpointStorageType),
        None,
        "Default: filesystem if a directory is set, otherwise the JobManager's memory.",
        ("state.checkpoint-storage",),
    )
    directory: str | None = option(
        "execution.checkpointing.dir",
        TEXT,
        None,
        "Directory of checkpoints: a path or a URL.",
        ("state.checkpoints.dir",),
    )
    savepoint_directory: str | None = option(
        "execution.checkpointing.savepoint-dir",
        TEXT,
        None,
        "Default directory of savepoints: a path or a URL.",
        ("state.savepoints.dir",),
    )
    inline_threshold: MemorySize = option(
        "execution.checkpointing.data-inline-threshold",
        MEMORY,
        MemorySize(20 << 10),
        "State smaller than this is written into the metadata of the checkpoint.",
        ("state.storage.fs.memory-threshold", "state.backend.fs.memory-threshold"),
    )
    max_state_in_memory: MemorySize = option(
        "tidegate.checkpoint.max-state-in-memory",
        MEMORY,
        MemorySize(5 << 20),
        "Maximum state of a subtask in a checkpoint in the JobManager's memory.",
    )
    restore_path: str | None = option(
        "execution.state-recovery.path",
        TEXT,
        None,
        "The checkpoint or savepoint to start from.",
        ("execution.savepoint.path",),
    )
    take_over: bool = option(
        "tidegate.recovery.take-over",
        BOOLEAN,
        False,
        "Start from `latest` even if the job still runs on this machine; the running driver fails.",
    )
    restore_mode: RestoreMode = option(
        "execution.state-recovery.claim-mode",
        choice(RestoreMode),
        RestoreMode.NO_CLAIM,
        "Who owns the checkpoint or savepoint from which the job starts. CLAIM: the job, which "
        "deletes it after its own first checkpoint.",
        ("execution.savepoint-restore-mode", "execution.restore-mode"),
    )
    restore_partially: bool = option(
        "execution.state-recovery.ignore-unclaimed-state",
        BOOLEAN,
        False,
        "Start even if the savepoint has state that belongs to no operator.",
        ("execution.savepoint.ignore-unclaimed-state",),
    )
    skip_damaged: bool = option(
        "tidegate.recovery.skip-damaged-checkpoints",
        BOOLEAN,
        False,
        "Skip an unreadable checkpoint even if sinks have committed with it. What they have "
        "committed since the previous checkpoint appears twice.",
    )

    def __post_init__(self) -> None:
        if self.storage is CheckpointStorageType.FILESYSTEM and self.directory is None:
            raise ConfigError(
                "execution.checkpointing.storage",
                self.storage.value,
                "set execution.checkpointing.dir",
            )

    @property
    def is_enabled(self) -> bool:
        return self.interval is not None
