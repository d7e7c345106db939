"""``tidegate stop``: ends a job with a savepoint."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli.commands.savepoint import Format, FormatOption
from tidegate.cli.jobs import AsJson, JobArgument, absolute, connect, find_running, print_json
from tidegate.cli.progress import acknowledgements, wait_for_end, watching


def stop(
    job: JobArgument,
    directory: Annotated[
        str | None,
        typer.Option(
            "-p",
            "--savepoint-path",
            "--savepointPath",
            metavar="DIR",
            help="The directory. Default: execution.checkpointing.savepoint-dir.",
        ),
    ] = None,
    drain: Annotated[
        bool,
        typer.Option("-d", "--drain", help="End all inputs first, and emit what is held back."),
    ] = False,
    format: FormatOption = Format.CANONICAL,
    as_json: AsJson = False,
) -> None:
    """Stop a job with a savepoint, and print its path. The job emits nothing after the savepoint.

    Returns when nothing of the job runs any more.

    Example: tidegate stop 3f2a -p /backups/savepoints
    """
    record = find_running(job)
    connection = connect(record)
    body = {"targetDirectory": absolute(directory), "drain": drain, "formatType": format.name}
    with watching(f"stopping {record.name}", quiet=as_json) as show:
        done = connection.order("/stop", body, acknowledgements(show))
    state = wait_for_end(connection)
    if as_json:
        print_json({"jid": record.job_id, "state": state, "savepoint": done["location"]})
    else:
        typer.echo(done["location"])
