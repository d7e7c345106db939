"""Records of a running job, as they come to the driver."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Self

from tidegate.common.job_client import JobClient


class CloseableIterator:
    """Iterates over the records of a stream; closing it cancels the job if it still runs.

    Where the job fails, the iterator raises its error after the records that came before.
    """

    def __init__(self, job: JobClient, records: Iterator[Any]) -> None:
        self._job = job
        self._records = records

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return next(self._records)

    def next(self) -> Any:
        return next(self)

    def take(self, limit: int) -> list[Any]:
        """At most so many of the records that follow."""
        return list(islice(self, limit))

    def close(self) -> None:
        self._job.cancel_and_wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()
