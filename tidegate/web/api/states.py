"""Stored savepoints and checkpoints: their contents, differences, and fit with a program.

Only requests with a token are allowed, and only the owner may use any path.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, cast

from starlette.requests import Request

from tidegate.core.config import Settings
from tidegate.web.allowed_paths import (
    allowed_path,
    is_storage_path,
    refused_path,
    savepoint_directories,
)
from tidegate.web.documents import states
from tidegate.web.endpoints import endpoint, order
from tidegate.web.forms import as_document
from tidegate.web.registry import JobRecord, known_jobs
from tidegate.web.requests import OWNER, Refusal
from tidegate.web.served_jobs import ServedJobs
from tidegate.web.state_browser import StateBrowser

_REFUSALS = (400, 403, 404, 409)
_PLAN_SECONDS = 60.0


class StateApi:
    """Each method answers one path."""

    def __init__(self, jobs: ServedJobs, browser: StateBrowser) -> None:
        self._jobs = jobs
        self._browser = browser

    @endpoint("/tidegate/savepoints", is_private=True, refusals=_REFUSALS)
    async def savepoints(
        self, request: Request, query: states.SavepointsQuery
    ) -> states.FoundSavepoints:
        """Savepoints and checkpoints in a directory, or in those of known jobs."""
        if query.directory is not None:
            directories = [self._allowed(request, query.directory)]
        else:
            directories = self._directories(query.job)
        answer = await self._browser.ask("list", {"directories": directories})
        return cast(states.FoundSavepoints, answer)

    @endpoint("/tidegate/state", is_private=True, refusals=_REFUSALS)
    async def contents(
        self, request: Request, query: states.StateQuery
    ) -> states.SavepointContents:
        """The operators of a savepoint or checkpoint and their states."""
        self._allowed(request, query.path)
        return cast(states.SavepointContents, await self._ask("contents", query))

    @endpoint("/tidegate/state/entries", is_private=True, refusals=_REFUSALS)
    async def entries(self, request: Request, query: states.EntriesQuery) -> states.StateEntries:
        """The entries of a state, page by page."""
        self._allowed(request, query.path)
        self._check_trust(request, query.trust)
        return cast(states.StateEntries, await self._ask("entries", query))

    @endpoint("/tidegate/state/difference", is_private=True, refusals=_REFUSALS)
    async def difference(
        self, request: Request, query: states.DifferenceQuery
    ) -> states.DifferenceDocument:
        """How the state of two savepoints differs."""
        for path in (query.before, query.after):
            self._allowed(request, path)
        self._check_trust(request, query.trust)
        return cast(states.DifferenceDocument, await self._ask("difference", query))

    @order("/tidegate/plan", status=200)
    async def plan(self, request: Request, body: states.PlanOrder) -> states.UpgradeDocument:
        """What becomes of a savepoint's state in a program, without running it."""
        if not request.scope[OWNER]:
            raise Refusal(403, "only the owner of the job can plan programs")
        program, arguments = body.program, body.arguments or []
        directory = None
        if body.jid is not None:
            launch = launch_of(body.jid)
            program, arguments = launch["program"], launch["arguments"]
            directory = launch["directory"]
        if program is None:
            raise Refusal(400, "specify the program, or the jid of a job that was started by `run`")
        command = [sys.executable, "-m", "tidegate", "plan", "--json", body.savepoint]
        code, out, err = await output_of([*command, program, *arguments], directory)
        try:
            return cast(states.UpgradeDocument, json.loads(out))
        except ValueError:
            said = err.strip().rpartition("\n")[2] or f"exit code {code}"
            raise Refusal(400, f"the plan failed: {said}") from None

    async def _ask(self, what: str, query: Any) -> Any:
        return await self._browser.ask(what, as_document(query))

    def _directories(self, job_id: str | None) -> list[str]:
        """The checkpoint and savepoint directories of the jobs of this machine."""
        found: list[str] = []
        for job in self._jobs.all():
            if job_id in (None, job.job_id):
                found += _of_settings(job.settings)
        for record in known_jobs():
            if job_id in (None, record.job_id):
                found += _of_record(record)
        return list(dict.fromkeys(found))

    def _allowed(self, request: Request, path: str) -> str:
        if not is_storage_path(path):
            raise Refusal(400, f"{path!r} is not a path or URL")
        if request.scope[OWNER]:
            return path
        directories = self._directories(None)
        found = allowed_path(path, directories)
        if found is None:
            raise Refusal(403, refused_path(path, directories))
        return found

    def _check_trust(self, request: Request, trust: bool) -> None:
        if trust and not request.scope[OWNER]:
            raise Refusal(403, "only the owner of the job can trust pickled objects")


def _of_settings(settings: Settings) -> list[str]:
    own = settings.checkpointing.directory
    return [*([own] if own else []), *savepoint_directories(settings)]


def _of_record(record: JobRecord) -> list[str]:
    places = (record.checkpoint_directory, record.savepoint_directory)
    return [place for place in places if place is not None]


def launch_of(job_id: str) -> dict[str, Any]:
    """How a job was started.

    Raises:
        Refusal: it is unknown, or was not started by `tidegate run`.
    """
    record = next((record for record in known_jobs() if record.job_id == job_id), None)
    if record is None:
        raise Refusal(404, f"this machine has no job {job_id}")
    if record.command is None:
        raise Refusal(409, f"job {job_id} was not started by `tidegate run`: start it yourself")
    return dict(record.command)


async def output_of(command: list[str], directory: str | None) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a `tidegate` command.

    Raises:
        Refusal: it takes too long, or cannot be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=directory if directory is not None and Path(directory).is_dir() else None,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except (OSError, ValueError) as error:
        raise Refusal(400, f"it cannot be started: {error}") from None
    try:
        out, err = await asyncio.wait_for(process.communicate(), _PLAN_SECONDS)
    except TimeoutError:
        process.kill()
        raise Refusal(409, f"it takes longer than {_PLAN_SECONDS:.0f} s") from None
    return process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace")
