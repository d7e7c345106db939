"""Requests for savepoints, checkpoints and rescaling, and their outcomes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from starlette.requests import Request

from tidegate.checkpoint.savepoints import checkpoint_in_use, dispose
from tidegate.core.errors import ExternalError, NotNow, UserError
from tidegate.core.modes import SavepointFormat
from tidegate.driver.checkpoints.snapshot_orders import SnapshotOrder
from tidegate.driver.job_handle import JobHandle
from tidegate.protocol.job_status import JobStatus
from tidegate.web.allowed_paths import (
    allowed_path,
    is_storage_path,
    refused_path,
    savepoint_directories,
)
from tidegate.web.documents import orders
from tidegate.web.documents.common import Nothing, Triggered, vertex_id
from tidegate.web.documents.rescales import VertexRequirements
from tidegate.web.endpoints import endpoint, order
from tidegate.web.forms import F
from tidegate.web.operations import Operation, OperationKind, Operations
from tidegate.web.registry import running_jobs
from tidegate.web.requests import OWNER, Refusal, identity
from tidegate.web.served_jobs import ServedJobs

_EVERYWHERE = ""
"""The scope of operations that belong to no job."""


class OrderApi:
    """Each method answers one path."""

    def __init__(self, jobs: ServedJobs, operations: Operations) -> None:
        self._jobs = jobs
        self._operations = operations

    @order("/jobs/{jobid}/checkpoints")
    async def take_checkpoint(self, request: Request, body: orders.CheckpointOrder) -> Triggered:
        """Take a checkpoint now."""
        job = self._jobs.get(request.path_params["jobid"])
        return self._ordered(job, OperationKind.CHECKPOINT, job.order_checkpoint, body.trigger_id)

    @endpoint("/jobs/{jobid}/checkpoints/{triggerid}")
    async def checkpoint_status(self, request: Request) -> orders.CheckpointTriggerStatus:
        """The outcome of a requested checkpoint."""
        return self._status(request, OperationKind.CHECKPOINT, orders.CheckpointTriggerStatus)

    @order("/jobs/{jobid}/savepoints")
    async def take_savepoint(self, request: Request, body: orders.SavepointOrder) -> Triggered:
        """Take a savepoint, and optionally cancel the job afterwards."""
        job = self._jobs.get(request.path_params["jobid"])
        directory = self._directory(request, job, body.target_directory)
        format = SavepointFormat[body.format_type]

        def give() -> SnapshotOrder:
            return job.order_savepoint(directory, format, cancel=body.cancel_job)

        return self._ordered(job, OperationKind.SAVEPOINT, give, body.trigger_id)

    @order("/jobs/{jobid}/stop")
    async def stop(self, request: Request, body: orders.StopOrder) -> Triggered:
        """Stop the job with a savepoint after which nothing is emitted."""
        job = self._jobs.get(request.path_params["jobid"])
        directory = self._directory(request, job, body.target_directory)
        format = SavepointFormat[body.format_type]

        def give() -> SnapshotOrder:
            return job.order_stop(directory, format, drain=body.drain)

        return self._ordered(job, OperationKind.SAVEPOINT, give, body.trigger_id)

    @endpoint("/jobs/{jobid}/savepoints/{triggerid}")
    async def savepoint_status(self, request: Request) -> orders.SavepointStatus:
        """The outcome of a savepoint, or of a stop with one."""
        return self._status(request, OperationKind.SAVEPOINT, orders.SavepointStatus)

    @order("/jobs/{jobid}/rescaling", method="PATCH")
    async def rescale(self, request: Request, query: orders.RescalingQuery) -> Triggered:
        """Change the parallelism, resuming from a checkpoint taken now."""
        job = self._jobs.get(request.path_params["jobid"])
        return self._ordered(
            job, OperationKind.RESCALING, lambda: job.order_rescaling(query.parallelism)
        )

    @order("/jobs/{jobid}/resource-requirements", method="PUT", status=200)
    async def require(self, request: Request, body: dict[str, VertexRequirements]) -> Nothing:
        """The same by the upper bounds of vertices that differ from their parallelism."""
        job = self._jobs.get(request.path_params["jobid"])
        current = {vertex_id(vertex): vertex.parallelism for vertex in job.graph.vertices}
        bounds = {id: each.parallelism.upper_bound for id, each in body.items()}
        for unknown in bounds.keys() - current.keys():
            raise Refusal(400, f"the job has no vertex {unknown!r}")
        wanted = {bound for id, bound in bounds.items() if bound != current[id]}
        if len(wanted) > 1:
            raise Refusal(400, f"all vertices change together, not to {wanted}")
        for parallelism in wanted:
            self._ordered(job, OperationKind.RESCALING, partial(job.order_rescaling, parallelism))
        return Nothing()

    @endpoint("/jobs/{jobid}/rescaling/{triggerid}")
    async def rescaling_status(self, request: Request) -> orders.PlainStatus:
        """The outcome of a change of parallelism."""
        return self._status(request, OperationKind.RESCALING, orders.PlainStatus)

    @order("/savepoint-disposal", refusals=(400, 403, 409, 413, 429))
    async def dispose(self, request: Request, body: orders.DisposalOrder) -> Triggered:
        """Delete a savepoint, or a checkpoint of a job that does not run."""
        directories = [
            directory
            for job in self._jobs.all()
            for directory in savepoint_directories(job.settings)
        ]
        path = self._allowed(request, body.savepoint_path, directories)
        served = {job.job_id for job in self._jobs.all() if not job.status().is_terminal}
        reason = checkpoint_in_use(path, served | {record.job_id for record in running_jobs()})
        if reason is not None:
            raise Refusal(409, reason)

        def start() -> Operation:
            return Operation(OperationKind.DISPOSAL, _in_background(lambda: dispose(path)))

        trigger = self._operations.begin(_EVERYWHERE, OperationKind.DISPOSAL, None, start)
        return Triggered(request_id=trigger)

    @endpoint("/savepoint-disposal/{triggerid}")
    async def disposal_status(self, request: Request) -> orders.PlainStatus:
        """The outcome of deleting a savepoint."""
        return self._status(request, OperationKind.DISPOSAL, orders.PlainStatus)

    def _status(self, request: Request, kind: OperationKind, form: type[F]) -> F:
        job = request.path_params.get("jobid")
        scope = _EVERYWHERE if job is None else self._jobs.get(job).job_id
        trigger = identity(request.path_params["triggerid"], "trigger")
        found = self._operations.get(scope, kind, trigger).status()
        assert isinstance(found, form)
        return found

    def _ordered(
        self,
        job: JobHandle,
        kind: OperationKind,
        give: Callable[[], SnapshotOrder],
        trigger_id: str | None = None,
    ) -> Triggered:
        def start() -> Operation:
            status = job.status()
            if status is not JobStatus.RUNNING:
                advice = "it is too late" if status.is_terminal else "ask again when it runs"
                raise Refusal(409, str(NotNow(kind.value, status.name.lower(), advice)))
            try:
                order = give()
            except UserError as error:
                raise Refusal(400, str(error)) from None
            except ExternalError as error:
                raise Refusal(409, str(error)) from None
            return Operation(kind, order.answer, order, job.checkpoints)

        trigger = self._operations.begin(job.job_id, kind, trigger_id, start)
        return Triggered(request_id=trigger)

    def _directory(self, request: Request, job: JobHandle, wanted: str | None) -> str | None:
        if not wanted:
            return None
        return self._allowed(request, wanted, list(savepoint_directories(job.settings)))

    def _allowed(self, request: Request, wanted: str, directories: list[str]) -> str:
        if not is_storage_path(wanted):
            raise Refusal(400, f"{wanted!r} is not a path or URL")
        if request.scope[OWNER]:
            return wanted
        found = allowed_path(wanted, directories)
        if found is None:
            raise Refusal(403, refused_path(wanted, directories))
        return found


def _in_background(act: Callable[[], object]) -> Future[None]:
    done: Future[None] = Future()

    def run() -> None:
        try:
            act()
        except Exception as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name="tidegate-disposal", daemon=True).start()
    return done
