"""Lines between processes: what is sent on one comes in order, or not at all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum, auto

from tests.sim.clockwork import Process, Simulation
from tests.sim.pumped.threads import SimulatedThread, current_thread, wait
from tidegate.core.errors import LineClosed

FrameParts = bytes | bytearray | memoryview


class Ending(Enum):
    SHUT = auto()
    """Nothing more is sent; the other direction is open."""
    CLOSED = auto()
    RESET = auto()
    """By the network: both ends are there."""


class LineEnd:
    """What `Connection` is to a process; a pump has callbacks instead of a thread that reads."""

    other: LineEnd
    epoch = 0
    """Of the endless job that it is of."""

    def __init__(
        self, sim: Simulation, process: Process | None, is_refused: Callable[[], bool]
    ) -> None:
        self._sim, self._process = sim, process
        self._is_refused = is_refused
        self._is_cut_off = False
        self.is_other_end_gone = False
        self.on_frame: Callable[[int, bytearray], None] | None = None
        self.on_end: Callable[[], None] = lambda: None
        self._is_closed = False
        self._ending: Ending | None = None
        self._in_transit: deque[tuple[int, bytearray] | Ending] = deque()
        self._received: deque[tuple[int, bytearray]] = deque()
        self._clear_at = 0.0
        self._reader: SimulatedThread | None = None
        if process is not None:
            process.ends.append(self)

    # --- as a connection ------------------------------------------------------------------------

    def send(self, kind: int, *parts: FrameParts) -> None:
        if self._process is not None and not self._process.is_alive:
            return
        if self._is_closed or self._ending in (Ending.CLOSED, Ending.RESET):
            raise LineClosed("the line has ended")
        self._is_cut_off = self._is_cut_off or (self._process is not None and self._is_refused())
        if self._is_cut_off:  # the system is out of memory; the line lives
            raise LineClosed("no buffer space is available")
        self.other._is_sent((int(kind), bytearray(b"".join(parts))))

    def has_room_for(self, size: int) -> bool:
        return self._sim.rnd.random() < 0.5

    def receive(self) -> tuple[int, bytearray]:
        self._reader = current_thread()
        while not self._received:
            if self._is_closed:
                raise LineClosed("it was closed here")
            if self._ending is not None:
                self.is_other_end_gone = self._ending is not Ending.RESET
                raise LineClosed("the other end closed the connection")
            wait()
        return self._received.popleft()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.other._is_sent(Ending.CLOSED)
            if self._reader is not None and self._process is not None:
                self._process.later(0.0, "a line is closed", self._reader.resume)

    hang_up = close

    # --- what befalls it ------------------------------------------------------------------------

    def shut(self) -> None:
        self.other._is_sent(Ending.SHUT)

    def reset(self) -> None:
        for end in (self, self.other):
            end._in_transit.clear()
            end._is_sent(Ending.RESET)

    def _is_sent(self, item: tuple[int, bytearray] | Ending) -> None:
        self._clear_at = max(self._clear_at, self._sim.now + self._sim.delay(0.002))
        self._in_transit.append(item)
        what = f"a frame of kind {item[0]}" if isinstance(item, tuple) else "a line ends"
        self._sim.later(self._clear_at - self._sim.now, what, self._arrive, self._process)

    def _arrive(self) -> None:
        if not self._in_transit or self._is_closed:
            return
        item = self._in_transit.popleft()
        if isinstance(item, Ending):
            if self._ending is None or self._ending is Ending.SHUT:
                self._ending = item
            if self.on_frame is not None:
                self.on_end()
        elif self.on_frame is not None:
            self.on_frame(*item)
        else:
            self._received.append(item)
        if self._reader is not None:
            self._reader.resume()


def connected(
    sim: Simulation,
    process: Process | None,
    other: Process | None,
    is_refused: Callable[[], bool],
) -> tuple[LineEnd, LineEnd]:
    """Both ends of a line; `is_refused` tells whether a frame of a process is not even sent."""
    near, far = LineEnd(sim, process, is_refused), LineEnd(sim, other, is_refused)
    near.other, far.other = far, near
    return near, far
