"""Who takes part in a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from tidegate.core.ids import Attempt, PipelineId, SubtaskId, SubtaskIndex, VertexId


@dataclass(frozen=True, slots=True)
class VertexFacts:
    """What a plan needs to know of a vertex."""

    vertex: VertexId
    pipeline: PipelineId
    parallelism: int
    is_source: bool

    @property
    def subtasks(self) -> list[SubtaskId]:
        return [SubtaskId(self.vertex, SubtaskIndex(i)) for i in range(self.parallelism)]


class PipelineProgress(Enum):
    """Where a pipeline stands, as far as checkpoints are concerned."""

    RUNNING = auto()
    FINISHED = auto()
    """All its subtasks have ended, and a completed checkpoint says so."""
    UNAVAILABLE = auto()
    """Being deployed, failing or waiting for its restart."""


@dataclass(frozen=True, slots=True)
class PipelineFacts:
    """Which attempt of a pipeline is deployed, and whether it runs."""

    progress: PipelineProgress
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """The part that every subtask of the job has in one checkpoint."""

    triggered: frozenset[SubtaskId]
    """Sources that put the barrier into their streams, those that have ended included."""
    awaited: Mapping[SubtaskId, Attempt]
    """Who must acknowledge, under which attempt of its pipeline."""
    finished: frozenset[SubtaskId]
    """Subtasks of finished pipelines: they neither get the barrier nor run again on restore."""


@dataclass(frozen=True, slots=True)
class NotNow:
    """No checkpoint can be taken at the moment."""

    reason: str


def plan_checkpoint(
    vertices: Iterable[VertexFacts], pipelines: Mapping[PipelineId, PipelineFacts]
) -> CheckpointPlan | NotNow:
    """Everybody takes part, except for pipelines that have finished.

    A subtask that has ended inside of a running pipeline takes part like the others: it forwards
    the barrier and acknowledges with a `finished` mark.
    """
    for pipeline, facts in sorted(pipelines.items()):
        if facts.progress is PipelineProgress.UNAVAILABLE:
            return NotNow(f"pipeline {pipeline} is not running")
    triggered: set[SubtaskId] = set()
    awaited: dict[SubtaskId, Attempt] = {}
    finished: set[SubtaskId] = set()
    for vertex in vertices:
        facts = pipelines[vertex.pipeline]
        if facts.progress is PipelineProgress.FINISHED:
            finished.update(vertex.subtasks)
            continue
        awaited.update(dict.fromkeys(vertex.subtasks, facts.attempt))
        if vertex.is_source:
            triggered.update(vertex.subtasks)
    if not awaited:
        return NotNow("all pipelines have finished")
    return CheckpointPlan(frozenset(triggered), awaited, frozenset(finished))
