"""Which operators a changed program may not find the state of again."""

from __future__ import annotations

from tidegate.graph.job_graph import JobGraph


def without_uid(graph: JobGraph) -> tuple[str, ...]:
    """The names of operators that keep state and have no uid, in the order of the program."""
    return tuple(
        chained.name
        for vertex in graph.vertices
        for chained in vertex.chain
        if chained.uid is None and chained.operator is not None and chained.operator.keeps_state()
    )


def uid_warning(graph: JobGraph) -> str | None:
    """What to do about them; None: there are none."""
    names = without_uid(graph)
    if not names:
        return None
    return (
        f"no uid is set for {', '.join(map(repr, names))}: a savepoint or checkpoint gives back "
        "the state of such operators only to a program with the same graph; set one that stays, "
        'such as .uid("orders"), for every operator with state'
    )
