"""A bad line between two network interfaces: it delays, reorders and loses packets."""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import select
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_LARGEST_PACKET = 1 << 16
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Badness:
    delay: float
    """Seconds; each packet takes between once and twice as long."""
    loss: float
    """Share of the packets."""


class Line:
    """Two interfaces, made here; either may be moved to another namespace."""

    def __init__(self, ours: str, theirs: str, badness: Badness) -> None:
        self.carried, self.lost = 0, 0
        self._badness = badness
        self._ends = [_interface(ours), _interface(theirs)]
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()
        for each in self._ends:
            os.close(each)

    def _carry(self) -> None:
        ours, theirs = self._ends
        other = {ours: theirs, theirs: ours}
        rnd, numbers = random.Random(0), count()
        underway: list[tuple[float, int, int, bytes]] = []
        while not self._is_over.is_set():
            wait = underway[0][0] - time.monotonic() if underway else _LOOK_SECONDS
            for end in select.select(self._ends, [], [], max(0.0, wait))[0]:
                packet = os.read(end, _LARGEST_PACKET)
                if rnd.random() < self._badness.loss:
                    self.lost += 1
                    continue
                due = time.monotonic() + self._badness.delay * rnd.uniform(1, 2)
                heapq.heappush(underway, (due, next(numbers), other[end], packet))
            while underway and underway[0][0] <= time.monotonic():
                _, _, end, packet = heapq.heappop(underway)
                with suppress(OSError):  # an interface that is down loses what it is sent
                    os.write(end, packet)
                    self.carried += 1


def _interface(name: str) -> int:
    file = os.open("/dev/net/tun", os.O_RDWR)
    request = struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI)
    fcntl.ioctl(file, _TUNSETIFF, request)
    return file
