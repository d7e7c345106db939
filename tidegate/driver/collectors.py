"""Records that slots deliver to the driver, kept until they are read."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

from tidegate.driver.job_master import DriverOutputs
from tidegate.driver.live_line import Console
from tidegate.exchange.codec import decode
from tidegate.protocol.messages import Collected
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat

_ROOM = 64 << 20
"""How many bytes may wait for a reader before steps wait, too."""


class Collectors:
    """The collected records of one job, by the collector names of its sinks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[str, queue.SimpleQueue[bytes | None]] = {}
        self._has_ended = False
        self._waiting = 0

    def put(self, message: Collected) -> None:
        payloads = self._of(message.collector)
        with self._lock:
            self._waiting += len(message.payload)
        payloads.put(message.payload)

    def has_room(self) -> bool:
        """Whether steps may deliver more records."""
        return self._waiting < _ROOM

    def end(self) -> None:
        """Mark the end: no more records will arrive."""
        with self._lock:
            self._has_ended = True
            for payloads in self._queues.values():
                payloads.put(None)

    def records(self, name: str, format: ArrowFormat | None) -> Iterator[Any]:
        """Yield records as they arrive, until the end."""
        payloads = self._of(name)
        while (payload := payloads.get()) is not None:
            with self._lock:
                self._waiting -= len(payload)
            for element in decode(payload, format):
                assert isinstance(element, Batch)
                yield from element.records
        payloads.put(None)  # for further readers

    def outputs(self, console: Console) -> DriverOutputs:
        return DriverOutputs(
            console=console.print,
            collect=self.put,
            has_room=self.has_room,
            drain=console.drain,
        )

    def _of(self, name: str) -> queue.SimpleQueue[bytes | None]:
        with self._lock:
            if name not in self._queues:
                self._queues[name] = queue.SimpleQueue()
                if self._has_ended:
                    self._queues[name].put(None)
            return self._queues[name]
