"""``tidegate doctor``: what is installed, what is missing, and what to do."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from tidegate.cli.jobs import AsJson, print_json
from tidegate.core.errors import ExternalError
from tidegate.prerequisites import Check, Status, examine, require_java

_STYLES = {Status.OK: "green", Status.WARNING: "yellow", Status.MISSING: "bold red"}


def doctor(
    as_json: AsJson = False,
    java_home: Annotated[
        bool, typer.Option("--java-home", help="Print only the JAVA_HOME to use, for scripts.")
    ] = False,
    spark_conf: Annotated[
        bool,
        typer.Option(
            "--spark-conf", help="Print only the Spark settings that the fast exchange needs."
        ),
    ] = False,
    store_classes: Annotated[
        bool,
        typer.Option(
            "--store-classes",
            help="Store Spark's classes, so that jobs on this machine start sooner.",
        ),
    ] = False,
    master: Annotated[
        str | None,
        typer.Option(
            help="Start Spark on this master, such as spark://host:7077, and check what it offers."
        ),
    ] = None,
    parallelism: Annotated[
        int, typer.Option("-p", "--parallelism", min=1, help="With --master: of the job to run.")
    ] = 2,
) -> None:
    """Check Python, Java, Spark, packages and the machine; exit with 1 if something is missing.

    With --master, check a Spark cluster: whether its workers have Tidegate, how many task slots it
    has and how many a job needs, and whether steps can take milliseconds.

    Example: export JAVA_HOME="$(tidegate doctor --java-home)"

    Example: tidegate doctor --master spark://host:7077 --parallelism 8
    """
    if java_home:
        _print_java_home()
        return
    if spark_conf:
        # The report must work even if packages for this are missing.
        from tidegate.exchange.pipelined.requirements import session_settings

        for key, value in session_settings().items():
            typer.echo(f"{key}={value}")
        return
    if store_classes:
        _store_classes()
        return
    checks = examine() if master is None else _examine_master(master, parallelism)
    if as_json:
        print_json(as_document(checks))
    else:
        _print_report(checks)
    if not is_ready(checks):
        raise typer.Exit(1)


def _examine_master(master: str, parallelism: int) -> list[Check]:
    from tidegate.datastream.execution.cluster_report import examine_master

    return examine_master(master, parallelism)


def _store_classes() -> None:
    from tidegate.prerequisites import class_archive

    typer.echo("Running a small job to see which classes Spark needs ...", err=True)
    typer.echo(class_archive.store_classes(require_java()))


def _print_java_home() -> None:
    try:
        typer.echo(require_java().home)
    except ExternalError as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from None


def is_ready(checks: Sequence[Check]) -> bool:
    return all(check.status is not Status.MISSING for check in checks)


def as_document(checks: Sequence[Check]) -> dict[str, Any]:
    lines = [{**asdict(check), "status": check.status.value} for check in checks]
    return {"ready": is_ready(checks), "checks": lines}


def _print_report(checks: Sequence[Check]) -> None:
    console = Console(highlight=False)
    name_width = max(len(check.name) for check in checks)
    status_width = max(len(status.value) for status in Status)
    for check in checks:
        line = Text.assemble(
            (check.status.value.ljust(status_width), _STYLES[check.status]),
            f"  {check.name.ljust(name_width)}  {check.found}",
        )
        console.print(line, soft_wrap=True)
        if check.advice is not None:
            indent = " " * (status_width + name_width + 4)
            console.print(Text(f"{indent}→ {check.advice}", style="bold"), soft_wrap=True)
    missing = [check.name for check in checks if check.status is Status.MISSING]
    if missing:
        console.print(Text(f"Not ready: {', '.join(missing)}.", style="bold red"), soft_wrap=True)
    else:
        console.print(Text("Ready.", style="bold green"))
