"""The table in the terminal and the JSON file."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.cases import Case, Workload
from benchmarks.goals import RATIO_GOALS, Outcome
from benchmarks.measure import Measurement
from benchmarks.plan import Sizes
from benchmarks.registry import BY_NAME
from benchmarks.summary import OURS, Line, Summary

STYLES = {Outcome.REACHED: "green", Outcome.MISSED: "red", Outcome.UNKNOWN: "dim"}
QUIET = 0.5
"""Load per core before a measurement above which its numbers are not worth quoting."""


def machine() -> dict[str, Any]:
    """Where the run was made."""
    model = "unknown"
    if (info := Path("/proc/cpuinfo")).exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def was_quiet(measurements: Sequence[Measurement]) -> bool:
    cores = os.cpu_count() or 1
    return all(one.load_before / cores <= QUIET for one in measurements)


def print_report(
    console: Console,
    cases: Sequence[Case],
    measurements: Sequence[Measurement],
    left_out: dict[str, str],
) -> None:
    summary = Summary(measurements)
    for workload in dict.fromkeys(case.workload for case in cases):
        for case in (case for case in cases if case.workload is workload):
            lines = summary.lines(case)
            if lines:
                console.print(_table(case, lines, summary))
    _print_goals(console, summary)
    for name, reason in left_out.items():
        console.print(f"[yellow]left out:[/] {name}: {reason}", highlight=False)
    if not was_quiet(measurements):
        console.print(
            "[yellow]The machine was busy with other work before some measurements:"
            " do not quote these numbers.[/]"
        )


def _table(case: Case, lines: list[Line], summary: Summary) -> Table:
    table = Table(title=f"{case.workload.heading}: {case.name}", title_justify="left")
    table.add_column("", max_width=44)
    if case.workload.throughput:
        table.add_column("records/s", justify="right")
        table.add_column("Tidegate is", justify="right")
        table.add_column("goal", justify="right")
        table.add_column("results a record", justify="right")
        table.add_column("CPU µs a record", justify="right")
        table.add_column("commit every", justify="right")
    elif case.workload in (Workload.LATENCY, Workload.FLOOR):
        table.add_column("p50", justify="right")
        table.add_column("p99", justify="right")
        table.add_column("max", justify="right")
    else:
        table.add_column("measured")
    table.add_column("MB Python / Java", justify="right")
    table.add_column("totals")
    for line in lines:
        title = BY_NAME[line.peer].title
        if line.failure is not None:
            table.add_row(title, f"[red]failed: {line.failure[:200]}[/]")
        elif case.workload.throughput:
            table.add_row(title, *_throughput(case, line, summary), *_ending(line))
        elif case.workload not in (Workload.LATENCY, Workload.FLOOR):
            table.add_row(title, _measured(line), *_ending(line))
        else:
            name = "latency" if case.workload is Workload.LATENCY else "step"
            spread = [
                f"{line.measures[f'{name}_{part}_ms']:.0f} ms" for part in ("p50", "p99", "max")
            ]
            table.add_row(title, *spread, *_ending(line))
    return table


def _measured(line: Line) -> str:
    own = {name: value for name, value in line.measures.items() if not name.endswith("_peak_mb")}
    return ", ".join(f"{name} {value:.3g}" for name, value in own.items())


def _throughput(case: Case, line: Line, summary: Summary) -> list[str]:
    ratio = summary.ratio(case, [line.peer]) if line.peer != OURS else None
    goal = next(
        (goal for goal in RATIO_GOALS if goal.case == case and line.peer in goal.peers), None
    )
    verdict = ""
    if goal is not None:
        outcome = goal.judge(summary.ratio(case, goal.peers))
        verdict = f"[{STYLES[outcome]}]{goal.at_least:.2g} x, {outcome.value}[/]"
    cost = line.measures.get("cpu_us")
    return [
        (f"{line.rate:,.0f}" if line.rate is not None else "") + ("" if line.steady else " ~"),
        f"{ratio:.2f} x" if ratio is not None else "",
        verdict,
        f"{line.results_per_record:.3g}" if line.results_per_record is not None else "",
        f"{cost:.3g}" if cost is not None else "",
        f"{line.commit_interval:.1f} s" if line.commit_interval is not None else "never",
    ]


def _ending(line: Line) -> list[str]:
    python, java = (line.measures.get(f"{kind}_peak_mb", 0) for kind in ("python", "java"))
    return [f"{python:,.0f} / {java:,.0f}", "[green]right[/]" if line.verified else ""]


def _print_goals(console: Console, summary: Summary) -> None:
    table = Table(title="Goals", title_justify="left")
    for heading in ("goal", "measured", ""):
        table.add_column(heading)
    for verdict in summary.verdicts():
        value = f"{verdict.value:.3g}" if verdict.value is not None else ""
        style = STYLES[verdict.outcome]
        table.add_row(verdict.goal.text, value, f"[{style}]{verdict.outcome.value}[/]")
    console.print(table)


def as_json(
    sizes: Sizes, measurements: Sequence[Measurement], left_out: dict[str, str]
) -> dict[str, Any]:
    """Everything that was measured, with what is needed to judge it."""
    summary = Summary(measurements)
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "quiet": was_quiet(measurements),
        "sizes": asdict(sizes),
        "goals": [
            {
                "goal": verdict.goal.text,
                "measured": verdict.value,
                "outcome": verdict.outcome.value,
            }
            for verdict in summary.verdicts()
        ],
        "left_out": left_out,
        "measurements": [asdict(one) for one in measurements],
    }


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1) + "\n")
    part.replace(path)


def read_measurements(path: Path) -> tuple[list[Measurement], dict[str, str]]:
    """The measurements of an earlier run, to print or draw them again."""
    content = json.loads(path.read_text())
    return [Measurement(**one) for one in content["measurements"]], content["left_out"]
