"""Kills jobs on real Spark, Kafka and PostgreSQL for some minutes."""

import re
import subprocess
import sys

import pytest

from tests.effort import seed, times

pytest.importorskip("confluent_kafka")
pytest.importorskip("psycopg")
pytestmark = [pytest.mark.prove, pytest.mark.soak, pytest.mark.timeout(7200)]


def test_jobs_that_are_killed_neither_lose_nor_repeat_anything(tmp_path):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.kills", "--minutes", str(times(1))),
            *("--seed", str(seed()), "--ledger", str(tmp_path / "kills.jsonl")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kills = re.search(r"^(\d+) kills, 0 jobs gone wrong$", done.stdout, re.M)
    assert kills is not None
    assert int(kills[1]) > 0
