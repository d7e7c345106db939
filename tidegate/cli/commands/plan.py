"""``tidegate plan``: whether a changed program can resume from a savepoint, and what is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli.jobs import AsJson, print_json, print_table, printable
from tidegate.cli.program import ProgramArguments, ProgramFile, SettingOptions, settings_of

if TYPE_CHECKING:
    from tidegate.driver.upgrade_plan import StatePlan, UpgradePlan


def plan(
    savepoint: Annotated[
        str,
        typer.Argument(
            metavar="SAVEPOINT", help="A savepoint, a checkpoint, or the directory of a job."
        ),
    ],
    job: ProgramFile,
    arguments: ProgramArguments = None,
    allow_non_restored: Annotated[
        bool,
        typer.Option("--allow-non-restored", help="Accept state that belongs to no operator."),
    ] = False,
    as_json: AsJson = False,
    set_: SettingOptions = None,
) -> None:
    """Show how the state of a savepoint fits a changed program, without running the job.

    The program runs up to the point where it would start its first job. The exit code is 0 if that
    job could resume from the savepoint, otherwise 1.

    Example: tidegate plan savepoints/savepoint-3f9c1a-0b7e55aa41cd new_job.py --input words.txt
    """
    from tidegate.checkpoint.locate import check_files, open_checkpoint
    from tidegate.cli.explanation import planned
    from tidegate.driver.upgrade_plan import plan_upgrade

    found = open_checkpoint(savepoint)
    check_files(found)
    graph, _ = planned(job, arguments or [], settings_of(set_ or []))
    upgrade = plan_upgrade(found.metadata, graph)
    fits = upgrade.fits(allow_non_restored=allow_non_restored)
    if as_json:
        print_json(as_document(upgrade, fits=fits))
    else:
        _print(upgrade, found.path, fits=fits)
    if not fits:
        raise typer.Exit(1)


def as_document(upgrade: UpgradePlan, *, fits: bool) -> dict[str, Any]:
    return {
        "fits": fits,
        "bytes-not-restored": upgrade.bytes_not_restored,
        "obstacles": upgrade.obstacles,
        "operators": [
            {
                "uid": operator.uid,
                "id": operator.operator_id,
                "name": operator.name,
                "fate": operator.fate.value,
                "bytes": operator.bytes,
                "states": [
                    {
                        "name": state.name,
                        "fate": state.fate.value,
                        "stored": state.stored,
                        "declared": state.declared,
                        "added": state.added,
                    }
                    for state in operator.states
                ],
                "obstacles": operator.obstacles,
                "remarks": operator.remarks,
            }
            for operator in upgrade.operators
        ],
    }


def _shown(state: StatePlan) -> str:
    added = f"; new: {', '.join(state.added)}" if state.added else ""
    return f"{state.name}: {state.fate.value}, {state.declared or state.stored}{added}"


def _print(upgrade: UpgradePlan, path: str, *, fits: bool) -> None:
    rows = [
        (
            operator.name,
            operator.uid or "",
            operator.fate.value,
            f"{operator.bytes:,}",
            "\n".join(map(_shown, operator.states)),
        )
        for operator in upgrade.operators
    ]
    print_table(("operator", "uid", "becomes", "bytes", "states"), rows)
    for operator in upgrade.operators:
        for remark in operator.remarks:
            typer.echo(printable(f"{operator.name}: {remark}"))
    for obstacle in upgrade.obstacles:
        typer.secho(printable(obstacle), fg="red", bold=True)
    if upgrade.dropped:
        names = ", ".join(repr(operator.name) for operator in upgrade.dropped)
        typer.echo(
            f"{upgrade.bytes_not_restored:,} bytes of state would not be restored, of {names}: "
            "give the operators their old uid(), or start with --allow-non-restored"
        )
    verdict, color = ("It fits.", "green") if fits else ("It does not fit.", "red")
    typer.secho(verdict, fg=color, bold=True, nl=False)
    typer.echo(printable(f" Savepoint: {path}"))
