"""A digest of the edges of a job: records in flight only fit a job with the same digest."""

from __future__ import annotations

import hashlib

from tidegate.graph.job_graph import Edge, JobGraph


def exchanges_of(graph: JobGraph) -> str:
    """Equal for jobs whose edges have the same numbers, ends and parallelisms."""
    text = repr([_ends(graph, edge) for edge in graph.edges])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _ends(graph: JobGraph, edge: Edge) -> tuple[object, ...]:
    source, target = graph.vertices[edge.source], graph.vertices[edge.target]
    return (
        edge.id,
        source.chain[edge.source_operator].operator_id,
        source.parallelism,
        edge.side_tag,
        target.chain[0].operator_id,
        target.parallelism,
        edge.input_index,
    )
