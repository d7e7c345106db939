"""Shares one answer among identical concurrent requests; none is older than its request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from tidegate.web.requests import KNOWN

ARRIVED = "tidegate.arrived"
"""In the scope of a request: its arrival time, by the clock of the event loop."""
_MOST = 100

Handler = Callable[[Request], Awaitable[Response]]


class SharedAnswers:
    """The shared answers of one server; used by the thread of its requests."""

    def __init__(self) -> None:
        self._made: dict[object, tuple[float, Response]] = {}

    def of(self, handler: Handler) -> Handler:
        """A handler that computes an answer once for all who wait for it."""

        async def handle(request: Request) -> Response:
            scope = request.scope
            asked = (scope["path"], scope["query_string"], scope.get(KNOWN))
            at, answer = self._made.get(asked, (float("-inf"), None))
            if answer is None or at < request.scope[ARRIVED]:
                at = asyncio.get_running_loop().time()
                answer = await handler(request)
                self._keep(asked, at, answer)
            return answer

        return handle

    def _keep(self, asked: object, at: float, answer: Response) -> None:
        if len(self._made) >= _MOST:
            self._made.clear()
        self._made[asked] = (at, answer)
