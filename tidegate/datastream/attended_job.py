"""Jobs with sinks that have something to do in the driver."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from enum import Enum
from typing import Any

from tidegate.common.job_client import JobHandle
from tidegate.connectors.driver_side import DriverSide
from tidegate.core.errors import TidegateError
from tidegate.core.modes import SavepointFormat
from tidegate.graph.job_graph import JobGraph
from tidegate.operators.endpoints import SinkOperator
from tidegate.runtime.jobmanager.job_status import JobStatus
from tidegate.runtime.jobmanager.progress import Progress
from tidegate.types.arrow import ArrowFormat


def driver_sides(graph: JobGraph) -> list[DriverSide]:
    operators = [chained.operator for vertex in graph.vertices for chained in vertex.chain]
    return [
        operator.sink
        for operator in operators
        if isinstance(operator, SinkOperator) and isinstance(operator.sink, DriverSide)
    ]


def before_start(graph: JobGraph) -> None:
    """Let the sinks of a job that is about to be submitted prepare themselves."""
    for side in driver_sides(graph):
        side.before_start()


def attended(job: JobHandle, graph: JobGraph) -> JobHandle:
    """The job, with somebody who hands on what its sinks deliver."""
    sides = driver_sides(graph)
    return AttendedJob(job, sides) if sides else job


class AttendedJob:
    """A job whose result is there when its sinks have done their part in the driver."""

    def __init__(self, job: JobHandle, sides: Sequence[DriverSide]) -> None:
        self._job = job
        self._threads = [
            threading.Thread(target=self._attend, args=(side,), name="tidegate-sink", daemon=True)
            for side in sides
        ]
        for thread in self._threads:
            thread.start()

    @property
    def job_id(self) -> str:
        return self._job.job_id

    def status(self) -> Enum:
        return self._job.status()

    def result(self, timeout: float | None = None) -> object:
        try:
            return self._job.result(timeout)
        finally:
            if JobStatus[self._job.status().name].is_terminal:
                for thread in self._threads:
                    thread.join()

    def progress(self) -> Progress:
        return self._job.progress()

    def cancel(self) -> None:
        self._job.cancel()

    def take_checkpoint(self) -> Future[str]:
        return self._job.take_checkpoint()

    def take_savepoint(
        self, directory: str | None, format: SavepointFormat, *, cancel: bool = False
    ) -> Future[str]:
        return self._job.take_savepoint(directory, format, cancel=cancel)

    def stop(
        self, directory: str | None, format: SavepointFormat, *, drain: bool = False
    ) -> Future[str]:
        return self._job.stop(directory, format, drain=drain)

    def rescale(self, parallelism: int) -> Future[str]:
        return self._job.rescale(parallelism)

    def collected(self, name: str, format: ArrowFormat | None) -> Iterator[Any]:
        return self._job.collected(name, format)

    def _attend(self, side: DriverSide) -> None:
        with suppress(TidegateError):  # the failure of the job, which others hear of
            for record in self._job.collected(side.collector, None):
                side.delivered(record)
        side.ended()
