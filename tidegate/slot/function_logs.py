"""Sends the log records of functions to the driver; threads are named after subtasks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidegate.protocol.messages import FunctionLog, SlotMessage


@contextmanager
def thread_named(task: str) -> Iterator[None]:
    """Name the current thread after its subtask, as Flink does, for its log records."""
    thread = threading.current_thread()
    before, thread.name = thread.name, task
    try:
        yield
    finally:
        thread.name = before


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
