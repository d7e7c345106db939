"""The jobs of a user on this machine, as the registry knows them."""

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
    here: Annotated[bool, "Whether this server answers for it."]
    archived: Annotated[bool, "Whether it has ended, and what was known then is kept."]
    url: str | None
    pid: int
    application: str | None
    failure: str | None
    log: str | None
    checkpoint_directory: str | None
    command: Annotated[list[str] | None, "How to start it again; null: not by `tidegate run`."]


class KnownJobs(Form):
    """The jobs of this machine, the latest first."""

    jobs: list[KnownJob]


class Link(Form):
    """Where the dashboard of another driver is, with a code to log in once."""

    url: str


class LoginCode(Form):
    """A code that can be used once, for a short time."""

    code: str
    seconds: int


class SessionOrder(Form):
    """Log in."""

    code: str


class LoggedIn(Form):
    """Who has logged in."""

    token: str
    expires: int


def known_job(record: JobRecord, *, state: str | None, is_archived: bool) -> KnownJob:
    """A job as it is written down; `state` is known of those that this server runs."""
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
    """What to type to run the program again."""
    pairs = [text for key, value in called["settings"].items() for text in ("-D", f"{key}={value}")]
    return ["tidegate", "run", *pairs, called["program"], *called["arguments"]]
