"""The server of one driver, on its own thread, and the registration of its jobs."""

from __future__ import annotations

import atexit
import json
import logging
import os
import secrets
import socket
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.core.errors import ConfigError
from tidegate.core.rest_settings import RestSettings
from tidegate.driver.job_handle import JobHandle
from tidegate.web.operations import Operations
from tidegate.web.recent_logs import RecentLogs
from tidegate.web.registry import (
    COMMAND_VARIABLE,
    LAUNCH_VARIABLE,
    LOG_VARIABLE,
    JobRecord,
    Registration,
    owner_token,
)
from tidegate.web.served_jobs import ServedJobs
from tidegate.web.serving.logins import Logins

if TYPE_CHECKING:
    from tidegate.web.application import Application
    from tidegate.web.documents.driver import ServerKind
    from tidegate.web.serving.sleeping_server import SleepingServer

_log = logging.getLogger("tidegate.rest")
_BACKLOG = 2048
_LAST_WORDS_SECONDS = 3.0
"""How long a driver stays alive to report requested savepoints."""
_LOOK_SECONDS = 0.05


class RestServer:
    """Answers requests while the process lives."""

    def __init__(self, settings: RestSettings, kind: ServerKind = "driver") -> None:
        self._settings = settings
        self._kind: ServerKind = kind
        self._logins = Logins()
        self._logs = RecentLogs()
        self._application: Application | None = None
        self._token = _owner_token()
        self._jobs = ServedJobs()
        self._operations = Operations()
        self._registered: dict[str, tuple[JobHandle, Registration]] = {}
        self._closing = threading.Lock()
        self._socket = _listen(settings)
        self._server: SleepingServer | None = None
        self._thread = threading.Thread(target=self._serve, name="tidegate-rest", daemon=True)
        self._logs.install()
        self._thread.start()
        atexit.register(self._last_words)

    @property
    def url(self) -> str:
        """Its URL on this machine."""
        address = self._settings.address
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
        port = self._socket.getsockname()[1]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def login_link(self, route: str = "") -> str:
        """The URL of the dashboard, with a code for one login of the owner."""
        return f"{self.url}/#{route}?login={self._logins.new_code()}"

    def publish(self, job: JobHandle, application_id: str | None = None) -> None:
        """Serve a job from now on, and register it for commands."""
        self._jobs.add(job)
        record = JobRecord(
            job_id=job.job_id,
            name=job.name,
            pid=os.getpid(),
            started_at=job.chronicle.started_at,
            application_id=application_id,
            url=self.url,
            token=self._token,
            log=os.environ.get(LOG_VARIABLE),
            launch=os.environ.get(LAUNCH_VARIABLE),
            checkpoint_directory=job.checkpoint_directory,
            savepoint_directory=job.settings.checkpointing.savepoint_directory,
            command=json.loads(os.environ.get(COMMAND_VARIABLE, "null")),
        )
        try:
            registration = Registration(record)
        except OSError as error:
            _log.warning(
                "job %s is served at %s, but commands will not find it: %s",
                job.job_id,
                self.url,
                error,
            )
            return
        _log.info("job %s is served at %s", job.job_id, self.url)
        self._registered[job.job_id] = (job, registration)
        job.when_ended(lambda: self._ended(job.job_id))

    def _ended(self, job_id: str) -> None:
        with self._closing:
            if job_id in self._registered:
                self._write_end(*self._registered[job_id])
                del self._registered[job_id]

    def _write_end(self, job: JobHandle, registration: Registration) -> None:
        failures = job.chronicle.failures
        status = job.status()
        ended = replace(
            registration.record,
            state=status.name,
            ended_at=job.chronicle.ended_at or time.time(),
            failure=str(failures[0].cause) if failures and failures[0].is_final else None,
            token=None,
            operations=self._operations.outcomes(job.job_id),
        )
        self._archive(job)
        try:
            registration.end(ended)
        except OSError as error:
            _log.warning("the end of job %s could not be recorded: %s", job.job_id, error)

    def _archive(self, job: JobHandle) -> None:
        from tidegate.web.archive import Archive, answers_of

        if self._application is None:
            return
        try:
            watched = self._application.hub.watched(job.job_id)
            watched.look(self._operations)
            Archive().write(job.job_id, answers_of(job, watched))
        except Exception as error:
            # The end of the job matters more than its archive.
            _log.warning("the data of job %s could not be archived: %s", job.job_id, error)

    def _serve(self) -> None:
        import uvicorn

        from tidegate.web.application import Application
        from tidegate.web.serving.connections import ACCEPTED_AT_ONCE, bounded_protocol
        from tidegate.web.serving.sleeping_server import SleepingServer

        self._application = Application(
            self._jobs,
            self._operations,
            self._settings,
            self._token,
            self._logins,
            self._logs,
            self._kind,
        )
        config = uvicorn.Config(
            self._application.asgi,
            access_log=False,
            backlog=ACCEPTED_AT_ONCE,
            date_header=False,
            http=bounded_protocol(),
            lifespan="on",
            log_config=None,
            log_level=logging.ERROR,  # no line for every malformed request
            loop="asyncio",
            server_header=False,
            ws="none",
        )
        self._server = SleepingServer(config)
        self._server.run(sockets=[self._socket])

    def close(self) -> None:
        """Stop answering."""
        atexit.unregister(self._last_words)
        while self._server is None and self._thread.is_alive():
            time.sleep(_LOOK_SECONDS)
        if self._server is not None and self._application is not None:
            self._application.hub.close()
            self._server.end()
        self._thread.join()
        self._logs.remove()
        self._socket.close()

    def _last_words(self) -> None:
        """Record the ends of jobs before the process ends: their threads may be too late."""
        for job_id, (job, _) in list(self._registered.items()):
            if job.status().is_terminal:
                self._ended(job_id)
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while not self._operations.are_told() and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)


def _owner_token() -> str:
    try:
        return owner_token()
    except OSError as error:
        _log.warning("orders by REST are refused, because no token can be stored: %s", error)
        return secrets.token_urlsafe(24)


class _Listener(socket.socket):
    """Lets many connections wait, however few the event loop accepts at once."""

    def listen(self, backlog: int = _BACKLOG, /) -> None:
        super().listen(max(backlog, _BACKLOG))


def _listen(settings: RestSettings) -> socket.socket:
    """A socket on the first free port.

    Raises:
        ConfigError: none is free, or the address does not belong to this machine.
    """
    family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
    problem: OSError | None = None
    for port in settings.ports:
        listener = _Listener(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((settings.address, port))
            listener.listen()
        except OSError as error:
            listener.close()
            problem = error
        else:
            return listener
    ports = settings.ports
    raise ConfigError(
        "rest.port",
        str(ports[0]) if len(ports) == 1 else f"{ports[0]}-{ports[-1]}",
        f"cannot listen on {settings.address} ({problem}); set another port, a range of "
        "ports, or 0 for any free one",
    )


_servers: dict[RestSettings, RestServer] = {}
"""The servers of this process: jobs with the same settings share one."""
_opening = threading.Lock()


def rest_server(settings: RestSettings) -> RestServer | None:
    """The server for a job with these settings; None if it is disabled.

    Raises:
        ConfigError: it cannot listen at its address.
    """
    if not settings.enabled:
        return None
    with _opening:
        if settings not in _servers:
            _servers[settings] = RestServer(settings)
        return _servers[settings]
