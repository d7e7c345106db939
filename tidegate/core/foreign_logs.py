"""Sends the logs of other software to a file of the job, at a limited rate."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable

FOREIGN_LOG_VARIABLE = "TIDEGATE_FOREIGN_LOG"
"""Set to the path of that file; slot processes on the same machine inherit it."""
_LINES = 20
_LINES_ON_A_CONSOLE = 1
"""Slots in a Spark session of the user have no file; their lines mix with those of the job."""
_SECONDS = 10.0


class RateLimit(logging.Filter):
    """Lets a limited number of records pass per interval, and counts the others."""

    def __init__(
        self,
        lines: int = _LINES,
        seconds: float = _SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._lines = lines
        self._seconds = seconds
        self._clock = clock
        self._since = -seconds
        self._passed = 0
        self._dropped = 0

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._clock()
        if now - self._since >= self._seconds:
            self._since, self._passed = now, 0
        if self._passed >= self._lines:
            self._dropped += 1
            return False
        self._passed += 1
        if self._dropped:
            record.msg = f"({self._dropped:,} lines dropped before this one) {record.getMessage()}"
            record.args = ()
            self._dropped = 0
        return True


def foreign_logger(name: str) -> logging.Logger:
    """A logger for the lines of another library in this process."""
    logger = logging.getLogger(f"tidegate.foreign.{name}")
    if not logger.handlers:
        path = os.environ.get(FOREIGN_LOG_VARIABLE)
        handler = (
            logging.StreamHandler(sys.stderr)
            if path is None
            else logging.FileHandler(path, delay=True)
        )
        handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s {name}: %(message)s"))
        handler.addFilter(RateLimit(_LINES_ON_A_CONSOLE if path is None else _LINES))
        logger.addHandler(handler)
        logger.propagate = False
    return logger
