"""What the coordinator of a job's checkpoints wants done, by the store and by the job master."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.core.errors import TidegateError
from tidegate.core.ids import CheckpointId, PipelineId
from tidegate.state.pointers import SubtaskSnapshot
from tidegate.stream.elements import Barrier, SavepointTarget


@dataclass(frozen=True, slots=True)
class TriggerCheckpoint:
    """Send this barrier down the sources of these pipelines."""

    barrier: Barrier
    pipelines: frozenset[PipelineId]
    awaited: int
    """How many subtasks have to acknowledge."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Everything is written: make the checkpoint durable, then report what came of it."""

    checkpoint: Checkpoint
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class NotifyComplete:
    """Tell everybody that the checkpoint is durable."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class NotifyAborted:
    """Tell everybody that the checkpoint will never complete."""

    checkpoint_id: CheckpointId
    reason: str


@dataclass(frozen=True, slots=True)
class Discard:
    """A completed checkpoint of the job is no longer needed."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class Dispose:
    """What the job was started from, and has claimed, is no longer needed."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Abandon:
    """What these snapshots name will never be used: delete it."""

    checkpoint_id: CheckpointId
    snapshots: tuple[SubtaskSnapshot, ...]
    is_whole: bool
    """The checkpoint is aborted: all that is its own goes, also what nobody acknowledged."""
    savepoint: SavepointTarget | None = None
    """Where it was written, if not where checkpoints are."""


@dataclass(frozen=True, slots=True)
class GoBack:
    """A drain is aborted: what it ended in these pipelines runs on only from a checkpoint."""

    pipelines: frozenset[PipelineId]


@dataclass(frozen=True, slots=True)
class Finish:
    """The pipeline has ended, and nothing of it is left to save or to commit."""

    pipeline: PipelineId


@dataclass(frozen=True, slots=True)
class FailJob:
    """More checkpoints failed in a row than are tolerated, or slots do not commit one."""

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
