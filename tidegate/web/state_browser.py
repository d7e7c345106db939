"""Queries savepoints in a separate process, which starts on demand and ends when idle."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from typing import Any

from tidegate.web.requests import Refusal

_COMMAND = (sys.executable, "-m", "tidegate.savepoint.browsing")
_PATIENCE_SECONDS = 60.0
_IDLE_SECONDS = 120.0
_LONGEST_LINE = 64 << 20


class StateBrowser:
    """The browser of one server; used by the thread of its requests. One question at a time."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._asking = asyncio.Lock()
        self._idle: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    async def ask(self, what: str, asked: dict[str, Any]) -> Any:
        """Ask the process.

        Raises:
            Refusal: it fails, or takes too long.
        """
        question = json.dumps({"what": what, "asked": asked}).encode() + b"\n"
        async with self._asking:
            try:
                line = await asyncio.wait_for(self._line(question), _PATIENCE_SECONDS)
            except TimeoutError:
                await self.close()
                sentence = f"it takes longer than {_PATIENCE_SECONDS:.0f} s: use `tidegate state`"
                raise Refusal(409, sentence) from None
            except (OSError, ValueError) as error:
                await self.close()
                raise Refusal(409, f"the process that reads state failed: {error}") from None
        if not line:
            await self.close()
            raise Refusal(409, "the process that reads state has ended: the state may be too large")
        answer = json.loads(line)
        if "answer" not in answer:
            raise Refusal(answer["status"], answer["sentence"])
        return answer["answer"]

    async def _line(self, question: bytes) -> bytes:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *_COMMAND,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=_LONGEST_LINE,
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._close_soon)
        process.stdin.write(question)
        await process.stdin.drain()
        return await process.stdout.readline()

    async def close(self) -> None:
        """End the process; the next question starts another one."""
        process, self._process = self._process, None
        if self._idle is not None:
            self._idle.cancel()
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _close_soon(self) -> None:
        self._closing = asyncio.get_running_loop().create_task(self.close())
