"""The checkpoints of a job as JSON documents, in Flink's words."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from tidegate.checkpoint.checkpoint import NOT_ADDRESSABLE
from tidegate.checkpoint.statistics import (
    CheckpointHistory,
    CheckpointRecord,
    CheckpointStatus,
    SubtaskStatistics,
)
from tidegate.core.config import Settings
from tidegate.core.modes import CheckpointStorageType, ExternalizedCheckpointRetention
from tidegate.driver.job_handle import JobHandle
from tidegate.graph.job_graph import Vertex
from tidegate.stream.elements import BarrierKind
from tidegate.web.documents.jobs import NEVER, milliseconds, vertex_id

_NO_CHECKPOINTS = (1 << 63) - 1
"""What Flink gives as the interval of a job without periodic checkpoints."""
_TYPES = {
    BarrierKind.CHECKPOINT: "CHECKPOINT",
    BarrierKind.SAVEPOINT: "SAVEPOINT",
    BarrierKind.STOP: "SYNC_SAVEPOINT",
}
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}


def statistics(job: JobHandle) -> dict[str, Any]:
    """All that is known of the checkpoints of a job."""
    history = job.checkpoints
    counts = history.counts
    return {
        "counts": {
            "restored": counts.restored,
            "total": counts.triggered,
            "in_progress": counts.in_progress,
            "completed": counts.completed,
            "failed": counts.failed,
        },
        "summary": _summary(history),
        "latest": _latest(history),
        "history": [document(record) for record in history.records()],
    }


def document(record: CheckpointRecord) -> dict[str, Any]:
    """One checkpoint, without its subtasks."""
    found: dict[str, Any] = {
        "@class": record.status.name.lower(),
        "id": record.checkpoint_id,
        "status": record.status.name,
        "is_savepoint": record.kind is not BarrierKind.CHECKPOINT,
        "trigger_timestamp": milliseconds(record.triggered_at),
        "checkpoint_type": _TYPES[record.kind],
        "tasks": {},
        **_work(record, list(record.subtasks.values()), record.awaited),
    }
    if record.status is CheckpointStatus.COMPLETED:
        found["external_path"] = record.path or NOT_ADDRESSABLE
        found["discarded"] = record.is_discarded
    elif record.status is CheckpointStatus.FAILED:
        found["failure_timestamp"] = milliseconds(record.ended_at)
        found["failure_message"] = record.failure
    return found


def details(job: JobHandle, record: CheckpointRecord) -> dict[str, Any]:
    """One checkpoint with the work of every vertex."""
    tasks = {vertex_id(v): _task(record, v) for v in job.graph.vertices}
    return {**document(record), "tasks": tasks}


def task_details(record: CheckpointRecord, vertex: Vertex) -> dict[str, Any]:
    """What the subtasks of one vertex did for a checkpoint."""
    known = _of(record, vertex)
    done = list(known.values())
    return {
        **_task(record, vertex),
        "summary": {
            "checkpointed_size": _stats([each.incremental_size for each in done]),
            "state_size": _stats([each.size for each in done]),
            "end_to_end_duration": _stats([_duration(record, each) for each in done]),
            "checkpoint_duration": {
                "sync": _stats([milliseconds(each.sync) for each in done]),
                "async": _stats([milliseconds(each.asynchronous) for each in done]),
            },
            "alignment": {
                "buffered": _stats([each.alignment_bytes for each in done]),
                "processed": _stats([0 for _ in done]),
                "persisted": _stats([0 for _ in done]),
                "duration": _stats([milliseconds(each.alignment) for each in done]),
            },
            "start_delay": _stats([milliseconds(each.start_delay) for each in done]),
        },
        "subtasks": [
            _subtask(record, index, known.get(index)) for index in range(vertex.parallelism)
        ],
    }


def config(settings: Settings) -> dict[str, Any]:
    """When and how checkpoints are taken."""
    chosen = settings.checkpointing
    retention = chosen.retention
    in_files = chosen.directory is not None and (
        chosen.storage is not CheckpointStorageType.JOBMANAGER
    )
    interval = chosen.interval
    return {
        "mode": chosen.mode.name.lower(),
        "interval": _NO_CHECKPOINTS if interval is None else milliseconds(interval.total_seconds()),
        "timeout": milliseconds(chosen.timeout.total_seconds()),
        "min_pause": milliseconds(chosen.min_pause.total_seconds()),
        "max_concurrent": chosen.max_concurrent,
        "externalization": {
            "enabled": retention is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS,
            "delete_on_cancellation": retention
            is not ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION,
        },
        "state_backend": settings.state.backend.value,
        "checkpoint_storage": "filesystem" if in_files else "jobmanager",
        "unaligned_checkpoints": chosen.unaligned,
        "tolerable_failed_checkpoints": chosen.tolerable_failures,
        "aligned_checkpoint_timeout": milliseconds(chosen.aligned_timeout.total_seconds()),
        "checkpoints_after_tasks_finish": chosen.after_tasks_finish,
        "state_changelog_enabled": False,
    }


def _latest(history: CheckpointHistory) -> dict[str, Any]:
    def shown(record: CheckpointRecord | None) -> dict[str, Any] | None:
        return None if record is None else document(record)

    restored = history.latest_restored
    return {
        "completed": shown(history.latest_completed),
        "savepoint": shown(history.latest_savepoint),
        "failed": shown(history.latest_failed),
        "restored": None
        if restored is None
        else {
            "id": restored.checkpoint_id,
            "restore_timestamp": milliseconds(restored.restored_at),
            "is_savepoint": restored.kind is not BarrierKind.CHECKPOINT,
            "external_path": restored.path,
        },
    }


def _summary(history: CheckpointHistory) -> dict[str, Any]:
    """Over the completed checkpoints of the history."""
    done = [r for r in history.records() if r.status is CheckpointStatus.COMPLETED]

    def over(value: Callable[[CheckpointRecord], int]) -> dict[str, Any]:
        return _stats([value(record) for record in done])

    return {
        "checkpointed_size": over(lambda record: record.incremental_size),
        "state_size": over(lambda record: record.size),
        "end_to_end_duration": over(lambda record: milliseconds(record.duration)),
        "alignment_buffered": over(lambda record: record.alignment_bytes),
        "processed_data": over(lambda record: 0),
        "persisted_data": over(lambda record: 0),
    }


def _work(
    record: CheckpointRecord, done: Sequence[SubtaskStatistics], awaited: int
) -> dict[str, Any]:
    ended = record.ended_at or time.time()
    return {
        "latest_ack_timestamp": max(
            (milliseconds(each.acknowledged_at) for each in done), default=NEVER
        ),
        "checkpointed_size": sum(each.incremental_size for each in done),
        "state_size": sum(each.size for each in done),
        "end_to_end_duration": milliseconds(ended - record.triggered_at),
        "alignment_buffered": sum(each.alignment_bytes for each in done),
        "processed_data": 0,
        "persisted_data": 0,
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
    done = list(_of(record, vertex).values())
    return {
        "id": record.checkpoint_id,
        "status": record.status.name,
        **_work(record, done, vertex.parallelism),
    }


def _subtask(
    record: CheckpointRecord, index: int, facts: SubtaskStatistics | None
) -> dict[str, Any]:
    if facts is None:
        return {"@class": "pending", "index": index, "status": "pending_or_failed"}
    return {
        "@class": "completed",
        "index": index,
        "status": "completed",
        "ack_timestamp": milliseconds(facts.acknowledged_at),
        "end_to_end_duration": _duration(record, facts),
        "checkpointed_size": facts.incremental_size,
        "state_size": facts.size,
        "checkpoint": {
            "sync": milliseconds(facts.sync),
            "async": milliseconds(facts.asynchronous),
        },
        "alignment": {
            "buffered": facts.alignment_bytes,
            "processed": 0,
            "persisted": 0,
            "duration": milliseconds(facts.alignment),
        },
        "start_delay": milliseconds(facts.start_delay),
        "unaligned_checkpoint": False,
        "aborted": False,
    }


def _duration(record: CheckpointRecord, facts: SubtaskStatistics) -> int:
    return milliseconds(facts.acknowledged_at - record.triggered_at)


def _stats(values: Sequence[int]) -> dict[str, Any]:
    if not values:
        return {"min": 0, "max": 0, "avg": 0, **dict.fromkeys(_QUANTILES, None)}
    ranked = sorted(values)
    return {
        "min": ranked[0],
        "max": ranked[-1],
        "avg": sum(ranked) // len(ranked),
        **{
            name: float(ranked[max(0, math.ceil(part * len(ranked)) - 1)])
            for name, part in _QUANTILES.items()
        },
    }
