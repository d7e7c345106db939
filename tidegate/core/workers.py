"""Threads as a dependency, so that tests can run concurrent work in any order."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Protocol

_log = logging.getLogger("tidegate.workers")
Action = Callable[[], float | None]
"""Returns None when it is done, otherwise the seconds until it should be called again."""


class Worker(Protocol):
    """Runs posted actions in order, one at a time."""

    def post(self, action: Action) -> None:
        """Run this after everything posted before; it should not raise."""

    def hurry(self) -> None:
        """Call delayed actions now."""

    def stop(self, timeout: float) -> bool:
        """Finish what was posted, then end; False if this takes longer than the timeout."""


class Alarm(Protocol):
    def cancel(self) -> None: ...


class Workers(Protocol):
    """Creates threads."""

    def start(
        self,
        name: str,
        on_idle: Callable[[], float] | None = None,
        idle_seconds: Callable[[], float] | None = None,
    ) -> Worker:
        """Start a worker that calls `on_idle` when it has had nothing to do for some seconds.

        `idle_seconds` is asked how many after every action; `on_idle` returns after how many more
        to call it again. Neither may raise.
        """

    def later(self, seconds: float, action: Callable[[], None]) -> Alarm:
        """Call this once, unless it is cancelled first."""


class Threads:
    """Threads of this process. They are daemons: one that never returns blocks nothing."""

    def start(
        self,
        name: str,
        on_idle: Callable[[], float] | None = None,
        idle_seconds: Callable[[], float] | None = None,
    ) -> Worker:
        return _Thread(name, on_idle, idle_seconds)

    def later(self, seconds: float, action: Callable[[], None]) -> Alarm:
        timer = threading.Timer(seconds, action)
        timer.daemon = True
        timer.start()
        return timer


class _Thread:
    def __init__(
        self,
        name: str,
        on_idle: Callable[[], float] | None,
        idle_seconds: Callable[[], float] | None,
    ) -> None:
        self._actions: queue.SimpleQueue[Action | None] = queue.SimpleQueue()
        self._on_idle = on_idle
        self._idle_seconds = idle_seconds
        self._is_hurried = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def post(self, action: Action) -> None:
        self._actions.put(action)

    def hurry(self) -> None:
        self._is_hurried.set()

    def stop(self, timeout: float) -> bool:
        self._actions.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        pause = None if self._idle_seconds is None else self._idle_seconds()
        while True:
            try:
                action = self._actions.get(timeout=pause)
            except queue.Empty:
                assert self._on_idle is not None
                pause = self._on_idle()
                continue
            if action is None:
                return
            try:
                while (seconds := action()) is not None:
                    self._is_hurried.wait(seconds)
            except Exception:
                _log.exception("unexpected failure in %s", self._thread.name)
            pause = None if self._idle_seconds is None else self._idle_seconds()
