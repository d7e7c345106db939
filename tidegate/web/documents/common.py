"""Common parts of documents."""

from __future__ import annotations

from typing import Annotated, Any

from tidegate.checkpoint.statistics import CheckpointRecord
from tidegate.driver.job_handle import JobHandle
from tidegate.graph.job_graph import Vertex
from tidegate.protocol.job_status import JobStatus
from tidegate.stream.elements import FINAL_WATERMARK
from tidegate.web.forms import Form, Id, OneOf

NEVER = -1
"""Stands for a time that has not come."""
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
JobState = Annotated[str, OneOf(tuple(status.name for status in JobStatus))]
ExecutionState = Annotated[str, OneOf(EXECUTION_STATES)]


class Times(Form):
    """When something began and ended."""

    start_time: int
    end_time: int
    duration: int


class Nothing(Form):
    """An empty answer: the request was carried out."""


class RefusalDocument(Form):
    """Why a request is refused."""

    errors: list[str]


class Triggered(Form):
    """The id under which to query the outcome."""

    request_id: Id


def milliseconds(seconds: float | None) -> int:
    return NEVER if seconds is None else int(1000 * seconds)


def times_of(job: JobHandle, now: float) -> dict[str, Any]:
    start, end = job.chronicle.started_at, job.chronicle.ended_at
    return {
        "start_time": milliseconds(start),
        "end_time": milliseconds(end),
        "duration": milliseconds((end or now) - start),
    }


def vertex_id(vertex: Vertex) -> str:
    """The id of its first operator: stable across restarts and rescaling."""
    return vertex.chain[0].operator_id


def slot_name(index: int) -> str:
    return f"slot-{index}"


def task_manager_id(job_id: str, index: int) -> str:
    """The id of a slot, which is what Flink calls a task manager."""
    return f"{job_id}-{slot_name(index)}"


def state_sizes(record: CheckpointRecord | None) -> dict[tuple[int, int], int]:
    """The state size of each subtask in the last checkpoint, by vertex and index, in bytes."""
    if record is None:
        return {}
    return {(who.vertex, int(who.subtask)): facts.size for who, facts in record.subtasks.items()}


def watermark_lag(watermark: int | None, now: float) -> int | None:
    """Milliseconds behind the clock; None before the first and after the final watermark."""
    if watermark is None or watermark >= FINAL_WATERMARK:
        return None
    return milliseconds(now) - watermark
