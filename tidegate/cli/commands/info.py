"""``tidegate info``: everything about one job."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import typer

from tidegate.cli.jobs import (
    AsJson,
    JobArgument,
    as_of,
    connect,
    find_job,
    print_json,
    print_table,
    since,
)
from tidegate.core.amounts import byte_size, duration
from tidegate.web.registry import JobRecord, known_jobs

_TRACEBACK = "Traceback (most recent call last):"


def info(job: JobArgument, as_json: AsJson = False) -> None:
    """Show the state of a job, its vertices, its checkpoints and its last failure.

    Example: tidegate info 3f2a
    """
    record = find_job(job, known_jobs())
    if not record.is_running:
        _ended(record, as_json)
        return
    connection = connect(record)
    details, checkpoints = connection.get(), connection.get("/checkpoints")
    failures = connection.get("/exceptions")
    if as_json:
        driver = {"url": record.url, "pid": record.pid, "application": record.application_id}
        document = {**details, "checkpoints": checkpoints, "exceptions": failures}
        print_json({**document, "driver": {**driver, "log": record.log}})
        return
    _print_head(record, details["state"], since(record.started_at, None))
    _print_work(details["tidegate"])
    _print_checkpoints(checkpoints)
    if failures["root-exception"] is not None:
        typer.echo(f"failure      {_in_short(failures['root-exception'])}")
    typer.echo("")
    print_table(
        ("vertex", "state", "subtasks", "records in", "records out", "watermark"),
        [
            (
                vertex["name"],
                vertex["status"],
                f"{vertex['parallelism']} of {vertex['maxParallelism']}",
                f"{vertex['metrics']['read-records']:,}",
                f"{vertex['metrics']['write-records']:,}",
                _watermark(vertex["tidegate"]),
            )
            for vertex in details["vertices"]
        ],
    )


def _watermark(found: dict[str, Any]) -> str:
    """Event time of the slowest subtask, and the number of idle channels."""
    from tidegate.stream.elements import FINAL_WATERMARK  # needs numpy, which doctor may miss

    watermark, idle = found["watermark"], found["idle-channels"]
    if watermark is None:
        shown = ""
    elif watermark >= FINAL_WATERMARK:
        shown = "end of input"
    else:
        try:
            at = datetime.fromtimestamp(watermark / 1000, UTC)
            shown = at.isoformat(" ", "milliseconds").removesuffix("+00:00")
        except (OverflowError, ValueError):
            shown = str(watermark)
    return f"{shown} ({idle} idle)".strip() if idle else shown


def _in_short(failure: str) -> str:
    """What happened and where, without the traceback."""
    lines = failure.splitlines()
    return ", ".join(line for line in lines if line[:1].strip() and _TRACEBACK not in line)


def _ended(record: JobRecord, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "jid": record.job_id,
                "name": record.name,
                "state": record.state,
                "start-time": int(1000 * record.started_at),
                "end-time": int(1000 * (record.ended_at or 0)),
                "failure": record.failure,
                "operations": dict(record.operations),
            }
        )
        return
    _print_head(record, record.state or "", since(record.started_at, record.ended_at))
    if record.failure is not None:
        typer.echo(f"failure      {record.failure}")


def _print_head(record: JobRecord, state: str, lasted: str) -> None:
    typer.echo(f"job          {record.job_id}")
    typer.echo(f"name         {record.name}")
    typer.echo(f"state        {state}, for {lasted} since {as_of(record.started_at)}")
    typer.echo(f"driver       pid {record.pid}, {record.url}")
    if record.application_id is not None:
        typer.echo(f"application  {record.application_id}")
    if record.log is not None:
        typer.echo(f"log          {record.log}")


def _print_work(work: dict[str, Any]) -> None:
    behind = "" if work["lag"] is None else f", {work['lag']:,} behind"
    if work["restart"] is not None:
        typer.echo(f"waits for    {work['restart']}")
    typer.echo(
        f"records      {work['records-in']:,} in, {work['records-out']:,} out{behind}; "
        f"{work['steps']:,} steps, {work['restarts']} restarts"
    )


def _print_checkpoints(checkpoints: dict[str, Any]) -> None:
    counts, latest = checkpoints["counts"], checkpoints["latest"]
    typer.echo(f"checkpoints  {counts['completed']} completed, {counts['failed']} failed")
    for name in ("completed", "savepoint"):
        found = latest[name]
        if found is not None:
            took = found["end_to_end_duration"] / 1000
            typer.echo(
                f"  latest {'checkpoint' if name == 'completed' else name} {found['id']}: "
                f"{byte_size(found['state_size'])} in {took:.1f} s, {found['external_path']}"
            )
    restored = latest["restored"]
    if restored is not None:
        when = duration(time.time() - restored["restore_timestamp"] / 1000)
        typer.echo(f"  restored from {restored['external_path']}, {when} ago")
