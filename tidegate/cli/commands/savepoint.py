"""``tidegate savepoint``: takes or deletes a savepoint."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from tidegate.cli.jobs import JOB, AsJson, absolute, connect, find_running, print_json
from tidegate.cli.progress import acknowledgements, watching
from tidegate.core.errors import ConfigError, OrderRefused
from tidegate.web.registry import running_jobs


class Format(Enum):
    """How the state is stored."""

    CANONICAL = "canonical"
    NATIVE = "native"


FormatOption = Annotated[
    Format,
    typer.Option(
        "--format",
        "--type",
        help="canonical: Parquet, for any state backend. native: like checkpoints, and fast.",
    ),
]


def savepoint(
    job: Annotated[str | None, JOB] = None,
    directory: Annotated[
        str | None,
        typer.Argument(
            metavar="[DIR]", help="The directory. Default: execution.checkpointing.savepoint-dir."
        ),
    ] = None,
    format: FormatOption = Format.CANONICAL,
    dispose: Annotated[
        str | None,
        typer.Option("-d", "--dispose", metavar="PATH", help="Delete this savepoint instead."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Take a savepoint of a running job and print its path. The job continues.

    With --dispose, delete a savepoint or checkpoint instead; its job need not run. Other files in
    its directory are kept.

    Example: tidegate savepoint 3f2a /backups/savepoints
    """
    if dispose is not None:
        if job is not None:
            raise ConfigError("JOB", job, "do not name a job with --dispose")
        _dispose(dispose, as_json)
        return
    if job is None:
        raise typer.BadParameter("name a job; `tidegate list` lists them", param_hint="JOB")
    record = find_running(job)
    body = {"target-directory": absolute(directory), "formatType": format.name}
    with watching(f"savepoint of {record.name}", quiet=as_json) as show:
        done = connect(record).order("/savepoints", body, acknowledgements(show))
    if as_json:
        print_json({"jid": record.job_id, "savepoint": done["location"]})
    else:
        typer.echo(done["location"])


def _dispose(path: str, as_json: bool) -> None:
    from tidegate.checkpoint.savepoints import checkpoint_in_use, dispose

    reason = checkpoint_in_use(path, {record.job_id for record in running_jobs()})
    if reason is not None:
        raise OrderRefused(reason)
    foreign = dispose(path)
    if as_json:
        print_json({"disposed": path, "left": list(foreign)})
    elif foreign:
        typer.echo(f"{path} is deleted, except for foreign files: {', '.join(foreign)}")
    else:
        typer.echo(f"{path} is deleted.")
