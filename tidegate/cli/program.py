"""Runs a user's program in this process, like `python job.py`.

Command modules import the engine where they use it, so that `doctor` and `--help` work without it.
"""

from __future__ import annotations

import io
import json
import os
import runpy
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.exit_codes import USER_ERROR
from tidegate.core.errors import ConfigError, TidegateError
from tidegate.core.redaction import is_secret, redacted
from tidegate.web.log_files import keep_bounded
from tidegate.web.registry import LOG_VARIABLE

if TYPE_CHECKING:
    from tidegate.datastream.execution.hosting import Hosting

ProgramFile = Annotated[
    Path,
    typer.Argument(
        metavar="JOB.PY", exists=True, dir_okay=False, help="The program, a Python file."
    ),
]
ProgramArguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ARGUMENTS]", help="Arguments of the program."),
]
SettingOptions = Annotated[
    list[str] | None,
    typer.Option(
        "-D",
        metavar="KEY=VALUE",
        help="A setting of the job; overrides that of the program. Can be repeated.",
    ),
]
SETTINGS_VARIABLE = "TIDEGATE_SETTINGS"
_ADVICE = f"""set secrets in the environment: {SETTINGS_VARIABLE}='{{"key": "value"}}'"""
AS_PROGRAM = {"allow_interspersed_args": False}
"""Options after the program's name belong to the program."""


def run_program(file: Path, arguments: Sequence[str], hosting: Hosting) -> None:
    """Run a program to its end. SIGTERM interrupts it like Ctrl-C.

    Raises:
        TidegateError: Tidegate refused or failed.
        typer.Exit: the program failed by itself; its traceback has been printed.
    """
    from tidegate.datastream.execution.hosting import hosted
    from tidegate.driver.interrupts import plain_interrupts

    if log := os.environ.get(LOG_VARIABLE):
        keep_bounded(Path(log))
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(file), *arguments]
    sys.path.insert(0, str(file.resolve().parent))
    # Slots must be able to import the same modules.
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(file.resolve().parent), *([inherited] if inherited else [])]
    )
    try:
        with plain_interrupts(), hosted(hosting):
            runpy.run_path(str(file), run_name="__main__")
    except TidegateError:
        raise
    except Exception as error:
        typer.echo(_traceback_of(error, file), err=True, nl=False)
        raise typer.Exit(USER_ERROR) from None
    finally:
        sys.argv, sys.path[:] = argv, path


def _traceback_of(error: Exception, file: Path) -> str:
    """What `python job.py` would print: only the frames of the program."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != str(file):
        frames = frames.tb_next
    printed = io.StringIO()
    with redirect_stderr(printed):  # the module `traceback` of Python 3.11 makes no suggestions
        sys.__excepthook__(type(error), error.with_traceback(frames), frames)
    text = printed.getvalue()
    if isinstance(error, SyntaxError) and error.filename is None:
        text = f'  File "{file}"\n{text}'
    return redacted(text)


def settings_of(pairs: Sequence[str]) -> dict[str, str]:
    """The settings of `-D key=value` options; they override those of TIDEGATE_SETTINGS.

    Raises:
        ConfigError: an option has another form, or would reveal a secret in `ps`.
    """
    settings = _settings_of_environment()
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise ConfigError("-D", pair, "give key=value, like -D parallelism.default=4")
        if is_secret(key):
            advice = f"command lines are visible to all users of a machine; {_ADVICE}"
            if key.strip() == "tidegate.rest.token":
                raise ConfigError(key.strip(), "(hidden)", advice)
            typer.echo(f"tidegate: {key.strip()}: {advice}", err=True)
        settings[key.strip()] = value.strip()
    return settings


def _settings_of_environment() -> dict[str, str]:
    text = os.environ.get(SETTINGS_VARIABLE, "{}")
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigError(SETTINGS_VARIABLE, "(hidden)", f"it is not a JSON object; {_ADVICE}")
    return {str(key): str(value) for key, value in found.items()}
