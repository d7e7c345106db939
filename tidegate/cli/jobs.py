"""Finds the job that a command refers to, and prints results."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.core.amounts import duration
from tidegate.core.errors import OrderRefused, UnknownJob
from tidegate.web.registry import JobRecord, known_jobs, running_jobs

if TYPE_CHECKING:
    from tidegate.web.client import JobConnection


def complete_job(incomplete: str) -> Iterator[tuple[str, str]]:
    """Shell completions."""
    for record in running_jobs():
        if record.job_id.startswith(incomplete):
            yield record.job_id, record.name


JOB = typer.Argument(
    metavar="JOB",
    help="The id of the job, a prefix of its id, or its name.",
    autocompletion=complete_job,
)
JobArgument = Annotated[str, JOB]
_PLAIN_WIDTH = 1000
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document for machines.")]


def find_job(asked: str, among: Sequence[JobRecord]) -> JobRecord:
    """The job with this id, name, or prefix of an id; running jobs take precedence.

    Raises:
        UnknownJob: there is none, or more than one.
    """
    ways = (
        [record for record in among if record.job_id == asked],
        [record for record in among if record.name == asked],
        [record for record in among if asked and record.job_id.startswith(asked.lower())],
    )
    found = next((way for way in ways if way), [])
    running = [record for record in found if record.is_running]
    for choice in (found, running):
        if len(choice) == 1:
            return choice[0]
    candidates = tuple(
        f"{each.job_id}  {(each.state or 'running').lower():<9} {each.name}"
        for each in found or among
    )
    raise UnknownJob(asked, candidates, is_ambiguous=bool(found))


def find_running(asked: str) -> JobRecord:
    """A running job.

    Raises:
        UnknownJob: there is no such job.
        OrderRefused: it has ended.
    """
    running = running_jobs()
    try:
        return find_job(asked, running)
    except UnknownJob as error:
        if error.args[2]:
            raise
        ended = [record for record in known_jobs() if not record.is_running]
        try:
            record = find_job(asked, ended)
        except UnknownJob:
            raise error from None
        raise OrderRefused(
            f"job {record.job_id} ({record.name}) no longer runs: it is "
            f"{(record.state or '').lower()}"
        ) from None


def connect(record: JobRecord, timeout: float = 30.0) -> JobConnection:
    from tidegate.web.client import JobConnection

    return JobConnection(record, timeout)


def absolute(directory: str | None) -> str | None:
    """The absolute path for the driver, which may run in another directory."""
    if directory is None or "://" in directory:
        return directory
    return str(Path(directory).absolute())


# --- what is shown ------------------------------------------------------------------------------


def print_json(document: Any) -> None:
    typer.echo(json.dumps(document, indent=2))


def printable(text: str) -> str:
    """The text with control characters escaped: a foreign savepoint may contain any."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode()
        for each in text
    )


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: with borders on a terminal, otherwise as plain columns for `cut` and `awk`."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    is_terminal = sys.stdout.isatty()
    table = Table(box=box.HEAVY_HEAD if is_terminal else None, pad_edge=is_terminal)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=not is_terminal)
    for row in rows:
        table.add_row(*map(printable, row))
    width = None if is_terminal else _PLAIN_WIDTH
    Console(highlight=False, width=width, markup=False).print(table)


def as_of(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def since(start: float, end: float | None) -> str:
    return duration((end or time.time()) - start)
