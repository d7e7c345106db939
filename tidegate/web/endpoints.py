"""All paths of the REST API: what each is asked, what it answers, and who answers it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.web import checkpoint_schemas, order_schemas, schema_forms, schemas
from tidegate.web.job_api import JobApi
from tidegate.web.order_api import OrderApi
from tidegate.web.schema_forms import Schema
from tidegate.web.shared_answers import Handler


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one path."""

    method: str = "GET"
    path: str
    summary: str
    handler: Handler
    answer: Schema
    status: int = 200
    body: Schema | None = None
    query: dict[str, Schema] = field(default_factory=dict)
    refusals: tuple[int, ...] = ()
    content_type: str = "application/json"


_OF_JOB = (400, 404)
_OF_ORDER = (400, 403, 404, 409, 413, 429)


def endpoints(jobs: JobApi, orders: OrderApi) -> list[Endpoint]:
    """In the order in which a reader wants to know them."""
    return [*_driver(jobs), *_job(jobs), *_checkpoints(jobs), *_orders(jobs, orders)]


def _driver(jobs: JobApi) -> list[Endpoint]:
    return [
        Endpoint(
            path="/overview",
            summary="How many slots and jobs this driver has.",
            handler=jobs.overview,
            answer=schemas.OVERVIEW,
        ),
        Endpoint(
            path="/config",
            summary="What a user interface wants to know of this driver.",
            handler=jobs.config,
            answer=schemas.CONFIG,
        ),
        Endpoint(
            path="/jobs",
            summary="The jobs of this driver and their states.",
            handler=jobs.jobs,
            answer=schemas.JOBS,
        ),
        Endpoint(
            path="/jobs/overview",
            summary="The same with names, times and the states of subtasks.",
            handler=jobs.jobs_overview,
            answer=schemas.JOBS_OVERVIEW,
        ),
        Endpoint(
            path="/metrics",
            summary="All jobs as metrics for Prometheus.",
            handler=jobs.metrics,
            answer=schema_forms.TEXT,
            content_type="text/plain",
        ),
    ]


def _job(jobs: JobApi) -> list[Endpoint]:
    return [
        Endpoint(
            path="/jobs/{jobid}",
            summary="One job: times, vertices, records, plan.",
            handler=jobs.job,
            answer=schemas.JOB,
            refusals=_OF_JOB,
        ),
        Endpoint(
            method="PATCH",
            path="/jobs/{jobid}",
            summary="Cancel a job.",
            handler=jobs.cancel,
            answer=schemas.EMPTY,
            status=202,
            query={"mode": {"type": "string", "enum": ["cancel"]}},
            refusals=(*_OF_JOB, 409),
        ),
        Endpoint(
            path="/jobs/{jobid}/config",
            summary="The settings of a job, without secrets.",
            handler=jobs.job_config,
            answer=schemas.JOB_CONFIG,
            refusals=_OF_JOB,
        ),
        Endpoint(
            path="/jobs/{jobid}/plan",
            summary="The graph of a job.",
            handler=jobs.plan,
            answer=schemas.PLAN,
            refusals=_OF_JOB,
        ),
        Endpoint(
            path="/jobs/{jobid}/exceptions",
            summary="What failed, the latest first, and whether the job was restarted.",
            handler=jobs.exceptions,
            answer=schemas.EXCEPTIONS,
            query={"maxExceptions": {"type": "integer", "minimum": 0, "maximum": 10**6}},
            refusals=_OF_JOB,
        ),
        Endpoint(
            path="/jobs/{jobid}/vertices/{vertexid}",
            summary="The subtasks of a vertex.",
            handler=jobs.vertex,
            answer=schemas.VERTEX,
            refusals=_OF_JOB,
        ),
    ]


def _checkpoints(jobs: JobApi) -> list[Endpoint]:
    return [
        Endpoint(
            path="/jobs/{jobid}/checkpoints",
            summary="Counts, summary, the latest and the history of checkpoints.",
            handler=jobs.checkpoints,
            answer=checkpoint_schemas.CHECKPOINTS,
            refusals=_OF_JOB,
        ),
        Endpoint(
            path="/jobs/{jobid}/checkpoints/config",
            summary="When and how checkpoints are taken.",
            handler=jobs.checkpoint_config,
            answer=checkpoint_schemas.CHECKPOINT_CONFIG,
            refusals=_OF_JOB,
        ),
        Endpoint(
            path="/jobs/{jobid}/checkpoints/details/{checkpointid}",
            summary="One checkpoint, with the work of every vertex.",
            handler=jobs.checkpoint,
            answer=checkpoint_schemas.CHECKPOINT,
            refusals=_OF_JOB,
        ),
        Endpoint(
            path="/jobs/{jobid}/checkpoints/details/{checkpointid}/subtasks/{vertexid}",
            summary="What the subtasks of a vertex did for a checkpoint.",
            handler=jobs.checkpoint_task,
            answer=checkpoint_schemas.CHECKPOINT_TASK,
            refusals=_OF_JOB,
        ),
    ]


def _orders(jobs: JobApi, orders: OrderApi) -> list[Endpoint]:
    return [
        Endpoint(
            method="POST",
            path="/jobs/{jobid}/checkpoints",
            summary="Take a checkpoint now.",
            handler=orders.take_checkpoint,
            body=order_schemas.CHECKPOINT_TRIGGER,
            answer=schemas.TRIGGERED,
            status=202,
            refusals=_OF_ORDER,
        ),
        Endpoint(
            path="/jobs/{jobid}/checkpoints/{triggerid}",
            summary="What became of a checkpoint that was asked for.",
            handler=orders.checkpoint_status,
            answer=order_schemas.CHECKPOINT_TRIGGER_STATUS,
            refusals=_OF_JOB,
        ),
        Endpoint(
            method="POST",
            path="/jobs/{jobid}/savepoints",
            summary="Take a savepoint, and cancel the job behind it if that is asked for.",
            handler=orders.take_savepoint,
            body=order_schemas.SAVEPOINT_TRIGGER,
            answer=schemas.TRIGGERED,
            status=202,
            refusals=_OF_ORDER,
        ),
        Endpoint(
            method="POST",
            path="/jobs/{jobid}/stop",
            summary="Stop the job with a savepoint behind which nothing follows.",
            handler=orders.stop,
            body=order_schemas.STOP_TRIGGER,
            answer=schemas.TRIGGERED,
            status=202,
            refusals=_OF_ORDER,
        ),
        Endpoint(
            path="/jobs/{jobid}/savepoints/{triggerid}",
            summary="What became of a savepoint, or of a stop with one.",
            handler=orders.savepoint_status,
            answer=order_schemas.SAVEPOINT_STATUS,
            refusals=_OF_JOB,
        ),
        Endpoint(
            method="PATCH",
            path="/jobs/{jobid}/rescaling",
            summary="Go on with another parallelism, from a checkpoint that is taken now.",
            handler=orders.rescale,
            answer=schemas.TRIGGERED,
            status=202,
            query={"parallelism": {"type": "integer", "minimum": 1, "maximum": 1 << 15}},
            refusals=_OF_ORDER,
        ),
        Endpoint(
            path="/jobs/{jobid}/rescaling/{triggerid}",
            summary="What became of a change of parallelism.",
            handler=orders.rescaling_status,
            answer=order_schemas.PLAIN_STATUS,
            refusals=_OF_JOB,
        ),
        Endpoint(
            method="POST",
            path="/savepoint-disposal",
            summary="Delete a savepoint.",
            handler=orders.dispose,
            body=order_schemas.DISPOSAL_TRIGGER,
            answer=schemas.TRIGGERED,
            status=202,
            refusals=(400, 403, 413, 429),
        ),
        Endpoint(
            path="/savepoint-disposal/{triggerid}",
            summary="What became of the deletion of a savepoint.",
            handler=orders.disposal_status,
            answer=order_schemas.PLAIN_STATUS,
            refusals=_OF_JOB,
        ),
    ]
