"""The event loop of one subtask: runs coroutines of the user on its own thread."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from tidegate.core.errors import TidegateError
from tidegate.operators.async_io.contracts import AsyncFunction, AsyncRetryStrategy
from tidegate.operators.async_io.results import Request
from tidegate.operators.user_code import USER_FAILURES, UserCode

_CLOSE_SECONDS = 10.0
"""How long cancelled coroutines, or a blocked loop, may delay the end of a subtask."""


class RequestLoop:
    """Keeps up to `capacity` requests in progress; others wait.

    The next request starts as soon as one is done, whatever the mailbox is doing.
    """

    def __init__(
        self,
        function: AsyncFunction[Any, Any],
        strategy: AsyncRetryStrategy[Any],
        *,
        capacity: int,
        timeout_seconds: float | None,
        name: str,
        user_code: UserCode,
        done: Callable[[Request], None],
    ) -> None:
        self._function = function
        self._strategy = strategy
        predicate = strategy.get_retry_predicate()
        self._repeats_result = predicate.result_predicate()
        self._repeats_exception = predicate.exception_predicate()
        self._capacity = capacity
        self._timeout_seconds = timeout_seconds
        self._user_code = user_code
        self._done = done
        self._waiting: deque[Request] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._progress = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"async {name}", daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function of the user on the event loop, and await its result."""
        failures: list[BaseException] = []
        is_over = threading.Event()

        async def called() -> None:
            try:
                returned = function(*arguments)
                if inspect.isawaitable(returned):
                    await returned
            except USER_FAILURES as error:
                failures.append(error)
            finally:
                is_over.set()

        # The future keeps the task alive: the loop has only a weak reference to it.
        running = asyncio.run_coroutine_threadsafe(called(), self._loop)
        is_over.wait()
        del running
        for failure in failures:
            raise failure

    def send(self, requests: Iterable[Request]) -> None:
        """Start requests as soon as there is capacity; returns at once."""
        self._loop.call_soon_threadsafe(self._admit, list(requests))

    def await_progress(self) -> None:
        """Wait until another request is done."""
        self._progress.wait()
        self._progress.clear()

    def cancel_requests(self) -> bool:
        """Start no more requests and cancel running ones; False if a coroutine blocks the loop."""
        self._is_closing = True
        running = asyncio.run_coroutine_threadsafe(self._cancel_requests(), self._loop)
        try:
            running.result(2 * _CLOSE_SECONDS)
        except TimeoutError:
            return False
        return True

    async def _cancel_requests(self) -> None:
        for task in (cancelled := set(self._tasks)):
            task.cancel()
        if cancelled:
            await asyncio.wait(cancelled, timeout=_CLOSE_SECONDS)

    def close(self) -> None:
        """End the loop and its thread, whatever is running there."""
        self._is_closing = True
        with suppress(RuntimeError):  # the loop is already closed
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        loop.run_forever()
        for task in (left := asyncio.all_tasks(loop)):  # started by the user's coroutines
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=_CLOSE_SECONDS))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    def _admit(self, requests: list[Request]) -> None:
        self._waiting.extend(requests)
        self._start_more()

    def _start_more(self) -> None:
        while self._waiting and len(self._tasks) < self._capacity and not self._is_closing:
            task = self._loop.create_task(self._answer(self._waiting.popleft()))
            self._tasks.add(task)
            task.add_done_callback(self._has_ended)

    def _has_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._start_more()

    async def _answer(self, request: Request) -> None:
        try:
            found = await self._within_time(request.value)
            private = self._user_code.private
            request.results = [private(result) for result in _listed(found)]
        except asyncio.CancelledError as error:
            if self._is_closing:
                raise
            request.failure = self._failure(error, request)
        except USER_FAILURES as error:
            request.failure = self._failure(error, request)
        self._done(request)
        self._progress.set()

    def _failure(self, error: BaseException, request: Request) -> TidegateError:
        return self._user_code.failure(error, request.value)

    async def _within_time(self, value: Any) -> Any:
        limit = asyncio.timeout(self._timeout_seconds)
        try:
            async with limit:
                return await self._attempts(value)
        except TimeoutError:
            if not limit.expired():
                raise
        replaced: Any = self._function.timeout(value)
        return await replaced if inspect.isawaitable(replaced) else replaced

    async def _attempts(self, value: Any) -> Any:
        """The outcome of the first attempt that needs no retry, or of the last."""
        strategy, attempts = self._strategy, 1
        while True:
            try:
                found = await self._function.async_invoke(self._user_code.kept(value))
            except USER_FAILURES as error:
                repeats = self._repeats_exception
                if repeats is None or not repeats(error) or not strategy.can_retry(attempts):
                    raise
            else:
                asks = self._repeats_result
                if asks is None or not asks(found) or not strategy.can_retry(attempts):
                    return found
            await asyncio.sleep(strategy.get_backoff_time_millis(attempts) / 1000)
            attempts += 1


def _listed(found: Any) -> Iterable[Any]:
    if found is None:
        return ()
    if isinstance(found, str | bytes | dict) or not isinstance(found, Iterable):
        raise TypeError(
            f"async_invoke() and timeout() return a list of results, got {type(found).__name__} "
            f"({found!r}): return [result]"
        )
    return found
