"""The records of a running job, as they arrive in the driver."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Any, Self

from tidegate.common.job_client import JobClient
from tidegate.driver.interrupts import plain_interrupts


class CloseableIterator:
    """Iterates over the records of a stream; closing it cancels the job if it still runs.

    If the job fails, the iterator raises its error after the records before it.
    """

    def __init__(self, job: JobClient, records: Iterator[Any]) -> None:
        self._job = job
        self._records = records
        # Ctrl-C ends the job gracefully, even while the program processes a record.
        self._until_closed = ExitStack()
        self._until_closed.enter_context(plain_interrupts())
        atexit.register(self.close)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            return next(self._records)
        except KeyboardInterrupt:
            self._job.terminate()
            self._release()
            raise
        except BaseException:
            self._release()
            raise

    def next(self) -> Any:
        """The next record, like PyFlink's method of this name."""
        return next(self)

    def take(self, limit: int) -> list[Any]:
        """At most this many of the next records."""
        return list(islice(self, limit))

    def close(self) -> None:
        """Cancel the job if it still runs, and wait until it has ended."""
        self._job.cancel_and_wait()
        self._release()

    def _release(self) -> None:
        atexit.unregister(self.close)
        if threading.current_thread() is threading.main_thread():
            self._until_closed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()
