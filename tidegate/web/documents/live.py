"""Live data of a job for pages."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated

from tidegate.checkpoint.statistics import CheckpointHistory, CheckpointRecord
from tidegate.core.errors import TidegateError, UserFunctionError
from tidegate.driver.job_handle import JobHandle
from tidegate.driver.progress import VertexProgress
from tidegate.graph.guarantees import end_to_end
from tidegate.protocol.job_status import JobStatus
from tidegate.web.documents.checkpoints import TYPES
from tidegate.web.documents.common import (
    ExecutionState,
    JobState,
    Times,
    milliseconds,
    state_sizes,
    times_of,
    vertex_id,
    watermark_lag,
)
from tidegate.web.documents.jobs import ship_strategy
from tidegate.web.documents.orders import SnapshotProgress
from tidegate.web.documents.vertices import state_of
from tidegate.web.forms import Form, Id
from tidegate.web.live.history import Points, Series
from tidegate.web.live.rates import Counts, Rates, VertexRates

Share = Annotated[float | None, "Of its time, from 0 to 1; null: not known yet."]


class GuaranteeDocument(Form):
    """How often a record arrives at a sink."""

    sink: str
    guarantee: str
    why: str


class LastCheckpoint(Form):
    """The last checkpoint that completed."""

    id: int
    kind: str
    completed: int
    duration: int
    size: int
    path: str | None


class LastFailedCheckpoint(Form):
    """The last checkpoint that failed."""

    id: int
    at: int
    message: str | None


class LiveCheckpoints(Form):
    """A summary of the checkpoints of a job."""

    completed: int
    failed: int
    in_progress: int
    last: LastCheckpoint | None
    last_failure: LastFailedCheckpoint | None


class LastFailure(Form):
    """A summary of the last failure of a job."""

    at: int
    message: str
    restarted: bool


class LiveOperation(Form):
    """An operation in progress."""

    id: str
    kind: str
    begun: int
    progress: SnapshotProgress | None


class LiveVertex(Form):
    """The current state of a vertex."""

    id: Id
    name: str
    status: ExecutionState
    parallelism: int
    attempt: int
    records_in: int
    records_out: int
    records_in_per_second: float | None
    records_out_per_second: float | None
    bytes_out_per_second: float | None
    busy: Share
    back_pressured: Share
    idle: Share
    busy_max: Annotated[float | None, "That of the busiest subtask."]
    skew: Annotated[float, "0: all subtasks receive the same amount; 1: one receives everything."]
    watermark: int | None
    watermark_lag: int | None
    idle_channels: int
    pending: int | None
    state_size: int | None
    skipped: Annotated[int, "Records, since the job started."]


class LiveEdge(Form):
    """The current state of an edge."""

    id: int
    source: Id
    target: Id
    ship_strategy: str
    side_output: str | None
    records: int
    bytes: int
    records_per_second: float | None
    bytes_per_second: float | None


class LiveJob(Times):
    """The current state of a job."""

    jid: Id
    name: str
    state: JobState
    now: int
    uptime: int
    restarts: int
    restart: str | None
    started: bool
    records_in: int
    records_out: int
    records_in_per_second: float | None
    records_out_per_second: float | None
    lag: int | None
    records_to_repeat: int
    watermark_lag: int | None
    steps: int
    step_duration: int
    state_size: int | None
    memory: Annotated[int | None, "Bytes of all slots together."]
    guarantees: list[GuaranteeDocument]
    checkpoints: LiveCheckpoints
    failure: LastFailure | None
    operations: list[LiveOperation]
    vertices: list[LiveVertex]
    edges: list[LiveEdge]


class Charts(Form):
    """Series of numbers, with a value or null for every time."""

    resolution: Annotated[int, "Seconds between two points."]
    times: Annotated[list[float], "Seconds since the epoch."]
    job: dict[str, list[float | None]]
    vertices: dict[str, dict[str, list[float | None]]]


def live_job(
    job: JobHandle,
    counts: Counts,
    rates: Rates | None,
    operations: list[LiveOperation],
) -> LiveJob:
    now, progress = time.time(), job.progress()
    status, chronicle = job.status(), job.chronicle
    last = job.checkpoints.latest_completed
    sizes = state_sizes(last)
    vertices = [_vertex(job, vertex, rates, sizes, now) for vertex in counts.vertices.values()]
    running_since = chronicle.entered().get(JobStatus.RUNNING)
    is_up = status is JobStatus.RUNNING and running_since is not None
    failure = chronicle.failures[0] if chronicle.failures else None
    lags = [each.watermark_lag for each in vertices if each.watermark_lag is not None]
    memory = [each.memory for each in job.processes().values() if each.memory is not None]
    return LiveJob(
        jid=job.job_id,
        name=job.name,
        state=status.name,
        now=milliseconds(now),
        uptime=milliseconds(now - (running_since or now)) if is_up else 0,
        restarts=chronicle.restarts,
        restart=progress.restart,
        started=job.has_started,
        records_in=progress.records_in,
        records_out=progress.records_out,
        records_in_per_second=None if rates is None else rates.records_in,
        records_out_per_second=None if rates is None else rates.records_out,
        lag=progress.lag,
        records_to_repeat=progress.records_to_repeat,
        watermark_lag=max(lags, default=None),
        steps=progress.steps,
        step_duration=milliseconds(progress.step_seconds),
        state_size=sum(sizes.values()) if sizes else None,
        memory=sum(memory) if memory else None,
        guarantees=[
            GuaranteeDocument(sink=each.sink, guarantee=each.guarantee.value, why=each.why)
            for each in end_to_end(job.graph, job.settings.checkpointing)
        ],
        checkpoints=_checkpoints(job.checkpoints, last),
        failure=None
        if failure is None
        else LastFailure(
            at=milliseconds(failure.at),
            message=headline(failure.cause),
            restarted=not failure.is_final,
        ),
        operations=operations,
        vertices=vertices,
        edges=_edges(job, counts, rates),
        **times_of(job, now),
    )


def headline(cause: TidegateError) -> str:
    """A one-line description of a failure."""
    if isinstance(cause, UserFunctionError):
        return cause.cause
    return str(cause).strip().partition("\n")[0]


def _vertex(
    job: JobHandle,
    progress: VertexProgress,
    rates: Rates | None,
    sizes: Mapping[tuple[int, int], int],
    now: float,
) -> LiveVertex:
    vertex, subtasks = progress.vertex, progress.subtasks
    found: VertexRates | None = None if rates is None else rates.vertices.get(vertex.id)
    sent = [
        rates.edges[edge.id][1]
        for edge in job.graph.edges_from(vertex.id)
        if rates is not None and edge.id in rates.edges
    ]
    pending = [each.pending for each in subtasks if each.pending is not None]
    own = [size for (id, _), size in sizes.items() if id == vertex.id]
    return LiveVertex(
        id=vertex_id(vertex),
        name=vertex.name,
        status=state_of(progress),
        parallelism=vertex.parallelism,
        attempt=max(0, progress.attempt - 1),
        records_in=sum(each.records_in for each in subtasks),
        records_out=sum(each.records_out for each in subtasks),
        records_in_per_second=None if found is None else found.records_in,
        records_out_per_second=None if found is None else found.records_out,
        bytes_out_per_second=None if found is None else sum(sent),
        busy=None if found is None else found.busy,
        back_pressured=None if found is None else found.back_pressured,
        idle=None if found is None else 1 - found.busy - found.back_pressured,
        busy_max=None if found is None else found.busiest,
        skew=0.0 if found is None else found.skew,
        watermark=progress.watermark,
        watermark_lag=watermark_lag(progress.watermark, now),
        idle_channels=sum(each.idle_channels for each in subtasks),
        pending=sum(pending) if pending else None,
        state_size=sum(own) if own else None,
        skipped=job.chronicle.skipped_records.get(vertex.id, 0),
    )


def _edges(job: JobHandle, counts: Counts, rates: Rates | None) -> list[LiveEdge]:
    graph = job.graph
    found: list[LiveEdge] = []
    for edge in graph.edges:
        records, size = counts.traffic.get(edge.id, (0, 0))
        speeds = None if rates is None else rates.edges.get(edge.id)
        found.append(
            LiveEdge(
                id=edge.id,
                source=vertex_id(graph.vertices[edge.source]),
                target=vertex_id(graph.vertices[edge.target]),
                ship_strategy=ship_strategy(edge),
                side_output=edge.side_tag,
                records=records,
                bytes=size,
                records_per_second=None if speeds is None else speeds[0],
                bytes_per_second=None if speeds is None else speeds[1],
            )
        )
    return found


def _checkpoints(history: CheckpointHistory, last: CheckpointRecord | None) -> LiveCheckpoints:
    failed = history.latest_failed
    return LiveCheckpoints(
        completed=history.counts.completed,
        failed=history.counts.failed,
        in_progress=history.counts.in_progress,
        last=None
        if last is None
        else LastCheckpoint(
            id=last.checkpoint_id,
            kind=TYPES[last.kind],
            completed=milliseconds(last.ended_at),
            duration=milliseconds(last.duration),
            size=last.size,
            path=last.path,
        ),
        last_failure=None
        if failed is None
        else LastFailedCheckpoint(
            id=failed.checkpoint_id, at=milliseconds(failed.ended_at), message=failed.failure
        ),
    )


def chart_values(live: LiveJob) -> dict[Series, float | None]:
    """The values kept for charts."""
    busy = [vertex.busy for vertex in live.vertices if vertex.busy is not None]
    values: dict[Series, float | None] = {
        ("", "records-in-per-second"): live.records_in_per_second,
        ("", "records-out-per-second"): live.records_out_per_second,
        ("", "lag"): live.lag,
        ("", "watermark-lag"): live.watermark_lag,
        ("", "step-duration"): None if live.step_duration < 0 else live.step_duration,
        ("", "memory"): live.memory,
        ("", "state-size"): live.state_size,
        ("", "busy"): max(busy, default=None),
        ("", "restarts"): live.restarts,
    }
    for vertex in live.vertices:
        values[vertex.id, "records-in-per-second"] = vertex.records_in_per_second
        values[vertex.id, "records-out-per-second"] = vertex.records_out_per_second
        values[vertex.id, "busy"] = vertex.busy
        values[vertex.id, "back-pressured"] = vertex.back_pressured
    return values


def charts(points: Points) -> Charts:
    job: dict[str, list[float | None]] = {}
    vertices: dict[str, dict[str, list[float | None]]] = {}
    for (vertex, name), values in points.series.items():
        (vertices.setdefault(vertex, {}) if vertex else job)[name] = values
    return Charts(resolution=points.resolution, times=points.times, job=job, vertices=vertices)
