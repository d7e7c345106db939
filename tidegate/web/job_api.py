"""Answers about jobs. Everything read is immutable or a copy: no thread of a job waits for it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tidegate.checkpoint.statistics import CheckpointRecord
from tidegate.core.errors import NotNow
from tidegate.core.ids import CheckpointId
from tidegate.driver.job_handle import JobHandle
from tidegate.driver.progress import VertexProgress
from tidegate.web.answers import Document
from tidegate.web.documents import checkpoints as checkpoint_documents
from tidegate.web.documents import config as config_documents
from tidegate.web.documents import jobs as job_documents
from tidegate.web.documents import schema_forms, schemas
from tidegate.web.endpoints import OF_JOB, endpoint
from tidegate.web.requests import Refusal, identity, whole_number
from tidegate.web.served_jobs import ServedJobs

_MOST_EXCEPTIONS = 20


class JobApi:
    """Each method answers one path."""

    def __init__(self, jobs: ServedJobs) -> None:
        self._jobs = jobs

    @endpoint("/overview", schemas.OVERVIEW, refusals=())
    async def overview(self, request: Request) -> Response:
        """How many slots and jobs this driver has."""
        return Document(job_documents.overview(self._jobs.all()))

    @endpoint("/config", schemas.CONFIG, refusals=())
    async def config(self, request: Request) -> Response:
        """What a user interface wants to know of this driver."""
        return Document(job_documents.driver_config())

    @endpoint("/jobs", schemas.JOBS, refusals=())
    async def jobs(self, request: Request) -> Response:
        """The jobs of this driver and their states."""
        return Document(job_documents.job_states(self._jobs.all()))

    @endpoint("/jobs/overview", schemas.JOBS_OVERVIEW, refusals=())
    async def jobs_overview(self, request: Request) -> Response:
        """The same with names, times and the states of subtasks."""
        return Document(job_documents.jobs_overview(self._jobs.all()))

    @endpoint("/metrics", schema_forms.TEXT, content_type="text/plain", refusals=())
    async def metrics(self, request: Request) -> Response:
        """All jobs as metrics for Prometheus."""
        from tidegate.web.metrics import CONTENT_TYPE, rendered

        return Response(rendered(self._jobs.all()), headers={"content-type": CONTENT_TYPE})

    @endpoint("/jobs/{jobid}", schemas.JOB)
    async def job(self, request: Request) -> Response:
        """One job: times, vertices, records, plan."""
        return Document(job_documents.job_details(self._job(request)))

    @endpoint(
        "/jobs/{jobid}",
        schemas.EMPTY,
        method="PATCH",
        status=202,
        query={"mode": {"type": "string", "enum": ["cancel"]}},
        refusals=(*OF_JOB, 409),
    )
    async def cancel(self, request: Request) -> Response:
        """Cancel a job."""
        job = self._job(request)
        mode = request.query_params.get("mode", "cancel")
        if mode != "cancel":
            raise Refusal(400, f"mode = {mode!r}: give cancel; POST …/stop stops with a savepoint")
        status = job.status()
        if status.is_terminal:
            raise Refusal(409, str(NotNow("cancellation", status.name.lower(), "it is too late")))
        job.cancel()
        return Document({}, status_code=202)

    @endpoint("/jobs/{jobid}/config", schemas.JOB_CONFIG)
    async def job_config(self, request: Request) -> Response:
        """The settings of a job, without secrets."""
        return Document(config_documents.job_config(self._job(request)))

    @endpoint("/jobs/{jobid}/plan", schemas.PLAN)
    async def plan(self, request: Request) -> Response:
        """The graph of a job."""
        return Document(job_documents.plan(self._job(request)))

    @endpoint(
        "/jobs/{jobid}/exceptions",
        schemas.EXCEPTIONS,
        query={"maxExceptions": {"type": "integer", "minimum": 0, "maximum": 10**6}},
    )
    async def exceptions(self, request: Request) -> Response:
        """What failed, the latest first, and whether the job was restarted."""
        job = self._job(request)
        asked = request.query_params.get("maxExceptions", str(_MOST_EXCEPTIONS))
        return Document(job_documents.exceptions(job, whole_number(asked, "maxExceptions")))

    @endpoint("/jobs/{jobid}/vertices/{vertexid}", schemas.VERTEX)
    async def vertex(self, request: Request) -> Response:
        """The subtasks of a vertex."""
        job = self._job(request)
        return Document(job_documents.vertex_details(job, self._vertex(request, job)))

    @endpoint("/jobs/{jobid}/vertices/{vertexid}/watermarks", schemas.WATERMARKS)
    async def watermarks(self, request: Request) -> Response:
        """How far event time has come in the subtasks of a vertex that have it."""
        progress = self._vertex(request, self._job(request))
        return Document(job_documents.watermarks(progress))

    @endpoint(
        "/jobs/{jobid}/vertices/{vertexid}/metrics",
        schemas.METRICS,
        query={"get": {"type": "string"}},
    )
    async def vertex_metrics(self, request: Request) -> Response:
        """The names of a vertex' metrics, or with `get` the values of some of them."""
        progress = self._vertex(request, self._job(request))
        wanted = request.query_params.get("get")
        return Document(job_documents.vertex_metrics(progress, wanted))

    @endpoint("/jobs/{jobid}/accumulators", schemas.ACCUMULATORS)
    async def accumulators(self, request: Request) -> Response:
        """What functions have added up, over all subtasks."""
        return Document(job_documents.accumulators(self._job(request)))

    @endpoint("/jobs/{jobid}/checkpoints", schemas.CHECKPOINTS)
    async def checkpoints(self, request: Request) -> Response:
        """Counts, summary, the latest and the history of checkpoints."""
        return Document(checkpoint_documents.statistics(self._job(request)))

    @endpoint("/jobs/{jobid}/checkpoints/config", schemas.CHECKPOINT_CONFIG)
    async def checkpoint_config(self, request: Request) -> Response:
        """When and how checkpoints are taken."""
        return Document(checkpoint_documents.config(self._job(request).settings))

    @endpoint("/jobs/{jobid}/checkpoints/details/{checkpointid}", schemas.CHECKPOINT)
    async def checkpoint(self, request: Request) -> Response:
        """One checkpoint, with the work of every vertex."""
        job = self._job(request)
        return Document(checkpoint_documents.details(job, self._checkpoint(request, job)))

    @endpoint(
        "/jobs/{jobid}/checkpoints/details/{checkpointid}/subtasks/{vertexid}",
        schemas.CHECKPOINT_TASK,
    )
    async def checkpoint_task(self, request: Request) -> Response:
        """What the subtasks of a vertex did for a checkpoint."""
        job = self._job(request)
        record = self._checkpoint(request, job)
        vertex = self._vertex(request, job).vertex
        return Document(checkpoint_documents.task_details(record, vertex))

    def _job(self, request: Request) -> JobHandle:
        return self._jobs.get(request.path_params["jobid"])

    def _vertex(self, request: Request, job: JobHandle) -> VertexProgress:
        wanted = identity(request.path_params["vertexid"], "vertex")
        for progress in job.vertices():
            if job_documents.vertex_id(progress.vertex) == wanted:
                return progress
        raise Refusal(404, f"the job has no vertex {wanted}; /jobs/{job.job_id} tells which")

    def _checkpoint(self, request: Request, job: JobHandle) -> CheckpointRecord:
        wanted = whole_number(request.path_params["checkpointid"], "number of a checkpoint")
        history = job.checkpoints
        latest = (history.latest_completed, history.latest_savepoint, history.latest_failed)
        record = history.record(CheckpointId(wanted))
        if record is None:
            record = next((r for r in latest if r is not None and r.checkpoint_id == wanted), None)
        if record is None:
            raise Refusal(404, f"there is no checkpoint {wanted}, or it is too long ago")
        return record
