"""``tidegate run``: a program with settings from the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.program import (
    ProgramArguments,
    ProgramFile,
    SettingOptions,
    run_program,
    settings_of,
)
from tidegate.core.errors import UserError
from tidegate.core.modes import OnTerminate
from tidegate.core.redaction import is_secret
from tidegate.web.registry import COMMAND_VARIABLE

STORE_CLASSES_VARIABLE = "TIDEGATE_STORE_CLASSES"
_PATH = "execution.state-recovery.path"
_ONCE = (_PATH, "tidegate.recovery.take-over", "execution.state-recovery.claim-mode")
"""Settings for one start only."""


def run(
    job: ProgramFile,
    arguments: ProgramArguments = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PATH|latest",
            help="Resume from this checkpoint, or from the latest of this job.",
        ),
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="With --from latest: start even if the job still runs; the running driver fails.",
        ),
    ] = False,
    claim: Annotated[
        bool,
        typer.Option(
            "--claim",
            help="Own that checkpoint: it is deleted after the job's own first checkpoint.",
        ),
    ] = False,
    allow_non_restored: Annotated[
        bool,
        typer.Option(
            "--allow-non-restored", help="Start even if some state belongs to no operator."
        ),
    ] = False,
    parallelism: Annotated[
        int | None, typer.Option("--parallelism", "-p", help="The number of subtasks per operator.")
    ] = None,
    max_parallelism: Annotated[
        int | None, typer.Option(help="Number of key groups, the limit for rescaling.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="The Spark master, like spark://host:7077 or local[8].")
    ] = None,
    detached: Annotated[
        bool,
        typer.Option(
            "--detached", "-d", help="Run it in the background with a log file; print the job id."
        ),
    ] = False,
    supervised: Annotated[
        bool,
        typer.Option(
            "--supervise",
            help="Restart the driver from the latest checkpoint whenever it dies.",
        ),
    ] = False,
    store_classes: Annotated[
        bool,
        typer.Option(
            "--store-classes/--no-store-classes",
            envvar=STORE_CLASSES_VARIABLE,
            help="With --supervise: store Spark's classes in the background, as doctor does.",
        ),
    ] = True,
    on_terminate: Annotated[
        OnTerminate | None,
        typer.Option(
            help="What Ctrl-C and SIGTERM do: cancel the job, or stop it with a savepoint."
        ),
    ] = None,
    conf_dir: Annotated[
        Path | None,
        typer.Option(
            "--conf-dir",
            file_okay=False,
            exists=True,
            help="The directory of config.yaml or flink-conf.yaml. The program overrides it.",
        ),
    ] = None,
    set_: SettingOptions = None,
) -> None:
    """Run a program to its end. Options override the settings of the program.

    With --detached, the command returns when the job has completed its first step. With
    --supervise, it runs until the program succeeds, is cancelled, or fails because of an error of
    its own.

    Example: tidegate run -p 4 -D execution.checkpointing.interval=10s job.py --input words.txt
    """
    if conf_dir is not None:
        from tidegate.datastream.execution.config_file import CONF_DIR_VARIABLES

        # In the environment, so that a detached or supervised driver finds it, too.
        os.environ[CONF_DIR_VARIABLES[0]] = str(conf_dir.resolve())
    chosen: dict[str, object] = {
        _PATH: from_,
        "tidegate.recovery.take-over": take_over or None,
        "execution.state-recovery.claim-mode": "CLAIM" if claim else None,
        "execution.state-recovery.ignore-unclaimed-state": allow_non_restored or None,
        "parallelism.default": parallelism,
        "pipeline.max-parallelism": max_parallelism,
        "tidegate.spark.master": master,
        "tidegate.on-terminate": None if on_terminate is None else on_terminate.value,
    }
    settings: dict[str, object] = {
        **settings_of(set_ or []),
        **{key: value for key, value in chosen.items() if value is not None},
    }
    program = arguments or []
    if detached:
        from tidegate.cli.detached import run_argv, start_detached

        os.environ[STORE_CLASSES_VARIABLE] = str(store_classes)
        options = ("--supervise",) if supervised else ()
        start_detached(run_argv(job, program, settings, *options), job.stem)
    elif supervised:
        _supervise(job, program, settings, store_classes)
    else:
        from tidegate.datastream.execution.hosting import Hosting

        os.environ[COMMAND_VARIABLE] = json.dumps(_command(job, program, settings))
        hosting = Hosting(settings=settings)
        run_program(job, program, hosting)
        if any(not built.is_empty for built in hosting.programs.values()):
            raise UserError(
                f"{job} ended without running its pipeline: call env.execute() at its end"
            )


def _command(job: Path, arguments: list[str], settings: dict[str, object]) -> dict[str, object]:
    """The command to run the program again, without restore options and secrets."""
    kept = {key: str(value) for key, value in settings.items() if not is_secret(key)}
    return {
        "program": str(job.resolve()),
        "arguments": arguments,
        "settings": {key: value for key, value in kept.items() if key not in _ONCE},
        "directory": str(Path.cwd()),
    }


def _supervise(
    job: Path, arguments: list[str], settings: dict[str, object], store_classes: bool
) -> None:
    from tidegate.cli.class_storing import ClassStoring
    from tidegate.cli.detached import run_argv
    from tidegate.cli.supervision import supervise

    given = settings.pop(_PATH, None)

    def argv(path: str | None) -> list[str]:
        return run_argv(job, arguments, settings | ({} if path is None else {_PATH: path}))

    storing = ClassStoring() if store_classes else None
    raise typer.Exit(supervise(argv, None if given is None else str(given), storing))
