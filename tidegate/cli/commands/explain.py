"""``tidegate explain``: what a program would run, and what it guarantees."""

from __future__ import annotations

import typer

from tidegate.cli.jobs import AsJson, print_json
from tidegate.cli.program import ProgramArguments, ProgramFile, SettingOptions, settings_of
from tidegate.core.redaction import redacted, redacted_document


def explain(
    job: ProgramFile,
    arguments: ProgramArguments = None,
    as_json: AsJson = False,
    set_: SettingOptions = None,
) -> None:
    """Show the graph of a job, its checkpoints, and the guarantee of every sink with the reason.

    The program runs up to the point where it would start its first job.

    Example: tidegate explain job.py --input words.txt
    """
    from tidegate.cli.explanation import as_document, as_lines, planned

    graph, settings = planned(job, arguments or [], settings_of(set_ or []))
    if as_json:
        print_json(redacted_document(as_document(graph, settings)))
    else:
        typer.echo(redacted("\n".join(as_lines(graph, settings))))
