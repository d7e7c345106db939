"""Which subtask takes over which part of a checkpoint, at any parallelism. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorRecord
from tidegate.core.errors import InternalError, StateMisuse, StateNotClaimed
from tidegate.core.ids import OperatorId, SubtaskIndex
from tidegate.graph.job_graph import Vertex
from tidegate.state.backend import check_max_parallelism_unchanged
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.pointers import (
    ChannelHandle,
    FileSegment,
    KeyedStateHandle,
    Segment,
    TimeHandle,
)
from tidegate.state.redistribution import Part, share_of


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRestore:
    """What one operator of a subtask takes over."""

    keyed: tuple[KeyedStateHandle, ...] = ()
    """Handles that contain some of its key groups."""
    operator: Mapping[int, Segment] = field(default_factory=dict)
    """Operator state by old subtask, for those in `parts`."""
    parts: tuple[Part, ...] = ()
    """The share of it that this subtask takes."""
    source_splits: tuple[bytes, ...] = ()
    owned: tuple[FileSegment, ...] = ()
    """Its share of the files that all splits depend on, to be verified."""
    time: TimeHandle = TimeHandle()
    """The stored event time."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit or to pass on."""
        return not (self.parts or self.source_splits or any(k.segments for k in self.keyed))


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskRestore:
    """What one subtask takes over."""

    operators: Mapping[OperatorId, OperatorRestore] = field(default_factory=dict)
    """For a subtask that had ended, only those with something left."""
    ended_inputs: frozenset[int] = frozenset()
    in_flight: tuple[ChannelHandle, ...] = ()
    """Records to process before anything else."""
    is_finished: bool = False
    """It had ended: it reads nothing, but commits what it prepared and keeps its state."""

    def databases_to_share(
        self, key_groups: KeyGroupRange, *, is_at_home: bool
    ) -> dict[OperatorId, KeyedStateHandle]:
        """The databases whose files later snapshots of these key groups may reference.

        This requires the same key groups, and files in the job's own checkpoint directory
        (`is_at_home`), which are kept as long as a checkpoint references them.
        """
        return {
            id: found.keyed[0]
            for id, found in self.operators.items()
            if is_at_home and [each.key_groups for each in found.keyed] == [key_groups]
        }


class Feeding(Enum):
    """How the senders of a vertex compare with those at the checkpoint."""

    SAME = auto()
    """Unchanged: ended inputs stay ended."""
    RESCALED = auto()
    """The parallelism changed: an input stays ended only if it had ended for all subtasks."""
    OTHERS = auto()
    """There are new operators: ended inputs may continue."""


def restore_subtask(
    metadata: CheckpointMetadata,
    vertex: Vertex,
    subtask: SubtaskIndex,
    feeding: Feeding = Feeding.SAME,
) -> SubtaskRestore:
    """What a subtask takes over from a checkpoint; nothing for new operators."""
    found = [metadata.operators.get(chained.operator_id) for chained in vertex.chain]
    records = [record for record in found if record is not None]
    if not records:
        return SubtaskRestore()
    is_rescaled = any(record.parallelism != vertex.parallelism for record in records)
    if is_rescaled and feeding is Feeding.SAME:
        feeding = Feeding.RESCALED
    own = records[0].subtasks.get(subtask)
    is_finished = all(_is_finished(record, subtask, feeding) for record in records)
    # A subtask that had ended does not open its source.
    unused = vertex.chain[0].operator_id if is_finished and vertex.source is not None else None
    operators = {
        record.operator_id: _restore_operator(
            record, vertex, subtask, feeding, is_used=record.operator_id != unused
        )
        for record in records
    }
    return SubtaskRestore(
        operators={
            id: found for id, found in operators.items() if not (is_finished and found.is_empty)
        },
        ended_inputs=_ended_inputs(records[0], subtask, feeding),
        in_flight=() if own is None else own.in_flight,
        is_finished=is_finished,
    )


def check_in_flight(metadata: CheckpointMetadata, exchanges: str) -> None:
    """Raise StateMisuse if records were in flight on exchanges that have changed."""
    targets = [
        record.name
        for record in metadata.operators.values()
        if any(handle.in_flight for handle in record.subtasks.values())
    ]
    if targets and metadata.exchanges != exchanges:
        raise StateMisuse(
            f"the unaligned checkpoint holds records in flight to {targets[0]!r}, but the "
            "operators of the job, their order, chaining or parallelism have changed: "
            "resume the unchanged job, or use a savepoint or a checkpoint that was "
            "taken without execution.checkpointing.unaligned.enabled"
        )


def check_all_claimed(
    metadata: CheckpointMetadata, operators: Iterable[OperatorId], where: str
) -> None:
    """Raise StateNotClaimed if the checkpoint has state of operators that do not exist."""
    known = set(operators)
    lost = [
        f"{record.name!r} (uid {record.uid or record.operator_id})"
        for record in metadata.operators.values()
        if record.operator_id not in known and _has_state(record)
    ]
    if lost:
        is_other = known.isdisjoint(metadata.operators)
        raise StateNotClaimed(where, metadata.job_name, tuple(lost), is_other)


def _has_state(record: OperatorRecord) -> bool:
    return record.enumerator is not None or any(
        handle.segments or handle.source_splits for handle in record.subtasks.values()
    )


def _restore_operator(
    record: OperatorRecord,
    vertex: Vertex,
    subtask: SubtaskIndex,
    feeding: Feeding,
    *,
    is_used: bool,
) -> OperatorRestore:
    parallelism = vertex.parallelism
    handles = [record.subtasks.get(i) for i in range(record.parallelism)]
    found = [handle for handle in handles if handle is not None]
    if any(handle.operator is not None and not handle.operator_states for handle in found):
        raise InternalError(f"the stored operator state of {record.name!r} lists no states")
    stored = [handle.keyed for handle in found if handle.keyed is not None]
    for keyed in stored:
        check_max_parallelism_unchanged(keyed.max_parallelism, vertex.max_parallelism)
    mine = vertex.key_groups_of(subtask)
    if record.parallelism == parallelism:
        own = handles[subtask]
        splits = () if own is None else own.source_splits
    else:
        all_splits = [split for handle in found for split in handle.source_splits]
        splits = tuple(all_splits[subtask::parallelism])
    states = [() if handle is None else handle.operator_states for handle in handles]
    parts = share_of(subtask, parallelism, states, is_used=is_used)
    return OperatorRestore(
        keyed=tuple(keyed for keyed in stored if len(keyed.key_groups.intersection(mine))),
        operator={
            part.owner: segment
            for part in parts
            if (segment := record.subtasks[part.owner].operator) is not None
        },
        parts=parts,
        source_splits=splits,
        owned=tuple([file for handle in found for file in handle.owned][subtask::parallelism]),
        time=_time_of(record, vertex.parallelism, subtask, feeding),
    )


def _time_of(
    record: OperatorRecord, parallelism: int, subtask: SubtaskIndex, feeding: Feeding
) -> TimeHandle:
    """The stored event time, including that of the channels if the senders are the same.

    At another parallelism, the lowest of all subtasks. After a hash exchange all are equal: senders
    broadcast watermarks, and aligned barriers have the same position among them.
    """
    nothing = TimeHandle()
    if record.parallelism == parallelism:
        handle = record.subtasks.get(subtask)
        own = handle.time or nothing if handle is not None else nothing
        return own if feeding is Feeding.SAME else replace(own, channels=())
    found = [
        handle.time or nothing
        for index, handle in record.subtasks.items()
        if index not in record.finished
    ] or [nothing]
    inputs: dict[int, list[int]] = {}
    for each in found:
        for index, watermark in each.inputs:
            inputs.setdefault(index, []).append(watermark)
    return TimeHandle(
        emitted=min(each.emitted for each in found),
        received=min(each.received for each in found),
        inputs=tuple((index, min(each)) for index, each in inputs.items()),
    )


def _is_finished(record: OperatorRecord, subtask: SubtaskIndex, feeding: Feeding) -> bool:
    match feeding:
        case Feeding.SAME:
            return subtask in record.finished
        case Feeding.RESCALED:
            return len(record.finished) == record.parallelism
        case Feeding.OTHERS:
            return False


def _ended_inputs(
    record: OperatorRecord, subtask: SubtaskIndex, feeding: Feeding
) -> frozenset[int]:
    match feeding:
        case Feeding.SAME:
            return record.ended_inputs.get(subtask, frozenset())
        case Feeding.RESCALED:
            ended = [record.ended_inputs.get(i, frozenset()) for i in range(record.parallelism)]
            return frozenset.intersection(*ended)
        case Feeding.OTHERS:
            return frozenset()
