"""Instructions of the checkpoint coordinator to the store and the job master."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.core.errors import TidegateError
from tidegate.core.ids import CheckpointId, PipelineId
from tidegate.state.pointers import SubtaskSnapshot
from tidegate.stream.elements import Barrier, SavepointTarget


@dataclass(frozen=True, slots=True)
class TriggerCheckpoint:
    """Send this barrier through the sources of these pipelines."""

    barrier: Barrier
    pipelines: frozenset[PipelineId]
    awaited: int
    """How many subtasks must acknowledge."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Make the checkpoint durable, then report the outcome."""

    checkpoint: Checkpoint
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class NotifyComplete:
    """Notify all slots that the checkpoint is durable."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class NotifyAborted:
    """Notify all slots that the checkpoint will never complete."""

    checkpoint_id: CheckpointId
    reason: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete a completed checkpoint of the job."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class Dispose:
    """Delete the claimed checkpoint that the job was started from."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Abandon:
    """Delete the files of these snapshots: they will never be used."""

    checkpoint_id: CheckpointId
    snapshots: tuple[SubtaskSnapshot, ...]
    is_whole: bool
    """The whole checkpoint is aborted: delete everything of its own, acknowledged or not."""
    savepoint: SavepointTarget | None = None
    """Where it was written, unless with the other checkpoints."""


@dataclass(frozen=True, slots=True)
class GoBack:
    """Restore these pipelines: an aborted drain has ended some of their inputs."""

    pipelines: frozenset[PipelineId]


@dataclass(frozen=True, slots=True)
class Finish:
    """The pipeline has ended, with nothing left to save or commit."""

    pipeline: PipelineId


@dataclass(frozen=True, slots=True)
class FailJob:
    """Too many checkpoints failed in a row, or a slot does not commit one."""

    cause: TidegateError


@dataclass(frozen=True, slots=True)
class StopJob:
    """No restart can help: another driver takes over the job, or the storage hangs."""

    cause: TidegateError


Instruction = (
    TriggerCheckpoint
    | Publish
    | NotifyComplete
    | NotifyAborted
    | Discard
    | Dispose
    | Abandon
    | GoBack
    | Finish
    | FailJob
    | StopJob
)
