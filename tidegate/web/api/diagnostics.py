"""Diagnostics of jobs: logs, stacks, profiles, records."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from tidegate.core.errors import TidegateError
from tidegate.core.foreign_logs import FOREIGN_LOG_VARIABLE
from tidegate.core.ids import EdgeId, SlotIndex
from tidegate.core.redaction import redacted
from tidegate.driver.job_handle import JobHandle
from tidegate.protocol.messages import DumpThreads, SampleEdge, TakeProfile
from tidegate.web.documents import diagnostics
from tidegate.web.documents.config import user_config
from tidegate.web.documents.vertices import MetricDocument, metric_documents
from tidegate.web.endpoints import endpoint, order
from tidegate.web.forms import Form
from tidegate.web.recent_logs import RecentLogs
from tidegate.web.registry import LOG_VARIABLE
from tidegate.web.requests import Refusal, whole_number
from tidegate.web.served_jobs import ServedJobs, vertex_of

_MOST_LOG_BYTES = 1 << 20
_GRACE_SECONDS = 10.0
_PROFILE_GRACE_SECONDS = 30.0
_SAMPLE_PAUSE_SECONDS = 1.0
_OF_SLOT = (400, 404, 409)


class NamesQuery(Form):
    """Which metrics to return with their values."""

    get: str | None = None


class LogFile(Form):
    """A log file of the driver."""

    name: str
    size: int
    mtime: int


class LogFiles(Form):
    """The log files of the driver."""

    logs: list[LogFile]


class DiagnosticsApi:
    """Each method answers one path."""

    def __init__(self, jobs: ServedJobs, logs: RecentLogs) -> None:
        self._jobs = jobs
        self._logs = logs
        self._sampled: dict[tuple[str, int], float] = {}
        """When each edge was last sampled."""

    @endpoint("/tidegate/logs", is_private=True, refusals=(400,))
    async def logs(self, request: Request, query: diagnostics.LogQuery) -> diagnostics.Logs:
        """The last log lines of the driver and its slots, newest first."""
        lines, more = self._logs.find(
            logging.getLevelNamesMapping()[query.level],
            query.search or "",
            query.task or "",
            query.before,
            query.limit,
        )
        return diagnostics.log_documents(lines, more)

    @endpoint("/jobmanager/config", refusals=())
    async def driver_config(self, request: Request) -> list[diagnostics.ConfigEntry]:
        """The settings of the jobs of this driver, without secrets."""
        found: dict[str, str] = {}
        for job in self._jobs.all():
            found |= user_config(job.settings)
        return [diagnostics.ConfigEntry(key=key, value=value) for key, value in found.items()]

    @endpoint("/jobmanager/environment", refusals=(), is_private=True)
    async def environment(self, request: Request) -> diagnostics.Environment:
        """The environment of the driver."""
        return diagnostics.environment()

    @endpoint("/jobmanager/metrics", refusals=(400,))
    async def driver_metrics(self, request: Request, query: NamesQuery) -> list[MetricDocument]:
        """The names of the driver's metrics, or the values of those in `get`."""
        return metric_documents(diagnostics.driver_metrics(), query.get)

    @endpoint("/jobmanager/thread-dump", is_private=True, refusals=())
    async def driver_threads(self, request: Request) -> diagnostics.ThreadDump:
        """The stacks of all threads of the driver."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        return diagnostics.thread_dump(
            {
                f"{names.get(id, 'native')} ({id})": "".join(traceback.format_stack(frame))
                for id, frame in sys._current_frames().items()
            }
        )

    @endpoint("/jobmanager/logs", is_private=True, refusals=())
    async def log_files(self, request: Request) -> LogFiles:
        """The log files of the driver: its own if it is detached, and that of other software."""
        found = []
        for name, path in _log_files().items():
            facts = path.stat()
            found.append(LogFile(name=name, size=facts.st_size, mtime=int(1000 * facts.st_mtime)))
        return LogFiles(logs=found)

    @endpoint("/jobmanager/logs/{filename}", content_type="text/plain", is_private=True)
    async def log_file(self, request: Request) -> Response:
        """The end of a log file."""
        return _tail(request.path_params["filename"])

    @endpoint("/jobmanager/log", content_type="text/plain", is_private=True, refusals=(404,))
    async def log(self, request: Request) -> Response:
        """The end of a detached driver's output and log."""
        return _tail("driver.log")

    @endpoint("/jobmanager/stdout", content_type="text/plain", is_private=True, refusals=(404,))
    async def stdout(self, request: Request) -> Response:
        """The same: it is one file."""
        return _tail("driver.log")

    @endpoint("/taskmanagers", refusals=())
    async def task_managers(self, request: Request) -> diagnostics.TaskManagers:
        """The slots of all jobs: processes, hosts, memory."""
        found = [
            diagnostics.task_manager(job, slot, process)
            for job in self._jobs.all()
            for slot, process in sorted(job.processes().items())
        ]
        return diagnostics.TaskManagers(taskmanagers=found)

    @endpoint("/taskmanagers/{taskmanagerid}")
    async def task_manager(self, request: Request) -> diagnostics.TaskManagerDocument:
        """One slot."""
        job, slot = self._slot(request)
        return diagnostics.task_manager(job, slot, job.processes()[slot])

    @endpoint("/taskmanagers/{taskmanagerid}/metrics")
    async def slot_metrics(self, request: Request, query: NamesQuery) -> list[MetricDocument]:
        """The names of a slot's metrics, or the values of those in `get`."""
        job, slot = self._slot(request)
        memory = job.processes()[slot].memory
        values = {} if memory is None else {"Status.Process.Memory": float(memory)}
        return metric_documents(values, query.get)

    @endpoint("/taskmanagers/{taskmanagerid}/thread-dump", is_private=True, refusals=_OF_SLOT)
    async def slot_threads(self, request: Request) -> diagnostics.ThreadDump:
        """The stacks of all threads of a slot."""
        job, slot = self._slot(request)
        stacks = await _answer(job.inspect(slot, DumpThreads()), _GRACE_SECONDS)
        return diagnostics.thread_dump(stacks)

    @endpoint("/jobs/{jobid}/vertices/{vertexid}/flamegraph", is_private=True, refusals=_OF_SLOT)
    async def flame_graph(
        self, request: Request, query: diagnostics.FlameQuery
    ) -> diagnostics.FlameGraph:
        """A profile of the slot of a subtask, sampled now for a few seconds."""
        job = self._jobs.get(request.path_params["jobid"])
        vertex = vertex_of(request, job).vertex
        if query.subtaskindex >= vertex.parallelism:
            raise Refusal(404, f"{vertex.name!r} has no subtask {query.subtaskindex}")
        asked = job.inspect(SlotIndex(query.subtaskindex), TakeProfile(query.seconds))
        profile = await _answer(asked, query.seconds + _PROFILE_GRACE_SECONDS)
        return diagnostics.flame_graph(profile)

    @order("/tidegate/jobs/{jobid}/edges/{edgeid}/sample", status=200)
    async def sample(self, request: Request, body: diagnostics.SampleOrder) -> diagnostics.Sample:
        """Some of the next records on an edge, as text."""
        job = self._jobs.get(request.path_params["jobid"])
        wanted = whole_number(request.path_params["edgeid"], "edge number")
        edge = next((each for each in job.graph.edges if each.id == wanted), None)
        if edge is None:
            raise Refusal(404, f"the job has no edge {wanted}")
        began = time.monotonic()
        if began - self._sampled.get((job.job_id, wanted), 0.0) < _SAMPLE_PAUSE_SECONDS:
            raise Refusal(429, "this edge was sampled a moment ago", {"retry-after": "1"})
        self._sampled[job.job_id, wanted] = began
        source = job.graph.vertices[edge.source]
        what = SampleEdge(source.pipeline, EdgeId(wanted), body.records, body.seconds)
        asked = [job.inspect(SlotIndex(slot), what) for slot in range(source.parallelism)]
        patience = body.seconds + _GRACE_SECONDS
        found = await asyncio.gather(*(_answer(each, patience) for each in asked))
        took = time.monotonic() - began
        return diagnostics.sample(dict(enumerate(found)), body.records, took)

    @endpoint("/tidegate/jobs/{jobid}/dead-letters", is_private=True)
    async def dead_letters(self, request: Request) -> diagnostics.DeadLettersDocument:
        """The last skipped records, with their errors."""
        return diagnostics.dead_letters(self._jobs.get(request.path_params["jobid"]).chronicle)

    def _slot(self, request: Request) -> tuple[JobHandle, SlotIndex]:
        wanted = request.path_params["taskmanagerid"]
        job_id, _, number = wanted.partition("-slot-")
        job = self._jobs.get(job_id)
        slot = SlotIndex(whole_number(number, "slot number"))
        if slot not in job.processes():
            raise Refusal(404, f"no process currently serves {wanted}")
        return job, slot


async def _answer(asked: Future[Any], seconds: float) -> Any:
    """Wait for the answer of a slot.

    Raises:
        Refusal: it does not answer in time.
    """
    try:
        return await asyncio.wait_for(asyncio.wrap_future(asked), seconds)
    except TimeoutError:
        raise Refusal(409, "the slot does not respond: it is busy, or gone") from None
    except TidegateError as error:
        raise Refusal(409, str(error)) from None


def _log_files() -> dict[str, Path]:
    given = {"driver.log": LOG_VARIABLE, "spark.log": FOREIGN_LOG_VARIABLE}
    paths = {Path(os.environ.get(key, "")): name for name, key in reversed(given.items())}
    return {name: path for path, name in paths.items() if path.is_file()}


def _tail(name: str) -> Response:
    path = _log_files().get(name)
    if path is None:
        raise Refusal(404, f"there is no log file {name!r}; /tidegate/logs has the last lines")
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _MOST_LOG_BYTES))
        text = file.read().decode(errors="replace")
    return PlainTextResponse(redacted(text))
