"""The command: `python -m benchmarks` from the root of the repository."""

from __future__ import annotations

import dataclasses
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks import chart, report
from benchmarks.cases import DEFAULT_KEYS, DEFAULT_WORKLOADS, Case, Workload, cases_of
from benchmarks.environments import CannotBeHad, EnvironmentCache
from benchmarks.measure import Measurement, measure
from benchmarks.peers.rule import check_size
from benchmarks.plan import QUICK, Sizes
from benchmarks.registry import BY_NAME, PEERS, Peer

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PEERS_FOLDER = HERE / ".peers"

app = typer.Typer(add_completion=False, pretty_exceptions_show_locals=False)


@app.command()
def benchmark(
    workload: Annotated[
        list[Workload] | None,
        typer.Option("--workload", "-w", help="What to measure; may be repeated."),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option("--peer", "-p", help="Whom to measure; may be repeated. All if not given."),
    ] = None,
    keys: Annotated[
        list[int] | None,
        typer.Option("--keys", "-k", help="Number of keys of sum and function; may be repeated."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Length of the window that is measured.")
    ] = None,
    warm_seconds: Annotated[float | None, typer.Option(help="Shortest warm-up.")] = None,
    warm_limit: Annotated[float | None, typer.Option(help="Longest warm-up.")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Rounds; medians are told.")] = 1,
    parallelism: Annotated[int | None, typer.Option(help="Cores given to each peer.")] = None,
    latency_rate: Annotated[
        int | None, typer.Option(help="Records per second of latency, committed and pace.")
    ] = None,
    soak_records: Annotated[int | None, typer.Option(help="Records of the soak.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes: proves the harness, measures nothing.")
    ] = False,
    json_path: Annotated[
        Path, typer.Option("--json", help="Where the measurements are written.")
    ] = RESULTS / "latest.json",
    chart_path: Annotated[
        Path, typer.Option("--chart", help="Where the chart is written.")
    ] = RESULTS / "latest.png",
    cache: Annotated[
        Path, typer.Option(help="Folder of the peers' virtual environments.")
    ] = PEERS_FOLDER,
    again: Annotated[
        Path | None, typer.Option(help="Measure nothing: show an earlier JSON file again.")
    ] = None,
) -> None:
    """Measure Tidegate and what a user would take instead, on the same data, in one run."""
    # The log of a run is kept in files too, where a narrow table cannot be read.
    console = Console() if Console().is_terminal else Console(width=170)
    sizes = _sizes(
        quick, seconds, warm_seconds, warm_limit, parallelism, latency_rate, soak_records
    )
    cases = cases_of(workload or list(DEFAULT_WORKLOADS), keys or list(DEFAULT_KEYS))
    if again is not None:
        measurements, left_out = report.read_measurements(again)
        _show(console, cases, measurements, left_out, chart_path)
        return
    peers = _peers(peer)
    for case in cases:
        check_size(0, case.keys)
    # As an exception the signal lets the peer that is running be ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    def save(done: list[Measurement], missing: dict[str, str]) -> None:
        report.write_json(json_path, report.as_json(sizes, done, missing))

    measurements, left_out = _measure_all(
        console, cases, peers, sizes, EnvironmentCache(cache), repeat, save, thorough=not quick
    )
    save(measurements, left_out)
    _show(console, cases, measurements, left_out, chart_path)
    console.print(f"measurements: {json_path}", highlight=False)
    if any(one.failure is not None for one in measurements):
        raise typer.Exit(1)


def _sizes(
    quick: bool,
    seconds: float | None,
    warm_seconds: float | None,
    warm_limit: float | None,
    parallelism: int | None,
    latency_rate: int | None,
    soak_records: int | None,
) -> Sizes:
    given = {
        "seconds": seconds,
        "warm_seconds": warm_seconds,
        "warm_limit": warm_limit,
        "parallelism": parallelism,
        "latency_rate": latency_rate,
        "soak_records": soak_records,
    }
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    try:
        return dataclasses.replace(QUICK if quick else Sizes(), **changes)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _peers(names: list[str] | None) -> list[Peer]:
    unknown = [name for name in names or [] if name not in BY_NAME]
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)} is no peer; there are {', '.join(BY_NAME)}")
    return [peer for peer in PEERS if not names or peer.name in names]


def _measure_all(
    console: Console,
    cases: list[Case],
    peers: list[Peer],
    sizes: Sizes,
    environments: EnvironmentCache,
    repeat: int,
    save: Callable[[list[Measurement], dict[str, str]], None],
    *,
    thorough: bool,
) -> tuple[list[Measurement], dict[str, str]]:
    measurements: list[Measurement] = []
    left_out: dict[str, str] = {}
    # Rounds, not repeats in a row: what disturbs the machine for a while disturbs all alike.
    for round_number in range(repeat):
        for case in cases:
            for peer in peers:
                if not peer.measures(case) or peer.name in left_out:
                    continue
                console.print(f"{case.name}: {peer.title} ...", highlight=False)
                try:
                    one = measure(
                        peer, case, sizes, environments, repeat=round_number, thorough=thorough
                    )
                except CannotBeHad as reason:
                    left_out[peer.name] = str(reason)
                    console.print(f"  [yellow]left out:[/] {reason}", highlight=False)
                    continue
                measurements.append(one)
                # A run takes long; one that is broken off keeps what it has measured.
                save(measurements, left_out)
                console.print(f"  {_in_short(one)}", highlight=False)
    return measurements, left_out


def _in_short(one: Measurement) -> str:
    if one.failure is not None:
        return f"[red]failed:[/] {one.failure}"
    if one.rate is not None:
        window = f"over {one.window_seconds:.1f} s" if one.window_seconds else ""
        return f"{one.rate:,.0f} records/s {window}; {'; '.join(one.notes)}"
    return ", ".join(f"{name} {value:.0f}" for name, value in one.measures.items())


def _show(
    console: Console,
    cases: list[Case],
    measurements: list[Measurement],
    left_out: dict[str, str],
    chart_path: Path,
) -> None:
    report.print_report(console, cases, measurements, left_out)
    try:
        if chart.draw(chart_path, cases, measurements):
            console.print(f"chart: {chart_path}", highlight=False)
    except ImportError:
        console.print("[yellow]no chart: matplotlib is not installed[/]")
