"""Takes orders for savepoints and checkpoints, and tells what became of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tidegate.checkpoint.savepoints import dispose
from tidegate.core.errors import ConfigError, ExternalError, NotNow, UserError
from tidegate.core.modes import SavepointFormat
from tidegate.core.setting_groups import MAX_PARALLELISM
from tidegate.driver.checkpoints.snapshot_orders import SnapshotOrder
from tidegate.driver.job_handle import JobHandle
from tidegate.protocol.job_status import JobStatus
from tidegate.web.allowed_paths import allowed_path, refused_path, savepoint_directories
from tidegate.web.answers import Document
from tidegate.web.documents import schemas
from tidegate.web.endpoints import endpoint, order
from tidegate.web.guard import OWNER
from tidegate.web.operations import Operation, OperationKind, Operations
from tidegate.web.requests import Refusal, body_of, identity, whole_number
from tidegate.web.served_jobs import ServedJobs

_EVERYWHERE = ""
"""In directory of a job, for operations that belong to none."""


class OrderApi:
    """Each method answers one path."""

    def __init__(self, jobs: ServedJobs, operations: Operations) -> None:
        self._jobs = jobs
        self._operations = operations

    @order("/jobs/{jobid}/checkpoints", schemas.CHECKPOINT_TRIGGER)
    async def take_checkpoint(self, request: Request) -> Response:
        """Take a checkpoint now."""
        job = self._jobs.get(request.path_params["jobid"])
        asked = await body_of(request, schemas.CHECKPOINT_TRIGGER)
        return self._ordered(job, OperationKind.CHECKPOINT, asked, job.order_checkpoint)

    @endpoint("/jobs/{jobid}/checkpoints/{triggerid}", schemas.CHECKPOINT_TRIGGER_STATUS)
    async def checkpoint_status(self, request: Request) -> Response:
        """What became of a checkpoint that was asked for."""
        return self._status(request, OperationKind.CHECKPOINT)

    @order("/jobs/{jobid}/savepoints", schemas.SAVEPOINT_TRIGGER)
    async def take_savepoint(self, request: Request) -> Response:
        """Take a savepoint, and cancel the job after it if that is asked for."""
        job = self._jobs.get(request.path_params["jobid"])
        asked = await body_of(request, schemas.SAVEPOINT_TRIGGER)
        directory = self._directory(request, job, asked.get("target-directory"))

        def give() -> SnapshotOrder:
            return job.order_savepoint(
                directory, _format(asked), cancel=asked.get("cancel-job", False)
            )

        return self._ordered(job, OperationKind.SAVEPOINT, asked, give)

    @order("/jobs/{jobid}/stop", schemas.STOP_TRIGGER)
    async def stop(self, request: Request) -> Response:
        """Stop the job with a savepoint after which nothing follows."""
        job = self._jobs.get(request.path_params["jobid"])
        asked = await body_of(request, schemas.STOP_TRIGGER)
        directory = self._directory(request, job, asked.get("targetDirectory"))

        def give() -> SnapshotOrder:
            return job.order_stop(directory, _format(asked), drain=asked.get("drain", False))

        return self._ordered(job, OperationKind.SAVEPOINT, asked, give)

    @endpoint("/jobs/{jobid}/savepoints/{triggerid}", schemas.SAVEPOINT_STATUS)
    async def savepoint_status(self, request: Request) -> Response:
        """What became of a savepoint, or of a stop with one."""
        return self._status(request, OperationKind.SAVEPOINT)

    @order(
        "/jobs/{jobid}/rescaling",
        method="PATCH",
        query={"parallelism": {"type": "integer", "minimum": 1, "maximum": 1 << 15}},
    )
    async def rescale(self, request: Request) -> Response:
        """Go on with another parallelism, from a checkpoint that is taken now."""
        job = self._jobs.get(request.path_params["jobid"])
        wanted = whole_number(request.query_params.get("parallelism", ""), "parallelism")

        def give() -> SnapshotOrder:
            if not 1 <= wanted <= MAX_PARALLELISM:
                raise ConfigError("parallelism", wanted, f"give 1 to {MAX_PARALLELISM}")
            return job.order_rescaling(wanted)

        return self._ordered(job, OperationKind.RESCALING, {}, give)

    @endpoint("/jobs/{jobid}/rescaling/{triggerid}", schemas.PLAIN_STATUS)
    async def rescaling_status(self, request: Request) -> Response:
        """What became of a change of parallelism."""
        return self._status(request, OperationKind.RESCALING)

    @order("/savepoint-disposal", schemas.DISPOSAL_TRIGGER, refusals=(400, 403, 413, 429))
    async def dispose(self, request: Request) -> Response:
        """Delete a savepoint."""
        asked = await body_of(request, schemas.DISPOSAL_TRIGGER)
        directories = [
            directory
            for job in self._jobs.all()
            for directory in savepoint_directories(job.settings)
        ]
        path = self._allowed(request, asked["savepoint-path"], directories)

        def start() -> Operation:
            return Operation(OperationKind.DISPOSAL, _in_background(lambda: dispose(path)))

        trigger = self._operations.begin(_EVERYWHERE, OperationKind.DISPOSAL, None, start)
        return Document({"request-id": trigger}, status_code=202)

    @endpoint("/savepoint-disposal/{triggerid}", schemas.PLAIN_STATUS)
    async def disposal_status(self, request: Request) -> Response:
        """What became of the deletion of a savepoint."""
        return self._status(request, OperationKind.DISPOSAL)

    def _status(self, request: Request, kind: OperationKind) -> Response:
        job = request.path_params.get("jobid")
        scope = _EVERYWHERE if job is None else self._jobs.get(job).job_id
        trigger = identity(request.path_params["triggerid"], "trigger")
        return Document(self._operations.get(scope, kind, trigger).document())

    def _ordered(
        self,
        job: JobHandle,
        kind: OperationKind,
        asked: dict[str, Any],
        give: Callable[[], SnapshotOrder],
    ) -> Response:
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

        trigger = self._operations.begin(job.job_id, kind, asked.get("triggerId"), start)
        return Document({"request-id": trigger}, status_code=202)

    def _directory(self, request: Request, job: JobHandle, wanted: str | None) -> str | None:
        if not wanted:
            return None
        return self._allowed(request, wanted, list(savepoint_directories(job.settings)))

    def _allowed(self, request: Request, wanted: str, directories: list[str]) -> str:
        if request.scope[OWNER]:
            return wanted
        found = allowed_path(wanted, directories)
        if found is None:
            raise Refusal(403, refused_path(wanted, directories))
        return found


def _format(asked: dict[str, Any]) -> SavepointFormat:
    return SavepointFormat[asked.get("formatType", SavepointFormat.CANONICAL.name)]


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
