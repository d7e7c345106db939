"""The last log lines of the driver and its slots."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

from tidegate.core.redaction import redacted
from tidegate.driver.function_logs import LISTENERS

_MOST = 5000
_OURS = logging.getLogger("tidegate")
_PLAIN = logging.Formatter()


@dataclass(frozen=True, slots=True)
class LogLine:
    """One entry of the log."""

    id: int
    at: float
    """Seconds since the epoch."""
    number: int
    level: str
    logger: str
    task: str
    message: str


class RecentLogs:
    """Keeps log lines, without affecting other logging."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque(maxlen=_MOST)
        self._ids = count(1)
        self._handler = _Keeper(self._keep)

    def install(self) -> None:
        _OURS.addHandler(self._handler)
        LISTENERS.append(self._keep)

    def remove(self) -> None:
        _OURS.removeHandler(self._handler)
        with suppress(ValueError):  # it may be called twice
            LISTENERS.remove(self._keep)

    def _keep(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.exc_info and record.exc_info[0] is not None:
            message = f"{message}\n{_PLAIN.formatException(record.exc_info)}"
        task = record.threadName or ""
        self._lines.append(
            LogLine(
                next(self._ids),
                record.created,
                record.levelno,
                record.levelname,
                record.name,
                task,
                redacted(message),
            )
        )

    def find(
        self, level: int, search: str, task: str, before: int | None, limit: int
    ) -> tuple[list[LogLine], bool]:
        """The last matching lines, newest first, and whether there are more."""
        found: list[LogLine] = []
        for line in reversed(self._lines.copy()):
            if before is not None and line.id >= before:
                continue
            if line.number < level or task.lower() not in line.task.lower():
                continue
            if search.lower() not in f"{line.message} {line.logger}".lower():
                continue
            if len(found) == limit:
                return found, True
            found.append(line)
        return found, False


class _Keeper(logging.Handler):
    """Prints warnings that no other handler takes, as Python would without this one."""

    def __init__(self, keep: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self._keep = keep

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._keep(record)
        except Exception:
            self.handleError(record)
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and self._is_alone(record):
            last.handle(record)

    def _is_alone(self, record: logging.LogRecord) -> bool:
        found: list[logging.Handler] = []
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            found += logger.handlers
            logger = logger.parent if logger.propagate else None
        return found[0] is self and all(isinstance(each, _Keeper) for each in found)
