"""Starts a program in its own process and returns when its job has started."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import typer

from tidegate.cli.exit_codes import USER_ERROR
from tidegate.cli.jobs import connect
from tidegate.cli.program import SETTINGS_VARIABLE
from tidegate.cli.progress import Show, restored, watching
from tidegate.core.errors import TidegateError
from tidegate.core.redaction import is_secret
from tidegate.web.log_files import remove_old
from tidegate.web.registry import (
    LAUNCH_VARIABLE,
    LOG_VARIABLE,
    JobRecord,
    home,
    known_jobs,
    namesake_warning,
    running_jobs,
)

_LOOK_SECONDS = 0.1
_TAIL_LINES = 30
_FINISHED = "FINISHED"


def run_argv(
    job: Path, arguments: Sequence[str], settings: dict[str, object], *options: str
) -> list[str]:
    """The command that runs the same program with the same settings, with unbuffered output.

    Every user can see a command line, so secrets are passed in the environment.
    """
    texts = {key: _text(value) for key, value in settings.items()}
    hidden = {key: texts.pop(key) for key in list(texts) if is_secret(key)}
    if hidden:
        os.environ[SETTINGS_VARIABLE] = json.dumps(hidden)
    pairs = [text for key, value in texts.items() for text in ("-D", f"{key}={value}")]
    command = [sys.executable, "-u", "-m", "tidegate", "run", *options, *pairs]
    return [*command, str(job), *arguments]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def record_of(launch: str) -> JobRecord | None:
    """The last job that was started under this name."""
    return next((record for record in known_jobs() if record.launch == launch), None)


def start_detached(argv: Sequence[str], name: str) -> None:
    """Print the id of the job once it has completed its first step.

    Raises:
        typer.Exit: the program ended earlier, with its exit code; or the job failed and restarts.
    """
    launch = secrets.token_hex(8)
    directory = home() / "logs"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = directory / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{launch}.log"
    remove_old(directory)
    with log.open("ab") as file:  # append, so that writes after a rotation go to the start
        process = subprocess.Popen(
            argv,
            env={**os.environ, LAUNCH_VARIABLE: launch, LOG_VARIABLE: str(log)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    typer.echo(f"process {process.pid} writes to {log}", err=True)
    with watching(name, quiet=False) as show:
        while (code := process.poll()) is None:
            record = record_of(launch)
            if record is not None and _has_started(record, show):
                typer.echo(record.job_id)
                warn_of_namesakes(record)
                return
            time.sleep(_LOOK_SECONDS)
    record = record_of(launch)
    if record is not None and record.state == _FINISHED:
        typer.echo(record.job_id)
    elif record is not None and record.failure is not None:
        typer.echo(f"tidegate: job {record.job_id} failed: {record.failure}", err=True)
    else:
        tail = log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        typer.echo("\n".join(tail), err=True)
        typer.echo(f"tidegate: the program ended with exit code {code}", err=True)
    if code:
        raise typer.Exit(code)


def warn_of_namesakes(record: JobRecord) -> None:
    """Say on the console what the driver says in its log: other jobs of this name run."""
    for other in running_jobs():
        if other.name == record.name and other.job_id != record.job_id:
            typer.echo(f"tidegate: {namesake_warning(record.name, other)}", err=True)


def _has_started(record: JobRecord, show: Show) -> bool:
    """Whether it has restored its state and completed its first step.

    Raises:
        typer.Exit: it failed before that, and restarts.
    """
    if not record.is_running:
        # The process of a failed job ends, too, or a supervisor restarts it.
        return record.state == _FINISHED
    try:
        job = connect(record).get()
        stand = restored(job)
        if stand is not None:
            show(stand)
        facts = job["tidegate"]
        if facts["started"]:
            return stand is None
        if not facts["restarts"]:
            return False
        failure = connect(record).get("/exceptions")["root-exception"]
    except TidegateError:
        return False
    typer.echo(record.job_id)
    typer.echo(
        f"tidegate: job {record.job_id} fails at its start, and restarts until its strategy gives "
        f"up; `tidegate cancel {record.job_id}` ends it: {failure}",
        err=True,
    )
    raise typer.Exit(USER_ERROR)
