"""Whether a job can go on under another plan."""

from __future__ import annotations

from tidegate.core.errors import GraphError
from tidegate.graph.job_graph import JobGraph


def checked_plan(present: JobGraph, wanted: JobGraph) -> JobGraph:
    """The plan that is wanted, if the state of the present one can be dealt out under it.

    Raises:
        GraphError: an operator would have more subtasks than its state has key groups.
    """
    groups = {
        chained.operator_id: vertex.max_parallelism
        for vertex in present.vertices
        for chained in vertex.chain
        if chained.is_keyed
    }
    for vertex in wanted.vertices:
        for chained in vertex.chain:
            limit = groups.get(chained.operator_id)
            if limit is not None and vertex.parallelism > limit:
                raise GraphError(
                    f"operator {chained.name!r} cannot have {vertex.parallelism} subtasks: its max "
                    f"parallelism is {limit}, which can never change in the life of its state"
                )
    return wanted
