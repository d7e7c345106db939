"""Answers about jobs. Everything read is immutable or a copy: no thread of a job waits for it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tidegate.checkpoint.statistics import CheckpointRecord
from tidegate.core.errors import NotNow
from tidegate.core.ids import CheckpointId
from tidegate.driver.job_handle import JobHandle
from tidegate.driver.progress import VertexProgress
from tidegate.web import (
    checkpoint_documents,
    config_documents,
    failure_documents,
    job_documents,
)
from tidegate.web.answers import Document
from tidegate.web.requests import Refusal, identity, whole_number
from tidegate.web.served_jobs import ServedJobs

_MOST_EXCEPTIONS = 20


class JobApi:
    """Each method answers one path."""

    def __init__(self, jobs: ServedJobs) -> None:
        self._jobs = jobs

    async def overview(self, request: Request) -> Response:
        return Document(job_documents.overview(self._jobs.all()))

    async def config(self, request: Request) -> Response:
        return Document(job_documents.driver_config())

    async def jobs(self, request: Request) -> Response:
        return Document(job_documents.job_states(self._jobs.all()))

    async def jobs_overview(self, request: Request) -> Response:
        return Document(job_documents.jobs_overview(self._jobs.all()))

    async def metrics(self, request: Request) -> Response:
        from tidegate.web.metrics import CONTENT_TYPE, rendered

        return Response(rendered(self._jobs.all()), headers={"content-type": CONTENT_TYPE})

    async def job(self, request: Request) -> Response:
        return Document(job_documents.job_details(self._job(request)))

    async def cancel(self, request: Request) -> Response:
        job = self._job(request)
        mode = request.query_params.get("mode", "cancel")
        if mode != "cancel":
            raise Refusal(400, f"mode = {mode!r}: give cancel; POST …/stop stops with a savepoint")
        status = job.status()
        if status.is_terminal:
            raise Refusal(409, str(NotNow("cancellation", status.name.lower(), "it is too late")))
        job.cancel()
        return Document({}, status_code=202)

    async def job_config(self, request: Request) -> Response:
        return Document(config_documents.job_config(self._job(request)))

    async def plan(self, request: Request) -> Response:
        return Document(job_documents.plan(self._job(request)))

    async def exceptions(self, request: Request) -> Response:
        job = self._job(request)
        asked = request.query_params.get("maxExceptions", str(_MOST_EXCEPTIONS))
        return Document(failure_documents.exceptions(job, whole_number(asked, "maxExceptions")))

    async def vertex(self, request: Request) -> Response:
        job = self._job(request)
        return Document(job_documents.vertex_details(job, self._vertex(request, job)))

    async def checkpoints(self, request: Request) -> Response:
        return Document(checkpoint_documents.statistics(self._job(request)))

    async def checkpoint_config(self, request: Request) -> Response:
        return Document(checkpoint_documents.config(self._job(request).settings))

    async def checkpoint(self, request: Request) -> Response:
        job = self._job(request)
        return Document(checkpoint_documents.details(job, self._checkpoint(request, job)))

    async def checkpoint_task(self, request: Request) -> Response:
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
