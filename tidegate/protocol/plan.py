"""Who takes part in a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.core.ids import Attempt, PipelineId, SubtaskId, SubtaskIndex
from tidegate.graph.job_graph import Vertex
from tidegate.protocol.region import Region, RegionState


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """The part that every subtask of the job has in one checkpoint."""

    triggered: frozenset[PipelineId]
    """Pipelines whose sources put the barrier into their streams, those that have ended too."""
    awaited: Mapping[SubtaskId, Attempt]
    """Who must acknowledge, under which attempt of its pipeline."""
    finished: frozenset[SubtaskId]
    """Subtasks of finished pipelines: they neither get the barrier nor run again on restore."""


def plan_checkpoint(
    vertices: Iterable[Vertex], regions: Mapping[PipelineId, Region]
) -> CheckpointPlan:
    """Everybody takes part, except for pipelines that have finished; the others must be running.

    A subtask that has ended inside of a running pipeline takes part like the others: it forwards
    the barrier and acknowledges with a `finished` mark.
    """
    triggered: set[PipelineId] = set()
    awaited: dict[SubtaskId, Attempt] = {}
    finished: set[SubtaskId] = set()
    for vertex in vertices:
        region = regions[vertex.pipeline]
        subtasks = [SubtaskId(vertex.id, SubtaskIndex(i)) for i in range(vertex.parallelism)]
        if region.state is RegionState.FINISHED:
            finished.update(subtasks)
            continue
        awaited.update(dict.fromkeys(subtasks, region.attempt))
        if vertex.source is not None:
            triggered.add(vertex.pipeline)
    return CheckpointPlan(frozenset(triggered), awaited, frozenset(finished))
