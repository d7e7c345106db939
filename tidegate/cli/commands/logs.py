"""``tidegate logs``: the output of a detached job."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.jobs import JobArgument, find_job
from tidegate.core.errors import OrderRefused
from tidegate.web.registry import JobRecord, known_jobs

_LOOK_SECONDS = 0.2


def logs(
    job: JobArgument,
    lines: Annotated[
        int | None, typer.Option("-n", "--lines", min=0, help="Only this many lines at the end.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Continue until the job has ended.")
    ] = False,
) -> None:
    """Print the log of a job that was started with --detached.

    Example: tidegate logs -f 3f2a
    """
    record = find_job(job, known_jobs())
    if record.log is None:
        raise OrderRefused(
            f"job {record.job_id} writes to the terminal of process {record.pid}; `tidegate run "
            "--detached` gives a job a log file"
        )
    path = Path(record.log)
    if not path.exists():
        raise OrderRefused(f"{path}, the log of job {record.job_id}, no longer exists")
    with path.open(errors="replace") as file:
        for line in file if lines is None else deque(file, maxlen=lines):
            typer.echo(line, nl=False)
        while follow:
            is_running = _runs(record)
            if path.stat().st_size < file.tell():
                file.seek(0)  # it has been rotated
            for line in file:
                typer.echo(line, nl=False)
            if not is_running:
                break
            time.sleep(_LOOK_SECONDS)


def _runs(record: JobRecord) -> bool:
    return any(each.job_id == record.job_id and each.is_running for each in known_jobs())
