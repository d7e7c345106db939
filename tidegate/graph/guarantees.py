"""End-to-end guarantees: the weakest of sources, checkpoints and sink."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidegate.connectors.guarantee import Delivery, DeliveryGuarantee
from tidegate.core.checkpoint_settings import CheckpointSettings
from tidegate.core.ids import VertexId
from tidegate.core.modes import CheckpointingMode, CheckpointStorageType
from tidegate.graph.job_graph import JobGraph

_ORDER = list(DeliveryGuarantee)


@dataclass(frozen=True, slots=True)
class SinkGuarantee:
    """The end-to-end guarantee of one sink, and the reason."""

    sink: str
    guarantee: DeliveryGuarantee
    why: str
    commits: bool
    """Whether it commits with checkpoints, which cannot be undone."""

    def __str__(self) -> str:
        what = "no guarantee"
        if self.guarantee is not DeliveryGuarantee.NONE:
            what = f"{self.guarantee.shown}, end to end"
        return f"Sink {self.sink!r}: {what}: {self.why}"


def end_to_end(graph: JobGraph, checkpointing: CheckpointSettings) -> tuple[SinkGuarantee, ...]:
    """The guarantee of every sink of a job, in the order of the program."""
    return tuple(
        _weakest(chained.name, [*_of_sources(graph, vertex.id), _of_mode(checkpointing)], delivery)
        for vertex in graph.vertices
        for chained in vertex.chain
        if chained.operator is not None
        and (delivery := _of_sink(chained.operator.delivery())) is not None
    )


def _weakest(sink: str, before: list[Delivery], delivery: Delivery) -> SinkGuarantee:
    """The weakest guarantee; one below exactly once is explained by the parts that weaken it."""
    parts = [*before, delivery]
    level = min((part.guarantee for part in parts), key=_ORDER.index)
    why = "; ".join(part.why for part in parts if part.guarantee is level)
    return SinkGuarantee(sink, level, why, delivery.commits)


def _of_sources(graph: JobGraph, sink: VertexId) -> Iterator[Delivery]:
    before = {edge.target: set[VertexId]() for edge in graph.edges}
    for edge in graph.edges:
        before[edge.target].add(edge.source)
    waiting, reached = [sink], set[VertexId]()
    while waiting:
        vertex = waiting.pop()
        if vertex not in reached:
            reached.add(vertex)
            waiting.extend(before.get(vertex, ()))
    for id in sorted(reached):
        source = graph.vertices[id].source
        if source is not None:
            replay = source.replay()
            level = DeliveryGuarantee.EXACTLY_ONCE if replay.is_possible else DeliveryGuarantee.NONE
            yield Delivery(level, f"source {graph.vertices[id].chain[0].name!r} {replay.why}")


def _of_mode(checkpointing: CheckpointSettings) -> Delivery:
    if not checkpointing.is_enabled:
        return Delivery(
            DeliveryGuarantee.NONE,
            "without checkpoints a failure loses or repeats records: call enable_checkpointing()",
        )
    if checkpointing.mode is CheckpointingMode.AT_LEAST_ONCE:
        return Delivery(
            DeliveryGuarantee.AT_LEAST_ONCE,
            "in AT_LEAST_ONCE mode barriers do not align, so state counts some records twice",
        )
    why = "barriers store overtaken records" if checkpointing.unaligned else "barriers align"
    if checkpointing.directory is None or checkpointing.storage is CheckpointStorageType.JOBMANAGER:
        why += ", with checkpoints in the memory of the driver"
    return Delivery(DeliveryGuarantee.EXACTLY_ONCE, why)


def _of_sink(delivery: Delivery | None) -> Delivery | None:
    return None if delivery is None else replace(delivery, why=f"the sink {delivery.why}")
