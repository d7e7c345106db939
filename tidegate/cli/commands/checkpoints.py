"""``tidegate checkpoints``: the history of a job's checkpoints."""

from __future__ import annotations

from typing import Any

import typer

from tidegate.cli.jobs import (
    AsJson,
    JobArgument,
    as_of,
    connect,
    find_running,
    print_json,
    print_table,
)
from tidegate.core.amounts import byte_size

_SHOWN = 10


def checkpoints(job: JobArgument, as_json: AsJson = False) -> None:
    """Show the last checkpoints and savepoints of a running job, the latest first.

    Example: tidegate checkpoints 3f2a
    """
    found = connect(find_running(job)).get("/checkpoints")
    if as_json:
        print_json(found)
        return
    counts = found["counts"]
    typer.echo(
        f"{counts['total']} triggered, {counts['completed']} completed, {counts['failed']} failed, "
        f"{counts['in_progress']} under way, {counts['restored']} restored from"
    )
    if found["history"]:
        columns = ("id", "kind", "state", "acknowledged", "triggered", "took", "size", "written")
        print_table(
            (*columns, "path or reason"), [_row(each) for each in found["history"][:_SHOWN]]
        )


def _row(checkpoint: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(checkpoint["id"]),
        checkpoint["checkpoint_type"].lower(),
        checkpoint["status"].lower(),
        f"{checkpoint['num_acknowledged_subtasks']} of {checkpoint['num_subtasks']}",
        as_of(checkpoint["trigger_timestamp"] / 1000),
        f"{checkpoint['end_to_end_duration'] / 1000:.2f} s",
        byte_size(checkpoint["state_size"]),
        byte_size(checkpoint["checkpointed_size"]),
        str(checkpoint.get("external_path") or checkpoint.get("failure_message") or ""),
    )
