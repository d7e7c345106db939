"""`tidegate verify` on real jobs: sinks that keep their promise pass, broken ones are caught."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.scripts import environment

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
PROGRAM = Path(__file__).with_name("verified_program.py")


def verify(tmp_path, sink, *options):
    place = f"{tmp_path}/out-{{run}}"
    command = [sys.executable, "-m", "tidegate", "verify", "--json", "--sink", place]
    done = subprocess.run(
        [*command, "--directory", str(tmp_path / "runs"), *options, str(PROGRAM), place, sink],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_the_file_sink_is_exactly_once_wherever_the_job_is_killed(tmp_path):
    code, report = verify(tmp_path, "files", "--kills", "6")
    assert report["holds"], report
    assert code == 0
    assert [point["kills"] for point in report["points"]] == [1] * 6
    assert all((point["lost"], point["duplicated"]) == (0, 0) for point in report["points"])


def test_a_sink_that_commits_before_the_checkpoint_is_complete_is_caught(tmp_path):
    code, report = verify(tmp_path, "hasty", "--kills", "2", "--point", "acknowledged")
    assert code == 1
    assert not report["holds"]
    assert report["points"][0]["duplicated"] > 0
    assert any(text.startswith("duplicated: ") for text in report["points"][0]["examples"])


def test_a_sink_that_forgets_what_it_has_prepared_is_caught(tmp_path):
    code, report = verify(tmp_path, "forgetful", "--kills", "2", "--point", "pre-committed")
    assert code == 1
    assert report["points"][0]["lost"] > 0
