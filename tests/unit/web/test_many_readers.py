"""Many readers at once, and a job that does not mind."""

import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.jobs import on_disk
from tidegate.runtime.jobmanager.job_status import JobStatus
from tidegate.web.guard import Pace

READERS = Path(__file__).with_name("readers.py")


@pytest.mark.slow
def test_a_thousand_readers_do_not_disturb_the_job(serve, tmp_path):
    served = serve(on_disk(tmp_path / "checkpoints"))
    served.let(20)
    address = urlsplit(served.server.url)
    paths = [served.path, f"{served.path}/checkpoints", "/metrics"]
    before = served.job.checkpoints.counts.completed
    done = subprocess.run(
        [sys.executable, READERS, address.hostname, str(address.port), "1000", "2", *paths],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["answers"] == 2000
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
