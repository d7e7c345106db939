"""Processes that outlive who started them, known by a file with their id."""

import fcntl
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_END_TIMEOUT_SECONDS = 30


@contextmanager
def alone(home: Path) -> Iterator[None]:
    """Let one process at a time start or stop the service."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def spawn(command: Sequence[str], home: Path) -> None:
    """Start a process in ``home`` whose arguments name ``home``, and whose output goes to a log."""
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _file(home).write_text(str(process.pid))


def running(home: Path) -> int | None:
    """The id of the process, if it lives; an id that was given to another does not count."""
    try:
        pid = int(_file(home).read_text())
    except (OSError, ValueError):
        return None
    shown = subprocess.run(
        ["ps", "-ww", "-o", "stat=,command=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    stat, _, arguments = shown.partition(" ")
    # A program that is just being loaded has no arguments yet: it is shown as [its name].
    is_ours = str(home) in arguments or arguments.lstrip().startswith("[")
    return pid if is_ours and not stat.startswith("Z") else None


def end(home: Path) -> None:
    """End the process, softly at first; returns when it is gone."""
    pid = running(home)
    deadline = time.monotonic() + _END_TIMEOUT_SECONDS
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
    while pid is not None and running(home) == pid:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    _file(home).unlink(missing_ok=True)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _file(home: Path) -> Path:
    return home / "pid"
