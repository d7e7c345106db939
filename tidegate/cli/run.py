"""``tidegate run``: a program with settings from the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli.program import (
    ProgramArguments,
    ProgramFile,
    SettingOptions,
    run_program,
    settings_of,
)


def run(
    job: ProgramFile,
    arguments: ProgramArguments = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PATH|latest",
            help="Go on from this checkpoint, or from the latest of this job.",
        ),
    ] = None,
    allow_non_restored: Annotated[
        bool,
        typer.Option(
            "--allow-non-restored", help="Start even if some of its state belongs to no operator."
        ),
    ] = False,
    parallelism: Annotated[
        int | None, typer.Option("--parallelism", "-p", help="Subtasks of an operator.")
    ] = None,
    max_parallelism: Annotated[
        int | None, typer.Option(help="Number of key groups, the limit for rescaling.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="The Spark master, like spark://host:7077 or local[8].")
    ] = None,
    set_: SettingOptions = None,
) -> None:
    """Run a program to its end; options here win over what the program sets.

    Example: tidegate run -p 4 -D execution.checkpointing.interval=10s job.py --input words.txt
    """
    from tidegate.datastream.hosting import Hosting

    chosen: dict[str, object] = {
        "execution.state-recovery.path": from_,
        "execution.state-recovery.ignore-unclaimed-state": allow_non_restored or None,
        "parallelism.default": parallelism,
        "pipeline.max-parallelism": max_parallelism,
        "tidegate.spark.master": master,
    }
    settings = {key: value for key, value in chosen.items() if value is not None}
    run_program(job, arguments or [], Hosting(settings={**settings_of(set_ or []), **settings}))
