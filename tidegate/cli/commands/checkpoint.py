"""``tidegate checkpoint``: takes a checkpoint now."""

from __future__ import annotations

import typer

from tidegate.cli.jobs import AsJson, JobArgument, connect, find_running, print_json
from tidegate.cli.progress import acknowledgements, watching


def checkpoint(job: JobArgument, as_json: AsJson = False) -> None:
    """Take a checkpoint of a running job now, in addition to the periodic ones, and print its path.

    Example: tidegate checkpoint 3f2a
    """
    record = find_running(job)
    with watching(f"checkpoint of {record.name}", quiet=as_json) as show:
        done = connect(record).order("/checkpoints", {}, acknowledgements(show))
    number, path = done["checkpointId"], done["external-path"]
    if as_json:
        print_json({"jid": record.job_id, "checkpoint": number, "path": path})
    else:
        typer.echo(path or f"checkpoint {number}, in the memory of the driver")
