"""The control line between driver and slot: pickled messages over an authenticated connection."""

from __future__ import annotations

import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterator

from tidegate.core.errors import LineClosed
from tidegate.protocol.messages import DriverMessage, SlotMessage
from tidegate.transport.wire import Connection

_MESSAGE = 1
_MOST_WAITING = 10_000
"""With this many unread messages, the other end is considered dead."""
_ROOM = 4 << 20
"""Beyond this many waiting bytes, senders wait if they can."""


class ControlLine:
    """Either end of a control connection. Its own thread sends waiting messages in order.

    It leaves the connection open when messages can no longer be received. If none can be sent,
    `on_failure` is called; without it, the other end is notified by the end of the connection.
    """

    def __init__(
        self, connection: Connection, on_failure: Callable[[], None] | None = None
    ) -> None:
        self._connection = connection
        self._on_failure = on_failure
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._is_closed = False
        self._changed = threading.Condition()
        threading.Thread(
            target=self._send_what_waits, name="tidegate-control-out", daemon=True
        ).start()

    def send(self, message: SlotMessage | DriverMessage, *, waits: bool = False) -> None:
        """Queue a message without waiting for the other end; may be called by several threads.

        With `waits`, wait for room in the queue, until the line ends.

        Raises:
            LineClosed: the other end is gone, or reads nothing.
        """
        data = pickle.dumps(message, protocol=5)
        with self._changed:
            if waits:
                self._changed.wait_for(lambda: self._size < _ROOM or self._is_closed)
            if self._is_closed:
                raise LineClosed("the line has ended")
            is_full = len(self._waiting) >= _MOST_WAITING
            if not is_full:
                self._waiting.append(data)
                self._size += len(data)
                self._changed.notify_all()
        if is_full:
            self._end()
            (self._on_failure or self._connection.hang_up)()
            raise LineClosed(f"the other end has left {_MOST_WAITING} messages unread")

    def messages(self) -> Iterator[SlotMessage | DriverMessage]:
        """The messages from the other end, until the line ends."""
        while True:
            try:
                _, payload = self._connection.receive()
            except LineClosed:
                self._end()
                return
            yield pickle.loads(payload)

    def close(self, patience: float = 0.0) -> None:
        """Close the line after sending waiting messages, within `patience` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting or self._is_closed, patience)
        self._end()
        self._connection.hang_up()

    def _end(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _send_what_waits(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting) or self._is_closed)
                if self._is_closed:
                    return
                data = self._waiting[0]
            try:
                self._connection.send(_MESSAGE, data)
            except LineClosed:
                self._end()
                # If the other end lives, it closes the line when it sees this.
                (self._on_failure or self._connection.end_sending)()
                return
            with self._changed:
                self._waiting.popleft()
                self._size -= len(data)
                self._changed.notify_all()
