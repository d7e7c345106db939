"""The vertices of a job and their subtasks, under Flink's names."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated

from tidegate.core.ids import SlotIndex
from tidegate.driver.job_handle import JobHandle
from tidegate.driver.progress import SubtaskProgress, VertexProgress
from tidegate.driver.slots import SlotProcess
from tidegate.graph.job_graph import Vertex
from tidegate.protocol.region import RegionState
from tidegate.web.documents.common import (
    EXECUTION_STATES,
    ExecutionState,
    Times,
    milliseconds,
    slot_name,
    state_sizes,
    task_manager_id,
    times_of,
    vertex_id,
    watermark_lag,
)
from tidegate.web.forms import ABSENT, Absent, Form, Id, OneOf, camel, named
from tidegate.web.live.rates import Rates, SpentTime, SubtaskRates


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
    accumulated_backpressured_time: int
    accumulated_idle_time: int
    accumulated_busy_time: int


class SubtaskFacts(Form):
    """Tidegate's own facts about a subtask."""

    records_in_per_second: float | None
    records_out_per_second: float | None
    busy: Annotated[float | None, "The share of time in which its operators ran, from 0 to 1."]
    back_pressured: Annotated[float | None, "The share of time it waited for later operators."]
    idle: float | None
    watermark: int | None
    watermark_lag: int | None
    pending: int | None
    state_size: Annotated[int | None, "Bytes in the last checkpoint."]
    host: str | None
    pid: int | None
    memory: Annotated[int | None, "Bytes of the whole slot."]


class OperatorDocument(Form):
    """One operator of the chain of a vertex."""

    id: Id
    name: str
    uid: str | None
    keyed: bool


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
    tidegate: SubtaskFacts


class VertexDetailsFacts(Form):
    """Tidegate's own facts about a vertex."""

    operators: list[OperatorDocument]


class VertexDetails(Form):
    """A vertex with its subtasks."""

    id: Id
    name: str
    parallelism: int
    max_parallelism: int = named("maxParallelism")
    now: int
    subtasks: list[SubtaskDocument]
    tidegate: VertexDetailsFacts


class MetricDocument(Form):
    """A metric, with its value on request."""

    id: str
    value: str | Absent = ABSENT


class AggregatedMetric(Form):
    """A metric over all subtasks, with its values on request."""

    id: str
    min: float | Absent = ABSENT
    max: float | Absent = ABSENT
    avg: float | Absent = ABSENT
    sum: float | Absent = ABSENT
    skew: Annotated[float | Absent, "The mean deviation, in percent of the mean."] = ABSENT


def vertex_details(job: JobHandle, progress: VertexProgress, rates: Rates | None) -> VertexDetails:
    now, vertex = time.time(), progress.vertex
    found = None if rates is None else rates.vertices.get(vertex.id)
    sizes = state_sizes(job.checkpoints.latest_completed)
    processes = job.processes()
    subtasks = [
        SubtaskDocument(
            subtask=index,
            status=state,
            attempt=max(0, progress.attempt - 1),
            endpoint=slot_name(index),
            host=slot_name(index),
            taskmanager_id=task_manager_id(job.job_id, index),
            started=milliseconds(job.chronicle.started_at),
            metrics=io_metrics([subtask], spent_of(rates, vertex, index)),
            tidegate=_facts(
                subtask,
                None if found is None or index >= len(found.subtasks) else found.subtasks[index],
                sizes.get((vertex.id, index)),
                processes.get(SlotIndex(index)),
                now,
            ),
            **times_of(job, now),
        )
        for index, (subtask, state) in enumerate(
            zip(progress.subtasks, states_of(progress), strict=True)
        )
    ]
    operators = [
        OperatorDocument(id=each.operator_id, name=each.name, uid=each.uid, keyed=each.is_keyed)
        for each in vertex.chain
    ]
    return VertexDetails(
        id=vertex_id(vertex),
        name=vertex.name,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        now=milliseconds(now),
        subtasks=subtasks,
        tidegate=VertexDetailsFacts(operators=operators),
    )


def _facts(
    subtask: SubtaskProgress,
    rates: SubtaskRates | None,
    size: int | None,
    process: SlotProcess | None,
    now: float,
) -> SubtaskFacts:
    return SubtaskFacts(
        records_in_per_second=None if rates is None else rates.records_in,
        records_out_per_second=None if rates is None else rates.records_out,
        busy=None if rates is None else rates.busy,
        back_pressured=None if rates is None else rates.back_pressured,
        idle=None if rates is None else rates.idle,
        watermark=subtask.watermark,
        watermark_lag=watermark_lag(subtask.watermark, now),
        pending=subtask.pending,
        state_size=size,
        host=None if process is None else process.host,
        pid=None if process is None else process.pid,
        memory=None if process is None else process.memory,
    )


def watermarks(progress: VertexProgress) -> list[MetricDocument]:
    """The watermarks in the form of Flink's metrics."""
    return [
        MetricDocument(id=f"{index}.currentInputWatermark", value=str(subtask.watermark))
        for index, subtask in enumerate(progress.subtasks)
        if subtask.watermark is not None
    ]


def metric_documents(values: dict[str, float], wanted: str | None) -> list[MetricDocument]:
    """The names of metrics, or the values of those in `wanted`, separated by commas."""
    if wanted is None:
        return [MetricDocument(id=name) for name in values]
    asked = [name for name in wanted.split(",") if name in values]
    return [MetricDocument(id=name, value=f"{values[name]:.15g}") for name in asked]


def vertex_metrics(progress: VertexProgress, rates: Rates | None) -> dict[str, float]:
    """All metrics of a vertex by the number of the subtask and name."""
    return {
        f"{index}.{name}": value
        for index, metrics in enumerate(subtask_metrics(progress, rates))
        for name, value in metrics.items()
    }


def subtask_metrics(progress: VertexProgress, rates: Rates | None) -> list[dict[str, float]]:
    """The metrics of each subtask by Flink's name, those of functions too."""
    found = None if rates is None else rates.vertices.get(progress.vertex.id)
    speeds = () if found is None else found.subtasks
    return [
        _metrics(subtask, speeds[index] if index < len(speeds) else None)
        for index, subtask in enumerate(progress.subtasks)
    ]


def _metrics(subtask: SubtaskProgress, rates: SubtaskRates | None) -> dict[str, float]:
    values: dict[str, float] = {
        "numRecordsIn": subtask.records_in,
        "numRecordsOut": subtask.records_out,
        "numBytesIn": subtask.bytes_in,
        "numBytesOut": subtask.bytes_out,
    }
    if rates is not None:
        values["numRecordsInPerSecond"] = rates.records_in
        values["numRecordsOutPerSecond"] = rates.records_out
        values["busyTimeMsPerSecond"] = 1000 * rates.busy
        values["backPressuredTimeMsPerSecond"] = 1000 * rates.back_pressured
        values["idleTimeMsPerSecond"] = 1000 * rates.idle
    if subtask.pending is not None:
        values["pendingRecords"] = subtask.pending
    if subtask.watermark is not None:
        values["currentInputWatermark"] = subtask.watermark
    for operator, readings in subtask.user_metrics.items():
        for name, value in readings.items():
            values[f"{operator}.{name}"] = value
    return values


def aggregated(metrics: Sequence[dict[str, float]], wanted: str | None) -> list[AggregatedMetric]:
    """Over all subtasks: names, or with names, separated by commas, those with their values."""
    names = dict.fromkeys(name for each in metrics for name in each)
    if wanted is None:
        return [AggregatedMetric(id=name) for name in names]
    return [
        _aggregated(name, [each[name] for each in metrics if name in each])
        for name in wanted.split(",")
        if name in names
    ]


def _aggregated(name: str, values: Sequence[float]) -> AggregatedMetric:
    mean = sum(values) / len(values)
    deviation = sum(abs(value - mean) for value in values) / len(values)
    return AggregatedMetric(
        id=name,
        min=min(values),
        max=max(values),
        avg=mean,
        sum=sum(values),
        skew=min(100.0, 100 * deviation / mean) if mean > 0 else 0.0,
    )


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
"""The states of the subtasks of a region."""


def states_of(progress: VertexProgress) -> list[str]:
    """The states of the subtasks of a vertex."""
    state = _EXECUTION_STATE[progress.state]
    return [
        "FINISHED" if state == "RUNNING" and subtask.is_finished else state
        for subtask in progress.subtasks
    ]


def state_of(progress: VertexProgress) -> str:
    """The state of a vertex."""
    states = set(states_of(progress))
    return states.pop() if len(states) == 1 else _EXECUTION_STATE[progress.state]


def counts_of(states: Iterable[str]) -> dict[str, int]:
    """The number of subtasks in each state."""
    found = Counter(states)
    return {state: found[state] for state in EXECUTION_STATES}


def spent_of(rates: Rates | None, vertex: Vertex, subtask: int) -> Sequence[SpentTime]:
    """How one subtask has spent its time, if this is known yet."""
    return () if rates is None else rates.spent.get(vertex.id, ())[subtask : subtask + 1]


def io_metrics(subtasks: Sequence[SubtaskProgress], spent: Sequence[SpentTime]) -> IoMetrics:
    return IoMetrics(
        read_bytes=sum(subtask.bytes_in for subtask in subtasks),
        read_bytes_complete=True,
        write_bytes=sum(subtask.bytes_out for subtask in subtasks),
        write_bytes_complete=True,
        read_records=sum(subtask.records_in for subtask in subtasks),
        read_records_complete=True,
        write_records=sum(subtask.records_out for subtask in subtasks),
        write_records_complete=True,
        accumulated_backpressured_time=sum(milliseconds(each.back_pressured) for each in spent),
        accumulated_idle_time=sum(milliseconds(each.idle) for each in spent),
        accumulated_busy_time=sum(milliseconds(subtask.worked) for subtask in subtasks),
    )


class SubtaskBackPressure(Form, naming=camel):
    """How a subtask spends its time."""

    subtask: int
    attempt_number: int = named("attempt-number")
    backpressure_level: Annotated[str, OneOf(("ok", "low", "high"))]
    ratio: float
    busy_ratio: float
    idle_ratio: float


class BackPressure(Form, naming=camel):
    """How the subtasks of a vertex spend their time."""

    status: Annotated[str, OneOf(("ok", "deprecated"))]
    backpressure_level: Annotated[str, OneOf(("ok", "low", "high"))]
    end_timestamp: int = named("end-timestamp")
    subtasks: list[SubtaskBackPressure]


def back_pressure(progress: VertexProgress, rates: Rates | None) -> BackPressure:
    """In Flink's levels: high above half of the time, low above a tenth."""
    found = None if rates is None else rates.vertices.get(progress.vertex.id)
    each = () if found is None else found.subtasks
    return BackPressure(
        status="deprecated" if found is None else "ok",
        backpressure_level=_level(max((one.back_pressured for one in each), default=0.0)),
        end_timestamp=milliseconds(time.time()),
        subtasks=[
            SubtaskBackPressure(
                subtask=index,
                attempt_number=max(0, progress.attempt - 1),
                backpressure_level=_level(one.back_pressured),
                ratio=one.back_pressured,
                busy_ratio=one.busy,
                idle_ratio=one.idle,
            )
            for index, one in enumerate(each)
        ],
    )


def _level(share: float) -> str:
    return "high" if share > 0.5 else "low" if share > 0.1 else "ok"


class VertexTaskManager(Times):
    """The part of one slot in a vertex."""

    endpoint: str
    taskmanager_id: str
    status: ExecutionState
    metrics: IoMetrics
    status_counts: dict[str, int]


class VertexTaskManagers(Form):
    """The slots that run a vertex."""

    id: Id
    name: str
    now: int
    taskmanagers: list[VertexTaskManager]


def vertex_task_managers(
    job: JobHandle, progress: VertexProgress, rates: Rates | None
) -> VertexTaskManagers:
    now = time.time()
    return VertexTaskManagers(
        id=vertex_id(progress.vertex),
        name=progress.vertex.name,
        now=milliseconds(now),
        taskmanagers=[
            VertexTaskManager(
                endpoint=slot_name(index),
                taskmanager_id=task_manager_id(job.job_id, index),
                status=state,
                metrics=io_metrics([subtask], spent_of(rates, progress.vertex, index)),
                status_counts=counts_of([state]),
                **times_of(job, now),
            )
            for index, (subtask, state) in enumerate(
                zip(progress.subtasks, states_of(progress), strict=True)
            )
        ],
    )


class SubtaskTimestamps(Form):
    """Since when a subtask is in its state."""

    subtask: int
    host: str
    duration: int
    timestamps: dict[str, int]


class SubtaskTimes(Form):
    """Since when the subtasks of a vertex are in their states."""

    id: Id
    name: str
    now: int
    subtasks: list[SubtaskTimestamps]


def subtask_times(job: JobHandle, progress: VertexProgress) -> SubtaskTimes:
    now = time.time()
    entered = {status.name: milliseconds(at) for status, at in job.chronicle.entered().items()}
    return SubtaskTimes(
        id=vertex_id(progress.vertex),
        name=progress.vertex.name,
        now=milliseconds(now),
        subtasks=[
            SubtaskTimestamps(
                subtask=index,
                host=slot_name(index),
                duration=times_of(job, now)["duration"],
                timestamps={state: entered.get(state, 0) for state in EXECUTION_STATES},
            )
            for index in range(progress.vertex.parallelism)
        ],
    )
