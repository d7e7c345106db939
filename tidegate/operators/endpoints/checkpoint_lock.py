"""The lock between a function on its own thread and the snapshots of its state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident


class CheckpointLock:
    """Held by the function around related changes; a waiting snapshot gets it next.

    Otherwise, a function that releases and takes the lock in a loop could starve a snapshot.
    """

    def __init__(self, on_demand: Callable[[], None]) -> None:
        self._on_demand = on_demand
        self._lock = threading.Lock()
        self._holder: int | None = None
        self._depth = 0
        self._is_demanded = False
        self._snapshot_is_over = threading.Event()

    @property
    def must_be_released(self) -> bool:
        """Whether a snapshot waits for this thread to release the lock."""
        return self._is_demanded and self._holder == get_ident()

    @contextmanager
    def held_by_snapshot(self) -> Iterator[None]:
        """Take the lock as soon as the function releases it; `on_demand` is called first."""
        self._snapshot_is_over.clear()
        self._is_demanded = True
        try:
            self._on_demand()
            self._acquire(get_ident())
            try:
                yield
            finally:
                self.__exit__()
        finally:
            self._is_demanded = False
            self._snapshot_is_over.set()

    def __enter__(self) -> None:
        thread = get_ident()
        if self._holder == thread:
            self._depth += 1
            return
        if self._is_demanded:
            self._snapshot_is_over.wait()
        self._acquire(thread)

    def __exit__(self, *failure: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._holder = None
            self._lock.release()

    def _acquire(self, thread: int) -> None:
        self._lock.acquire()
        self._holder = thread
        self._depth = 1
