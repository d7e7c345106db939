"""Shows progress while a command waits: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from tidegate.core.amounts import byte_size, duration, per_second
from tidegate.core.errors import JobOutOfReach, OrderRefused, TidegateError
from tidegate.driver.catching_up import Look, compared

if TYPE_CHECKING:
    from tidegate.web.client import JobConnection

_LOOK_SECONDS = 0.1
_LINE_SECONDS = 1.0
_LONGEST_WATCH_SECONDS = 30.0
_SMOOTHED_SECONDS = 5.0
_ENDS = ("FINISHED", "CANCELED", "FAILED")


@dataclass(frozen=True, slots=True)
class Stand:
    """The amount done, the total, and both as text."""

    done: int
    all: int
    text: str


Show = Callable[[Stand], None]


@contextmanager
def watching(what: str, *, quiet: bool) -> Iterator[Show]:
    """Show progress on standard error, unless the command should be quiet."""
    if quiet:
        yield lambda stand: None
    elif sys.stderr.isatty():
        with _bar(what) as show:
            yield show
    else:
        yield _lines(what)


def _lines(what: str) -> Show:
    shown: list[tuple[float, str]] = [(float("-inf"), "")]

    def show(stand: Stand) -> None:
        at, text = shown[0]
        if stand.text != text and time.monotonic() >= at + _LINE_SECONDS:
            shown[0] = (time.monotonic(), stand.text)
            typer.echo(f"{what}: {stand.text}", err=True)

    return show


@contextmanager
def _bar(what: str) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[text]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None, text="")
        yield lambda stand: progress.update(
            task, completed=stand.done, total=stand.all, text=stand.text, refresh=True
        )


# --- what is watched ----------------------------------------------------------------------------


def acknowledgements(show: Show) -> Callable[[int, int], None]:
    """Shows the progress of a checkpoint or savepoint."""
    return lambda done, all: show(Stand(done, all, f"{done} of {all} subtasks acknowledged"))


def restored(job: dict[str, Any]) -> Stand | None:
    """How much of its state a job has restored, from its document; None if it is not restoring."""
    restore = job["tidegate"]["restore"]
    if restore is None or restore["complete"] or job["state"] != "RUNNING":
        return None
    done, all = restore["restored-bytes"], restore["bytes"]
    text = f"restored {byte_size(done)} of {byte_size(all)}" if all else "is about to run"
    return Stand(done, all, text)


def look_at(job: dict[str, Any]) -> Look:
    """The progress of a job, from its document."""
    facts = job["tidegate"]
    behind = facts["records-to-repeat"] if facts["lag"] is None else facts["lag"]
    return Look(at=job["now"] / 1000, read=facts["records-in"], behind=behind)


def catching_up(first: Look, before: Look, now: Look) -> Stand:
    """How far a job has caught up, at the rate since the last observation."""
    found = compared(before, now)
    text = f"{found.behind:,} records behind, {per_second(found.rate)}"
    if found.seconds_left is not None:
        text += f", {duration(found.seconds_left)} left"
    return Stand(max(0, first.behind - now.behind), max(first.behind, now.behind), text)


def watch_catching_up(connection: JobConnection, name: str, *, quiet: bool) -> None:
    """Show progress until the job has caught up, for a limited time, and only on a terminal."""
    if not quiet:
        # The command has succeeded: neither the end of the job nor Ctrl-C can make it fail.
        with suppress(TidegateError, KeyboardInterrupt):
            _watch_catching_up(connection, name)


def _watch_catching_up(connection: JobConnection, name: str) -> None:
    looks = [look_at(connection.get())]
    if not sys.stderr.isatty():
        if looks[0].behind:
            typer.echo(f"{name}: {looks[0].behind:,} records behind", err=True)
        return
    last = ""
    with watching(f"{name} catches up", quiet=False) as show:
        while looks[-1].behind and looks[-1].at < looks[0].at + _LONGEST_WATCH_SECONDS:
            time.sleep(_LOOK_SECONDS)
            job = connection.get()
            if job["state"] != "RUNNING":
                break
            looks.append(look_at(job))
            recent = [look for look in looks if look.at >= looks[-1].at - _SMOOTHED_SECONDS]
            stand = catching_up(looks[0], recent[0], looks[-1])
            last = stand.text
            show(stand)
    if last and looks[-1].behind:
        typer.echo(f"{name}: {last}", err=True)


def wait_for_end(connection: JobConnection) -> str:
    """The final state of the job, whose driver may be gone."""
    while True:
        try:
            state = str(connection.get()["state"])
        except (JobOutOfReach, OrderRefused):
            record = connection.wait_for_record(lambda record: not record.is_running)
            if record is None:
                raise
            return str(record.state)
        if state in _ENDS:
            return state
        time.sleep(_LOOK_SECONDS)
