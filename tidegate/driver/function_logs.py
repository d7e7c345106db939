"""What functions have logged in slots becomes part of the driver's log."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from tidegate.protocol.messages import FunctionLog

LISTENERS: list[Callable[[logging.LogRecord], None]] = []
"""They get everything that slots send, whatever logging is set to."""


def level_for_slots() -> int:
    """What slots send: INFO and above, or more if the driver shows more."""
    root = logging.getLogger()
    return min(logging.INFO, root.level or logging.INFO) if root.handlers else logging.INFO


def log_again(message: FunctionLog) -> None:
    """Log it here, under its own logger; print it if logging is not configured."""
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
