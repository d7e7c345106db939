"""The jobs of one server."""

from __future__ import annotations

from starlette.requests import Request

from tidegate.driver.job_handle import JobHandle
from tidegate.driver.progress import VertexProgress
from tidegate.web.documents.common import vertex_id
from tidegate.web.requests import Refusal, identity

_MOST = 20


class ServedJobs:
    """Running jobs, and the last ones that have ended."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobHandle] = {}

    def add(self, job: JobHandle) -> None:
        """Add a job; thread-safe."""
        jobs = {id: each for id, each in self._jobs.items() if id != job.job_id}
        ended = [id for id, each in jobs.items() if each.status().is_terminal]
        for id in ended[: max(0, len(jobs) + 1 - _MOST)]:
            del jobs[id]
        self._jobs = {**jobs, job.job_id: job}

    def all(self) -> list[JobHandle]:
        """All jobs, in the order in which they started."""
        return list(self._jobs.values())

    def get(self, job_id: str) -> JobHandle:
        """Look up a job.

        Raises:
            Refusal: it does not exist.
        """
        found = self._jobs.get(identity(job_id, "job"))
        if found is None:
            raise Refusal(404, f"this driver has no job {job_id}; see /jobs")
        return found


def vertex_of(request: Request, job: JobHandle) -> VertexProgress:
    """The vertex named in the path of a request.

    Raises:
        Refusal: it does not exist.
    """
    wanted = identity(request.path_params["vertexid"], "vertex")
    for progress in job.vertices():
        if vertex_id(progress.vertex) == wanted:
            return progress
    raise Refusal(404, f"the job has no vertex {wanted}; see /jobs/{job.job_id}")
