"""One job, under Flink's names."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any

from tidegate.driver.checkpoints.restoring import RestoreProgress
from tidegate.driver.job_handle import JobHandle
from tidegate.driver.progress import VertexProgress
from tidegate.graph.job_graph import Edge, JobGraph, Vertex
from tidegate.protocol.job_status import JobStatus
from tidegate.web.documents.common import (
    ExecutionState,
    JobState,
    Times,
    milliseconds,
    times_of,
    vertex_id,
)
from tidegate.web.documents.vertices import (
    IoMetrics,
    counts_of,
    io_metrics,
    state_of,
    states_of,
)
from tidegate.web.forms import Form, Id, named, snake
from tidegate.web.live.rates import Rates, SpentTime


class PlanInput(Form, naming=snake):
    """An edge of the graph."""

    num: int
    id: Id
    ship_strategy: str
    exchange: str = "pipelined"


class PlanNode(Form, naming=snake):
    """A vertex of the graph."""

    id: Id
    parallelism: int
    operator: str = ""
    operator_strategy: str = ""
    description: str
    optimizer_properties: dict[str, Any]
    inputs: list[PlanInput]


class PlanDocument(Form):
    """The graph of a job."""

    jid: Id
    name: str
    type: str = "STREAMING"
    nodes: list[PlanNode]


class JobPlan(Form):
    """The graph of a job, wrapped as in Flink."""

    plan: PlanDocument


class VertexFacts(Form):
    """Tidegate's own facts about a vertex."""

    watermark: Annotated[int | None, "Of the slowest subtask; null: it has none yet."]
    idle_channels: int


class VertexOverview(Times):
    """One vertex of a job."""

    id: Id
    name: str
    max_parallelism: int = named("maxParallelism")
    parallelism: int
    status: ExecutionState
    tasks: dict[str, int]
    metrics: IoMetrics
    tidegate: VertexFacts


class RestoreDocument(Form):
    """The progress of restoring a checkpoint."""

    checkpoint_id: int
    bytes: Annotated[int, "Bytes of files to read; 0 if all state is inline."]
    restored_bytes: Annotated[int, "Bytes read so far."]
    complete: Annotated[bool, "Whether all subtasks are restored."]


class JobFacts(Form):
    """Tidegate's own facts about a job."""

    started: Annotated[
        bool, "Whether the slots are deployed and all pipelines have completed a step."
    ]
    restart: Annotated[str | None, "The pending restart after a failure."]
    records_in: Annotated[int, "Read by sources, since the last deployment."]
    records_out: Annotated[int, "Received by sinks, since the last deployment."]
    lag: Annotated[int | None, "Records waiting to be read; null if a source does not know."]
    records_to_repeat: Annotated[int, "Read again after a failure until sources have caught up."]
    restore: RestoreDocument | None
    steps: int
    step_duration: Annotated[int, "Of the last step of the slowest pipeline."]
    restarts: int


class JobDetails(Times):
    """One job."""

    jid: Id
    name: str
    is_stoppable: bool = named("isStoppable")
    state: JobState
    job_type: str = "STREAMING"
    max_parallelism: int = named("maxParallelism")
    now: int
    timestamps: dict[str, int]
    vertices: list[VertexOverview]
    status_counts: dict[str, int]
    plan: PlanDocument
    tidegate: JobFacts


class StatusDocument(Form):
    """The state of a job."""

    status: JobState


class AccumulatorDocument(Form):
    """The value of an accumulator."""

    name: str
    type: str
    value: str


class VertexAccumulators(Form):
    """Accumulators, as Flink lists them for a vertex."""

    id: Id
    user_accumulators: list[AccumulatorDocument]


class SubtaskAccumulators(Form):
    """Flink's list of what each subtask has added up; empty, as only sums are known."""

    id: Id
    parallelism: int
    subtasks: list[dict[str, Any]]


class AccumulatorsDocument(Form):
    """Accumulators, merged over all subtasks."""

    job_accumulators: list[dict[str, Any]]
    user_task_accumulators: list[AccumulatorDocument]
    serialized_user_task_accumulators: dict[str, Any]


def job_details(job: JobHandle, rates: Rates | None) -> JobDetails:
    now = time.time()
    spent = {} if rates is None else rates.spent
    vertices = [
        _vertex_overview(job, vertex, spent.get(vertex.vertex.id, ()), now)
        for vertex in job.vertices()
    ]
    entered = job.chronicle.entered()
    return JobDetails(
        jid=job.job_id,
        name=job.name,
        is_stoppable=True,
        state=job.status().name,
        max_parallelism=max(vertex.max_parallelism for vertex in job.graph.vertices),
        now=milliseconds(now),
        timestamps={
            status.name: milliseconds(entered[status]) if status in entered else 0
            for status in JobStatus
        },
        vertices=vertices,
        status_counts=counts_of(vertex.status for vertex in vertices),
        plan=plan(job).plan,
        tidegate=_facts(job),
        **times_of(job, now),
    )


def _facts(job: JobHandle) -> JobFacts:
    progress = job.progress()
    return JobFacts(
        started=job.has_started,
        restart=progress.restart,
        records_in=progress.records_in,
        records_out=progress.records_out,
        lag=progress.lag,
        records_to_repeat=progress.records_to_repeat,
        restore=None if progress.restore is None else _restore(progress.restore),
        steps=progress.steps,
        step_duration=milliseconds(progress.step_seconds),
        restarts=job.chronicle.restarts,
    )


def _restore(progress: RestoreProgress) -> RestoreDocument:
    return RestoreDocument(
        checkpoint_id=progress.checkpoint_id,
        bytes=progress.size,
        restored_bytes=progress.read,
        complete=progress.is_complete,
    )


def _vertex_overview(
    job: JobHandle, progress: VertexProgress, spent: Sequence[SpentTime], now: float
) -> VertexOverview:
    vertex = progress.vertex
    return VertexOverview(
        id=vertex_id(vertex),
        name=vertex.name,
        max_parallelism=vertex.max_parallelism,
        parallelism=vertex.parallelism,
        status=state_of(progress),
        tasks=counts_of(states_of(progress)),
        metrics=io_metrics(progress.subtasks, spent),
        tidegate=VertexFacts(
            watermark=progress.watermark,
            idle_channels=sum(subtask.idle_channels for subtask in progress.subtasks),
        ),
        **times_of(job, now),
    )


def accumulators(job: JobHandle) -> AccumulatorsDocument:
    return AccumulatorsDocument(
        job_accumulators=[],
        user_task_accumulators=[
            AccumulatorDocument(name=name, type=type(value).__name__, value=str(value))
            for name, value in job.accumulators().items()
        ],
        serialized_user_task_accumulators={},
    )


def vertex_accumulators(job: JobHandle, progress: VertexProgress) -> VertexAccumulators:
    found = accumulators(job).user_task_accumulators
    return VertexAccumulators(id=vertex_id(progress.vertex), user_accumulators=found)


def plan(job: JobHandle) -> JobPlan:
    nodes = [_node(job.graph, vertex) for vertex in job.graph.vertices]
    return JobPlan(plan=PlanDocument(jid=job.job_id, name=job.name, nodes=nodes))


def _node(graph: JobGraph, vertex: Vertex) -> PlanNode:
    return PlanNode(
        id=vertex_id(vertex),
        parallelism=vertex.parallelism,
        description=vertex.name,
        optimizer_properties={},
        inputs=[
            PlanInput(
                num=number,
                id=vertex_id(graph.vertices[edge.source]),
                ship_strategy=ship_strategy(edge),
            )
            for number, edge in enumerate(graph.edges_into(vertex.id))
        ],
    )


def ship_strategy(edge: Edge) -> str:
    name = type(edge.partitioning).__name__
    return "HASH" if name == "ByKeyGroup" else name.upper()
