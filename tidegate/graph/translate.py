"""Translates the program to a job graph: order, chains, levels, pipelines."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegate.core.errors import GraphError
from tidegate.core.ids import EdgeId, Level, OperatorId, PipelineId, VertexId
from tidegate.graph.chaining import joins_chain, resolve_partitioning
from tidegate.graph.job_graph import ChainedOperator, ChainLink, Edge, JobGraph, Vertex
from tidegate.graph.logical import Transformation
from tidegate.graph.partitioning import Forward, Partitioning
from tidegate.operators.endpoints.operators import SourceOperator
from tidegate.operators.event_time.timestamps import timestamp_field
from tidegate.state.keys.key_groups import default_max_parallelism
from tidegate.types.arrow import ArrowFormat, arrow_format


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSettings:
    """Defaults of the environment for operators."""

    job_name: str
    parallelism: int
    max_parallelism: int | None = None
    chaining: bool = True


@dataclass(slots=True)
class _Chain:
    """A vertex under construction."""

    members: list[Transformation] = field(default_factory=list)
    links: list[ChainLink | None] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _LooseEdge:
    """An edge between transformations that do not share a vertex."""

    source: Transformation
    side_tag: str | None
    target: Transformation
    input_index: int
    partitioning: Partitioning


def translate(sinks: Sequence[Transformation], settings: GraphSettings) -> JobGraph:
    """Build the graph of everything that `sinks` depend on.

    Raises:
        GraphError: there is nothing to run, or the program is inconsistent.
    """
    if not sinks:
        raise GraphError(
            "the program has no sink, so there is nothing to run: end a stream with print(), "
            "sink_to(), add_sink() or execute_and_collect()"
        )
    order = reachable(sinks)
    _refuse_repeated_uids(order)
    parallelism = {t: t.parallelism or settings.parallelism for t in order}
    chains, loose = _chain(order, parallelism, settings)
    chain_of = {member: i for i, chain in enumerate(chains) for member in chain.members}
    pipelines = _components(len(chains), [(chain_of[e.source], chain_of[e.target]) for e in loose])
    levels = _levels(len(chains), chain_of, loose)
    operator_ids = _operator_ids(order)

    def chosen_max_parallelism(chain: _Chain) -> int | None:
        width = parallelism[chain.members[0]]
        chosen = [m.max_parallelism for m in chain.members if m.max_parallelism is not None]
        value = chosen[0] if chosen else settings.max_parallelism
        if value is not None and value < width:
            raise GraphError(
                f"operator {chain.members[0].name!r} has parallelism {width}, above its max "
                f"parallelism {value}: raise one or lower the other"
            )
        return value

    vertices = tuple(
        Vertex(
            id=VertexId(i),
            pipeline=PipelineId(pipelines[i]),
            level=Level(levels[i]),
            parallelism=parallelism[chain.members[0]],
            max_parallelism=chosen_max_parallelism(chain)
            or default_max_parallelism(parallelism[chain.members[0]]),
            is_max_parallelism_chosen=chosen_max_parallelism(chain) is not None,
            chain=tuple(
                ChainedOperator(
                    operator_id=operator_ids[member],
                    name=member.name,
                    uid=member.uid,
                    operator=member.operator or _source_operator(member),
                    parent=link,
                    is_keyed=member.is_keyed,
                )
                for member, link in zip(chain.members, chain.links, strict=True)
            ),
            source=chain.members[0].source,
        )
        for i, chain in enumerate(chains)
    )
    edges = tuple(
        Edge(
            id=EdgeId(i),
            source=VertexId(chain_of[e.source]),
            source_operator=chains[chain_of[e.source]].members.index(e.source),
            side_tag=e.side_tag,
            target=VertexId(chain_of[e.target]),
            input_index=e.input_index,
            partitioning=e.partitioning,
            format=_format_of(e),
        )
        for i, e in enumerate(loose)
    )
    return JobGraph(settings.job_name, vertices, edges)


def _source_operator(transformation: Transformation) -> SourceOperator:
    assert transformation.source is not None
    format = arrow_format(transformation.output_type)
    strategy = transformation.watermarks
    if strategy is None or not strategy.is_used:
        return SourceOperator(transformation.source, format)
    field = timestamp_field(strategy, transformation.output_type)
    return SourceOperator(transformation.source, format, strategy, field)


def _format_of(edge: _LooseEdge) -> ArrowFormat | None:
    if edge.side_tag is None:
        return arrow_format(edge.source.output_type)
    return arrow_format(edge.source.side_types.get(edge.side_tag))


def reachable(sinks: Sequence[Transformation]) -> list[Transformation]:
    """All transformations that they depend on, inputs first, in program order."""
    reached: set[Transformation] = set()
    waiting = list(sinks)
    while waiting:
        transformation = waiting.pop()
        if transformation not in reached:
            reached.add(transformation)
            waiting.extend(upstream.transformation for upstream in transformation.inputs)
    # A transformation can only read those created before it.
    return sorted(reached, key=lambda t: t.id)


def _refuse_repeated_uids(order: Sequence[Transformation]) -> None:
    seen: dict[str, str] = {}
    for transformation in order:
        if transformation.uid is None:
            continue
        if transformation.uid in seen:
            raise GraphError(
                f"uid {transformation.uid!r} is used by both {seen[transformation.uid]!r} and "
                f"{transformation.name!r}: uids must be unique"
            )
        seen[transformation.uid] = transformation.name


def _chain(
    order: Sequence[Transformation],
    parallelism: dict[Transformation, int],
    settings: GraphSettings,
) -> tuple[list[_Chain], list[_LooseEdge]]:
    chains: list[_Chain] = []
    position: dict[Transformation, tuple[_Chain, int]] = {}
    loose: list[_LooseEdge] = []
    for transformation in order:
        resolved = [
            (
                up,
                resolve_partitioning(
                    up, parallelism[up.transformation], parallelism[transformation]
                ),
            )
            for up in transformation.inputs
        ]
        chain, link = _Chain(), None
        if len(resolved) == 1 and settings.chaining:
            upstream, partitioning = resolved[0]
            if joins_chain(transformation, upstream.transformation, partitioning):
                chain, index = position[upstream.transformation]
                link = ChainLink(index, upstream.side_tag)
        if link is None:
            chains.append(chain)
            loose.extend(
                _LooseEdge(
                    up.transformation, up.side_tag, transformation, up.input_index, partitioning
                )
                for up, partitioning in resolved
            )
        position[transformation] = (chain, len(chain.members))
        chain.members.append(transformation)
        chain.links.append(link)
    return chains, loose


def _components(count: int, pairs: Sequence[tuple[int, int]]) -> list[int]:
    """The connected component of each vertex, numbered by its first vertex."""
    root = list(range(count))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    for a, b in pairs:
        low, high = sorted((find(a), find(b)))
        root[high] = low
    numbers: dict[int, int] = {}
    return [numbers.setdefault(find(i), len(numbers)) for i in range(count)]


def _levels(
    count: int, chain_of: dict[Transformation, int], loose: Sequence[_LooseEdge]
) -> list[int]:
    """The longest path in exchanges; a forward edge stays in the slot and does not count."""
    levels = [0] * count
    for edge in sorted(loose, key=lambda e: chain_of[e.target]):
        step = 0 if isinstance(edge.partitioning, Forward) else 1
        source, target = chain_of[edge.source], chain_of[edge.target]
        levels[target] = max(levels[target], levels[source] + step)
    return levels


def _operator_ids(order: Sequence[Transformation]) -> dict[Transformation, OperatorId]:
    """The hash of the uid, or of the operator's position, stable while the graph is unchanged.

    The hash covers the whole graph: after any change, state is reported as missing instead of
    going to the wrong operator.
    """
    positions = {t: position for position, t in enumerate(t for t in order if t.uid is None)}

    def named(transformation: Transformation) -> str:
        return str(positions.get(transformation, f"uid:{transformation.uid}"))

    graph = [
        (position, [named(up.transformation) for up in t.inputs])
        for t, position in positions.items()
    ]
    return {
        t: _hashed(f"place:{positions[t]}:{graph}") if t.uid is None else operator_id_of(t.uid)
        for t in order
    }


def operator_id_of(uid: str) -> OperatorId:
    return _hashed(f"uid:{uid}")


def _hashed(identity: str) -> OperatorId:
    return OperatorId(hashlib.sha256(identity.encode()).hexdigest()[:32])
