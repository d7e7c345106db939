"""`CompletableFuture`: PyFlink's name for a result that may come later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class CompletableFuture(Future[T]):
    """A `concurrent.futures.Future`; use `asyncio.wrap_future` to await it."""

    @classmethod
    def completed(cls, value: T) -> CompletableFuture[T]:
        """A completed future."""
        future = cls()
        future.set_result(value)
        return future

    @classmethod
    def of_call(cls, call: Callable[[], T], name: str) -> CompletableFuture[T]:
        """Run `call` on its own thread, which does not keep the process alive."""
        future = cls()

        def run() -> None:
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name=name, daemon=True).start()
        return future
