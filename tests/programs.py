"""Small programs as transformations, for tests that run without the user's API."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from typing import Any

import pytest

from tidegate.connectors.collection import CollectionSource
from tidegate.connectors.driver_side import CollectSink
from tidegate.connectors.source import Source
from tidegate.core.config import Settings
from tidegate.driver.job_handle import JobHandle
from tidegate.graph.job_graph import JobGraph
from tidegate.graph.logical import Transformation, Upstream
from tidegate.graph.partitioning import ByKeyGroup, Partitioning
from tidegate.graph.translate import GraphSettings, translate
from tidegate.operators.base import Operator
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.operators.stateless import MapOperator
from tidegate.state.keys.selection import select_key
from tidegate.types.arrow import arrow_format
from tidegate.types.typeinfo import TypeInformation

PATIENCE = 120.0
"""Seconds after which a job that has not ended is taken for hung."""
needs_streaming_shuffle = pytest.mark.skipif(
    version("pyspark") < "4.3", reason="Spark has a streaming shuffle since 4.3"
)


def read(
    records: Iterable[Any] | Source,
    *,
    name: str = "source",
    type_info: TypeInformation | None = None,
    **settings: Any,
) -> Transformation:
    """A source of these records."""
    source = records
    if not isinstance(records, Source):
        format = None if type_info is None else arrow_format(type_info)
        source = CollectionSource(records, type_info, format)
    return Transformation(name=name, source=source, output_type=type_info, **settings)


def apply(
    operator: Operator,
    *inputs: Transformation | Upstream,
    name: str = "operator",
    partitioning: Partitioning | None = None,
    **settings: Any,
) -> Transformation:
    """An operator behind other transformations; `partitioning` is that of the bare ones."""
    upstreams = tuple(
        given if isinstance(given, Upstream) else Upstream(given, partitioning) for given in inputs
    )
    return Transformation(name=name, operator=operator, inputs=upstreams, **settings)


def mapped(
    function: Any, upstream: Transformation | Upstream, *, name: str = "map", **settings: Any
) -> Transformation:
    return apply(MapOperator(function), upstream, name=name, **settings)


def collected(
    upstream: Transformation | Upstream, name: str = "results", **settings: Any
) -> Transformation:
    """A sink whose records come back to the driver."""
    return apply(SinkOperator(CollectSink(name)), upstream, name=name, is_sink=True, **settings)


def keyed(key: Any, upstream: Transformation) -> Upstream:
    """The stream by key: what `key_by` does to an edge."""
    return Upstream(upstream, ByKeyGroup(select_key(key, upstream.output_type)))


def graph_of(
    *sinks: Transformation,
    parallelism: int = 1,
    chaining: bool = True,
    name: str = "job",
    max_parallelism: int | None = None,
) -> JobGraph:
    settings = GraphSettings(
        job_name=name,
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        chaining=chaining,
    )
    return translate(sinks, settings)


def settings_of(values: Mapping[str, object] | None = None) -> Settings:
    """Unless the test says so, restarts do not wait, and a slow machine loses no lease."""
    defaults = {
        "restart-strategy.exponential-delay.initial-backoff": "1 ms",
        "heartbeat.timeout": "100 s",
    }
    return Settings.of({**defaults, **(values or {})})


def results_of(handle: JobHandle, *names: str) -> list[list[Any]]:
    """Wait for the end of the job; what each of its collecting sinks got."""
    handle.result(PATIENCE)
    return [list(handle.collected(name, None)) for name in names or ("results",)]


def wait_until(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Ask again and again until the answer is a yes; returns that answer."""
    deadline = time.monotonic() + seconds
    pause = 0.002
    while not (answer := condition()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"still not so after {seconds} s: {condition}")
        time.sleep(pause)
        pause = min(1.2 * pause, 0.05)  # whoever is waited for needs the processor
    return answer
