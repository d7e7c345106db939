"""Entry point of the ``tidegate`` command. Every command has its own module, listed here."""

from collections.abc import Callable
from typing import Annotated, Any

import typer
import typer.core

from tidegate import __version__
from tidegate.cli.commands.cancel import cancel
from tidegate.cli.commands.checkpoint import checkpoint
from tidegate.cli.commands.checkpoints import checkpoints
from tidegate.cli.commands.doctor import doctor
from tidegate.cli.commands.explain import explain
from tidegate.cli.commands.info import info
from tidegate.cli.commands.list import list_
from tidegate.cli.commands.logs import logs
from tidegate.cli.commands.plan import plan
from tidegate.cli.commands.rescale import rescale
from tidegate.cli.commands.run import run
from tidegate.cli.commands.savepoint import savepoint
from tidegate.cli.commands.state import state
from tidegate.cli.commands.stop import stop
from tidegate.cli.commands.ui import ui
from tidegate.cli.commands.verify import verify
from tidegate.cli.exit_codes import exit_code
from tidegate.cli.jobs import printable
from tidegate.cli.program import AS_PROGRAM
from tidegate.core.errors import TidegateError

COMMANDS: dict[Callable[..., None], dict[str, Any]] = {
    run: AS_PROGRAM,
    ui: {},
    list_: {},
    info: {},
    checkpoints: {},
    checkpoint: {},
    savepoint: {},
    stop: {},
    cancel: {},
    rescale: {},
    logs: {},
    explain: AS_PROGRAM,
    plan: AS_PROGRAM,
    verify: AS_PROGRAM,
    doctor: {},
}
"""The commands, with their context settings."""


class _Application(typer.core.TyperGroup):
    """Prints Tidegate's errors as a sentence, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TidegateError as error:
            typer.echo(printable(f"tidegate: {error}"), err=True)
            raise typer.Exit(exit_code(error)) from None


app = typer.Typer(
    cls=_Application,
    help="Flink's DataStream API, state and fault tolerance for PySpark.",
    no_args_is_help=True,
    rich_markup_mode="markdown",  # fills paragraphs, whatever the width of the terminal
    pretty_exceptions_show_locals=False,
)
for command, settings in COMMANDS.items():
    app.command(command.__name__.rstrip("_"), context_settings=settings)(command)
app.add_typer(state, name="state")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidegate {__version__}")
        raise typer.Exit


@app.callback()
def tidegate(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Flink's DataStream API, state and fault tolerance for PySpark."""
