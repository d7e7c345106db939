"""Restarts jobs that have ended, like `tidegate run --detached`."""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from starlette.requests import Request

from tidegate.core.errors import OrderRefused, TidegateError
from tidegate.web.api.states import launch_of
from tidegate.web.client import JobConnection
from tidegate.web.documents.common import Triggered
from tidegate.web.documents.orders import StartStatus
from tidegate.web.documents.states import StartOrder
from tidegate.web.endpoints import endpoint, order
from tidegate.web.operations import Operation, OperationKind, Operations
from tidegate.web.registry import COMMAND_VARIABLE, LAUNCH_VARIABLE, LOG_VARIABLE, known_jobs
from tidegate.web.requests import OWNER, Refusal, identity

_SCOPE = ""
_OF_THIS_DRIVER = (COMMAND_VARIABLE, LAUNCH_VARIABLE, LOG_VARIABLE)


class StartApi:
    """Each method answers one path."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._starting: set[asyncio.Task[None]] = set()

    @order("/tidegate/jobs/{jobid}/start")
    async def start(self, request: Request, body: StartOrder) -> Triggered:
        """Restart a job that has ended, optionally from a savepoint or checkpoint."""
        if not request.scope[OWNER]:
            raise Refusal(403, "only the owner of a job can start it")
        job_id = identity(request.path_params["jobid"], "job")
        launch = launch_of(job_id)
        if any(record.job_id == job_id and record.is_running for record in known_jobs()):
            raise Refusal(409, f"job {job_id} is still running: stop or cancel it first")
        command = run_again(launch, body)

        def begin() -> Operation:
            result: Future[Any] = Future()
            task = asyncio.get_running_loop().create_task(
                _run(command, launch["directory"], result)
            )
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)
            return Operation(OperationKind.START, result)

        trigger = self._operations.begin(_SCOPE, OperationKind.START, None, begin)
        return Triggered(request_id=trigger)

    @endpoint("/tidegate/starts/{triggerid}", is_private=True)
    async def status(self, request: Request) -> StartStatus:
        """The outcome of a restart."""
        trigger = identity(request.path_params["triggerid"], "trigger")
        found = self._operations.get(_SCOPE, OperationKind.START, trigger).status()
        assert isinstance(found, StartStatus)
        return found


def run_again(launch: dict[str, Any], order: StartOrder) -> list[str]:
    """The command that starts a job as before, from the given savepoint."""
    settings = dict(launch["settings"])
    if order.parallelism is not None:
        settings["parallelism.default"] = str(order.parallelism)
    command = [sys.executable, "-m", "tidegate", "run", "--detached"]
    command += [] if order.from_ is None else ["--from", order.from_]
    command += ["--allow-non-restored"] if order.allow_non_restored else []
    command += [text for key, value in settings.items() for text in ("-D", f"{key}={value}")]
    return [*command, launch["program"], *launch["arguments"]]


async def _run(command: list[str], directory: str, result: Future[Any]) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in _OF_THIS_DRIVER}
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=directory if Path(directory).is_dir() else None,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        job_id = out.decode().strip()
        if process.returncode or not job_id:
            raise OrderRefused(err.decode(errors="replace").strip() or "it ended without a message")
        result.set_result({"jid": job_id, "url": await asyncio.to_thread(_link_to, job_id)})
    except (TidegateError, OSError, ValueError) as error:
        result.set_exception(error)


def _link_to(job_id: str) -> str | None:
    for record in known_jobs():
        if record.job_id == job_id and record.is_running:
            try:
                return JobConnection(record).dashboard(f"/jobs/{job_id}")
            except TidegateError:
                return None
    return None
