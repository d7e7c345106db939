"""Assembles acknowledged snapshots into a checkpoint, by operator."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.checkpoint.layout import directory_of
from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorRecord
from tidegate.core.ids import JobId, SubtaskId, SubtaskIndex, VertexId
from tidegate.graph.exchanges import exchanges_of
from tidegate.graph.job_graph import ChainedOperator, JobGraph, Vertex
from tidegate.state.pointers import SubtaskSnapshot
from tidegate.state.snapshot.reader import CheckpointLocation
from tidegate.stream.elements import Barrier, BarrierKind


@dataclass(frozen=True)
class CheckpointedJob:
    """The job that takes checkpoints, and where it writes them."""

    job_id: JobId
    graph: JobGraph
    directory: str | None
    """The URL of its directory; None: the driver's memory."""

    @cached_property
    def exchanges(self) -> str:
        return exchanges_of(self.graph)


def assemble(
    job: CheckpointedJob,
    barrier: Barrier,
    snapshots: Mapping[SubtaskId, SubtaskSnapshot],
    enumerators: Mapping[VertexId, bytes],
    finished: Collection[SubtaskId],
    wall: float,
) -> Checkpoint:
    """The acknowledged checkpoint, ready to be published."""
    metadata = CheckpointMetadata(
        job_id=job.job_id,
        job_name=job.graph.name,
        checkpoint_id=barrier.checkpoint_id,
        # A stop without a savepoint, for a change of the plan, is an ordinary checkpoint of the
        # job.
        kind=BarrierKind.CHECKPOINT if barrier.savepoint is None else barrier.kind,
        triggered_at=barrier.triggered_at,
        completed_at=wall,
        operators={
            chained.operator_id: _record(vertex, chained, snapshots, enumerators, finished)
            for vertex in job.graph.vertices
            for chained in vertex.chain
        },
        exchanges=job.exchanges,
    )
    return Checkpoint(metadata, _location(job, barrier))


def _location(job: CheckpointedJob, barrier: Barrier) -> CheckpointLocation | None:
    if barrier.savepoint is not None:
        return CheckpointLocation(barrier.savepoint.directory, barrier.savepoint.name)
    if job.directory is None:
        return None
    return CheckpointLocation(job.directory, directory_of(barrier.checkpoint_id))


def _record(
    vertex: Vertex,
    chained: ChainedOperator,
    snapshots: Mapping[SubtaskId, SubtaskSnapshot],
    enumerators: Mapping[VertexId, bytes],
    finished: Collection[SubtaskId],
) -> OperatorRecord:
    ids = {i: SubtaskId(vertex.id, SubtaskIndex(i)) for i in range(vertex.parallelism)}
    found = {i: snapshots[id] for i, id in ids.items() if id in snapshots}
    is_head = chained is vertex.chain[0]
    return OperatorRecord(
        operator_id=chained.operator_id,
        uid=chained.uid,
        name=chained.name,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        subtasks={
            i: handle
            for i, snapshot in found.items()
            for handle in snapshot.operators
            if handle.operator_id == chained.operator_id
        },
        ended_inputs={
            i: snapshot.ended_inputs
            for i, snapshot in found.items()
            if is_head and snapshot.ended_inputs
        },
        finished=frozenset(i for i, id in ids.items() if id in finished),
        enumerator=enumerators.get(vertex.id) if is_head else None,
    )
