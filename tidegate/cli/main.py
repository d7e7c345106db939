"""Entry point of the ``tidegate`` command. Every command is a module of its own, listed here."""

from typing import Annotated

import typer

from tidegate import __version__
from tidegate.cli.doctor import doctor

COMMANDS = (doctor,)

app = typer.Typer(
    help="Flink's DataStream API, state and fault tolerance for PySpark.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
for command in COMMANDS:
    app.command()(command)


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
