"""The program that the user has built since the last execution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidegate.connectors.source import Boundedness
from tidegate.core.config import Settings
from tidegate.core.errors import GraphError
from tidegate.core.modes import RuntimeExecutionMode
from tidegate.datastream.execution.poison_records import dead_letter_sinks
from tidegate.datastream.execution.sink_operators import SinkLike
from tidegate.graph.job_graph import JobGraph
from tidegate.graph.logical import Transformation, Upstream
from tidegate.graph.translate import GraphSettings, reachable, translate


class Program:
    """The operators of one job, in program order."""

    def __init__(self) -> None:
        self._transformations: list[Transformation] = []

    def add(self, transformation: Transformation) -> None:
        self._transformations.append(transformation)

    @property
    def is_empty(self) -> bool:
        return not self._transformations

    def leaves(self) -> list[Transformation]:
        """Operators whose output is not read: sinks, and functions with side effects.

        Raises:
            GraphError: there is nothing to run.
        """
        read = {up.transformation for t in self._transformations for up in t.inputs}
        leaves = [t for t in self._transformations if t not in read]
        if not leaves:
            raise GraphError(
                "the program has no operators, so there is nothing to run: end a stream with "
                "print(), sink_to(), add_sink() or execute_and_collect()"
            )
        return leaves

    def reads(self, upstream: Upstream) -> bool:
        """Whether an operator is part of the job."""
        return upstream.transformation in reachable(self._transformations)

    def translate(
        self, settings: Settings, parallelism: int, dead_letters: SinkLike | None = None
    ) -> tuple[JobGraph, Settings]:
        """The job, and the settings completed from the program."""
        leaves = self.leaves()
        pipeline = replace(
            settings.pipeline,
            parallelism=parallelism,
            runtime_mode=_runtime_mode(settings.pipeline.runtime_mode, leaves),
        )
        sinks = leaves
        if dead_letters is not None and settings.restart.poison_skip_after is not None:
            sinks = [*leaves, *dead_letter_sinks(reachable(leaves), dead_letters)]
        graph = translate(
            sinks,
            GraphSettings(
                job_name=pipeline.name,
                parallelism=parallelism,
                max_parallelism=pipeline.max_parallelism,
                chaining=pipeline.chaining,
            ),
        )
        return graph, replace(settings, pipeline=pipeline)


def unbounded_sources(leaves: Sequence[Transformation]) -> list[str]:
    """The names of unbounded sources."""
    return [
        transformation.name
        for transformation in reachable(leaves)
        if transformation.source is not None
        and transformation.source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    ]


def _runtime_mode(
    wanted: RuntimeExecutionMode, leaves: Sequence[Transformation]
) -> RuntimeExecutionMode:
    if wanted is RuntimeExecutionMode.STREAMING:
        return wanted
    unbounded = unbounded_sources(leaves)
    if not unbounded:
        return RuntimeExecutionMode.BATCH
    if wanted is RuntimeExecutionMode.BATCH:
        raise GraphError(
            f"the job runs in BATCH mode, but its source {unbounded[0]!r} never ends: use "
            "RuntimeExecutionMode.STREAMING or AUTOMATIC"
        )
    return RuntimeExecutionMode.STREAMING
