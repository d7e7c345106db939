"""Spark jobs whose tasks must all run at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

_NO_ROOM: Final = "INSUFFICIENT_SLOT"
_PAUSE_SECONDS: Final = 0.2
T = TypeVar("T")


def once_there_is_room(
    run: Callable[[], T], seconds: float, is_wanted: Callable[[], bool] = lambda: True
) -> T | None:
    """Run such a job; retry for a while if Spark has too few free task slots.

    Returns:
        What `run` returns, or None if it is no longer wanted.
    """
    deadline = time.monotonic() + seconds
    while is_wanted():
        try:
            return run()
        except Exception as failure:
            if _NO_ROOM not in str(failure) or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_SECONDS)
    return None
