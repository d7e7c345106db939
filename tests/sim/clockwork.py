"""Simulated time: a queue of events, their processes, and randomness from one seed."""

from __future__ import annotations

import heapq
import random
import secrets
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn
from unittest.mock import patch

from tidegate.core.workers import Action

if TYPE_CHECKING:
    from tests.sim.pumped.lines import LineEnd
    from tests.sim.pumped.threads import SimulatedThread
    from tests.sim.world import World

EPOCH = 1_000_000.0
LAST_EVENT = 50_000
DEEPEST = 6
"""How many processes can be interrupted at the same time."""


class Killed(BaseException):
    """The process ends here, in the middle of its work."""


class Wrong(BaseException):
    """Something happened that must not, or did not happen that must. Must not be caught."""


class Event:
    __slots__ = ("act", "at", "process", "what")

    def __init__(
        self, at: float, process: Process | None, what: str, act: Callable[[], None] | None
    ) -> None:
        self.at, self.process, self.what, self.act = at, process, what, act

    def cancel(self) -> None:
        self.act = None


class Process:
    """Something that can die and sleep, and that has its own clocks."""

    def __init__(self, sim: Simulation, name: str) -> None:
        self.sim, self.name = sim, name
        self.is_alive = True
        self.is_dying = False
        self.asleep_until = 0.0
        self.waits = 0
        """How many of its calls are in the middle of something; until then nothing else happens."""
        self.wall_error = sim.rnd.choice([0.0, 0.0, -1.0, 1.0])
        self.speed = 1 + sim.rnd.uniform(-0.02, 0.02)
        self.workers = SimulatedWorkers(self)
        self.threads: list[SimulatedThread] = []
        """Those that wait for others, and so need a stack of their own."""
        self.ends: list[LineEnd] = []
        self.has_lost_patience = False
        """Whether it has left something behind that hung."""

    def monotonic(self) -> float:
        return self.sim.now * self.speed + 1000.0

    def sleep_for(self, seconds: float) -> float:
        return seconds / self.speed

    def time(self) -> float:
        return EPOCH + self.sim.now + self.wall_error

    def later(self, seconds: float, what: str, act: Callable[[], None]) -> Event:
        return self.sim.later(seconds, what, act, self)

    def die(self) -> None:
        """Discard all its planned events."""
        self.is_alive = False
        for thread in list(self.threads):
            thread.kill()
        for end in self.ends:
            end.close()

    def die_now(self) -> NoReturn:
        """Die in the middle of an action: its cleanup has no effect."""
        self.is_dying = True
        raise Killed

    def look(self) -> None:
        """Called after each of its events."""


class Simulation:
    """All future events, in order."""

    def __init__(self, seed: object, *, traces: bool = False) -> None:
        self.rnd = random.Random(f"{seed}/run")
        self.now = 0.0
        self.current: Process | None = None
        self.worker: SimulatedWorker | None = None
        """The running thread of the current process, if it is not the main one."""
        self.number = 0
        self.trace: list[str] | None = [] if traces else None
        self.happened: Counter[str] = Counter()
        self.slowness = self.rnd.choice([0.3, 1.0, 1.0, 3.0])
        self._queue: list[tuple[float, int, Event]] = []
        self._count = 0
        self._depth = 0

    def later(
        self, seconds: float, what: str, act: Callable[[], None], process: Process | None = None
    ) -> Event:
        at = self.now + seconds
        event = Event(at, process, what, act)
        self._count += 1
        heapq.heappush(self._queue, (at, self._count, event))
        return event

    def _push(self, event: Event) -> None:
        self._count += 1
        heapq.heappush(self._queue, (event.at, self._count, event))

    def delay(self, typical: float = 0.01) -> float:
        """Usually short, sometimes ten times as long."""
        draw = self.rnd.random
        stretch = 10.0 if draw() < 0.05 else 1.0
        return draw() * 2 * typical * stretch * self.slowness

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.rnd.random() < probability

    def note(self, text: str) -> None:
        if self.trace is not None:
            who = "" if self.current is None else self.current.name
            self.trace.append(f"{self.now:9.3f} {who:12} {text}")

    def run_while(self, condition: Callable[[], bool]) -> None:
        while condition():
            if not self._queue:
                raise Wrong("nothing will ever happen again")
            if self.number >= LAST_EVENT:
                raise Wrong(f"no end after {self.number} events")
            self._step()

    def _step(self) -> None:
        at, _, event = heapq.heappop(self._queue)
        if at > self.now:
            self.now = at
        process, act = event.process, event.act
        if act is None:
            return
        if process is not None:
            if not process.is_alive:
                return
            if process.asleep_until > self.now or process.waits:
                event.at = max(process.asleep_until, self.now + 0.01) + self.delay(0.001)
                self._push(event)
                return
        self.number += 1
        self.current, self.worker = process, None
        if self.trace is not None:
            self.note(event.what)
        try:
            act()
            if process is not None and process.is_alive:
                process.look()
        except Killed:
            assert process is not None
            process.die()
        finally:
            self.current = self.worker = None

    def meanwhile(self, seconds: float, *, is_asleep: bool = False) -> None:
        """Let others act while the current thread is in the middle of something.

        If the process is asleep, or its main thread waits, nothing else happens in it.
        """
        process, worker, until = self.current, self.worker, self.now + seconds
        assert process is not None
        if self._depth < DEEPEST:
            stands_still = is_asleep or worker is None
            if stands_still:
                process.asleep_until = max(process.asleep_until, until)
            self._depth += 1
            process.waits += stands_still
            try:
                while self._queue and self._queue[0][0] <= until:
                    self._step()
            finally:
                self._depth -= 1
                process.waits -= stands_still
        self.current, self.worker = process, worker
        self.now = max(self.now, until)
        if not process.is_alive:
            raise Killed

    # --- what the machine offers, for whoever asks it directly ----------------------------------

    def time(self) -> float:
        return EPOCH + self.now if self.current is None else self.current.time()

    def monotonic(self) -> float:
        return self.now + 1000.0 if self.current is None else self.current.monotonic()

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def token(self, size: int | None = None) -> str:
        return f"{self.rnd.getrandbits(8 * (size or 16)):0{2 * (size or 16)}x}"

    @contextmanager
    def in_place_of_the_machine(self) -> Iterator[None]:
        with ExitStack() as patches:
            for place, name, played in (
                (time, "time", self.time),
                (time, "monotonic", self.monotonic),
                (time, "sleep", self.sleep),
                (secrets, "token_hex", self.token),
                (secrets, "randbits", self.rnd.getrandbits),
                (uuid, "uuid4", lambda: uuid.UUID(self.token(16))),
            ):
                patches.enter_context(patch.object(place, name, here(played, getattr(place, name))))
            yield


def here(played: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    """Played in this thread alone; threads that other tests left behind are not of this world."""
    get_ident = threading.get_ident
    this = get_ident()

    def call(*arguments: Any) -> Any:
        return (played if get_ident() == this else real)(*arguments)

    return call


class SimulatedWorkers:
    """The threads of one process; each of their actions is an event."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def start(
        self,
        name: str,
        on_idle: Callable[[], float] | None = None,
        idle_seconds: Callable[[], float] | None = None,
    ) -> SimulatedWorker:
        return SimulatedWorker(self._process, name.removeprefix("tidegate-"), on_idle)

    def later(self, seconds: float, action: Callable[[], None]) -> Event:
        return self._process.later(seconds, "alarm", action)


class SimulatedWorker:
    IDLE_SECONDS = 0.5

    def __init__(
        self, process: Process, name: str, on_idle: Callable[[], float] | None = None
    ) -> None:
        self._process, self._name, self._on_idle = process, name, on_idle
        self._actions: deque[Action] = deque()
        self._next: Event | None = None
        self._is_stopped = self._is_running = False
        if on_idle is not None:
            self._look_later()

    def post(self, action: Action) -> None:
        if not self._is_stopped:
            self._actions.append(action)
            if self._next is None:
                self._go_on(self._process.sim.delay(0.003))

    def hurry(self) -> None:
        if self._next is not None and not self._is_running:
            self._next.cancel()
            self._go_on(0.0)

    def stop(self, timeout: float) -> bool:
        """Run what was posted within this call, unless it is already running."""
        self._is_stopped = True
        if self._is_running:
            self._process.sim.sleep(timeout)
            self._process.has_lost_patience = True
            return False
        if self._next is not None:
            self._next.cancel()
        while self._actions:
            action = self._actions.popleft()
            while action() is not None:
                pass
        return True

    def _go_on(self, seconds: float) -> None:
        self._next = self._process.later(seconds, self._name, self._run)

    def _run(self) -> None:
        action = self._actions.popleft()
        sim = self._process.sim
        sim.worker, self._is_running = self, True
        try:
            again = action()
        finally:
            self._is_running = False
        self._next = None
        if again is not None:
            self._actions.appendleft(action)
            self._go_on(again + 0.001)
        elif self._actions:
            self._go_on(self._process.sim.delay(0.003))

    def _look_later(self) -> None:
        self._process.later(self.IDLE_SECONDS, f"{self._name} looks around", self._look)

    def _look(self) -> None:
        if not self._is_stopped:
            if not self._actions and not self._is_running and self._on_idle is not None:
                self._on_idle()
            self._look_later()


_worlds: list[Any] = []


def world() -> World:
    """The current world, through which programs reach external systems."""
    return _worlds[-1]  # type: ignore[no-any-return]


@contextmanager
def current(world: World) -> Iterator[None]:
    _worlds.append(world)
    try:
        yield
    finally:
        _worlds.pop()
