"""``tidegate verify``: kills a job at every point of the protocol and checks its sink."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tidegate.cli.jobs import AsJson, print_json
from tidegate.cli.program import ProgramArguments, ProgramFile, SettingOptions, settings_of
from tidegate.core.fault_points import FaultPoint

if TYPE_CHECKING:
    from tidegate.verify.campaign import Campaign
    from tidegate.verify.verdict import PointVerdict


class Point(Enum):
    """The points of the protocol, under short names."""

    BARRIER = "barrier"
    SNAPSHOT = "snapshot"
    ACKNOWLEDGED = "acknowledged"
    PRE_COMMITTED = "pre-committed"
    COMMIT = "commit"
    RESTORE = "restore"


def verify(
    job: ProgramFile,
    arguments: ProgramArguments = None,
    sink: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Where the results are, with {run} for the name of the run: a directory, "
            "kafka://host:port/topic, postgresql://…/database#table, or FILE.py:FUNCTION, which "
            "gets the run's name and returns all records.",
        ),
    ] = ...,  # type: ignore[assignment]
    kills: Annotated[int, typer.Option(min=1, help="How often to kill, over all points.")] = 60,
    point: Annotated[
        list[Point] | None, typer.Option(help="Kill only at this point. Can be repeated.")
    ] = None,
    at_least_once: Annotated[
        bool,
        typer.Option(
            "--at-least-once", help="Run in AT_LEAST_ONCE mode, where nothing may be lost."
        ),
    ] = False,
    interval: Annotated[
        str | None, typer.Option(help="Time between checkpoints, like '500 ms'.")
    ] = None,
    prepare: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="A command before each run, with {run} for its name: to create a table or topic.",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Give up when nothing happens for this long.")
    ] = 300.0,
    seed: Annotated[int, typer.Option(help="The seed for choosing the moments.")] = 0,
    directory: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where to keep the checkpoints and logs of all runs. Default: a temporary "
            "directory, which is kept only if something is wrong.",
        ),
    ] = None,
    as_json: AsJson = False,
    set_: SettingOptions = None,
) -> None:
    """Prove that a job is exactly-once from end to end, against its real sink.

    The job runs once undisturbed. Then its slots and its driver are killed at every point of the
    checkpoint protocol, and the contents of the sink are compared. {run} in the program's arguments
    is replaced by the name of the run, so that each run writes to its own output. The job must be
    bounded, and its results must not depend on the order of the records.

    The exit code is 0 if nothing was lost or duplicated, otherwise 1.

    Example: tidegate verify --sink 'out-{run}' --kills 60 job.py --output 'out-{run}'
    """
    from tidegate.verify.campaign import Campaign
    from tidegate.verify.content import check_address

    check_address(sink)
    logs = directory or Path(tempfile.mkdtemp(prefix="tidegate-verify-"))
    settings = settings_of(set_ or [])
    if interval is not None:
        settings["execution.checkpointing.interval"] = interval
    if at_least_once:
        settings["execution.checkpointing.mode"] = "AT_LEAST_ONCE"
    campaign = Campaign(
        job=job,
        arguments=arguments or [],
        sink=sink,
        directory=logs,
        kills=kills,
        points=[FaultPoint[each.name] for each in point or Point],
        settings=tuple(settings.items()),
        prepare=prepare,
        at_least_once=at_least_once,
        patience_seconds=timeout,
        seed=seed,
    )
    verdicts = _carry_out(campaign)
    holds = all(verdict.holds for verdict in verdicts)
    if as_json:
        print_json(as_document(verdicts))
    else:
        _print(verdicts, logs)
    if holds and directory is None:
        shutil.rmtree(logs, ignore_errors=True)
    if not holds:
        raise typer.Exit(1)


def _carry_out(campaign: Campaign) -> list[PointVerdict]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("kills"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=campaign.kills)

        def told(what: str, kills: int) -> None:
            progress.update(task, description=what, completed=kills)

        return list(campaign.carry_out(told))


def as_document(verdicts: Sequence[PointVerdict]) -> dict[str, Any]:
    points = [
        {
            "point": verdict.point.value,
            "kills": verdict.kills,
            "lost": verdict.difference.lost,
            "duplicated": verdict.difference.duplicated,
            "holds": verdict.holds,
            "examples": verdict.difference.examples,
        }
        for verdict in verdicts
    ]
    return {"holds": all(v.holds for v in verdicts), "points": points}


def _print(verdicts: Sequence[PointVerdict], logs: Path) -> None:
    console = Console(highlight=False)
    table = Table("killed", "kills", "lost", "duplicated", "verdict")
    for column in table.columns[1:4]:
        column.justify = "right"
    for verdict in verdicts:
        table.add_row(
            verdict.point.value,
            str(verdict.kills),
            str(verdict.difference.lost),
            str(verdict.difference.duplicated),
            "[green]holds[/]" if verdict.holds else "[bold red]BROKEN[/]",
        )
    console.print(table)
    for verdict in verdicts:
        for example in verdict.difference.examples if not verdict.holds else ():
            console.print(f"{verdict.point.value}: {example}", markup=False, soft_wrap=True)
    kills = sum(verdict.kills for verdict in verdicts)
    if all(verdict.holds for verdict in verdicts):
        promise = "nothing was lost" if verdicts[0].may_repeat else "every record arrived once"
        console.print(f"[bold green]{kills} kills: {promise}.[/]")
    else:
        console.print(f"[bold red]{kills} kills: the guarantee does not hold.[/] Logs: {logs}")
