"""What the slots and the enumerators of a pipeline are told to go on from. Pure."""

from __future__ import annotations

from dataclasses import replace

from tidegate.checkpoint.metadata import CheckpointMetadata
from tidegate.checkpoint.restore import restore_subtask
from tidegate.core.ids import SlotIndex, SubtaskIndex, VertexId
from tidegate.graph.job_graph import JobGraph, Pipeline, Vertex
from tidegate.runtime.jobmanager.checkpoint_home import RestorePoint
from tidegate.runtime.messages import RestoreOrder


def restore_orders(pipeline: Pipeline, point: RestorePoint) -> dict[SlotIndex, RestoreOrder]:
    """What every slot of a pipeline takes over from a checkpoint."""
    return {
        SlotIndex(slot): RestoreOrder(
            checkpoint_id=point.metadata.checkpoint_id,
            location=point.location,
            subtasks={
                vertex.id: restore_subtask(
                    point.metadata,
                    [chained.operator_id for chained in vertex.chain],
                    SubtaskIndex(slot),
                    vertex.parallelism,
                    vertex.max_parallelism,
                )
                for vertex in pipeline.vertices
                if slot < vertex.parallelism
            },
        )
        for slot in range(pipeline.slots)
    }


def with_restored_max_parallelism(graph: JobGraph, metadata: CheckpointMetadata) -> JobGraph:
    """The graph with the number of key groups that the state has, where the user chose none."""

    def adapted(vertex: Vertex) -> Vertex:
        stored = {
            record.max_parallelism
            for chained in vertex.chain
            if (record := metadata.operators.get(chained.operator_id)) is not None
            and any(handle.keyed is not None for handle in record.subtasks.values())
        }
        if vertex.is_max_parallelism_chosen or not stored or max(stored) < vertex.parallelism:
            return vertex
        return replace(vertex, max_parallelism=max(stored))

    return replace(graph, vertices=tuple(map(adapted, graph.vertices)))


def restored_enumerators(pipeline: Pipeline, point: RestorePoint) -> dict[VertexId, bytes]:
    """What the split enumerators of a pipeline knew, pickled."""
    found: dict[VertexId, bytes] = {}
    for vertex in pipeline.sources:
        record = point.metadata.operators.get(vertex.chain[0].operator_id)
        if record is not None and record.enumerator is not None:
            found[vertex.id] = record.enumerator
    return found
