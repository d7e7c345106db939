"""Limits the number and the duration of connections, so that the job keeps its files."""

from __future__ import annotations

import asyncio
import resource
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

ACCEPTED_AT_ONCE = 16
"""How many connections the event loop accepts before it closes those that are too many."""
_WANTED_FILES = 4096
_REQUEST_SECONDS = 20.0
"""How long a client may take to send a request, or be silent between two."""
_ANSWER_SECONDS = 120.0
"""How long a request may take until its answer is read."""


class BoundedProtocol(H11Protocol):
    """HTTP on one connection, which is closed if it is slow.

    With too many connections, the one that has waited longest for a request is closed. If all are
    being answered, the new one is closed.
    """

    most: int
    waiting: dict[BoundedProtocol, None]
    """Connections of this server without a complete request, the oldest first."""
    _timer: asyncio.TimerHandle | None = None
    _is_answering = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()
        if len(self.connections) > self.most:
            next(iter(self.waiting))._cut()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._is_answering = False
        if not self.transport.is_closing():
            self._await_request()
            self._look()

    def _look(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.more_body or cycle.response_complete or self._is_answering:
            return
        self._is_answering = True
        self.waiting.pop(self, None)
        self._cut_after(_ANSWER_SECONDS)

    def _await_request(self) -> None:
        self.waiting.pop(self, None)
        self.waiting[self] = None
        self._cut_after(_REQUEST_SECONDS)

    def _cut_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self._cut)

    def _cut(self) -> None:
        self._leave()
        # The transport reports it later: until then, the connection must not count.
        self.connections.discard(self)
        self.transport.abort()

    def _leave(self) -> None:
        self.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()


def bounded_protocol() -> type[BoundedProtocol]:
    """The protocol of one server, limited to a quarter of the process's open files."""
    values: dict[str, Any] = {"most": _files() // 4, "waiting": {}}
    return type("BoundedProtocol", (BoundedProtocol,), values)


def _files() -> int:
    """The limit of open files of the process; a low limit is raised if possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _WANTED_FILES
    if soft < _WANTED_FILES:
        wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, _WANTED_FILES)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return soft
