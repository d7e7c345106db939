"""The jobs of a user on this machine, from the registry."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

from tidegate.web.documents.common import NEVER, Times, milliseconds
from tidegate.web.forms import Form
from tidegate.web.registry import JobRecord


class KnownJob(Times):
    """A job of this machine."""

    jid: str
    name: str
    state: str
    here: Annotated[bool, "Whether this server runs it."]
    archived: Annotated[bool, "Whether it has ended and its last data is kept."]
    url: str | None
    pid: int
    application: str | None
    failure: str | None
    log: str | None
    checkpoint_directory: str | None
    command: Annotated[list[str] | None, "How to restart it; null if not run by `tidegate run`."]


class KnownJobs(Form):
    """The jobs of this machine, latest first."""

    jobs: list[KnownJob]


class Link(Form):
    """The URL of another driver's dashboard, with a code for one login."""

    url: str


class LoginCode(Form):
    """A code that can be used once, for a short time."""

    code: str
    seconds: int


class SessionOrder(Form):
    """Log in."""

    code: str


class LoggedIn(Form):
    """The outcome of a login."""

    token: str
    expires: int


def known_job(record: JobRecord, *, state: str | None, is_archived: bool) -> KnownJob:
    """A job from its record; `state` is known for jobs of this server."""
    end = record.ended_at
    return KnownJob(
        jid=record.job_id,
        name=record.name,
        state=state or record.state or "RUNNING",
        start_time=milliseconds(record.started_at),
        end_time=NEVER if end is None else milliseconds(end),
        duration=milliseconds((end or time.time()) - record.started_at),
        here=state is not None or is_archived,
        archived=state is None and is_archived,
        url=record.url if record.is_running else None,
        pid=record.pid,
        application=record.application_id,
        failure=record.failure,
        log=record.log,
        checkpoint_directory=record.checkpoint_directory,
        command=None if record.command is None else run_command(record.command),
    )


def run_command(called: Mapping[str, Any]) -> list[str]:
    """The command that runs the program again."""
    pairs = [text for key, value in called["settings"].items() for text in ("-D", f"{key}={value}")]
    return ["tidegate", "run", *pairs, called["program"], *called["arguments"]]
