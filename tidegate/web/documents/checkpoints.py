"""The checkpoints of a job, under Flink's names."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from tidegate.checkpoint.checkpoint import NOT_ADDRESSABLE
from tidegate.checkpoint.statistics import (
    CheckpointHistory,
    CheckpointRecord,
    CheckpointStatus,
    RestoreRecord,
    SubtaskStatistics,
)
from tidegate.driver.job_handle import JobHandle
from tidegate.graph.job_graph import Vertex
from tidegate.stream.elements import BarrierKind
from tidegate.web.documents.common import NEVER, milliseconds, vertex_id
from tidegate.web.forms import ABSENT, Absent, Form, OneOf, named, snake

TYPES = {
    BarrierKind.CHECKPOINT: "CHECKPOINT",
    BarrierKind.SAVEPOINT: "SAVEPOINT",
    BarrierKind.STOP: "SYNC_SAVEPOINT",
}
Status = Annotated[str, OneOf(("IN_PROGRESS", "COMPLETED", "FAILED"))]


class Spread(Form):
    """The distribution of a number over subtasks, or over checkpoints."""

    min: int
    max: int
    avg: int
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    p999: float | None


class TaskStatistics(Form, naming=snake):
    """Statistics of some subtasks in a checkpoint."""

    id: int
    status: Status
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int
    processed_data: int = 0
    persisted_data: int = 0
    num_subtasks: int
    num_acknowledged_subtasks: int


class Durations(Form):
    """How long a subtask froze its state, and how long it wrote."""

    sync: int
    asynchronous: int = named("async")


class AlignmentDocument(Form):
    """How long and how much a subtask held back."""

    buffered: int
    processed: int = 0
    persisted: int = 0
    duration: int


class Stages(Form, naming=snake):
    """What took the time of a subtask, under the names that Flink has for it."""

    start_delay: Annotated[int, "Until the first barrier arrived."]
    alignment: AlignmentDocument
    checkpoint: Durations


class CheckpointFacts(Form):
    """What only Tidegate says of a checkpoint."""

    slowest: Annotated[Stages | None, "Of the subtask that acknowledged last."]


class CheckpointDocument(TaskStatistics, naming=snake):
    """One checkpoint."""

    kind: Annotated[str, OneOf(("in_progress", "completed", "failed"))] = named("@class")
    is_savepoint: bool
    trigger_timestamp: int
    checkpoint_type: Annotated[str, OneOf(("CHECKPOINT", "SAVEPOINT", "SYNC_SAVEPOINT"))]
    tasks: dict[str, TaskStatistics]
    external_path: str | Absent = ABSENT
    discarded: bool | Absent = ABSENT
    failure_timestamp: int | Absent = ABSENT
    failure_message: str | Absent | None = ABSENT
    tidegate: CheckpointFacts


class CheckpointCountsDocument(Form, naming=snake):
    """How many checkpoints there have been."""

    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class RestoredCheckpoint(Form, naming=snake):
    """The checkpoint that the job was last restored from."""

    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str | None


class LatestCheckpoints(Form):
    """The latest of each kind."""

    completed: CheckpointDocument | None
    savepoint: CheckpointDocument | None
    failed: CheckpointDocument | None
    restored: RestoredCheckpoint | None


class CheckpointSummary(Form, naming=snake):
    """Statistics over the completed checkpoints in the history."""

    checkpointed_size: Spread
    state_size: Spread
    end_to_end_duration: Spread
    alignment_buffered: Spread
    processed_data: Spread
    persisted_data: Spread


class Checkpoints(Form):
    """All checkpoints of a job."""

    counts: CheckpointCountsDocument
    summary: CheckpointSummary
    latest: LatestCheckpoints
    history: list[CheckpointDocument]


class SubtaskCheckpoint(Form, naming=snake):
    """The part of one subtask; only its number until it has acknowledged."""

    kind: Annotated[str, OneOf(("pending", "completed"))] = named("@class")
    index: int
    status: Annotated[str, OneOf(("pending_or_failed", "completed"))]
    ack_timestamp: int | Absent = ABSENT
    end_to_end_duration: int | Absent = ABSENT
    checkpointed_size: int | Absent = ABSENT
    state_size: int | Absent = ABSENT
    checkpoint: Durations | Absent = ABSENT
    alignment: AlignmentDocument | Absent = ABSENT
    start_delay: int | Absent = ABSENT
    unaligned_checkpoint: bool | Absent = ABSENT
    aborted: bool | Absent = ABSENT


class DurationSpreads(Form):
    """Over the subtasks of a vertex."""

    sync: Spread
    asynchronous: Spread = named("async")


class AlignmentSpreads(Form):
    """Over the subtasks of a vertex."""

    buffered: Spread
    processed: Spread
    persisted: Spread
    duration: Spread


class TaskSpreads(Form, naming=snake):
    """Over the subtasks of a vertex."""

    checkpointed_size: Spread
    state_size: Spread
    end_to_end_duration: Spread
    checkpoint_duration: DurationSpreads
    alignment: AlignmentSpreads
    start_delay: Spread


class CheckpointTask(TaskStatistics):
    """Statistics of the subtasks of a vertex in a checkpoint."""

    summary: TaskSpreads
    subtasks: list[SubtaskCheckpoint]


def statistics(job: JobHandle) -> Checkpoints:
    history = job.checkpoints
    counts = history.counts
    return Checkpoints(
        counts=CheckpointCountsDocument(
            restored=counts.restored,
            total=counts.triggered,
            in_progress=counts.in_progress,
            completed=counts.completed,
            failed=counts.failed,
        ),
        summary=_summary(history),
        latest=LatestCheckpoints(
            completed=_document(history.latest_completed),
            savepoint=_document(history.latest_savepoint),
            failed=_document(history.latest_failed),
            restored=_restored(history.latest_restored),
        ),
        history=[checkpoint_document(record) for record in history.records()],
    )


def checkpoint_document(
    record: CheckpointRecord, vertices: Sequence[Vertex] = ()
) -> CheckpointDocument:
    """One checkpoint, with statistics of these vertices."""
    failed = record.status is CheckpointStatus.FAILED
    completed = record.status is CheckpointStatus.COMPLETED
    return CheckpointDocument(
        kind=record.status.name.lower(),
        is_savepoint=record.kind is not BarrierKind.CHECKPOINT,
        trigger_timestamp=milliseconds(record.triggered_at),
        checkpoint_type=TYPES[record.kind],
        tasks={vertex_id(v): TaskStatistics(**_task(record, v)) for v in vertices},
        external_path=(record.path or NOT_ADDRESSABLE) if completed else ABSENT,
        discarded=record.is_discarded if completed else ABSENT,
        failure_timestamp=milliseconds(record.ended_at) if failed else ABSENT,
        failure_message=record.failure if failed else ABSENT,
        tidegate=CheckpointFacts(slowest=_slowest(record)),
        **_work(record, list(record.subtasks.values()), record.awaited),
    )


def task_details(record: CheckpointRecord, vertex: Vertex) -> CheckpointTask:
    known = _of(record, vertex)
    done = list(known.values())
    zeros = [0 for _ in done]
    return CheckpointTask(
        **_task(record, vertex),
        summary=TaskSpreads(
            checkpointed_size=_spread([each.incremental_size for each in done]),
            state_size=_spread([each.size for each in done]),
            end_to_end_duration=_spread([_duration(record, each) for each in done]),
            checkpoint_duration=DurationSpreads(
                sync=_spread([milliseconds(each.sync) for each in done]),
                asynchronous=_spread([milliseconds(each.asynchronous) for each in done]),
            ),
            alignment=AlignmentSpreads(
                buffered=_spread([each.alignment_bytes for each in done]),
                processed=_spread(zeros),
                persisted=_spread(zeros),
                duration=_spread([milliseconds(each.alignment) for each in done]),
            ),
            start_delay=_spread([milliseconds(each.start_delay) for each in done]),
        ),
        subtasks=[_subtask(record, index, known.get(index)) for index in range(vertex.parallelism)],
    )


def _slowest(record: CheckpointRecord) -> Stages | None:
    done = record.subtasks.values()
    last = max(done, key=lambda each: each.acknowledged_at, default=None)
    return None if last is None else Stages(**_stages(last))


def _stages(facts: SubtaskStatistics) -> dict[str, Any]:
    return {
        "start_delay": milliseconds(facts.start_delay),
        "alignment": AlignmentDocument(
            buffered=facts.alignment_bytes, duration=milliseconds(facts.alignment)
        ),
        "checkpoint": Durations(
            sync=milliseconds(facts.sync), asynchronous=milliseconds(facts.asynchronous)
        ),
    }


def _document(record: CheckpointRecord | None) -> CheckpointDocument | None:
    return None if record is None else checkpoint_document(record)


def _restored(record: RestoreRecord | None) -> RestoredCheckpoint | None:
    if record is None:
        return None
    return RestoredCheckpoint(
        id=record.checkpoint_id,
        restore_timestamp=milliseconds(record.restored_at),
        is_savepoint=record.kind is not BarrierKind.CHECKPOINT,
        external_path=record.path,
    )


def _summary(history: CheckpointHistory) -> CheckpointSummary:
    done = [r for r in history.records() if r.status is CheckpointStatus.COMPLETED]

    def over(value: Callable[[CheckpointRecord], int]) -> Spread:
        return _spread([value(record) for record in done])

    return CheckpointSummary(
        checkpointed_size=over(lambda record: record.incremental_size),
        state_size=over(lambda record: record.size),
        end_to_end_duration=over(lambda record: milliseconds(record.duration)),
        alignment_buffered=over(lambda record: record.alignment_bytes),
        processed_data=over(lambda record: 0),
        persisted_data=over(lambda record: 0),
    )


def _work(
    record: CheckpointRecord, done: Sequence[SubtaskStatistics], awaited: int
) -> dict[str, Any]:
    """The fields of `TaskStatistics`."""
    ended = record.ended_at or time.time()
    return {
        "id": record.checkpoint_id,
        "status": record.status.name,
        "latest_ack_timestamp": max(
            (milliseconds(each.acknowledged_at) for each in done), default=NEVER
        ),
        "checkpointed_size": sum(each.incremental_size for each in done),
        "state_size": sum(each.size for each in done),
        "end_to_end_duration": milliseconds(ended - record.triggered_at),
        "alignment_buffered": sum(each.alignment_bytes for each in done),
        "num_subtasks": awaited,
        "num_acknowledged_subtasks": len(done),
    }


def _of(record: CheckpointRecord, vertex: Vertex) -> dict[int, SubtaskStatistics]:
    return {
        int(subtask.subtask): facts
        for subtask, facts in record.subtasks.items()
        if subtask.vertex == vertex.id
    }


def _task(record: CheckpointRecord, vertex: Vertex) -> dict[str, Any]:
    return _work(record, list(_of(record, vertex).values()), vertex.parallelism)


def _subtask(
    record: CheckpointRecord, index: int, facts: SubtaskStatistics | None
) -> SubtaskCheckpoint:
    if facts is None:
        return SubtaskCheckpoint(kind="pending", index=index, status="pending_or_failed")
    return SubtaskCheckpoint(
        kind="completed",
        index=index,
        status="completed",
        ack_timestamp=milliseconds(facts.acknowledged_at),
        end_to_end_duration=_duration(record, facts),
        checkpointed_size=facts.incremental_size,
        state_size=facts.size,
        **_stages(facts),
        unaligned_checkpoint=False,
        aborted=False,
    )


def _duration(record: CheckpointRecord, facts: SubtaskStatistics) -> int:
    return milliseconds(facts.acknowledged_at - record.triggered_at)


def _spread(values: Sequence[int]) -> Spread:
    if not values:
        return Spread(min=0, max=0, avg=0, p50=None, p90=None, p95=None, p99=None, p999=None)
    ranked = sorted(values)

    def quantile(part: float) -> float:
        return float(ranked[max(0, math.ceil(part * len(ranked)) - 1)])

    return Spread(
        min=ranked[0],
        max=ranked[-1],
        avg=sum(ranked) // len(ranked),
        p50=quantile(0.5),
        p90=quantile(0.9),
        p95=quantile(0.95),
        p99=quantile(0.99),
        p999=quantile(0.999),
    )
