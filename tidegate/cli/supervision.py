"""Restarts a driver that dies, from the latest checkpoint of its job."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from types import FrameType

import typer

from tidegate.cli.class_storing import ClassStoring
from tidegate.cli.detached import record_of
from tidegate.cli.exit_codes import USAGE, USER_ERROR
from tidegate.cli.standby import Standby
from tidegate.core.checkpoint_settings import LATEST
from tidegate.core.errors import NoCheckpoint
from tidegate.protocol.job_status import JobStatus
from tidegate.web.registry import LAUNCH_VARIABLE, JobRecord

_FIRST_WAIT_SECONDS = 1.0
_LONGEST_WAIT_SECONDS = 60.0
_SETTLED_SECONDS = 20.0
"""After this time, a driver no longer needs the processor for its own start."""
_FINAL = (0, USER_ERROR, USAGE)
"""Exit codes after which a restart would end the same way."""
_OVER = (JobStatus.FINISHED.name, JobStatus.CANCELED.name)
"""States after which a job must not run again, whatever happens to its driver."""
_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def supervise(
    argv: Callable[[str | None], Sequence[str]],
    start_from: str | None,
    storing: ClassStoring | None = None,
) -> int:
    """Run the program until it ends by itself; returns its exit code.

    `argv` returns the command that starts it from a checkpoint. `storing` begins while a driver
    runs.
    """
    successor = _Successor(Standby(), storing)
    try:
        return _supervise(argv, start_from, successor)
    finally:
        successor.dismiss()


class _Successor:
    """What makes the start of the next driver quicker."""

    def __init__(self, standby: Standby, storing: ClassStoring | None) -> None:
        self._standby = standby
        self._storing = storing

    def start(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        return self._standby.start(argv)

    def prepare(self) -> None:
        """Prepare what is possible: the driver must not be left alone."""
        with suppress(Exception):
            self._standby.prepare()
        with suppress(Exception):
            import_module("tidegate.checkpoint.locate")  # for `restart_path`
        with suppress(Exception):
            if self._storing is not None:
                self._storing.begin()

    def dismiss(self) -> None:
        self._standby.dismiss()
        if self._storing is not None:
            self._storing.end()


def _supervise(
    argv: Callable[[str | None], Sequence[str]], start_from: str | None, successor: _Successor
) -> int:
    launch = os.environ.setdefault(LAUNCH_VARIABLE, secrets.token_hex(8))
    wait, path = 0.0, start_from
    while True:
        began = time.monotonic()
        code = _run(argv(path), successor)
        if code in _FINAL:
            return code
        ended = time.monotonic()
        if ended - began > _LONGEST_WAIT_SECONDS:
            wait = 0.0
        record = record_of(launch)
        if record is not None and record.state in _OVER:
            typer.echo(
                f"tidegate: the job is {record.state}, but the driver {_end(code)}", err=True
            )
            return code
        path = restart_path(record, start_from)
        where = "from the latest checkpoint" if path == LATEST else f"from {path}"
        where = "from the beginning" if path is None else where
        when = f" in {wait:.0f} s" if wait else ""
        typer.echo(f"tidegate: the driver {_end(code)}; restarting it {where}{when}", err=True)
        # Looking for the checkpoint, imports included, may have taken a while.
        time.sleep(max(0.0, ended + wait - time.monotonic()))
        wait = min(max(2 * wait, _FIRST_WAIT_SECONDS), _LONGEST_WAIT_SECONDS)


def restart_path(record: JobRecord | None, start_from: str | None) -> str | None:
    """Where the next driver starts.

    A checkpoint of an earlier run does not count. Without a checkpoint of its own, the job starts
    where it first started. `latest` also finds transactions of a job without checkpoints, so it is
    preferred if it means the same.
    """
    if start_from == LATEST or record is None or record.checkpoint_directory is None:
        return start_from
    from tidegate.checkpoint.locate import candidates, find_latest
    from tidegate.storage.filesystem import open_store
    from tidegate.storage.locations import parent_and_name

    if candidates(record.checkpoint_directory):
        return LATEST
    if start_from is None:
        base, _ = parent_and_name(record.checkpoint_directory)
        try:
            if find_latest(open_store(base), job_name=record.name) is None:
                return LATEST
        except NoCheckpoint:
            pass  # a checkpoint of an earlier run cannot be read, which does not matter here
    return start_from


def _run(argv: Sequence[str], successor: _Successor) -> int:
    """Run a driver to its end.

    Signals that should end the supervisor end the driver first, once and gracefully: it has its own
    session, so that a terminal does not interrupt it a second time.

    Raises:
        typer.Exit: the supervisor should end.
    """
    process: subprocess.Popen[bytes] | None = None
    received: list[int] = []
    interrupts = iter([signal.SIGINT])

    def interrupt() -> None:
        if process is not None and received:
            for each in interrupts:
                process.send_signal(each)

    def hand_on(number: int, frame: FrameType | None) -> None:
        received.append(number)
        interrupt()

    # Install the handlers first: a driver does not inherit them, but it would inherit an ignored
    # SIGINT, which shells set for background processes.
    before = {each: signal.signal(each, hand_on) for each in _ENDING_SIGNALS}
    try:
        process = successor.start(argv)
        interrupt()
        code = _wait(process, successor)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    if received:
        raise typer.Exit(code if code > 0 else 128 + received[0])
    return code


def _wait(process: subprocess.Popen[bytes], successor: _Successor) -> int:
    """Wait for the end of a driver; meanwhile, prepare its successor."""
    try:
        return process.wait(_SETTLED_SECONDS)
    except subprocess.TimeoutExpired:
        successor.prepare()
        return process.wait()


def _end(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
