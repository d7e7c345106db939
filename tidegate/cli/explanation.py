"""The job that a program would run, as text lines and as a document."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.cli.program import run_program
from tidegate.core.config import Settings
from tidegate.core.durations import format_duration
from tidegate.core.errors import GraphError
from tidegate.datastream.execution.executor import SparkExecutor
from tidegate.datastream.execution.hosting import Hosting
from tidegate.graph.guarantees import end_to_end
from tidegate.graph.job_graph import Edge, JobGraph

if TYPE_CHECKING:
    from tidegate.driver.job_handle import JobHandle, Replan


def planned(job: Path, arguments: list[str], settings: dict[str, str]) -> tuple[JobGraph, Settings]:
    """The first job that the program would start; its output goes to standard error.

    Raises:
        GraphError: it starts none.
    """
    quiet = {**settings, "tidegate.console.live-line": "off"}
    try:
        with redirect_stdout(sys.stderr):
            run_program(job, arguments, Hosting(settings=quiet, executor=_Planning()))
    except _Planned as plan:
        return plan.graph, plan.settings
    raise GraphError(
        f"{job} ended without starting a job: call env.execute(), or "
        "execute_and_collect() of a stream"
    )


class _Planned(BaseException):
    """Leaves the program where it would start a job; programs do not catch it."""

    def __init__(self, graph: JobGraph, settings: Settings) -> None:
        self.graph = graph
        self.settings = settings


class _Planning(SparkExecutor):
    """Accepts jobs without running them."""

    def submit(
        self, graph: JobGraph, settings: Settings, replan: Replan | None = None
    ) -> JobHandle:
        raise _Planned(graph, settings)


def as_lines(graph: JobGraph, settings: Settings) -> list[str]:
    """The job as text for people."""
    lines = [f"Job {graph.name!r}: {_counted(graph.slots, 'slot')}", ""]
    for vertex in graph.vertices:
        lines.append(f"  [{vertex.id}] {vertex.name}  ({_counted(vertex.parallelism, 'subtask')})")
        lines += [f"       └─ {_way(e)} ─▶ [{e.target}]" for e in graph.edges_from(vertex.id)]
    lines += ["", f"Checkpoints: {_checkpoints(settings)}"]
    return lines + [str(guarantee) for guarantee in end_to_end(graph, settings.checkpointing)]


def as_document(graph: JobGraph, settings: Settings) -> dict[str, Any]:
    """The job as a document for machines."""
    return {
        "name": graph.name,
        "slots": graph.slots,
        "vertices": [
            {
                "id": vertex.id,
                "name": vertex.name,
                "parallelism": vertex.parallelism,
                "max-parallelism": vertex.max_parallelism,
                "operators": [{"name": o.name, "uid": o.uid} for o in vertex.chain],
                "to": [{"vertex": e.target, "by": _way(e)} for e in graph.edges_from(vertex.id)],
            }
            for vertex in graph.vertices
        ],
        "checkpoints": _checkpoints(settings),
        "guarantees": [
            {"sink": g.sink, "guarantee": g.guarantee.value, "why": g.why}
            for g in end_to_end(graph, settings.checkpointing)
        ],
    }


def _way(edge: Edge) -> str:
    way = type(edge.partitioning).__name__.lower().replace("bykeygroup", "by key")
    return way if edge.side_tag is None else f"{way}, side output {edge.side_tag!r}"


def _checkpoints(settings: Settings) -> str:
    checkpointing = settings.checkpointing
    if checkpointing.interval is None:
        return "disabled"
    mode = checkpointing.mode.name.lower().replace("_", " ")
    directory = checkpointing.directory or "the memory of the driver"
    every = format_duration(checkpointing.interval)
    backend = settings.state.backend.value
    return f"every {every}, {mode}, in {directory}; state backend {backend}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
