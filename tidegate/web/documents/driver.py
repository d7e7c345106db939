"""A summary of the driver and its jobs, under Flink's names."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from tidegate import __version__
from tidegate.driver.job_handle import JobHandle
from tidegate.protocol.job_status import JobStatus
from tidegate.web.documents.common import JobState, Times, milliseconds, times_of
from tidegate.web.documents.vertices import counts_of, states_of
from tidegate.web.forms import Form, Id

ServerKind = Literal["driver", "registry"]


class Overview(Form):
    """The numbers of slots and jobs of a driver."""

    taskmanagers: int
    slots_total: int
    slots_available: int = 0
    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    flink_version: str = __version__
    flink_commit: str = "tidegate"


class Features(Form):
    """What a user interface may offer."""

    web_submit: bool = False
    web_cancel: bool
    web_rescale: bool
    web_history: bool = False


class ServerFacts(Form):
    """Facts for Tidegate's own dashboard."""

    version: str = __version__
    server: ServerKind
    read_only: bool
    may_act: Annotated[bool, "Whether this request may give orders."]
    may_look: Annotated[bool, "Whether it may see records, state, logs and stacks."]
    pid: int
    host: str
    py_spy: Annotated[bool, "Whether py-spy is installed next to this driver."]


class ServerConfig(Form):
    """What a user interface needs to know about a driver."""

    refresh_interval: int = 3000
    timezone_name: str
    timezone_offset: int
    flink_version: str = __version__
    flink_revision: str = "tidegate"
    features: Features
    tidegate: ServerFacts


class JobStateDocument(Form):
    """A job and its state."""

    id: Id
    status: JobState


class Jobs(Form):
    """The jobs of a driver."""

    jobs: list[JobStateDocument]


class JobOverview(Times):
    """A summary of one job."""

    jid: Id
    name: str
    state: JobState
    last_modification: int
    tasks: dict[str, int]


class JobsOverview(Form):
    """A summary of the jobs of a driver."""

    jobs: list[JobOverview]


def overview(jobs: Sequence[JobHandle]) -> Overview:
    states = Counter(job.status() for job in jobs)
    ended = sum(states[state] for state in JobStatus if state.is_terminal)
    slots = sum(job.graph.slots for job in jobs if not job.status().is_terminal)
    return Overview(
        taskmanagers=slots,
        slots_total=slots,
        jobs_running=len(jobs) - ended,
        jobs_finished=states[JobStatus.FINISHED],
        jobs_cancelled=states[JobStatus.CANCELED],
        jobs_failed=states[JobStatus.FAILED],
    )


def server_config(
    server: ServerKind, *, read_only: bool, may_act: bool, may_look: bool
) -> ServerConfig:
    zone = time.localtime()
    return ServerConfig(
        timezone_name=zone.tm_zone,
        timezone_offset=1000 * zone.tm_gmtoff,
        features=Features(web_cancel=not read_only, web_rescale=not read_only),
        tidegate=ServerFacts(
            server=server,
            read_only=read_only,
            may_act=may_act,
            may_look=may_look,
            pid=os.getpid(),
            host=socket.gethostname(),
            py_spy=shutil.which("py-spy") is not None,
        ),
    )


def job_states(jobs: Iterable[JobHandle]) -> Jobs:
    return Jobs(jobs=[JobStateDocument(id=job.job_id, status=job.status().name) for job in jobs])


def jobs_overview(jobs: Iterable[JobHandle]) -> JobsOverview:
    return JobsOverview(jobs=[_job_overview(job) for job in jobs])


def _job_overview(job: JobHandle) -> JobOverview:
    counts = counts_of(state for vertex in job.vertices() for state in states_of(vertex))
    return JobOverview(
        jid=job.job_id,
        name=job.name,
        state=job.status().name,
        last_modification=milliseconds(max(job.chronicle.entered().values())),
        tasks={
            "total": sum(counts.values()),
            **{state.lower(): count for state, count in counts.items()},
        },
        **times_of(job, time.time()),
    )
