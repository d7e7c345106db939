"""Which subtask takes over what of a checkpoint. Pure; the parallelism may be another one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorRecord
from tidegate.core.errors import StateMisuse, StateNotClaimed
from tidegate.core.ids import OperatorId, SubtaskIndex
from tidegate.state.backend import check_max_parallelism_unchanged
from tidegate.state.key_groups import range_of
from tidegate.state.snapshot import ChannelHandle, FileSegment, KeyedStateHandle, Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRestore:
    """What one operator of one subtask takes over."""

    keyed: tuple[KeyedStateHandle, ...] = ()
    """Each holds some of its key groups."""
    operator: tuple[Segment | None, ...] = ()
    """The operator states of all subtasks there were, from which its own are dealt."""
    source_splits: tuple[bytes, ...] = ()
    owned: tuple[FileSegment, ...] = ()
    """Its share of the files that the splits of all subtasks count on, to be verified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskRestore:
    """What one subtask takes over."""

    operators: Mapping[OperatorId, OperatorRestore] = field(default_factory=dict)
    ended_inputs: frozenset[int] = frozenset()
    in_flight: tuple[ChannelHandle, ...] = ()
    """What it takes in before anything else."""
    is_finished: bool = False
    """It has done its work: it is not opened again."""


class Feeding(Enum):
    """Who sends to the subtasks of a vertex, compared with when the checkpoint was taken."""

    SAME = auto()
    """What has ended for a subtask has ended."""
    RESCALED = auto()
    """The same operators, not all with as many subtasks: a subtask whose senders had ended may get
    others. What has ended for all of them has ended."""
    OTHERS = auto()
    """There are new operators: what had ended may go on."""


def restore_subtask(
    metadata: CheckpointMetadata,
    chain: Sequence[OperatorId],
    subtask: SubtaskIndex,
    parallelism: int,
    max_parallelism: int,
    feeding: Feeding = Feeding.SAME,
) -> SubtaskRestore:
    """What the subtask of a vertex finds in a checkpoint; operators that are new find nothing."""
    records = [record for id in chain if (record := metadata.operators.get(id)) is not None]
    if not records:
        return SubtaskRestore()
    if any(record.parallelism != parallelism for record in records) and feeding is Feeding.SAME:
        feeding = Feeding.RESCALED
    own = records[0].subtasks.get(subtask)
    return SubtaskRestore(
        operators={
            record.operator_id: _restore_operator(record, subtask, parallelism, max_parallelism)
            for record in records
        },
        ended_inputs=_ended_inputs(records[0], subtask, feeding),
        in_flight=() if own is None else own.in_flight,
        is_finished=all(_is_finished(record, subtask, feeding) for record in records),
    )


def check_in_flight(metadata: CheckpointMetadata, exchanges: str) -> None:
    """Raise StateMisuse if records were on their way, and the ways are others now."""
    targets = [record.name for record in metadata.operators.values() if _has_in_flight(record)]
    if targets and metadata.exchanges != exchanges:
        raise StateMisuse(
            f"the unaligned checkpoint holds records on their way to {targets[0]!r}, and the "
            "operators of the job, their order, their chains or their parallelism have changed: "
            "go on with the job as it was, or from a savepoint, or from a checkpoint that was "
            "taken without execution.checkpointing.unaligned.enabled"
        )


def _has_in_flight(record: OperatorRecord) -> bool:
    return any(handle.in_flight for handle in record.subtasks.values())


def check_all_claimed(
    metadata: CheckpointMetadata, operators: Iterable[OperatorId], where: str
) -> None:
    """Raise StateNotClaimed if the checkpoint has state of operators that there are none of."""
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
    record: OperatorRecord, subtask: SubtaskIndex, parallelism: int, max_parallelism: int
) -> OperatorRestore:
    handles = [record.subtasks.get(i) for i in range(record.parallelism)]
    found = [handle for handle in handles if handle is not None]
    stored = [handle.keyed for handle in found if handle.keyed is not None]
    for keyed in stored:
        check_max_parallelism_unchanged(keyed.max_parallelism, max_parallelism)
    mine = range_of(subtask, parallelism, max_parallelism)
    if record.parallelism == parallelism:
        own = handles[subtask]
        splits = () if own is None else own.source_splits
    else:
        all_splits = [split for handle in found for split in handle.source_splits]
        splits = tuple(all_splits[subtask::parallelism])
    return OperatorRestore(
        keyed=tuple(keyed for keyed in stored if len(keyed.key_groups.intersection(mine))),
        operator=tuple(None if handle is None else handle.operator for handle in handles),
        source_splits=splits,
        owned=tuple([file for handle in found for file in handle.owned][subtask::parallelism]),
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
