"""A completed checkpoint, by subtask → the form in which it is published, by operator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.checkpoint.metadata import FORMAT_VERSION, CheckpointMetadata, OperatorRecord
from tidegate.core.ids import JobId, OperatorId, SubtaskId, SubtaskIndex, VertexId
from tidegate.protocol.completed import CompletedCheckpoint, kept_as
from tidegate.state.snapshot import SubtaskSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFacts:
    """What a checkpoint has to know of an operator beside its state."""

    vertex: VertexId
    operator_id: OperatorId
    uid: str | None
    name: str
    parallelism: int
    max_parallelism: int
    is_head: bool
    """Whether it is the first of its vertex, to which enumerators and ended inputs belong."""


def metadata_of(
    completed: CompletedCheckpoint[SubtaskSnapshot],
    *,
    job_id: JobId,
    job_name: str,
    operators: Iterable[OperatorFacts],
    exchanges: str = "",
) -> CheckpointMetadata:
    return CheckpointMetadata(
        format_version=FORMAT_VERSION,
        job_id=job_id,
        job_name=job_name,
        checkpoint_id=completed.checkpoint_id,
        kind=kept_as(completed.kind, completed.savepoint),
        triggered_at=completed.triggered_at,
        completed_at=completed.completed_at,
        operators={facts.operator_id: _record(completed, facts) for facts in operators},
        exchanges=exchanges,
    )


def _record(
    completed: CompletedCheckpoint[SubtaskSnapshot], facts: OperatorFacts
) -> OperatorRecord:
    ids = {i: SubtaskId(facts.vertex, SubtaskIndex(i)) for i in range(facts.parallelism)}
    snapshots = {i: s for i, id in ids.items() if (s := completed.snapshots.get(id)) is not None}
    ended = {i: s.ended_inputs for i, s in snapshots.items() if s.ended_inputs}
    return OperatorRecord(
        operator_id=facts.operator_id,
        uid=facts.uid,
        name=facts.name,
        parallelism=facts.parallelism,
        max_parallelism=facts.max_parallelism,
        subtasks={
            i: handle
            for i, snapshot in snapshots.items()
            for handle in snapshot.operators
            if handle.operator_id == facts.operator_id
        },
        ended_inputs=ended if facts.is_head else {},
        finished=frozenset(i for i, id in ids.items() if id in completed.finished),
        enumerator=completed.enumerators.get(facts.vertex) if facts.is_head else None,
    )
