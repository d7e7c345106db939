"""When and how the checkpoints of a job are taken, under Flink's names."""

from __future__ import annotations

from typing import Annotated

from tidegate.core.config import Settings
from tidegate.core.modes import CheckpointStorageType, ExternalizedCheckpointRetention
from tidegate.web.documents.common import milliseconds
from tidegate.web.forms import Form, OneOf, snake

_NO_CHECKPOINTS = (1 << 63) - 1
"""Flink's interval of a job without periodic checkpoints."""


class Externalization(Form, naming=snake):
    """Whether checkpoints outlive the job."""

    enabled: bool
    delete_on_cancellation: bool


class CheckpointingDocument(Form, naming=snake):
    """When and how checkpoints are taken."""

    mode: Annotated[str, OneOf(("exactly_once", "at_least_once"))]
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int
    externalization: Externalization
    state_backend: str
    checkpoint_storage: Annotated[str, OneOf(("filesystem", "jobmanager"))]
    unaligned_checkpoints: bool
    tolerable_failed_checkpoints: int
    aligned_checkpoint_timeout: int
    checkpoints_after_tasks_finish: bool
    state_changelog_enabled: bool = False


def checkpointing(settings: Settings) -> CheckpointingDocument:
    chosen = settings.checkpointing
    retention = chosen.retention
    in_files = chosen.directory is not None and (
        chosen.storage is not CheckpointStorageType.JOBMANAGER
    )
    interval = chosen.interval
    kept = ExternalizedCheckpointRetention
    return CheckpointingDocument(
        mode=chosen.mode.name.lower(),
        interval=_NO_CHECKPOINTS if interval is None else milliseconds(interval.total_seconds()),
        timeout=milliseconds(chosen.timeout.total_seconds()),
        min_pause=milliseconds(chosen.min_pause.total_seconds()),
        max_concurrent=chosen.max_concurrent,
        externalization=Externalization(
            enabled=retention is not kept.NO_EXTERNALIZED_CHECKPOINTS,
            delete_on_cancellation=retention is not kept.RETAIN_ON_CANCELLATION,
        ),
        state_backend=settings.state.backend.value,
        checkpoint_storage="filesystem" if in_files else "jobmanager",
        unaligned_checkpoints=chosen.unaligned,
        tolerable_failed_checkpoints=chosen.tolerable_failures,
        aligned_checkpoint_timeout=milliseconds(chosen.aligned_timeout.total_seconds()),
        checkpoints_after_tasks_finish=chosen.after_tasks_finish,
    )
