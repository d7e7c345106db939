"""Ctrl-C and SIGTERM while a job starts and runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def plain_interrupts() -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into a plain KeyboardInterrupt within the block.

    PySpark's own handler would kill all slots at once, before functions are closed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.signal(each, signal.default_int_handler) for each in _ENDING_SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Defer Ctrl-C and SIGTERM to the end of the block; a second one takes effect at once.

    An interrupt during a call to Spark would break the connection to it and print its stack. The
    previous handlers are restored after the block, because Spark installs its own when it starts.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt

    before = {each: signal.signal(each, hold) for each in _ENDING_SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    if received:
        signal.raise_signal(received[0])
