"""Jobs as JSON documents, in Flink's words."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tidegate import __version__
from tidegate.core.errors import TidegateError, UserFunctionError
from tidegate.driver.checkpoints.restoring import RestoreProgress
from tidegate.driver.chronicle import FailureRecord
from tidegate.driver.job_handle import JobHandle
from tidegate.driver.progress import SubtaskProgress, VertexProgress
from tidegate.graph.job_graph import Edge, JobGraph, Vertex
from tidegate.protocol.job_status import JobStatus
from tidegate.protocol.region import RegionState

NEVER = -1
"""In place of a time that has not come."""
EXECUTION_STATES = (
    "CREATED",
    "SCHEDULED",
    "DEPLOYING",
    "INITIALIZING",
    "RUNNING",
    "FINISHED",
    "CANCELING",
    "CANCELED",
    "FAILED",
    "RECONCILING",
)


def milliseconds(seconds: float | None) -> int:
    return NEVER if seconds is None else int(1000 * seconds)


def vertex_id(vertex: Vertex) -> str:
    """That of the operator at its head: the same over restarts and rescaling."""
    return vertex.chain[0].operator_id


# --- the driver ---------------------------------------------------------------------------------


def overview(jobs: Sequence[JobHandle]) -> dict[str, Any]:
    states = Counter(job.status() for job in jobs)
    ended = sum(states[state] for state in JobStatus if state.is_terminal)
    slots = sum(job.graph.slots for job in jobs if not job.status().is_terminal)
    return {
        "taskmanagers": slots,
        "slots-total": slots,
        "slots-available": 0,
        "jobs-running": len(jobs) - ended,
        "jobs-finished": states[JobStatus.FINISHED],
        "jobs-cancelled": states[JobStatus.CANCELED],
        "jobs-failed": states[JobStatus.FAILED],
        "flink-version": __version__,
        "flink-commit": "tidegate",
    }


def driver_config() -> dict[str, Any]:
    zone = time.localtime()
    return {
        "refresh-interval": 3000,
        "timezone-name": zone.tm_zone,
        "timezone-offset": 1000 * zone.tm_gmtoff,
        "flink-version": __version__,
        "flink-revision": "tidegate",
        "features": {"web-submit": False, "web-cancel": True, "web-history": False},
    }


def _times(job: JobHandle, now: float) -> dict[str, int]:
    start, end = job.chronicle.started_at, job.chronicle.ended_at
    return {
        "start-time": milliseconds(start),
        "end-time": milliseconds(end),
        "duration": milliseconds((end or now) - start),
    }


def job_states(jobs: Iterable[JobHandle]) -> dict[str, Any]:
    return {"jobs": [{"id": job.job_id, "status": job.status().name} for job in jobs]}


def jobs_overview(jobs: Iterable[JobHandle]) -> dict[str, Any]:
    return {"jobs": [_job_overview(job) for job in jobs]}


def _job_overview(job: JobHandle) -> dict[str, Any]:
    now, chronicle = time.time(), job.chronicle
    counts = _counts(state for vertex in job.vertices() for state in _states(vertex))
    return {
        "jid": job.job_id,
        "name": job.name,
        "state": job.status().name,
        **_times(job, now),
        "last-modification": milliseconds(max(chronicle.entered().values())),
        "tasks": {
            "total": sum(counts.values()),
            **{state.lower(): count for state, count in counts.items()},
        },
    }


# --- one job ------------------------------------------------------------------------------------


def job_details(job: JobHandle) -> dict[str, Any]:
    now, chronicle, progress = time.time(), job.chronicle, job.progress()
    vertices = [_vertex_overview(job, vertex, now) for vertex in job.vertices()]
    entered = chronicle.entered()
    return {
        "jid": job.job_id,
        "name": job.name,
        "isStoppable": True,
        "state": job.status().name,
        "job-type": "STREAMING",
        **_times(job, now),
        "maxParallelism": max(vertex.max_parallelism for vertex in job.graph.vertices),
        "now": milliseconds(now),
        "timestamps": {
            status.name: milliseconds(entered[status]) if status in entered else 0
            for status in JobStatus
        },
        "vertices": vertices,
        "status-counts": _counts(vertex["status"] for vertex in vertices),
        "plan": plan(job)["plan"],
        "tidegate": {
            "started": job.has_started,
            "restart": progress.restart,
            "records-in": progress.records_in,
            "records-out": progress.records_out,
            "lag": progress.lag,
            "records-to-repeat": progress.records_to_repeat,
            "restore": None if progress.restore is None else _restore(progress.restore),
            "steps": progress.steps,
            "step-duration": milliseconds(progress.step_seconds),
            "restarts": chronicle.restarts,
        },
    }


def _restore(progress: RestoreProgress) -> dict[str, Any]:
    return {
        "checkpoint-id": progress.checkpoint_id,
        "bytes": progress.size,
        "restored-bytes": progress.read,
        "complete": progress.is_complete,
    }


def _vertex_overview(job: JobHandle, progress: VertexProgress, now: float) -> dict[str, Any]:
    vertex = progress.vertex
    return {
        "id": vertex_id(vertex),
        "name": vertex.name,
        "maxParallelism": vertex.max_parallelism,
        "parallelism": vertex.parallelism,
        "status": _vertex_state(progress),
        **_times(job, now),
        "tasks": _counts(_states(progress)),
        "metrics": _io_metrics(progress.subtasks),
        "tidegate": {
            "watermark": progress.watermark,
            "idle-channels": sum(subtask.idle_channels for subtask in progress.subtasks),
        },
    }


def vertex_details(job: JobHandle, progress: VertexProgress) -> dict[str, Any]:
    now, vertex = time.time(), progress.vertex
    return {
        "id": vertex_id(vertex),
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "maxParallelism": vertex.max_parallelism,
        "now": milliseconds(now),
        "subtasks": [
            {
                "subtask": index,
                "status": state,
                "attempt": max(0, progress.attempt - 1),
                "endpoint": f"slot-{index}",
                "host": f"slot-{index}",
                "taskmanager-id": f"slot-{index}",
                "start_time": milliseconds(job.chronicle.started_at),
                **_times(job, now),
                "metrics": _io_metrics([subtask]),
            }
            for index, (subtask, state) in enumerate(
                zip(progress.subtasks, _states(progress), strict=True)
            )
        ],
    }


def watermarks(progress: VertexProgress) -> list[dict[str, str]]:
    """In the form of Flink's metrics."""
    return [
        {"id": f"{index}.currentInputWatermark", "value": str(subtask.watermark)}
        for index, subtask in enumerate(progress.subtasks)
        if subtask.watermark is not None
    ]


def vertex_metrics(progress: VertexProgress, wanted: str | None) -> list[dict[str, str]]:
    """Their names, or with names, separated by commas, those with their values."""
    values: dict[str, float] = {}
    for index, subtask in enumerate(progress.subtasks):
        values[f"{index}.numRecordsIn"] = subtask.records_in
        values[f"{index}.numRecordsOut"] = subtask.records_out
        if subtask.pending is not None:
            values[f"{index}.pendingRecords"] = subtask.pending
        if subtask.watermark is not None:
            values[f"{index}.currentInputWatermark"] = subtask.watermark
        for operator, readings in subtask.user_metrics.items():
            for name, value in readings.items():
                values[f"{index}.{operator}.{name}"] = value
    if wanted is None:
        return [{"id": name} for name in values]
    asked = [name for name in wanted.split(",") if name in values]
    return [{"id": name, "value": f"{values[name]:.15g}"} for name in asked]


def accumulators(job: JobHandle) -> dict[str, Any]:
    found = job.accumulators()
    return {
        "job-accumulators": [],
        "user-task-accumulators": [
            {"name": name, "type": type(value).__name__, "value": str(value)}
            for name, value in found.items()
        ],
        "serialized-user-task-accumulators": {},
    }


def plan(job: JobHandle) -> dict[str, Any]:
    graph = job.graph
    return {
        "plan": {
            "jid": job.job_id,
            "name": job.name,
            "type": "STREAMING",
            "nodes": [_node(graph, vertex) for vertex in graph.vertices],
        }
    }


def _node(graph: JobGraph, vertex: Vertex) -> dict[str, Any]:
    return {
        "id": vertex_id(vertex),
        "parallelism": vertex.parallelism,
        "operator": "",
        "operator_strategy": "",
        "description": vertex.name,
        "optimizer_properties": {},
        "inputs": [
            {
                "num": number,
                "id": vertex_id(graph.vertices[edge.source]),
                "ship_strategy": _ship_strategy(edge),
                "exchange": "pipelined",
            }
            for number, edge in enumerate(graph.edges_into(vertex.id))
        ],
    }


def _ship_strategy(edge: Edge) -> str:
    name = type(edge.partitioning).__name__
    return "HASH" if name == "ByKeyGroup" else name.upper()


# --- states -------------------------------------------------------------------------------------


_EXECUTION_STATE = {
    RegionState.CREATED: "CREATED",
    RegionState.DEPLOYING: "DEPLOYING",
    RegionState.RUNNING: "RUNNING",
    RegionState.FAILING: "FAILED",
    RegionState.RESTARTING: "SCHEDULED",
    RegionState.CANCELLING: "CANCELING",
    RegionState.FINISHED: "FINISHED",
    RegionState.CANCELED: "CANCELED",
    RegionState.FAILED: "FAILED",
}
"""Of the subtasks of a region."""


def _states(progress: VertexProgress) -> list[str]:
    state = _EXECUTION_STATE[progress.state]
    return [
        "FINISHED" if state == "RUNNING" and subtask.is_finished else state
        for subtask in progress.subtasks
    ]


def _vertex_state(progress: VertexProgress) -> str:
    states = set(_states(progress))
    return states.pop() if len(states) == 1 else _EXECUTION_STATE[progress.state]


def _counts(states: Iterable[str]) -> dict[str, int]:
    found = Counter(states)
    return {state: found[state] for state in EXECUTION_STATES}


def _io_metrics(subtasks: Sequence[SubtaskProgress]) -> dict[str, Any]:
    return {
        "read-bytes": 0,
        "read-bytes-complete": False,
        "write-bytes": 0,
        "write-bytes-complete": False,
        "read-records": sum(subtask.records_in for subtask in subtasks),
        "read-records-complete": True,
        "write-records": sum(subtask.records_out for subtask in subtasks),
        "write-records-complete": True,
    }


# --- failures -----------------------------------------------------------------------------------


def exceptions(job: JobHandle, limit: int) -> dict[str, Any]:
    chronicle = job.chronicle
    shown = chronicle.failures[:limit]
    latest = chronicle.failures[0] if chronicle.failures else None
    truncated = chronicle.is_truncated or len(shown) < len(chronicle.failures)
    return {
        "root-exception": None if latest is None else _trace(latest.cause),
        "timestamp": None if latest is None else milliseconds(latest.at),
        "all-exceptions": [],
        "truncated": truncated,
        "exceptionHistory": {
            "entries": [_failure(job, record) for record in shown],
            "truncated": truncated,
        },
    }


def _failure(job: JobHandle, record: FailureRecord) -> dict[str, Any]:
    slot = None if record.slot is None else f"slot-{record.slot}"
    return {
        "exceptionName": type(record.cause).__name__,
        "stacktrace": _trace(record.cause),
        "timestamp": milliseconds(record.at),
        "failureLabels": {},
        "taskName": _task_name(job, record),
        "endpoint": slot,
        "location": slot,
        "taskManagerId": slot,
        "concurrentExceptions": [],
        "tidegate": {"restarted": not record.is_final},
    }


def _trace(cause: TidegateError) -> str:
    return f"{type(cause).__name__}: {cause}"


def _task_name(job: JobHandle, record: FailureRecord) -> str | None:
    if isinstance(record.cause, UserFunctionError):
        return f"{record.cause.args[0]} {record.cause.args[2]}"
    names = [v.name for v in job.graph.vertices if v.pipeline in record.pipelines]
    return ", ".join(names) or None
