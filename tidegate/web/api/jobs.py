"""Endpoints about jobs. They read immutable data or copies: no thread of a job waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from tidegate.checkpoint.statistics import CheckpointRecord
from tidegate.core.errors import NotNow
from tidegate.core.ids import CheckpointId
from tidegate.driver.job_handle import JobHandle
from tidegate.web.documents import checkpoints as checkpoint_documents
from tidegate.web.documents import config as config_documents
from tidegate.web.documents import driver as driver_documents
from tidegate.web.documents import exceptions as exception_documents
from tidegate.web.documents import jobs as job_documents
from tidegate.web.documents import rescales as rescale_documents
from tidegate.web.documents import vertices as vertex_documents
from tidegate.web.documents.checkpointing import CheckpointingDocument, checkpointing
from tidegate.web.documents.common import Nothing, vertex_id
from tidegate.web.documents.orders import CancelQuery
from tidegate.web.endpoints import OF_JOB, endpoint, order
from tidegate.web.forms import Between, Form, camel
from tidegate.web.hub import Hub
from tidegate.web.live.rates import Rates
from tidegate.web.requests import Refusal, identity, whole_number
from tidegate.web.served_jobs import ServedJobs, vertex_of

_T = TypeVar("_T")


class ExceptionsQuery(Form, naming=camel):
    """How many to return."""

    max_exceptions: Annotated[int, Between(0, 10**6)] = 20


class MetricsQuery(Form):
    """Which metrics to return with their values."""

    get: str | None = None


class JobApi:
    """Each method answers one path."""

    def __init__(self, jobs: ServedJobs, hub: Hub) -> None:
        self._jobs = jobs
        self._hub = hub

    @endpoint("/overview", refusals=())
    async def overview(self, request: Request) -> driver_documents.Overview:
        """The numbers of slots and jobs of this driver."""
        return driver_documents.overview(self._jobs.all())

    @endpoint("/jobs", refusals=())
    async def jobs(self, request: Request) -> driver_documents.Jobs:
        """The jobs of this driver and their states."""
        return driver_documents.job_states(self._jobs.all())

    @endpoint("/jobs/overview", refusals=())
    async def jobs_overview(self, request: Request) -> driver_documents.JobsOverview:
        """The jobs with names, times and the states of subtasks."""
        return driver_documents.jobs_overview(self._jobs.all())

    @endpoint("/metrics", content_type="text/plain", refusals=())
    async def metrics(self, request: Request) -> Response:
        """All jobs as metrics for Prometheus."""
        from tidegate.web.metrics import CONTENT_TYPE, rendered

        return Response(rendered(self._jobs.all()), headers={"content-type": CONTENT_TYPE})

    @endpoint("/jobs/{jobid}")
    async def job(self, request: Request) -> job_documents.JobDetails:
        """One job: times, vertices, records, plan."""
        job = self._job(request)
        return job_documents.job_details(job, self._rates(job))

    @endpoint("/jobs/{jobid}/status")
    async def status(self, request: Request) -> job_documents.StatusDocument:
        """Its state alone."""
        return job_documents.StatusDocument(status=self._job(request).status().name)

    @endpoint("/jobs/{jobid}/metrics")
    async def job_metrics(
        self, request: Request, query: MetricsQuery
    ) -> list[vertex_documents.MetricDocument]:
        """The names of a job's metrics, or with `get` the values of some of them."""
        from tidegate.web.metrics import job_metrics

        return vertex_documents.metric_documents(job_metrics(self._job(request)), query.get)

    @order("/jobs/{jobid}", method="PATCH", refusals=(*OF_JOB, 409))
    async def cancel(self, request: Request, query: CancelQuery) -> Nothing:
        """Cancel a job."""
        job = self._job(request)
        status = job.status()
        if status.is_terminal:
            raise Refusal(409, str(NotNow("cancellation", status.name.lower(), "it is too late")))
        job.cancel()
        return Nothing()

    @endpoint("/jobs/{jobid}/config")
    async def job_config(self, request: Request) -> config_documents.JobConfig:
        """The settings of a job, without secrets."""
        return config_documents.job_config(self._job(request))

    @endpoint("/jobs/{jobid}/plan")
    async def plan(self, request: Request) -> job_documents.JobPlan:
        """The graph of a job."""
        return job_documents.plan(self._job(request))

    @endpoint("/jobs/{jobid}/resource-requirements")
    async def resource_requirements(
        self, request: Request
    ) -> dict[str, rescale_documents.VertexRequirements]:
        """The possible parallelism of each vertex."""
        return rescale_documents.resource_requirements(self._job(request))

    @endpoint("/jobs/{jobid}/rescales/overview")
    async def rescales_overview(self, request: Request) -> rescale_documents.RescalesOverview:
        """How often the parallelism was changed."""
        return rescale_documents.rescales_overview(self._job(request))

    @endpoint("/jobs/{jobid}/rescales/history")
    async def rescales(self, request: Request) -> list[rescale_documents.RescaleDocument]:
        """Changes of the parallelism since the job started, newest first."""
        return rescale_documents.rescales(self._job(request))

    @endpoint("/jobs/{jobid}/rescales/details/{rescaleuuid}")
    async def rescale(self, request: Request) -> rescale_documents.RescaleDocument:
        """One of them."""
        wanted = identity(request.path_params["rescaleuuid"], "rescale")
        for each in rescale_documents.rescales(self._job(request)):
            if each.rescale_uuid == wanted:
                return each
        raise Refusal(404, f"there is no rescale {wanted}, or it is too long ago")

    @endpoint("/jobs/{jobid}/exceptions")
    async def exceptions(
        self, request: Request, query: ExceptionsQuery
    ) -> exception_documents.Exceptions:
        """The failures, newest first, and whether the job was restarted."""
        return exception_documents.exceptions(self._job(request), query.max_exceptions)

    @endpoint("/jobs/{jobid}/vertices/{vertexid}")
    async def vertex(self, request: Request) -> vertex_documents.VertexDetails:
        """The subtasks of a vertex."""
        job = self._job(request)
        progress = vertex_of(request, job)
        return vertex_documents.vertex_details(job, progress, self._rates(job))

    @endpoint("/jobs/{jobid}/vertices/{vertexid}/subtasktimes")
    async def subtask_times(self, request: Request) -> vertex_documents.SubtaskTimes:
        """Since when the subtasks of a vertex are in their state."""
        job = self._job(request)
        return vertex_documents.subtask_times(job, vertex_of(request, job))

    @endpoint("/jobs/{jobid}/vertices/{vertexid}/taskmanagers")
    async def vertex_task_managers(self, request: Request) -> vertex_documents.VertexTaskManagers:
        """The slots that run a vertex."""
        job = self._job(request)
        return vertex_documents.vertex_task_managers(job, vertex_of(request, job), self._rates(job))

    @endpoint("/jobs/{jobid}/vertices/{vertexid}/backpressure")
    async def back_pressure(self, request: Request) -> vertex_documents.BackPressure:
        """How the subtasks of a vertex spend their time."""
        job = self._job(request)
        return vertex_documents.back_pressure(vertex_of(request, job), self._rates(job))

    @endpoint("/jobs/{jobid}/vertices/{vertexid}/accumulators")
    async def vertex_accumulators(self, request: Request) -> job_documents.VertexAccumulators:
        """The accumulators of the job, which are merged over all vertices."""
        job = self._job(request)
        return job_documents.vertex_accumulators(job, vertex_of(request, job))

    @endpoint("/jobs/{jobid}/vertices/{vertexid}/subtasks/accumulators")
    async def subtask_accumulators(self, request: Request) -> job_documents.SubtaskAccumulators:
        """An empty list: only what all subtasks have added up together is known."""
        vertex = vertex_of(request, self._job(request)).vertex
        return job_documents.SubtaskAccumulators(
            id=vertex_id(vertex), parallelism=vertex.parallelism, subtasks=[]
        )

    @endpoint("/jobs/{jobid}/vertices/{vertexid}/watermarks")
    async def watermarks(self, request: Request) -> list[vertex_documents.MetricDocument]:
        """The watermarks of the subtasks of a vertex, if they have event time."""
        return vertex_documents.watermarks(vertex_of(request, self._job(request)))

    @endpoint("/jobs/{jobid}/vertices/{vertexid}/metrics")
    async def vertex_metrics(
        self, request: Request, query: MetricsQuery
    ) -> list[vertex_documents.MetricDocument]:
        """The names of a vertex' metrics, or with `get` the values of some of them."""
        job = self._job(request)
        values = vertex_documents.vertex_metrics(vertex_of(request, job), self._rates(job))
        return vertex_documents.metric_documents(values, query.get)

    @endpoint("/jobs/{jobid}/vertices/{vertexid}/subtasks/metrics")
    async def aggregated_metrics(
        self, request: Request, query: MetricsQuery
    ) -> list[vertex_documents.AggregatedMetric]:
        """The same over all subtasks of a vertex: least, greatest, mean, sum and skew."""
        return vertex_documents.aggregated(self._subtask_metrics(request), query.get)

    @endpoint("/jobs/{jobid}/vertices/{vertexid}/subtasks/{subtaskindex}")
    async def subtask(self, request: Request) -> vertex_documents.SubtaskDocument:
        """One subtask of a vertex."""
        return _at((await self.vertex(request)).subtasks, request)

    @endpoint("/jobs/{jobid}/vertices/{vertexid}/subtasks/{subtaskindex}/metrics")
    async def subtask_metrics(
        self, request: Request, query: MetricsQuery
    ) -> list[vertex_documents.MetricDocument]:
        """The names of the metrics of a subtask, or with `get` the values of some of them."""
        values = _at(self._subtask_metrics(request), request)
        return vertex_documents.metric_documents(values, query.get)

    @endpoint("/jobs/{jobid}/accumulators")
    async def accumulators(self, request: Request) -> job_documents.AccumulatorsDocument:
        """The accumulators of functions, merged over all subtasks."""
        return job_documents.accumulators(self._job(request))

    @endpoint("/jobs/{jobid}/checkpoints")
    async def checkpoints(self, request: Request) -> checkpoint_documents.Checkpoints:
        """Counts, summary, the latest and the history of checkpoints."""
        return checkpoint_documents.statistics(self._job(request))

    @endpoint("/jobs/{jobid}/checkpoints/config")
    async def checkpoint_config(self, request: Request) -> CheckpointingDocument:
        """When and how checkpoints are taken."""
        return checkpointing(self._job(request).settings)

    @endpoint("/jobs/{jobid}/checkpoints/details/{checkpointid}")
    async def checkpoint(self, request: Request) -> checkpoint_documents.CheckpointDocument:
        """One checkpoint, with statistics of every vertex."""
        job = self._job(request)
        record = self._checkpoint(request, job)
        return checkpoint_documents.checkpoint_document(record, job.graph.vertices)

    @endpoint("/jobs/{jobid}/checkpoints/details/{checkpointid}/subtasks/{vertexid}")
    async def checkpoint_task(self, request: Request) -> checkpoint_documents.CheckpointTask:
        """Statistics of the subtasks of a vertex in a checkpoint."""
        job = self._job(request)
        record = self._checkpoint(request, job)
        return checkpoint_documents.task_details(record, vertex_of(request, job).vertex)

    def _subtask_metrics(self, request: Request) -> list[dict[str, float]]:
        job = self._job(request)
        return vertex_documents.subtask_metrics(vertex_of(request, job), self._rates(job))

    def _rates(self, job: JobHandle) -> Rates | None:
        return self._hub.watched(job.job_id).meter.rates()

    def _job(self, request: Request) -> JobHandle:
        return self._jobs.get(request.path_params["jobid"])

    def _checkpoint(self, request: Request, job: JobHandle) -> CheckpointRecord:
        wanted = whole_number(request.path_params["checkpointid"], "checkpoint number")
        history = job.checkpoints
        latest = (history.latest_completed, history.latest_savepoint, history.latest_failed)
        record = history.record(CheckpointId(wanted))
        if record is None:
            record = next((r for r in latest if r is not None and r.checkpoint_id == wanted), None)
        if record is None:
            raise Refusal(404, f"there is no checkpoint {wanted}, or it is too old")
        return record


def _at(found: Sequence[_T], request: Request) -> _T:
    """The one of the subtask that the path of a request names."""
    index = whole_number(request.path_params["subtaskindex"], "subtask number")
    if index >= len(found):
        raise Refusal(404, f"the vertex has no subtask {index}, but {len(found)} of them")
    return found[index]
