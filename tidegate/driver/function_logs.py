"""Forwards the log records of slots to the driver's log."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from tidegate.protocol.messages import FunctionLog

LISTENERS: list[Callable[[logging.LogRecord], None]] = []
"""They receive all log records from slots, whatever the logging configuration."""


def level_for_slots() -> int:
    """The level from which slots send log records: INFO, or lower if the driver logs more."""
    root = logging.getLogger()
    return min(logging.INFO, root.level or logging.INFO) if root.handlers else logging.INFO


def log_again(message: FunctionLog) -> None:
    """Log a record under its own logger; print it if logging is not configured."""
    logger = logging.getLogger(message.logger)
    for listen in LISTENERS.copy():
        listen(_record(message, message.text))
    text = f"{message.task}: {message.text}"
    if not logger.hasHandlers():
        name = logging.getLevelName(message.level)
        print(f"{name} {message.logger} {text}", file=sys.stderr, flush=True)
    elif logger.isEnabledFor(message.level):
        logger.handle(_record(message, text))


def _record(message: FunctionLog, text: str) -> logging.LogRecord:
    record = logging.LogRecord(message.logger, message.level, message.task, 0, "%s", (text,), None)
    record.created = message.created
    record.msecs = (message.created % 1) * 1000
    record.threadName = message.task
    return record
