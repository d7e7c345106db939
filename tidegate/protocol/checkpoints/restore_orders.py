"""What the slots and the enumerators of a pipeline resume from. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.checkpoint.metadata import CheckpointMetadata
from tidegate.core.ids import SlotIndex, SubtaskIndex, VertexId
from tidegate.graph.job_graph import JobGraph, Pipeline, Vertex
from tidegate.protocol.messages import RestoreOrder
from tidegate.protocol.restore import Feeding, SubtaskRestore, restore_subtask
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.pointers import FileSegment, KeyedStateHandle, Segment


def restore_orders(pipeline: Pipeline, point: Checkpoint) -> dict[SlotIndex, RestoreOrder]:
    """What each slot of a pipeline takes over from a checkpoint."""
    feeding = _feeding(pipeline, point.metadata)
    return {
        SlotIndex(slot): _restore_order(pipeline, point, SubtaskIndex(slot), feeding)
        for slot in range(pipeline.slots)
    }


def ended_sources(
    pipeline: Pipeline, orders: Mapping[SlotIndex, RestoreOrder]
) -> frozenset[VertexId]:
    """The sources all of whose subtasks had ended: nobody reads what they would find."""
    ended = {
        vertex.id: [
            order.subtasks[vertex.id].is_finished
            for order in orders.values()
            if vertex.id in order.subtasks
        ]
        for vertex in pipeline.sources
    }
    return frozenset(id for id, found in ended.items() if found and all(found))


def _feeding(pipeline: Pipeline, metadata: CheckpointMetadata) -> Feeding:
    """How the senders changed since the checkpoint; any change may affect everything downstream."""
    found = [
        (metadata.operators.get(chained.operator_id), vertex.parallelism)
        for vertex in pipeline.vertices
        for chained in vertex.chain
    ]
    if any(record is None for record, _ in found):
        return Feeding.OTHERS
    if any(record is not None and record.parallelism != width for record, width in found):
        return Feeding.RESCALED
    return Feeding.SAME


def _restore_order(
    pipeline: Pipeline, point: Checkpoint, subtask: SubtaskIndex, feeding: Feeding
) -> RestoreOrder:
    subtasks: dict[VertexId, SubtaskRestore] = {}
    size = 0
    for vertex in pipeline.vertices:
        if subtask < vertex.parallelism:
            senders = feeding if vertex.source is None else Feeding.SAME
            found = restore_subtask(point.metadata, vertex, subtask, senders)
            subtasks[vertex.id] = found
            size += _bytes_to_read(found, vertex.key_groups_of(subtask))
    return RestoreOrder(
        checkpoint_id=point.metadata.checkpoint_id,
        location=point.location,
        subtasks=subtasks,
        size=size,
    )


def _bytes_to_read(restore: SubtaskRestore, key_groups: KeyGroupRange) -> int:
    """The bytes of files that a subtask with these key groups reads; inline state has none."""
    found = [
        *(channel.content for channel in restore.in_flight),
        *(
            segment
            for operator in restore.operators.values()
            for segment in (*operator.operator.values(), *operator.owned)
        ),
        *(
            segment
            for operator in restore.operators.values()
            for keyed in operator.keyed
            for segment in _of_groups(keyed, key_groups)
        ),
    ]
    return sum(segment.size for segment in found if isinstance(segment, FileSegment))


def _of_groups(handle: KeyedStateHandle, wanted: KeyGroupRange) -> Iterator[Segment]:
    """A database is read whole; of chunks and tables, only those with wanted key groups."""
    yield from (file.content for file in handle.native_files)
    for chunk in handle.chunks:
        if any(group in wanted for group, _ in chunk.groups):
            yield chunk.payload
    for table in handle.tables:
        parts = [
            part.content
            for part in table.row_groups
            if any(group in wanted for group, _ in part.groups)
        ]
        if parts:
            yield from (*parts, table.footer)


def with_restored_max_parallelism(graph: JobGraph, metadata: CheckpointMetadata) -> JobGraph:
    """The graph with the stored number of key groups, except where the user has set one."""

    def adapted(vertex: Vertex) -> Vertex:
        stored = {
            record.max_parallelism
            for chained in vertex.chain
            if (record := metadata.operators.get(chained.operator_id)) is not None
            and any(handle.keyed is not None for handle in record.subtasks.values())
        }
        if vertex.is_max_parallelism_chosen or not stored or max(stored) < vertex.parallelism:
            return vertex
        return replace(vertex, max_parallelism=max(stored))

    return replace(graph, vertices=tuple(map(adapted, graph.vertices)))


def restored_enumerators(pipeline: Pipeline, point: Checkpoint) -> dict[VertexId, bytes]:
    """The pickled states of a pipeline's split enumerators."""
    found: dict[VertexId, bytes] = {}
    for vertex in pipeline.sources:
        record = point.metadata.operators.get(vertex.chain[0].operator_id)
        if record is not None and record.enumerator is not None:
            found[vertex.id] = record.enumerator
    return found
