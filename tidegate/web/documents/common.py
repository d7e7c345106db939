"""What several documents have in common."""

from __future__ import annotations

from typing import Annotated, Any

from tidegate.checkpoint.statistics import CheckpointRecord
from tidegate.driver.job_handle import JobHandle
from tidegate.graph.job_graph import Vertex
from tidegate.protocol.job_status import JobStatus
from tidegate.stream.elements import FINAL_WATERMARK
from tidegate.web.forms import Form, Id, OneOf

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
JobState = Annotated[str, OneOf(tuple(status.name for status in JobStatus))]
ExecutionState = Annotated[str, OneOf(EXECUTION_STATES)]


class Times(Form):
    """When something began and ended."""

    start_time: int
    end_time: int
    duration: int


class Nothing(Form):
    """An answer that says only that it was done."""


class RefusalDocument(Form):
    """Why there is no other answer."""

    errors: list[str]


class Triggered(Form):
    """Under which id the outcome can be asked for."""

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
    """That of the operator at its head: the same over restarts and rescaling."""
    return vertex.chain[0].operator_id


def slot_name(index: int) -> str:
    return f"slot-{index}"


def task_manager_id(job_id: str, index: int) -> str:
    """A slot is what Flink calls a task manager."""
    return f"{job_id}-{slot_name(index)}"


def state_sizes(record: CheckpointRecord | None) -> dict[tuple[int, int], int]:
    """Bytes of the state of each subtask, by vertex and index, in the last checkpoint."""
    if record is None:
        return {}
    return {(who.vertex, int(who.subtask)): facts.size for who, facts in record.subtasks.items()}


def watermark_lag(watermark: int | None, now: float) -> int | None:
    """Milliseconds behind the clock; None where time has not begun, or has ended."""
    if watermark is None or watermark >= FINAL_WATERMARK:
        return None
    return milliseconds(now) - watermark
