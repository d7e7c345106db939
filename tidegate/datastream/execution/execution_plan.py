"""The program as JSON, in the form that Flink's plan visualizer reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tidegate.graph.chaining import resolve_partitioning
from tidegate.graph.logical import Transformation, Upstream
from tidegate.graph.partitioning import ByKeyGroup, Partitioning
from tidegate.graph.translate import reachable


def execution_plan(leaves: Sequence[Transformation], parallelism: int) -> str:
    """Operators in order, each with its inputs and their partitioning."""
    nodes = [_node(t, parallelism) for t in reachable(leaves)]
    return json.dumps({"nodes": nodes}, indent=2)


def display_name(transformation: Transformation) -> str:
    """The name with Flink's prefix: "Source: words", "Sink: Print to Std. Out"."""
    if transformation.source is not None:
        return f"Source: {transformation.name}"
    return f"Sink: {transformation.name}" if transformation.is_sink else transformation.name


def _node(transformation: Transformation, default: int) -> dict[str, Any]:
    name = display_name(transformation)
    pact = "Operator"
    if transformation.source is not None:
        pact = "Data Source"
    elif transformation.is_sink:
        pact = "Data Sink"
    parallelism = transformation.parallelism or default
    node: dict[str, Any] = {
        "id": transformation.id,
        "type": name,
        "pact": pact,
        "contents": transformation.description or name,
        "parallelism": parallelism,
    }
    if transformation.inputs:
        node["predecessors"] = [
            _predecessor(upstream, parallelism, default) for upstream in transformation.inputs
        ]
    return node


def _predecessor(upstream: Upstream, parallelism: int, default: int) -> dict[str, Any]:
    before = upstream.transformation.parallelism or default
    return {
        "id": upstream.transformation.id,
        "ship_strategy": _ship_strategy(resolve_partitioning(upstream, before, parallelism)),
        "side": "second" if upstream.input_index == 0 else "first",
    }


def _ship_strategy(partitioning: Partitioning) -> str:
    is_by_key = isinstance(partitioning, ByKeyGroup)
    return "HASH" if is_by_key else type(partitioning).__name__.upper()
