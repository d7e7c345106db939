"""Which subtasks take part in a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.core.ids import Attempt, PipelineId, SubtaskId, SubtaskIndex
from tidegate.graph.job_graph import Vertex
from tidegate.protocol.region import Region, RegionState


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """The part of every subtask in one checkpoint."""

    triggered: frozenset[PipelineId]
    """Pipelines whose sources emit the barrier, including sources that have ended."""
    awaited: Mapping[SubtaskId, Attempt]
    """The subtasks that must acknowledge, with the attempt of their pipeline."""
    finished: frozenset[SubtaskId]
    """Subtasks of finished pipelines: they get no barrier and do not run again on restore."""


def plan_checkpoint(
    vertices: Iterable[Vertex], regions: Mapping[PipelineId, Region]
) -> CheckpointPlan:
    """Include all subtasks, except those of finished pipelines; the others must be running.

    A subtask that has ended in a running pipeline takes part, too: it forwards the barrier and
    acknowledges with a `finished` mark.
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
