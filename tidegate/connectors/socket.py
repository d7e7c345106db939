"""Lines of text from a TCP connection."""

from __future__ import annotations

import selectors
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any

from tidegate.connectors.guarantee import Replay
from tidegate.connectors.serialization import line_charset
from tidegate.connectors.source import (
    Boundedness,
    InputStatus,
    Poll,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from tidegate.connectors.splits import KnownSplits
from tidegate.core.errors import ConfigError, ExternalError
from tidegate.stream.batch import Batch
from tidegate.types.typeinfo import TypeInformation, Types

_CHUNK = 1 << 16
_CONNECT_SECONDS = 10.0


class SocketSource(Source):
    """Every line that a server sends, read by one reader until the server closes the connection.

    Not replayable: after a failure, lines are not sent again, so records may be lost despite
    checkpoints; `durable()` keeps them.

    `retries` is how often to reconnect, a second apart, after the connection broke or failed; -1
    for no limit. Without retries left, a connection closed by the server ends the stream.
    """

    boundedness = Boundedness.CONTINUOUS_UNBOUNDED

    def __init__(
        self,
        host: str,
        port: int,
        *,
        delimiter: str = "\n",
        charset: str = "UTF-8",
        retries: int = 0,
    ) -> None:
        if not 0 < port < 65536:
            raise ConfigError("port", port, "give a TCP port from 1 to 65535")
        if not delimiter:
            raise ConfigError("delimiter", delimiter, "give the end of a line")
        self._address = (host, port)
        self._delimiter = delimiter
        self._charset = line_charset(charset)
        self._retries = retries

    def create_enumerator(self) -> SplitEnumerator:
        address = self._address
        return KnownSplits(lambda parallelism: [address])

    def create_reader(self, context: ReaderContext) -> SourceReader:
        delimiter = self._delimiter.encode(self._charset)
        return _SocketReader(context, delimiter, self._charset, self._retries)

    def produced_type(self) -> TypeInformation:
        return Types.STRING()

    def replay(self) -> Replay:
        return Replay(False, "cannot read lines again: wrap it in durable()")

    def max_readers(self) -> int | None:
        return 1


class _SocketReader(SourceReader):
    def __init__(
        self, context: ReaderContext, delimiter: bytes, charset: str, retries: int
    ) -> None:
        self._context = context
        self._delimiter = delimiter
        self._charset = charset
        self._retries = retries
        self._address: Any = None
        self._connection: socket.socket | None = None
        self._retry_at = 0.0
        self._rest = b""
        self._lines: deque[str] = deque()
        self._ended = False
        self._no_more = False

    def add_splits(self, splits: Sequence[Any]) -> None:
        for address in splits:
            self._address = address

    def no_more_splits(self) -> None:
        self._no_more = True

    def poll(self, max_records: int) -> Poll:
        if self._address is None:
            ended = InputStatus.END_OF_INPUT if self._no_more else InputStatus.NOTHING_AVAILABLE
            return Poll(None, ended)
        while len(self._lines) < max_records and self._receive():
            pass
        taken = [self._lines.popleft() for _ in range(min(max_records, len(self._lines)))]
        batch = Batch.of_records(taken, self._context.format) if taken else None
        if self._lines:
            return Poll(batch, InputStatus.MORE_AVAILABLE)
        ended = InputStatus.END_OF_INPUT if self._ended else InputStatus.NOTHING_AVAILABLE
        return Poll(batch, ended)

    def _receive(self) -> bool:
        """Take what has arrived; False if nothing has."""
        if self._ended or not self._connect():
            return False
        assert self._connection is not None
        try:
            chunk = self._connection.recv(_CHUNK)
        except BlockingIOError:
            return False
        except OSError as error:
            self._lost(error)
            return False
        if not chunk:
            self._lost(None)
            return False
        *lines, self._rest = (self._rest + chunk).split(self._delimiter)
        self._take(lines)
        return True

    def _take(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            text = line.decode(self._charset, errors="replace")
            self._lines.append(text.removesuffix("\r") if self._delimiter == b"\n" else text)

    def _connect(self) -> bool:
        if self._connection is not None:
            return True
        if self._context.clock.monotonic() < self._retry_at:
            return False
        try:
            self._connection = socket.create_connection(self._address, _CONNECT_SECONDS)
        except OSError as error:
            self._lost(error)
            return False
        self._connection.setblocking(False)
        return True

    def _lost(self, error: OSError | None) -> None:
        """Plan to reconnect, or end; an incomplete last line counts if nothing follows."""
        self._disconnect()
        if self._rest:
            self._take([self._rest])
            self._rest = b""
        if self._retries != 0:
            self._retries -= self._retries > 0
            self._retry_at = self._context.clock.monotonic() + 1.0
        elif error is None:
            self._ended = True
        else:
            host, port = self._address
            raise ExternalError(
                f"no connection to {host}:{port}: {error.strerror or error}; start the server "
                "before the job, or set retries"
            )

    def is_available(self) -> bool:
        if self._lines or self._ended or self._address is None:
            return bool(self._lines) or self._ended or self._no_more
        if self._connection is None:
            return self._context.clock.monotonic() >= self._retry_at
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection, selectors.EVENT_READ)
            return bool(selector.select(timeout=0))

    def snapshot(self) -> list[Any]:
        return [] if self._address is None or self._ended else [self._address]

    def pending_records(self) -> int:
        return len(self._lines)

    def close(self) -> None:
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
