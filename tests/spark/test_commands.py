"""Every command on a real job in another process, on Spark."""

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.programs import wait_until
from tests.spark.scripts import PATIENCE
from tests.spark.shell import Shell

pytestmark = [pytest.mark.soak]
PROGRAM = Path(__file__).with_name("commanded_program.py")


class CommandedJob(Shell):
    def run(self, *options):
        return self("run", "--detached", *options, PROGRAM, self.directory / "checkpoints")


@pytest.fixture
def shell(tmp_path):
    shell = CommandedJob(tmp_path)
    yield shell
    shell.cancel_all()


def has_gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_job_is_started_watched_rescaled_killed_stopped_moved_and_cancelled(shell, tmp_path):
    job = shell.run("--supervise")
    listed = shell.jobs()[job]
    assert (listed["name"], listed["state"]) == ("commanded", "RUNNING")
    assert shell.jobs("--application", listed["application"]).keys() == {job}
    assert not shell.jobs("--application", "another")
    assert "the program starts its job" in shell("logs", job)

    checkpoint = shell.json("checkpoint", job)
    assert f"chk-{checkpoint['checkpoint']}" in checkpoint["path"]
    savepoint = Path(shell("savepoint", job[:8], "savepoints"))
    assert savepoint.parent == tmp_path / "savepoints"
    assert (savepoint / "_metadata").is_file()
    history = shell.json("checkpoints", "commanded")
    assert history["latest"]["savepoint"]["external_path"] == str(savepoint)
    assert shell.json("info", job)["vertices"][0]["name"] == "Numbers"

    assert shell("rescale", job, 3) == f"{job} runs with parallelism 3."
    assert [v["parallelism"] for v in shell.json("info", job)["vertices"]][-1] == 3

    os.kill(listed["pid"], signal.SIGKILL)
    wait_until(lambda: shell.jobs().get(job, listed)["pid"] != listed["pid"], PATIENCE)
    wait_until(lambda: shell.jobs().get(job, {}).get("state") == "RUNNING", PATIENCE)
    restored = shell.json("info", job)["checkpoints"]["latest"]["restored"]
    assert restored["id"] >= checkpoint["checkpoint"]
    assert "was ended by SIGKILL; restarting it from the latest checkpoint" in shell("logs", job)

    again = shell.jobs()[job]["pid"]
    supervisor = psutil.Process(again).ppid()
    stopped = shell.json("stop", job, "-p", "stopped", "--drain")
    assert stopped["state"] == "FINISHED"
    assert Path(stopped["savepoint"]).parent == tmp_path / "stopped"
    wait_until(lambda: has_gone(again) and has_gone(supervisor))
    assert not shell.jobs()
    assert "no longer runs: it is finished" in shell("savepoint", job, code=5)

    assert {each["uid"] for each in shell.json("state", "show", savepoint)["operators"]} >= {
        "numbers",
        "counts",
    }
    shell("state", "diff", savepoint, savepoint)
    shell("state", "diff", savepoint, stopped["savepoint"], code=1)
    program = (PROGRAM, tmp_path / "checkpoints")
    assert json.loads(shell("plan", "--json", savepoint, *program))["fits"]
    assert "Numbers" in shell("explain", *program)

    moved = shell.run("--from", savepoint)
    assert moved != job
    assert shell.json("info", moved)["checkpoints"]["latest"]["restored"]["is_savepoint"]
    last = Path(shell("cancel", "-s", "last", moved))
    assert last.parent == tmp_path / "last"
    assert [job["state"] for job in shell.jobs("-a").values()] == ["CANCELED", "FINISHED"]

    assert shell("savepoint", "-d", last) == f"{last} is deleted."
    assert not last.exists()
    assert "there is no job 'x'" in shell("cancel", "x", code=3)


def test_why_a_program_does_not_start_is_reported(shell):
    output = shell("run", "--detached", "--supervise", "-D", "nonsense=1", PROGRAM, "x", code=1)
    assert "there is no such setting" in output
    assert "ended with exit code 1" in output
