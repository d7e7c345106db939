"""Talks to the driver of a job, for commands. Only the standard library is imported."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from tidegate.core.errors import JobOutOfReach, OrderRefused
from tidegate.web.registry import JobRecord, known_jobs

_TIMEOUT_SECONDS = 30.0
_LOOK_SECONDS = 0.1
_FAREWELL_SECONDS = 10.0
"""How long a driver may take to write the end of its job down."""

Watch = Callable[[int, int], None]
"""Told how many subtasks have acknowledged, and of how many."""


class JobConnection:
    """Asks the driver of one job, as its owner."""

    def __init__(self, record: JobRecord, timeout: float = _TIMEOUT_SECONDS) -> None:
        self.record = record
        self._timeout = timeout

    def get(self, path: str = "") -> Any:
        """A document about the job."""
        return self._ask("GET", path)

    def dashboard(self, route: str) -> str:
        """Where the dashboard of the driver is, with a code for one login.

        Raises:
            JobOutOfReach: the driver does not answer.
        """
        code = self._ask_driver("POST", "/tidegate/login")["code"]
        return f"{self.record.url}/#{route}?login={code}"

    def cancel(self) -> None:
        """Ask for the end of the job."""
        self._ask("PATCH", "?mode=cancel")

    def order(self, path: str, body: dict[str, Any], watch: Watch = lambda done, all: None) -> Any:
        """Order something, wait until it has come, and return its outcome.

        Raises:
            OrderRefused: it will not come.
            JobOutOfReach: the driver does not answer, and it is not known what became of it.
        """
        asked = {key: value for key, value in body.items() if value is not None}
        trigger = self._ask("POST", path, asked)["request-id"]
        return self._outcome("/savepoints" if path == "/stop" else path, trigger, watch)

    def rescale(self, parallelism: int, watch: Watch = lambda done, all: None) -> None:
        """Order another parallelism; returns when the job has stopped to continue with it.

        Raises:
            OrderRefused: it continues unchanged.
            JobOutOfReach: the driver does not answer.
        """
        trigger = self._ask("PATCH", f"/rescaling?parallelism={parallelism}")["request-id"]
        self._outcome("/rescaling", trigger, watch)

    def _outcome(self, statuses: str, trigger: str, watch: Watch) -> Any:
        while True:
            document = self._status(f"{statuses}/{trigger}", trigger)
            if document["status"]["id"] == "COMPLETED":
                break
            progress = document.get("progress")
            if progress is not None:
                watch(progress["acknowledged"], progress["subtasks"])
            time.sleep(_LOOK_SECONDS)
        outcome = document["operation"]
        cause = outcome.get("failure-cause") or outcome.get("failureCause")
        if cause is not None:
            raise OrderRefused(cause["stack-trace"])
        return outcome

    def _status(self, path: str, trigger: str) -> Any:
        try:
            return self._ask("GET", path)
        except JobOutOfReach:
            # A job that was stopped takes its driver with it; what became of the order is in the
            # registry then.
            ended = self.wait_for_record(lambda record: not record.is_running)
            if ended is None or trigger not in ended.operations:
                raise
            return ended.operations[trigger]

    def wait_for_record(
        self, condition: Callable[[JobRecord], bool], seconds: float = _FAREWELL_SECONDS
    ) -> JobRecord | None:
        """What is written down of the job once it is so; None if it does not become so."""
        deadline = time.monotonic() + seconds
        while True:
            for record in known_jobs():
                if record.job_id == self.record.job_id and condition(record):
                    return record
            if time.monotonic() > deadline:
                return None
            time.sleep(_LOOK_SECONDS)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return self._ask_driver(method, f"/jobs/{self.record.job_id}{path}", body)

    def _ask_driver(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        url = self.record.url or ""
        address = urlsplit(url)
        connection = http.client.HTTPConnection(
            address.hostname or "", address.port, timeout=self._timeout
        )
        headers = {"authorization": f"Bearer {self.record.token}"}
        content = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            document = json.loads(answer.read() or b"null")
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise JobOutOfReach(self.record.job_id, url, reason) from None
        finally:
            connection.close()
        if answer.status >= 400:
            raise OrderRefused(" ".join(document["errors"]))
        return document
