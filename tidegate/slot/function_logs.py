"""Sends the log records of functions to the driver; threads are named after subtasks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tidegate.protocol.messages import FunctionLog, SlotMessage


class thread_named:  # noqa: N801
    """Names the current thread after its subtask, as Flink does, for its log records."""

    __slots__ = ("_before", "_task", "_thread")

    def __init__(self, task: str) -> None:
        self._task = task

    def __enter__(self) -> None:
        self._thread = threading.current_thread()
        self._before, self._thread.name = self._thread.name, self._task

    def __exit__(self, *failure: object) -> None:
        self._thread.name = self._before


class LogForwarder(logging.Handler):
    """Sends log records to the driver, from any thread."""

    def __init__(self, send: Callable[[SlotMessage], None]) -> None:
        super().__init__()
        self._send = send
        self._sending = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(self._sending, "is_on", False):
            return  # sending must not log recursively
        self._sending.is_on = True
        try:
            task = record.threadName or ""
            self._send(
                FunctionLog(record.name, record.levelno, task, self.format(record), record.created)
            )
        except Exception:
            self.handleError(record)
        finally:
            self._sending.is_on = False


def forward_logs(send: Callable[[SlotMessage], None], level: int) -> None:
    """Send log records of this process from this level on."""
    root = logging.getLogger()
    root.handlers[:] = [LogForwarder(send)]
    root.setLevel(level)
