"""A process that waits for the command of a driver."""

import subprocess
import sys
import threading
import time

import psutil
import pytest

from tests.programs import wait_until
from tidegate.cli.standby import Standby


@pytest.fixture
def standby():
    standby = Standby()
    yield standby
    standby.dismiss()


def waiting():
    return [each for each in psutil.Process().children() if "tidegate.cli.standby" in words(each)]


def words(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []  # it has ended


def tidegate(*words):
    return [sys.executable, "-u", "-m", "tidegate", *words]


def test_the_process_that_waits_runs_the_command(standby, capfd):
    standby.prepare()
    standby.prepare()
    (process,) = wait_until(waiting)
    started = standby.start(tidegate("--version"))
    assert started.pid == process.pid
    assert started.wait(120) == 0
    assert capfd.readouterr().out.startswith("tidegate ")


def test_without_a_process_that_waits_another_one_is_started(standby):
    assert standby.start([sys.executable, "-c", "exit(3)"]).wait(120) == 3
    standby.prepare()
    (process,) = wait_until(waiting)
    process.kill()
    process.wait(120)
    assert standby.start(tidegate("no-such-command")).wait(120) == 2


def test_it_runs_only_commands_of_its_own(standby):
    standby.prepare()
    assert standby.start([sys.executable, "-c", "exit(3)"]).wait(120) == 3
    assert not waiting()


def test_a_process_that_cannot_be_started_leaves_nothing(standby, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    before = psutil.Process().num_fds()
    with pytest.raises(FileNotFoundError):
        standby.prepare()
    assert psutil.Process().num_fds() == before


def test_it_ends_when_it_is_no_longer_needed(standby):
    standby.prepare()
    standby.dismiss()
    assert not waiting()


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_process_that_has_stopped_keeps_nobody_waiting(standby, is_replaced):
    standby.prepare()
    (process,) = wait_until(waiting)
    process.suspend()
    limit = threading.Timer(20, process.kill)  # the test fails instead of waiting
    limit.start()
    before = time.monotonic()
    if is_replaced:
        assert standby.start([sys.executable, "-c", "exit(3)"]).wait(120) == 3
    else:
        standby.dismiss()
    limit.cancel()
    assert time.monotonic() - before < 15
    assert not waiting()


def test_it_ends_with_its_supervisor():
    script = (
        "import os, psutil\n"
        "from tidegate.cli.standby import Standby\n"
        "Standby().prepare()\n"
        "print(psutil.Process().children()[0].pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    command = [sys.executable, "-c", script]
    told = subprocess.run(command, check=False, capture_output=True, text=True)
    wait_until(lambda: not psutil.pid_exists(int(told.stdout)))
