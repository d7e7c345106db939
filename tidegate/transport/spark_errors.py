"""Failures of Spark as one line instead of a Java stack trace."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_log = logging.getLogger("tidegate.spark")


@contextmanager
def spark_may_be_gone() -> Iterator[None]:
    """Ignore failures of calls that do not matter if Spark has been stopped or has died."""
    try:
        yield
    except Exception as failure:
        _log.debug("Spark did not answer: %s", failure)


def reason_of(failure: Exception) -> str:
    """The most informative line of a Spark error."""
    java = getattr(failure, "java_exception", None)
    text = str(java.getMessage() or "") if java is not None else str(failure)
    lines = [line.strip() for line in text.split("\n\tat ")[0].splitlines() if line.strip()]
    if not lines:
        return type(failure).__name__
    if any(line.endswith("Traceback (most recent call last):") for line in lines):
        told = [line for line in lines if not line.startswith("SQLSTATE")]
        return told[-1]
    return lines[0]
