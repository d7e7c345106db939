"""A client for the driver of a job, used by commands. Imports only the standard library."""

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
"""How long a driver may take to record the end of its job."""

Watch = Callable[[int, int], None]
"""Called with the number of acknowledged subtasks, and of all."""


class JobConnection:
    """Sends requests to the driver of one job, as its owner."""

    def __init__(self, record: JobRecord, timeout: float = _TIMEOUT_SECONDS) -> None:
        self.record = record
        self._timeout = timeout

    def get(self, path: str = "") -> Any:
        """A document about the job."""
        return self._ask("GET", path)

    def dashboard(self, route: str) -> str:
        """The URL of the driver's dashboard, with a code for one login.

        Raises:
            JobOutOfReach: the driver does not respond.
        """
        code = self._ask_driver("POST", "/tidegate/login")["code"]
        return f"{self.record.url}/#{route}?login={code}"

    def cancel(self) -> None:
        """Request the cancellation of the job."""
        self._ask("PATCH", "?mode=cancel")

    def order(self, path: str, body: dict[str, Any], watch: Watch = lambda done, all: None) -> Any:
        """Request an operation, wait until it is done, and return its outcome.

        Raises:
            OrderRefused: it failed.
            JobOutOfReach: the driver does not respond, and the outcome is unknown.
        """
        asked = {key: value for key, value in body.items() if value is not None}
        trigger = self._ask("POST", path, asked)["request-id"]
        return self._outcome("/savepoints" if path == "/stop" else path, trigger, watch)

    def rescale(self, parallelism: int, watch: Watch = lambda done, all: None) -> None:
        """Request another parallelism; returns when the job has stopped to resume with it.

        Raises:
            OrderRefused: the job continues unchanged.
            JobOutOfReach: the driver does not respond.
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
            # The driver of a stopped job ends with it; the outcome is then in the registry.
            ended = self.wait_for_record(lambda record: not record.is_running)
            if ended is None or trigger not in ended.operations:
                raise
            return ended.operations[trigger]

    def wait_for_record(
        self, condition: Callable[[JobRecord], bool], seconds: float = _FAREWELL_SECONDS
    ) -> JobRecord | None:
        """The record of the job once it meets a condition; None if it does not in time."""
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
