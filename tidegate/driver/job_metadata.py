"""Completed checkpoints as the metadata of their job, and back. Pure."""

from __future__ import annotations

from tidegate.checkpoint.metadata import CheckpointMetadata
from tidegate.core.ids import JobId
from tidegate.driver.store_thread import Completed
from tidegate.graph.exchanges import exchanges_of
from tidegate.graph.job_graph import JobGraph
from tidegate.protocol.assembly import OperatorFacts, metadata_of
from tidegate.protocol.completed import CompletedCheckpoint


def as_metadata(completed: Completed, job_id: JobId, graph: JobGraph) -> CheckpointMetadata:
    return metadata_of(
        completed,
        job_id=job_id,
        job_name=graph.name,
        operators=[
            OperatorFacts(
                vertex=v.id,
                operator_id=chained.operator_id,
                uid=chained.uid,
                name=chained.name,
                parallelism=v.parallelism,
                max_parallelism=v.max_parallelism,
                is_head=chained is v.chain[0],
            )
            for v in graph.vertices
            for chained in v.chain
        ],
        exchanges=exchanges_of(graph),
    )


def as_completed(metadata: CheckpointMetadata) -> Completed:
    """A checkpoint that was found in the store, as far as the coordinator wants to know it."""
    return CompletedCheckpoint(
        checkpoint_id=metadata.checkpoint_id,
        kind=metadata.kind,
        triggered_at=metadata.triggered_at,
        completed_at=metadata.completed_at,
        snapshots={},
        enumerators={},
        finished=frozenset(),
        size=0,
    )
