"""Inspects a running slot on request: stacks, profile, sampled records."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from tidegate.core.errors import shorten
from tidegate.protocol.messages import Profile, SampledRecord
from tidegate.stream.batch import NO_TIMESTAMP, Batch

_SAMPLES_PER_SECOND = 100
_GRACE_SECONDS = 15.0
_MOST_STACKS = 5000
_SET_PTRACER = 0x59616D61
"""From prctl.h: which process may trace this one."""
_WAITING = frozenset(
    ("accept", "acquire", "get", "join", "poll", "read", "readinto", "recv_into", "select", "wait")
)
_INSTALL = "py-spy is not installed next to the slot, so only Python frames were sampled: "


def thread_dump() -> dict[str, str]:
    """The stack of every thread of this process, by name."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return {
        f"{names.get(id, 'native')} ({id})": "".join(traceback.format_stack(frame))
        for id, frame in sys._current_frames().items()
    }


def profile(seconds: float) -> Profile:
    """Profile the threads of this process, with py-spy if installed."""
    tool = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if tool is None:
        note = f"{_INSTALL}pip install py-spy"
        return Profile(_sampled(seconds), "in-process", seconds, note)
    try:
        return Profile(_spied(tool, seconds), "py-spy", seconds, None)
    except (OSError, subprocess.SubprocessError) as error:
        note = f"py-spy could not inspect the slot: {error}"
        return Profile(_sampled(seconds), "in-process", seconds, note)


def _spied(tool: str, seconds: float) -> dict[str, int]:
    with tempfile.TemporaryDirectory(prefix="tidegate-profile-") as directory:
        output = Path(directory, "stacks")
        options = ["--pid", str(os.getpid()), "--duration", str(max(1, round(seconds)))]
        options += ["--rate", str(_SAMPLES_PER_SECOND), "--format", "raw", "--nonblocking"]
        with subprocess.Popen(
            [tool, "record", *options, "--output", str(output)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            _allow(process.pid)
            try:
                _, said = process.communicate(timeout=seconds + _GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        if process.returncode:
            raise OSError(said.strip().rpartition("\n")[2])
        stacks: Counter[str] = Counter()
        for line in output.read_text().splitlines():
            stack, _, count = line.rpartition(" ")
            stacks[stack] += int(count)
        return dict(stacks.most_common(_MOST_STACKS))


def _allow(pid: int) -> None:
    """Allow a child to trace this process: Linux may forbid it by default."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PTRACER, pid, 0, 0, 0)


def _sampled(seconds: float) -> dict[str, int]:
    own = threading.get_ident()
    stacks: Counter[str] = Counter()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for id, frame in sys._current_frames().items():
            if id != own and frame.f_code.co_name not in _WAITING:
                stacks[_stack(frame)] += 1
        time.sleep(1 / _SAMPLES_PER_SECOND)
    return dict(stacks.most_common(_MOST_STACKS))


def _stack(frame: FrameType | None) -> str:
    """The stack, outermost function first, in py-spy's format."""
    found: list[str] = []
    while frame is not None:
        code = frame.f_code
        found.append(f"{code.co_name} ({Path(code.co_filename).name}:{frame.f_lineno})")
        frame = frame.f_back
    return ";".join(reversed(found))


class EdgeTap:
    """Samples the next records that a subtask sends along an edge. Used by the mailbox only."""

    def __init__(self, records: int, done: Callable[[tuple[SampledRecord, ...]], None]) -> None:
        self._wanted = records
        self._done = done
        self._found: list[SampledRecord] = []
        self.is_over = False

    def take(self, batch: Batch) -> None:
        some = batch.slice(0, min(len(batch), self._wanted - len(self._found)))
        stamps = some.timestamps
        for number, record in enumerate(some.records):
            at = NO_TIMESTAMP if stamps is None else int(stamps[number])
            self._found.append(
                SampledRecord(shorten(record, 1000), None if at == NO_TIMESTAMP else at)
            )
        if len(self._found) >= self._wanted:
            self.finish()

    def finish(self) -> None:
        """Report the samples, once."""
        if not self.is_over:
            self.is_over = True
            self._done(tuple(self._found))
