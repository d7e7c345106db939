"""Logins, and the jobs of other drivers on this machine."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from tidegate.core.errors import TidegateError
from tidegate.core.rest_settings import RestSettings
from tidegate.web.archive import Archive
from tidegate.web.client import JobConnection
from tidegate.web.documents import machine
from tidegate.web.documents.common import milliseconds
from tidegate.web.documents.driver import ServerConfig, ServerKind, server_config
from tidegate.web.endpoints import endpoint, order
from tidegate.web.registry import known_jobs
from tidegate.web.requests import KNOWN, OWNER, Refusal, identity
from tidegate.web.served_jobs import ServedJobs
from tidegate.web.serving.guard import SESSION
from tidegate.web.serving.logins import CODE_SECONDS, Logins

_PATIENCE_SECONDS = 5.0


class MachineApi:
    """Each method answers one path."""

    def __init__(
        self,
        jobs: ServedJobs,
        settings: RestSettings,
        logins: Logins,
        archive: Archive,
        kind: ServerKind,
    ) -> None:
        self._jobs = jobs
        self._settings = settings
        self._logins = logins
        self._archive = archive
        self._kind = kind

    @endpoint("/config", refusals=())
    async def config(self, request: Request) -> ServerConfig:
        """What a user interface needs to know about this driver, and what the request may do."""
        is_known, read_only = request.scope[KNOWN], self._settings.read_only
        return server_config(
            self._kind,
            read_only=read_only,
            may_act=is_known and not read_only,
            may_look=is_known,
        )

    @order("/tidegate/login", refusals=(), status=200)
    async def login(self, request: Request) -> machine.LoginCode:
        """A code for a page to log in as the owner."""
        if not request.scope[OWNER]:
            raise Refusal(403, "only the owner of the job can issue codes")
        return machine.LoginCode(code=self._logins.new_code(), seconds=int(CODE_SECONDS))

    @order(SESSION, refusals=(400, 413), status=200)
    async def session(self, request: Request, body: machine.SessionOrder) -> machine.LoggedIn:
        """Log in with a code, which cannot be used again."""
        found = self._logins.redeem(body.code)
        if found is None:
            raise Refusal(401, "the code is used or has expired: `tidegate ui` prints a new one")
        token, expires = found
        return machine.LoggedIn(token=token, expires=milliseconds(expires))

    @endpoint("/tidegate/jobs", refusals=())
    async def known_jobs(self, request: Request) -> machine.KnownJobs:
        """The jobs of this user on this machine, including recently ended ones."""
        return self.jobs_of_machine()

    def jobs_of_machine(self) -> machine.KnownJobs:
        here = {str(job.job_id): job.status().name for job in self._jobs.all()}
        found = [
            machine.known_job(
                record,
                state=here.get(record.job_id),
                is_archived=not record.is_running and self._archive.has(record.job_id),
            )
            for record in known_jobs()
        ]
        return machine.KnownJobs(jobs=found)

    @order("/tidegate/jobs/{jobid}/link", status=200, refusals=(400, 404, 409))
    async def link(self, request: Request) -> machine.Link:
        """The URL of a job's dashboard, with a code for one login."""
        wanted = identity(request.path_params["jobid"], "job")
        if not request.scope[OWNER]:
            raise Refusal(403, "only the owner of the job can issue codes")
        record = next((record for record in known_jobs() if record.job_id == wanted), None)
        if record is None:
            raise Refusal(404, f"this machine has no job {wanted}")
        if not record.is_running or record.url is None:
            raise Refusal(409, f"job {wanted} has ended, or its driver serves no dashboard")
        try:
            connection = JobConnection(record, _PATIENCE_SECONDS)
            url = await asyncio.to_thread(connection.dashboard, f"/jobs/{wanted}")
        except TidegateError as error:
            raise Refusal(409, str(error)) from None
        return machine.Link(url=url)
