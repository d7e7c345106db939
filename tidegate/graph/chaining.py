"""Which operators share a vertex: Flink's rule for two neighbours."""

from __future__ import annotations

from tidegate.core.errors import GraphError
from tidegate.graph.logical import ChainingStrategy, Transformation, Upstream
from tidegate.graph.partitioning import Forward, Partitioning, Rebalance


def resolve_partitioning(upstream: Upstream, source: int, target: int) -> Partitioning:
    """The partitioning of an edge between the given parallelisms.

    Raises:
        GraphError: the program uses `forward` between different parallelisms.
    """
    if upstream.partitioning is None:
        return Forward() if source == target else Rebalance()
    if isinstance(upstream.partitioning, Forward) and source != target:
        raise GraphError(
            f"forward partitioning after {upstream.transformation.name!r} needs the same "
            f"parallelism on both sides, found {source} and {target}: "
            "use rebalance(), or set the same parallelism"
        )
    return upstream.partitioning


def joins_chain(
    downstream: Transformation, upstream: Transformation, partitioning: Partitioning
) -> bool:
    """Whether `downstream` runs in the vertex of `upstream`, its only input."""
    return (
        len(downstream.inputs) == 1
        and isinstance(partitioning, Forward)
        and downstream.chaining is ChainingStrategy.ALWAYS
        and upstream.chaining is not ChainingStrategy.NEVER
    )
