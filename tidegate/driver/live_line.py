"""The progress of a running job: a line that is redrawn on a terminal, log lines elsewhere."""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

from tidegate.checkpoint.statistics import CheckpointRecord
from tidegate.core.amounts import byte_size, duration, per_second
from tidegate.core.modes import LiveLine
from tidegate.driver.catching_up import Look, compared
from tidegate.driver.progress import Progress

_log = logging.getLogger("tidegate.progress")
_REDRAW_SECONDS = 0.5
_LOG_SECONDS = 30.0
_CLEAR = "\r\x1b[K"


class Console:
    """Prints the output of the job without garbling its live line."""

    def __init__(
        self, mode: LiveLine, out: TextIO | None = None, err: TextIO | None = None
    ) -> None:
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._is_live = mode is LiveLine.ON or (mode is LiveLine.AUTO and self._err.isatty())
        self._is_silent = mode is LiveLine.OFF
        self._is_drawn = False
        self._lock = threading.RLock()
        self._make_record = logging.getLogRecordFactory()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lines: queue.SimpleQueue[str | threading.Event | None] = queue.SimpleQueue()
        self._writer = threading.Thread(
            target=self._write_lines, name="tidegate-console", daemon=True
        )
        self._writer.start()

    def print(self, line: str) -> None:
        """Print a line of the job's output without blocking the job on a paused terminal."""
        self._lines.put(line)

    def drain(self) -> None:
        """Wait until everything printed so far is written."""
        arrived = threading.Event()
        self._lines.put(arrived)
        arrived.wait()

    def _write_lines(self) -> None:
        while (line := self._lines.get()) is not None:
            if isinstance(line, threading.Event):
                line.set()
                continue
            with self._lock:
                self._erase()
                try:
                    self._write(line)
                except (OSError, ValueError):
                    _log.debug("the output of the job is closed: %s", line)

    def _write(self, line: str) -> None:
        try:
            self._out.write(f"{line}\n")
        except UnicodeEncodeError:
            # An unpaired surrogate, or a character that the terminal does not support.
            encoding = self._out.encoding or "ascii"
            shown = line.encode(encoding, "backslashreplace").decode(encoding)
            self._out.write(f"{shown}\n")
        self._out.flush()

    def follow(self, name: str, progress: Callable[[], Progress]) -> None:
        """Show the progress of the job until `close`."""
        if self._is_silent:
            return
        if self._is_live:
            logging.setLogRecordFactory(self._log_record)
        self._thread = threading.Thread(
            target=self._follow, args=(name, progress), name="tidegate-live-line", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._lines.put(None)
        self._writer.join()
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if logging.getLogRecordFactory() == self._log_record:
            logging.setLogRecordFactory(self._make_record)
        with self._lock:
            self._erase()

    def _log_record(self, *facts: Any, **more: Any) -> logging.LogRecord:
        """Erase the live line, because a log record usually goes to the same terminal."""
        with self._lock:
            self._erase()
        return self._make_record(*facts, **more)

    def _follow(self, name: str, progress: Callable[[], Progress]) -> None:
        seconds = _REDRAW_SECONDS if self._is_live else _LOG_SECONDS
        before = progress()
        while not self._stop.wait(seconds):
            now = progress()
            text = f"{name}: {describe(before, now, seconds, time.time())}"
            before = now
            if not self._is_live:
                _log.info("%s", text)
                continue
            with self._lock:
                self._erase()
                self._err.write(text)
                self._err.flush()
                self._is_drawn = True

    def _erase(self) -> None:
        if self._is_drawn:
            self._err.write(_CLEAR)
            self._err.flush()
            self._is_drawn = False


def describe(before: Progress, now: Progress, seconds: float, wall: float) -> str:
    """Describe the progress between two observations in one line."""
    parts = [
        f"{per_second(max(0, now.records_in - before.records_in) / seconds)} in",
        f"{per_second(max(0, now.records_out - before.records_out) / seconds)} out",
        f"{now.records_in:,} records",
    ]
    if now.restore is not None and not now.restore.is_complete:
        read, size = byte_size(now.restore.read), byte_size(now.restore.size)
        parts.insert(0, f"restored {read} of {size}")
    if now.restart is not None:
        parts.insert(0, now.restart)
    if now.lag is not None or now.records_to_repeat:
        parts.append(_behind(before, now, seconds))
    if now.step_seconds is not None:
        parts.append(f"step {now.steps:,} took {1000 * now.step_seconds:.0f} ms")
    if now.checkpoint is not None:
        parts.append(_checkpoint(now.checkpoint, wall))
    return " · ".join(parts)


def _behind(before: Progress, now: Progress, seconds: float) -> str:
    found = compared(
        Look(at=0.0, read=before.records_in, behind=before.behind),
        Look(at=seconds, read=now.records_in, behind=now.behind),
    )
    text = f"{now.behind:,} behind"
    return f"{text}, {duration(found.seconds_left)} left" if found.seconds_left else text


def _checkpoint(record: CheckpointRecord, wall: float) -> str:
    taken, ended = record.duration or 0.0, record.ended_at or wall
    return (
        f"checkpoint {record.checkpoint_id}: {byte_size(record.size)} in {1000 * taken:.0f} ms, "
        f"{max(0.0, wall - ended):.0f} s ago"
    )
