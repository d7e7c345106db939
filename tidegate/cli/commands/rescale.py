"""``tidegate rescale``: changes the parallelism of a running job."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.jobs import AsJson, JobArgument, connect, find_running, print_json
from tidegate.cli.progress import Show, acknowledgements, restored, watch_catching_up, watching
from tidegate.core.errors import OrderRefused

if TYPE_CHECKING:
    from tidegate.web.client import JobConnection

_LOOK_SECONDS = 0.1
_SUCCESS = ("RUNNING", "FINISHED")
_ENDS = ("CANCELED", "FAILED")


def rescale(
    job: JobArgument,
    parallelism: Annotated[
        int, typer.Argument(metavar="N", min=1, help="The number of subtasks per operator.")
    ],
    as_json: AsJson = False,
) -> None:
    """Change the parallelism of a running job. It takes a checkpoint and resumes from it.

    Operators with their own parallelism in the program keep it. Returns when the job runs again.

    Example: tidegate rescale 3f2a 8
    """
    record = find_running(job)
    connection = connect(record)
    before = connection.get()["timestamps"]["RUNNING"]
    with watching(f"checkpoint of {record.name}", quiet=as_json) as show:
        connection.rescale(parallelism, acknowledgements(show))
    with watching(f"{record.name} restarts", quiet=as_json) as show:
        _wait_until_it_runs(connection, before, show)
    if as_json:
        print_json({"jid": record.job_id, "parallelism": parallelism})
    else:
        typer.echo(f"{record.job_id} runs with parallelism {parallelism}.")
    watch_catching_up(connection, record.name, quiet=as_json)


def _wait_until_it_runs(connection: JobConnection, before: int, show: Show) -> None:
    while True:
        details = connection.get()
        if details["timestamps"]["RUNNING"] > before and details["state"] in _SUCCESS:
            stand = restored(details)
            if stand is None:
                return
            show(stand)
        if details["state"] in _ENDS:
            cause = connection.get("/exceptions")["root-exception"] or details["state"].lower()
            raise OrderRefused(f"the job ended instead of resuming: {cause}")
        time.sleep(_LOOK_SECONDS)
