"""Entry point of the ``tidegate`` command. Every command is a module of its own, listed here."""

from collections.abc import Callable
from typing import Annotated, Any

import typer
import typer.core

from tidegate import __version__
from tidegate.cli.doctor import doctor
from tidegate.cli.explain import explain
from tidegate.cli.program import AS_PROGRAM
from tidegate.cli.run import run
from tidegate.cli.verify import verify
from tidegate.core.errors import TidegateError

COMMANDS: dict[Callable[..., None], dict[str, Any]] = {
    doctor: {},
    explain: AS_PROGRAM,
    run: AS_PROGRAM,
    verify: AS_PROGRAM,
}
"""And how the command line of each is read."""


class _Application(typer.core.TyperGroup):
    """Our own errors are for the user, who wants the sentence and not the stack."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TidegateError as error:
            typer.echo(f"tidegate: {error}", err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=_Application,
    help="Flink's DataStream API, state and fault tolerance for PySpark.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
for command, settings in COMMANDS.items():
    app.command(context_settings=settings)(command)


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
