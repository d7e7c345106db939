"""What commands show while they wait, of real jobs that wait for the test."""

import json
import os
import pty
import re
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from tests.jobs import RESTARTS, fail_once, on_disk
from tests.programs import PATIENCE, wait_until
from tidegate.cli.progress import Stand, catching_up, look_at, restored
from tidegate.driver.catching_up import Look

RARELY = {"execution.checkpointing.interval": "1 h"}


class Gate:
    """Where functions of a job wait until the test lets them pass."""

    def __init__(self, served, what, name="sums", when=lambda value: True):
        self._open = threading.Event()
        self.is_reached = threading.Event()

        def wait(value):
            if when(value):
                self.is_reached.set()
                assert self._open.wait(PATIENCE)
            return value

        served.watch.on(name, what, wait)

    def open(self):
        self._open.set()


class Command:
    """A command in another process, and what it has shown so far."""

    def __init__(self, *arguments, terminal):
        read, write = pty.openpty() if terminal else os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tidegate", *arguments],
            stdout=subprocess.PIPE,
            stderr=write,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
            text=True,
        )
        os.close(write)
        self._shown = b""
        self._reader = threading.Thread(target=self._read, args=(read,), daemon=True)
        self._reader.start()

    def _read(self, file):
        while data := _read_some(file):
            self._shown += data
        os.close(file)

    def shown(self):
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self._shown.decode(errors="replace"))

    def shows(self, pattern):
        wait_until(lambda: re.search(pattern, self.shown()))

    def end(self):
        """What it has printed."""
        printed, _ = self._process.communicate(timeout=PATIENCE)
        self._reader.join(PATIENCE)
        assert self._process.returncode == 0, self.shown()
        return printed.strip()


def _read_some(file):
    try:
        return os.read(file, 4096)
    except OSError:  # a terminal that nobody writes to any more
        return b""


@contextmanager
def command(*arguments, terminal):
    running = Command(*arguments, terminal=terminal)
    try:
        yield running
    finally:
        running._process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [True, False])
def test_a_rescaling_shows_acknowledgements_restored_bytes_and_what_is_behind(
    serve, tmp_path, terminal
):
    served = serve(on_disk(tmp_path / "checkpoints", **RARELY))
    served.let(20)
    snapshot = Gate(served, "snapshot")
    with command("rescale", served.id, "3", terminal=terminal) as rescaling:
        rescaling.shows("checkpoint of sums of numbers.* 2 of 4 subtasks acknowledged")
        restore = Gate(served, "initialize")
        snapshot.open()
        rescaling.shows(r"sums of numbers restarts.* restored 0 B of [1-9][\d.]* K?B")
        late = Gate(served, "map", when=lambda pair: pair[1] >= 30)
        served.tap.let(60)
        restore.open()
        assert late.is_reached.wait(PATIENCE)
        if terminal:
            rescaling.shows(r"sums of numbers catches up.* 30 records behind, 0/s")
            late.open()
        assert rescaling.end() == f"{served.id} runs with parallelism 3."
        late.open()
    served.job.result(PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize("order", [("savepoint",), ("checkpoint",), ("stop",), ("cancel", "-s")])
def test_acknowledgements_are_lines_without_a_terminal(serve, tmp_path, order):
    served = serve(on_disk(tmp_path / "checkpoints", **RARELY))
    served.let(20)
    snapshot = Gate(served, "snapshot")
    with command(*order, served.id, terminal=False) as running:
        running.shows(r"(savepoint of|checkpoint of|stopping) sums of numbers: 2 of 4 subtasks")
        snapshot.open()
        assert str(tmp_path) in running.end()
        assert re.fullmatch(r"(.*: [0-4] of 4 subtasks acknowledged\n)+", running.shown())


@pytest.mark.slow
def test_nothing_is_shown_to_machines(serve, tmp_path):
    served = serve(on_disk(tmp_path / "checkpoints", **RARELY))
    served.let(20)
    snapshot = Gate(served, "snapshot")
    with command("rescale", served.id, "3", "--json", terminal=True) as rescaling:
        assert snapshot.is_reached.wait(PATIENCE)
        snapshot.open()
        assert json.loads(rescaling.end()) == {"jid": served.id, "parallelism": 3}
        assert rescaling.shown() == ""


def test_a_job_tells_how_much_it_has_to_read_again(serve, tmp_path):
    served = serve(on_disk(tmp_path / "checkpoints", **RARELY, **RESTARTS))
    served.let(20)
    served.order("/checkpoints")
    served.let(40)
    wait_until(lambda: served.of_job().document["tidegate"]["records-in"] == 40)
    restore = Gate(served, "initialize")
    fail_once(served.watch, "sums")
    served.tap.let(41)
    assert restore.is_reached.wait(PATIENCE)
    job = served.of_job().document
    assert job["tidegate"]["records-to-repeat"] == 21
    assert job["tidegate"]["restore"]["checkpoint-id"] == 1
    assert job["tidegate"]["restore"]["complete"] is False
    stand = restored(job)
    assert (stand.done, stand.all) == (0, job["tidegate"]["restore"]["bytes"])
    assert stand.all > 0
    restore.open()
    wait_until(lambda: served.of_job().document["tidegate"]["records-to-repeat"] == 0)
    after = served.of_job().document
    assert restored(after) is None
    assert after["tidegate"]["restore"]["restored-bytes"] == stand.all
    assert look_at(after).read == 21


def test_the_time_until_a_job_has_caught_up_is_shown():
    first = Look(at=100.0, read=0, behind=90_000)
    before = Look(at=104.0, read=4_000, behind=88_000)
    now = Look(at=106.0, read=10_000, behind=84_000)
    assert catching_up(first, before, now) == Stand(
        6_000, 90_000, "84,000 records behind, 3.00 k/s, 0:00:42 left"
    )


def test_a_job_that_falls_behind_has_no_end_in_sight():
    before, now = Look(at=1.0, read=0, behind=10), Look(at=2.0, read=5, behind=12)
    assert catching_up(before, before, now) == Stand(0, 12, "12 records behind, 5/s")
