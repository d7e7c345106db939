"""Jobs as plain data, for tests of the protocol: no operators, and snapshots that hold anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.checkpoint.statistics import SubtaskStatistics
from tidegate.core.ids import SubtaskId
from tidegate.graph.job_graph import ChainedOperator, JobGraph, Vertex
from tidegate.protocol.assembly import CheckpointedJob
from tidegate.protocol.messages import CheckpointAcknowledged
from tidegate.state.pointers import OperatorHandle, SubtaskSnapshot


def played_job(
    parallelism: Sequence[int], sources: Sequence[int] = (0,), pipelines: Sequence[int] = ()
) -> CheckpointedJob:
    """A vertex of one operator for each number given."""
    vertices = [
        Vertex(
            id=v,
            pipeline=pipelines[v] if pipelines else 0,
            level=v,
            parallelism=width,
            max_parallelism=128,
            chain=(ChainedOperator(operator_id=f"op-{v}", name=f"v{v}", uid=None, operator=None),),
            source=object() if v in sources else None,
        )
        for v, width in enumerate(parallelism)
    ]
    return CheckpointedJob("job", JobGraph("played", tuple(vertices), ()), None)


def snapshot(subtask: SubtaskId, state: Any) -> SubtaskSnapshot:
    """What a subtask stored; `states_of` finds it again in the checkpoint."""
    handle = OperatorHandle(operator_id=f"op-{subtask.vertex}", source_splits=(state,))
    return SubtaskSnapshot(operators=(handle,))


def state_in(snapshot: SubtaskSnapshot) -> Any:
    return snapshot.operators[0].source_splits[0]


def states_of(checkpoint: Checkpoint) -> dict[SubtaskId, Any]:
    return {
        SubtaskId(int(id.removeprefix("op-")), subtask): handle.source_splits[0]
        for id, record in checkpoint.metadata.operators.items()
        for subtask, handle in record.subtasks.items()
    }


def finished_in(checkpoint: Checkpoint) -> set[SubtaskId]:
    return {
        SubtaskId(int(id.removeprefix("op-")), subtask)
        for id, record in checkpoint.metadata.operators.items()
        for subtask in record.finished
    }


def acknowledgement(
    number: int, subtask: SubtaskId, state: Any, *, attempt: int, is_finished: bool = False
) -> CheckpointAcknowledged:
    return CheckpointAcknowledged(
        checkpoint_id=number,
        subtask=subtask,
        attempt=attempt,
        snapshot=snapshot(subtask, state),
        is_finished=is_finished,
        statistics=SubtaskStatistics(),
    )
