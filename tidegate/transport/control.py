"""The line between driver and slot: pickled messages, after the secret was proven."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

from tidegate.core.errors import LineClosed
from tidegate.protocol.messages import DriverMessage, SlotMessage
from tidegate.transport.wire import Connection

_MESSAGE = 1


class ControlLine:
    """Either end of a control connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, message: SlotMessage | DriverMessage) -> None:
        """May be called by several threads.

        Raises:
            LineClosed: the other end is gone.
        """
        self._connection.send(_MESSAGE, pickle.dumps(message, protocol=5))

    def messages(self) -> Iterator[SlotMessage | DriverMessage]:
        """What the other end says, until the line ends."""
        while True:
            try:
                _, payload = self._connection.receive()
            except LineClosed:
                return
            yield pickle.loads(payload)

    def close(self) -> None:
        self._connection.close()
