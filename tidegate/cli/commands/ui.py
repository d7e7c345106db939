"""``tidegate ui``: the dashboard, in a browser."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import webbrowser
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.jobs import JOB, connect, find_job
from tidegate.web.registry import directories, known_jobs, running_jobs

_DRAFT = "open-*.html"


def ui(
    job: Annotated[str | None, JOB] = None,
    port: Annotated[
        int, typer.Option(help="The port to serve jobs that have ended; 0: any free port.")
    ] = 0,
    serve: Annotated[
        bool,
        typer.Option("--serve", help="Serve from this process, even if a running job could."),
    ] = False,
    browser: Annotated[
        bool, typer.Option(help="Open a browser, if there is one, and print the link.")
    ] = True,
) -> None:
    """Open the dashboard of a job, or of all jobs of this machine.

    The driver of a running job serves the dashboard. If no job runs, this command does, until it
    is interrupted: jobs that have ended, savepoints and checkpoints.

    Example: tidegate ui 3f2a
    """
    running = running_jobs()
    record = None if job is None else find_job(job, known_jobs())
    if record is None and len(running) == 1:
        record = running[0]
    route = "" if record is None else f"/jobs/{record.job_id}"
    if not serve and record is not None and record.is_running:
        _show(connect(record).dashboard(route), browser)
    elif not serve and record is None and running:
        _show(connect(running[0]).dashboard(route), browser)
    else:
        _serve(route, port, browser)


def _serve(route: str, port: int, browser: bool) -> None:
    from tidegate.core.rest_settings import RestSettings
    from tidegate.driver.interrupts import plain_interrupts
    from tidegate.web.server import RestServer

    server = RestServer(RestSettings(ports=(port,)), kind="registry")
    _show(server.login_link(route), browser)
    typer.echo("Press Ctrl-C to stop.", err=True)
    with suppress(KeyboardInterrupt), plain_interrupts():
        signal.pause()
    server.close()


def _show(link: str, browser: bool) -> None:
    """Print the link, which logs in once, and open it."""
    typer.echo(link)
    if browser and _has_screen():
        webbrowser.open(_way_to(link).as_uri())


def _has_screen() -> bool:
    return sys.platform == "darwin" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


def _way_to(link: str) -> Path:
    """A private file that redirects to the link: command lines are visible to all users."""
    directory = directories()[0]
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in directory.glob(_DRAFT):
        old.unlink(missing_ok=True)
    path = directory / _DRAFT.replace("*", secrets.token_hex(4))
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(file, "w") as writer:
        writer.write(f'<meta http-equiv="refresh" content="0; url={escape(link)}">')
    return path
