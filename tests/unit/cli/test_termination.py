"""SIGTERM and Ctrl-C end `tidegate run` in an orderly way."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import wait_until

ROOT = Path(__file__).parents[3]
PROGRAM = """
import pathlib, sys, time
from tidegate import DataGeneratorSource
from tidegate.driver.job_handle import JobHandle
from tidegate.operators.functions import MapFunction
from tidegate.testing.environments import mini_environment

directory = pathlib.Path(sys.argv[1])

class Tell(MapFunction):
    def map(self, value):
        (directory / "begun").touch()

    def close(self):
        (directory / "closed").touch()

ends = JobHandle.terminate
def tell(job):
    try:
        ends(job)
    finally:
        (directory / "state").write_text(job.status().name)
JobHandle.terminate = tell
env = mini_environment({"tidegate.console.live-line": "off"})
told = env.from_source(DataGeneratorSource(lambda n: n, rate=100), None, "numbers").map(Tell())
if "collect" in sys.argv:
    for each in told.execute_and_collect():
        pass
else:
    told.print()
    env.execute()
"""


@pytest.fixture
def start(tmp_path):
    """Runs the program as a process, and waits until its job has processed something."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    started = []

    def create(*options, words=()):
        command = [sys.executable, "-m", "tidegate", "run", *options, str(program), str(tmp_path)]
        process = subprocess.Popen(
            [*command, *words],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        wait_until(lambda: (tmp_path / "begun").exists() or process.poll() is not None)
        return process

    yield create
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("number", "how", "state"),
    [
        (signal.SIGTERM, None, "CANCELED"),
        (signal.SIGTERM, "cancel", "CANCELED"),
        (signal.SIGTERM, "stop", "FINISHED"),
        (signal.SIGINT, "stop", "FINISHED"),
    ],
)
def test_a_terminated_driver_ends_its_job_as_it_should(start, tmp_path, number, how, state):
    savepoints = f"execution.checkpointing.savepoint-dir={tmp_path / 'savepoints'}"
    chosen = () if how is None else ("--on-terminate", how)
    driver = start(*chosen, "-D", savepoints)
    driver.send_signal(number)
    _, errors = driver.communicate(timeout=120)
    assert driver.returncode == 130, errors
    assert (tmp_path / "state").read_text() == state
    assert (tmp_path / "closed").exists()
    taken = list(tmp_path.glob("savepoints/*"))
    assert [f"--from {path}" in errors for path in taken] == [True] * (how == "stop")


def test_ctrl_c_cancels_a_job_whose_results_are_collected(start, tmp_path):
    driver = start(words=["collect"])
    driver.send_signal(signal.SIGINT)
    _, errors = driver.communicate(timeout=120)
    assert driver.returncode == 130, errors
    assert (tmp_path / "state").read_text() == "CANCELED"
    assert (tmp_path / "closed").exists()


CHECKPOINTED = ("-D", "execution.checkpointing.interval=20ms")


def interrupted(driver, tmp_path):
    wait_until(lambda: list(tmp_path.glob("checkpoints/*/chk-*/_metadata")))
    driver.send_signal(signal.SIGINT)
    _, errors = driver.communicate(timeout=120)
    assert driver.returncode == 130, errors
    return errors


def test_ctrl_c_keeps_the_last_checkpoint_and_says_how_to_resume(start, tmp_path):
    place = ("-D", f"execution.checkpointing.dir={tmp_path / 'checkpoints'}")
    errors = interrupted(start(*CHECKPOINTED, *place), tmp_path)
    (kept,) = tmp_path.glob("checkpoints/*/chk-*")
    assert f"is kept; resume with --from latest, or with --from {kept}\n" in errors
    (tmp_path / "begun").unlink()
    resumed = interrupted(start(*CHECKPOINTED, *place, "--from", "latest"), tmp_path)
    assert "starts fresh" not in resumed
    assert len(list(tmp_path.glob("checkpoints/*/chk-*"))) == 1


def test_a_resumed_job_that_is_interrupted_at_once_can_be_resumed_again(start, tmp_path):
    place = ("-D", f"execution.checkpointing.dir={tmp_path / 'checkpoints'}")
    interrupted(start(*CHECKPOINTED, *place), tmp_path)
    (kept,) = tmp_path.glob("checkpoints/*/chk-*")
    (tmp_path / "begun").unlink()
    never = ("-D", "execution.checkpointing.interval=1h")
    errors = interrupted(start(*never, *place, "--from", "latest"), tmp_path)
    assert "before the first checkpoint of this run: resume with --from latest\n" in errors
    assert list(tmp_path.glob("checkpoints/*/chk-*")) == [kept]


def test_latest_says_when_there_is_nothing_to_resume(start, tmp_path):
    place = ("-D", f"execution.checkpointing.dir={tmp_path / 'checkpoints'}")
    errors = interrupted(start(*CHECKPOINTED, *place, "--from", "latest"), tmp_path)
    assert f"in {tmp_path / 'checkpoints'}: it starts fresh" in errors


def test_stopping_needs_a_place_for_the_savepoint(start):
    driver = start("--on-terminate", "stop")
    _, errors = driver.communicate(timeout=120)
    assert driver.returncode == 1
    assert "execution.checkpointing.savepoint-dir" in errors
