"""The vertices of a job and their subtasks, in Flink's words."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence

from tidegate.driver.job_handle import JobHandle
from tidegate.driver.progress import SubtaskProgress, VertexProgress
from tidegate.protocol.region import RegionState
from tidegate.web.documents.common import (
    EXECUTION_STATES,
    ExecutionState,
    Times,
    milliseconds,
    slot_name,
    times_of,
    vertex_id,
)
from tidegate.web.forms import ABSENT, Absent, Form, Id, named


class IoMetrics(Form):
    """What subtasks have read and written."""

    read_bytes: int
    read_bytes_complete: bool
    write_bytes: int
    write_bytes_complete: bool
    read_records: int
    read_records_complete: bool
    write_records: int
    write_records_complete: bool


class SubtaskDocument(Times):
    """One subtask of a vertex."""

    subtask: int
    status: ExecutionState
    attempt: int
    endpoint: str
    host: str
    taskmanager_id: str
    started: int = named("start_time")
    metrics: IoMetrics


class VertexDetails(Form):
    """A vertex with its subtasks."""

    id: Id
    name: str
    parallelism: int
    max_parallelism: int = named("maxParallelism")
    now: int
    subtasks: list[SubtaskDocument]


class MetricDocument(Form):
    """A metric, with its value if that was asked for."""

    id: str
    value: str | Absent = ABSENT


def vertex_details(job: JobHandle, progress: VertexProgress) -> VertexDetails:
    now, vertex = time.time(), progress.vertex
    return VertexDetails(
        id=vertex_id(vertex),
        name=vertex.name,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        now=milliseconds(now),
        subtasks=[
            SubtaskDocument(
                subtask=index,
                status=state,
                attempt=max(0, progress.attempt - 1),
                endpoint=slot_name(index),
                host=slot_name(index),
                taskmanager_id=slot_name(index),
                started=milliseconds(job.chronicle.started_at),
                metrics=io_metrics([subtask]),
                **times_of(job, now),
            )
            for index, (subtask, state) in enumerate(
                zip(progress.subtasks, states_of(progress), strict=True)
            )
        ],
    )


def watermarks(progress: VertexProgress) -> list[MetricDocument]:
    """In the form of Flink's metrics."""
    return [
        MetricDocument(id=f"{index}.currentInputWatermark", value=str(subtask.watermark))
        for index, subtask in enumerate(progress.subtasks)
        if subtask.watermark is not None
    ]


def metric_documents(values: dict[str, float], wanted: str | None) -> list[MetricDocument]:
    """Their names, or with names, separated by commas, those with their values."""
    if wanted is None:
        return [MetricDocument(id=name) for name in values]
    asked = [name for name in wanted.split(",") if name in values]
    return [MetricDocument(id=name, value=f"{values[name]:.15g}") for name in asked]


def vertex_metrics(progress: VertexProgress) -> dict[str, float]:
    """All metrics of a vertex by name, those of functions too."""
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
    return values


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


def states_of(progress: VertexProgress) -> list[str]:
    """Of the subtasks of a vertex."""
    state = _EXECUTION_STATE[progress.state]
    return [
        "FINISHED" if state == "RUNNING" and subtask.is_finished else state
        for subtask in progress.subtasks
    ]


def state_of(progress: VertexProgress) -> str:
    """Of a vertex."""
    states = set(states_of(progress))
    return states.pop() if len(states) == 1 else _EXECUTION_STATE[progress.state]


def counts_of(states: Iterable[str]) -> dict[str, int]:
    """How many there are of each state."""
    found = Counter(states)
    return {state: found[state] for state in EXECUTION_STATES}


def io_metrics(subtasks: Sequence[SubtaskProgress]) -> IoMetrics:
    return IoMetrics(
        read_bytes=0,
        read_bytes_complete=False,
        write_bytes=0,
        write_bytes_complete=False,
        read_records=sum(subtask.records_in for subtask in subtasks),
        read_records_complete=True,
        write_records=sum(subtask.records_out for subtask in subtasks),
        write_records_complete=True,
    )
