"""Jobs on a mini cluster behind the real server, and what it takes to talk to it."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.jobs import Sums, Watch, fail_once, pairs, summed
from tests.programs import graph_of, read, settings_of, wait_until
from tests.taps import Tap
from tidegate.core.rest_settings import RestSettings
from tidegate.driver.job_handle import JobHandle
from tidegate.protocol.job_status import JobStatus
from tidegate.testing.mini_cluster import run
from tidegate.web.registry import HOME_VARIABLE, known_jobs
from tidegate.web.server import RestServer

RECORDS = pairs(60)
TOKEN = "token-of-the-tests"
QUIET = {"tidegate.console.live-line": "off"}


@dataclass
class Answer:
    status: int
    document: Any
    headers: dict[str, str]

    @property
    def error(self) -> str:
        (sentence,) = self.document["errors"]
        return str(sentence)


class Served:
    """A job, its server, and its source."""

    def __init__(self, server: RestServer, job: JobHandle, tap: Tap, watch: Watch) -> None:
        self.server = server
        self.job = job
        self.tap = tap
        self.watch = watch
        self.id = job.job_id
        self.path = f"/jobs/{job.job_id}"

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        address = urlsplit(self.server.url)
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=120)
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        credentials = {"authorization": f"Bearer {TOKEN}"}
        connection.request(method, path, content, {**credentials, **(headers or {})})
        response = connection.getresponse()
        text = response.read()
        is_json = response.headers["content-type"] == "application/json"
        answer = Answer(
            response.status,
            json.loads(text) if is_json and text else text.decode(),
            {name.lower(): value for name, value in response.getheaders()},
        )
        connection.close()
        return answer

    def of_job(self, path: str = "", **more: Any) -> Answer:
        return self.ask(f"{self.path}{path}", **more)

    def as_owner(self) -> dict[str, str]:
        (record,) = [record for record in known_jobs() if record.job_id == self.id]
        return {"authorization": f"Bearer {record.token}"}

    def order(self, path: str, body: Any = None, **more: Any) -> dict[str, Any]:
        """Give an order, and wait for what becomes of it."""
        given = self.of_job(path, method="POST", body=body, **more)
        assert given.status == 202, given
        statuses = "/checkpoints" if path == "/checkpoints" else "/savepoints"
        return self.outcome(f"{self.path}{statuses}/{given.document['request-id']}", **more)

    def outcome(self, path: str, **more: Any) -> dict[str, Any]:
        found: list[Any] = []

        def is_done() -> bool:
            found[:] = [self.ask(path, **more).document]
            return found[0]["status"]["id"] == "COMPLETED"

        wait_until(is_done)
        return found[0]["operation"]

    def let(self, records: int) -> None:
        self.tap.let_pass(records)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Where the jobs of a test are written down."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def serve(tmp_path):
    """Starts jobs with a server each, and ends both."""
    served = []

    def create(settings=None, rest=None, name="sums of numbers", parallelism=2, function=Sums):
        watch, tap = Watch(), Tap(RECORDS)
        values = {
            "execution.checkpointing.savepoint-dir": str(tmp_path / "savepoints"),
            **QUIET,
            **(settings or {}),
        }
        values = {key: value for key, value in values.items() if value is not None}

        def plan(parallelism):
            sums = summed(watch, read(tap), function=function)
            return graph_of(sums, parallelism=parallelism, name=name)

        server = RestServer(rest or RestSettings(token=TOKEN))
        job = run(plan(parallelism), settings_of(values), plan)
        server.publish(job, "local-1")
        served.append(Served(server, job, tap, watch))
        wait_until(lambda: job.status() is not JobStatus.CREATED)
        return served[-1]

    yield create
    for each in served:
        each.job.cancel()
        wait_until(lambda job=each.job: job.status().is_terminal)
        each.server.close()


@pytest.fixture
def served(serve):
    return serve()


def restarting(serve) -> Served:
    """A job that has failed, and waits for long before it runs again."""
    served = serve(
        {
            "restart-strategy": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": 2,
            "restart-strategy.fixed-delay.delay": "1 h",
        }
    )
    fail_once(served.watch, "sums")
    served.tap.let(20)
    wait_until(lambda: served.job.status() is JobStatus.RESTARTING)
    return served
