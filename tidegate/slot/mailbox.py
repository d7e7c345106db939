"""The one thread that runs the operator code of a pipeline in a slot."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

Action = Callable[[], None]


class Mailbox:
    """Runs what is posted, in order; calls `on_idle` now and then while there is nothing."""

    def __init__(self, name: str, on_idle: Action, idle_seconds: float) -> None:
        self._actions: queue.SimpleQueue[Action | None] = queue.SimpleQueue()
        self._on_idle = on_idle
        self._idle_seconds = idle_seconds
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def post(self, action: Action) -> None:
        """Run this after everything that was posted before. Actions must not raise."""
        self._actions.put(action)

    def stop(self, timeout: float) -> bool:
        """Let what was posted finish, then end; False when user code did not return in time."""
        self._actions.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            try:
                action = self._actions.get(timeout=self._idle_seconds)
            except queue.Empty:
                self._on_idle()
                continue
            if action is None:
                return
            action()
