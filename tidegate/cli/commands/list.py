"""``tidegate list``: the jobs of this user on this machine."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidegate.cli.jobs import AsJson, as_of, connect, print_json, print_table, since
from tidegate.core.errors import TidegateError
from tidegate.web.registry import LOST, JobRecord, known_jobs, running_jobs

_PATIENCE_SECONDS = 3.0


def list_(
    running: Annotated[
        bool, typer.Option("-r", "--running", help="Only running jobs; the default.")
    ] = False,
    all_: Annotated[
        bool, typer.Option("-a", "--all", help="Include jobs that have ended recently.")
    ] = False,
    application: Annotated[
        str | None,
        typer.Option(
            "--application",
            "-yid",
            "--yarnapplicationId",
            metavar="ID",
            help="Only the jobs of a Spark application.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the jobs of this user on this machine.

    Example: tidegate list -a
    """
    found = known_jobs() if all_ and not running else running_jobs()
    if application is not None:
        found = [record for record in found if record.application_id == application]
    jobs = [_described(record) for record in found]
    if as_json:
        print_json({"jobs": jobs})
    elif not jobs:
        typer.echo("No jobs are running." if not all_ else "There are no jobs.")
    else:
        print_table(
            ("job", "name", "state", "started", "for", "application"),
            [
                (
                    job["jid"],
                    job["name"],
                    job["state"],
                    as_of(record.started_at),
                    # The end time of a lost driver is unknown.
                    "-" if record.state == LOST else since(record.started_at, record.ended_at),
                    record.application_id or "-",
                )
                for job, record in zip(jobs, found, strict=True)
            ],
        )


def _described(record: JobRecord) -> dict[str, Any]:
    return {
        "jid": record.job_id,
        "name": record.name,
        "state": record.state or _state(record),
        "start-time": int(1000 * record.started_at),
        "end-time": -1 if record.ended_at is None else int(1000 * record.ended_at),
        "application": record.application_id,
        "pid": record.pid,
        "url": record.url,
        "log": record.log,
    }


def _state(record: JobRecord) -> str:
    try:
        return str(connect(record, _PATIENCE_SECONDS).get()["state"])
    except TidegateError:
        return "UNREACHABLE"
