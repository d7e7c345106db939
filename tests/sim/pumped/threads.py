"""Code that blocks, without threads: each of its threads is a stack of calls that waits aside."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from greenlet import getcurrent, greenlet

from tests.sim.clockwork import Event, Killed, Process, world


class SimulatedThread:
    """A thread of the process that starts it; it runs until it waits, within one event."""

    group = ""
    """The job group that Spark knows it by."""

    def __init__(
        self,
        target: Callable[..., None],
        args: Sequence[Any] = (),
        name: str = "a thread",
        daemon: bool = True,
    ) -> None:
        process = world().sim.current
        assert process is not None
        self.process, self._name = process, name
        self._target, self._args = target, args
        self._stack: Any = greenlet(self._run)
        self._stack.thread = self
        self._is_waiting = True
        self._joined: list[SimulatedThread] = []

    def start(self) -> None:
        self.process.threads.append(self)
        self.process.later(self.process.sim.delay(0.0005), self._name, self.resume)

    def is_alive(self) -> bool:
        return self in self.process.threads

    def join(self, timeout: float) -> None:
        until, waiting = self.process.sim.now + timeout, current_thread()
        self._joined.append(waiting)
        self.process.later(timeout, "gives up waiting", waiting.resume)
        while self.is_alive() and self.process.sim.now < until:
            wait()

    def resume(self) -> None:
        """It waits for something that may have happened."""
        if self._is_waiting and self.is_alive():
            self._is_waiting = False
            self._stack.parent = getcurrent()
            self._stack.switch()

    def wait(self) -> None:
        self._is_waiting = True
        self._stack.parent.switch()

    def kill(self) -> None:
        """Its process has ended. What is in the middle of something notices by itself."""
        if self._is_waiting and self.is_alive():
            self._is_waiting = False
            if self._stack:
                self._stack.parent = getcurrent()
                self._stack.throw(Killed)
            else:
                self.process.threads.remove(self)

    def _run(self) -> None:
        try:
            self._target(*self._args)
        except Killed:
            if self.process.is_alive:
                raise
        finally:
            self.process.threads.remove(self)
            for waiting in self._joined:
                self.process.later(0.0, "has waited", waiting.resume)


def current_thread() -> SimulatedThread:
    thread: SimulatedThread = getcurrent().thread  # type: ignore[attr-defined]
    return thread


def wait() -> None:
    """Until somebody resumes the thread; whoever calls this looks again why it waits."""
    current_thread().wait()


def sleep(seconds: float) -> None:
    thread = current_thread()
    until = thread.process.sim.now + seconds
    thread.process.later(seconds, "wakes up", thread.resume)
    while thread.process.sim.now < until:
        wait()


class SimulatedQueue:
    """Between threads of one process."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._reader: SimulatedThread | None = None

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._reader is not None:
            self._reader.process.later(0.0, "goes on", self._reader.resume)

    def get(self) -> Any:
        self._reader = current_thread()
        while not self._items:
            wait()
        self._reader = None
        return self._items.popleft()


class SimulatedTimer:
    daemon = False

    def __init__(self, seconds: float, act: Callable[..., None], args: Sequence[Any] = ()) -> None:
        self._seconds, self._act, self._args = seconds, act, args
        self._event: Event | None = None

    def start(self) -> None:
        process: Process = world().sim.current  # type: ignore[assignment]
        self._event = process.later(self._seconds, "alarm", lambda: self._act(*self._args))

    def cancel(self) -> None:
        if self._event is not None:
            self._event.cancel()


THREADING = SimpleNamespace(
    Lock=threading.Lock,
    Condition=threading.Condition,
    Thread=SimulatedThread,
    Timer=SimulatedTimer,
)
QUEUE = SimpleNamespace(SimpleQueue=SimulatedQueue)
"""In place of the modules of these names."""
