"""Many readers at once, and a job that does not mind."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.jobs import on_disk
from tidegate.core.rest_settings import RestSettings
from tidegate.protocol.job_status import JobStatus
from tidegate.web.application import Application
from tidegate.web.documents import jobs as documents
from tidegate.web.operations import Operations
from tidegate.web.served_jobs import ServedJobs
from tidegate.web.serving.guard import Pace

READERS = Path(__file__).with_name("readers.py")


def looks_at(monkeypatch):
    """Grows whenever a job is looked at for an answer."""
    look, looks = documents.job_details, []

    def noted(job, rates):
        looks.append(1)
        return look(job, rates)

    monkeypatch.setattr(documents, "job_details", noted)
    return looks


@pytest.mark.slow
def test_a_thousand_readers_do_not_disturb_the_job(serve, tmp_path, monkeypatch):
    served = serve(on_disk(tmp_path / "checkpoints"), RestSettings())
    served.let(20)
    address = urlsplit(served.server.url)
    paths = [served.path, f"{served.path}/checkpoints", "/metrics"]
    before = served.job.checkpoints.counts.completed
    looks = looks_at(monkeypatch)
    done = subprocess.run(
        [sys.executable, READERS, address.hostname, str(address.port), "1000", "2", *paths],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["answers"] == 2000
    assert len(looks) < 200
    assert served.job.checkpoints.counts.completed > before
    assert served.job.checkpoints.counts.failed == 0
    assert served.job.status() is JobStatus.RUNNING
    served.let(59)


def test_requests_take_turns_only_when_there_are_many():
    pace = Pace(rate=10, burst=5)
    waits = [pace.wait(now=100.0) for _ in range(25)]
    assert waits[:5] == [0.0] * 5
    assert waits[-1] == pytest.approx(2.0)
    assert pace.wait(now=200.0) == 0.0


async def asked(app, path):
    """The body of an answer, without a network."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    await app(
        {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": [(b"host", b"localhost")],
        },
        receive,
        send,
    )
    assert sent[0]["status"] == 200
    return sent[1]["body"]


def test_who_asks_at_the_same_time_is_answered_together(served, monkeypatch):
    looks = looks_at(monkeypatch)
    jobs = ServedJobs()
    jobs.add(served.job)
    app = Application(jobs, Operations(), RestSettings(), "token").asgi

    async def ask_all():
        return await asyncio.gather(*(asked(app, served.path) for _ in range(200)))

    assert len(set(asyncio.run(ask_all()))) == 1
    assert len(looks) == 1


def test_no_answer_is_older_than_its_question(served, monkeypatch):
    looks = looks_at(monkeypatch)
    for number in range(1, 6):
        assert served.of_job().status == 200
        assert len(looks) == number
