"""``tidegate savepoint``: takes one, or disposes of one."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from tidegate.cli.jobs import (
    AsJson,
    absolute,
    complete_job,
    connect,
    find_running,
    print_json,
    watching,
)
from tidegate.core.errors import ConfigError


class Format(Enum):
    """How the state is stored."""

    CANONICAL = "canonical"
    NATIVE = "native"


FormatOption = Annotated[
    Format,
    typer.Option(
        "--format",
        "--type",
        help="canonical: Parquet, for any state backend. native: as checkpoints are, and quick.",
    ),
]


def savepoint(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB",
            help="Its id, the beginning of its id, or its name.",
            autocompletion=complete_job,
        ),
    ] = None,
    directory: Annotated[
        str | None,
        typer.Argument(
            metavar="[DIR]", help="Where to. Default: execution.checkpointing.savepoint-dir."
        ),
    ] = None,
    format: FormatOption = Format.CANONICAL,
    dispose: Annotated[
        str | None,
        typer.Option("-d", "--dispose", metavar="PATH", help="Delete this savepoint instead."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Take a savepoint of a running job, which runs on; prints its path.

    Example: tidegate savepoint 3f2a /backups/savepoints
    """
    if dispose is not None:
        if job is not None:
            raise ConfigError("JOB", job, "leave it out when a savepoint is disposed of")
        _dispose(dispose, as_json)
        return
    if job is None:
        raise ConfigError("JOB", None, "say of which job; `tidegate list` tells them")
    record = find_running(job)
    body = {"target-directory": absolute(directory), "formatType": format.name}
    with watching(f"savepoint of {record.name}") as watch:
        done = connect(record).order("/savepoints", body, watch)
    if as_json:
        print_json({"jid": record.job_id, "savepoint": done["location"]})
    else:
        typer.echo(done["location"])


def _dispose(path: str, as_json: bool) -> None:
    from tidegate.checkpoint.savepoints import dispose

    dispose(path)
    if as_json:
        print_json({"disposed": path})
    else:
        typer.echo(f"{path} is deleted.")
