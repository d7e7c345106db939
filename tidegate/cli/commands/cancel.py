"""``tidegate cancel``: ends a job, optionally after a savepoint."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli.commands.savepoint import Format, FormatOption
from tidegate.cli.jobs import AsJson, absolute, complete_job, connect, find_running, print_json
from tidegate.cli.progress import acknowledgements, wait_for_end, watching
from tidegate.core.errors import ConfigError, TidegateError, UnknownJob
from tidegate.web.registry import JobRecord


def cancel(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="JOB [DIR]",
            help="The job, and with -s the directory, in any order.",
            autocompletion=complete_job,
        ),
    ],
    with_savepoint: Annotated[
        bool,
        typer.Option(
            "-s",
            "--with-savepoint",
            "--withSavepoint",
            help="Take a savepoint first, in DIR or execution.checkpointing.savepoint-dir.",
        ),
    ] = False,
    format: FormatOption = Format.CANONICAL,
    as_json: AsJson = False,
) -> None:
    """Cancel a job. With -s, take a savepoint first and print its path.

    Returns when nothing of the job runs any more.

    Example: tidegate cancel 3f2a -s /backups/savepoints
    """
    record, directory = job_and_directory(words, with_savepoint=with_savepoint)
    connection = connect(record)
    location: str | None = None
    if with_savepoint:
        body = {
            "target-directory": absolute(directory),
            "cancel-job": True,
            "formatType": format.name,
        }
        with watching(f"savepoint of {record.name}", quiet=as_json) as show:
            done = connection.order("/savepoints", body, acknowledgements(show))
        location = done["location"]
    else:
        connection.cancel()
    state = wait_for_end(connection)
    if as_json:
        print_json({"jid": record.job_id, "state": state, "savepoint": location})
    else:
        typer.echo(location or f"{record.job_id} is {state.lower()}.")


def job_and_directory(words: list[str], *, with_savepoint: bool) -> tuple[JobRecord, str | None]:
    """Find out which argument is the job: the only one, or the only one that matches a job.

    Raises:
        UnknownJob: none is.
        ConfigError: both are, or there are too many arguments.
    """
    most = 2 if with_savepoint else 1
    if len(words) > most:
        advice = "give one job" if not with_savepoint else "give a job and one directory"
        raise ConfigError("JOB", " ".join(words), advice)
    if len(words) == 1:
        return find_running(words[0]), None
    found: list[tuple[JobRecord, str]] = []
    problems: list[TidegateError] = []
    for word, other in (words, reversed(words)):
        if "/" in word:
            continue
        try:
            found.append((find_running(word), other))
        except TidegateError as error:
            problems.append(error)
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(
            "JOB [DIR]",
            " ".join(words),
            "both are jobs: write the directory as a path, such as ./savepoints",
        )
    raise problems[0] if problems else UnknownJob(words[0], (), is_ambiguous=False)
