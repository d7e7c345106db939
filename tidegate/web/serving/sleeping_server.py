"""The HTTP server as uvicorn has it, but without its regular ticks."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import uvicorn


class SleepingServer(uvicorn.Server):
    """Sleeps until a request comes or it is ended, so that an idle one costs nothing."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_ended = asyncio.Event()

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        # A tick prepares the headers of all answers, and tells whether it has ended meanwhile.
        if not await self.on_tick(0):
            await self._is_ended.wait()

    def end(self) -> None:
        """Stop answering; on any thread."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # its loop has ended already
                self._loop.call_soon_threadsafe(self._is_ended.set)
