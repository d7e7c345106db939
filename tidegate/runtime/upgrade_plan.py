"""What would become of the state of a savepoint in a job that was started from it. Runs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

import cloudpickle

from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorRecord
from tidegate.core.ids import CheckpointId, OperatorId, SubtaskIndex
from tidegate.graph.job_graph import ChainedOperator, JobGraph, Vertex
from tidegate.operators.base import Operator, OperatorContext
from tidegate.operators.endpoints import SourceOperator
from tidegate.state.key_groups import KeyGroupRange
from tidegate.state.operator_state import OperatorStateStore
from tidegate.state.snapshot import KeyedStateHandle
from tidegate.stream.batch import Batch
from tidegate.stream.elements import Barrier, Watermark


class Fate(Enum):
    """What becomes of a state."""

    RESTORED = "restored"
    NEW = "new"
    DROPPED = "dropped"
    CHANGED = "changed type"


@dataclass(frozen=True, slots=True)
class StatePlan:
    """One state of an operator, stored, declared, or both."""

    name: str
    fate: Fate
    stored: str | None = None
    declared: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPlan:
    """One operator of the savepoint, of the job, or of both."""

    operator_id: OperatorId
    uid: str | None
    name: str
    fate: Fate
    bytes: int = 0
    """That the savepoint holds of it."""
    states: tuple[StatePlan, ...] = ()
    obstacles: tuple[str, ...] = ()
    """Why it could not be restored."""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UpgradePlan:
    """The fate of everything."""

    operators: tuple[OperatorPlan, ...]

    @property
    def dropped(self) -> tuple[OperatorPlan, ...]:
        """What the job would not take over."""
        return tuple(o for o in self.operators if o.fate is Fate.DROPPED and o.bytes)

    @property
    def bytes_not_restored(self) -> int:
        return sum(operator.bytes for operator in self.dropped)

    @property
    def obstacles(self) -> tuple[str, ...]:
        return tuple(reason for operator in self.operators for reason in operator.obstacles)

    def fits(self, *, allow_non_restored: bool = False) -> bool:
        """Whether the job would start."""
        return not self.obstacles and (allow_non_restored or not self.dropped)


def plan_upgrade(metadata: CheckpointMetadata, graph: JobGraph) -> UpgradePlan:
    """Hold the operators of a job against what a savepoint holds."""
    known = {chained.operator_id for vertex in graph.vertices for chained in vertex.chain}
    kept = [
        _operator(metadata.operators.get(chained.operator_id), vertex, chained)
        for vertex in graph.vertices
        for chained in vertex.chain
    ]
    gone = [
        OperatorPlan(
            operator_id=record.operator_id,
            uid=record.uid,
            name=record.name,
            fate=Fate.DROPPED,
            bytes=_size(record),
            states=tuple(
                StatePlan(name, Fate.DROPPED, stored) for name, stored in _stored(record).items()
            ),
        )
        for record in metadata.operators.values()
        if record.operator_id not in known
    ]
    return UpgradePlan((*kept, *gone))


def _operator(
    record: OperatorRecord | None, vertex: Vertex, chained: ChainedOperator
) -> OperatorPlan:
    declared = None if chained.operator is None else declared_states(chained.operator)
    remarks: list[str] = []
    if chained.uid is None and (declared or (record is not None and _stored(record))):
        remarks.append("it has no uid(): it is found only as long as the graph is unchanged")
    if declared is None:
        remarks.append("which states it declares is not known before it runs")
    stored = {} if record is None else _stored(record)
    return OperatorPlan(
        operator_id=chained.operator_id,
        uid=chained.uid,
        name=chained.name,
        fate=Fate.NEW if record is None else Fate.RESTORED,
        bytes=0 if record is None else _size(record),
        states=tuple(_states(stored, declared)),
        obstacles=tuple(_obstacles(record, vertex, stored, declared)),
        remarks=tuple(remarks),
    )


def _states(stored: dict[str, str], declared: dict[str, str] | None) -> Iterator[StatePlan]:
    for name, what in stored.items():
        if declared is None:
            yield StatePlan(name, Fate.RESTORED, what)
        elif name not in declared:
            yield StatePlan(name, Fate.DROPPED, what)
        else:
            fate = Fate.RESTORED if declared[name] == what else Fate.CHANGED
            yield StatePlan(name, fate, what, declared[name])
    for name, what in (declared or {}).items():
        if name not in stored:
            yield StatePlan(name, Fate.NEW, None, what)


def _obstacles(
    record: OperatorRecord | None,
    vertex: Vertex,
    stored: dict[str, str],
    declared: dict[str, str] | None,
) -> Iterator[str]:
    if record is None:
        return
    keyed = any(handle.keyed is not None for handle in record.subtasks.values())
    limit = record.max_parallelism
    if keyed and vertex.is_max_parallelism_chosen and vertex.max_parallelism != limit:
        yield (
            f"{record.name!r} was saved with a max parallelism of {limit}, the job sets "
            f"{vertex.max_parallelism}: it can never change in the life of a state"
        )
    if keyed and vertex.parallelism > limit:
        yield (
            f"{record.name!r} shall have {vertex.parallelism} subtasks, but its max parallelism is "
            f"{limit}"
        )
    for name, what in stored.items():
        if declared is not None and declared.get(name, what) != what:
            yield (
                f"state {name!r} of {record.name!r} holds {what}, the job declares "
                f"{declared[name]}: declare it under another name, or as it was"
            )


def _stored(record: OperatorRecord) -> dict[str, str]:
    """Name and type of the keyed states, which are known without reading them."""
    handles = [handle.keyed for handle in record.subtasks.values()]
    return {
        state.name: state.declaration
        for handle in handles
        if isinstance(handle, KeyedStateHandle)
        for state in handle.metadata
    }


def _size(record: OperatorRecord) -> int:
    splits = [len(s) for handle in record.subtasks.values() for s in handle.source_splits]
    segments = [s.size for handle in record.subtasks.values() for s in handle.segments]
    return sum(splits) + sum(segments) + len(record.enumerator or b"")


class _Nowhere:
    """An output that nobody reads."""

    def emit(self, batch: Batch) -> None: ...

    def emit_side(self, tag: str, batch: Batch) -> None: ...

    def emit_watermark(self, watermark: Watermark) -> None: ...


def declared_states(operator: Operator) -> dict[str, str] | None:
    """The keyed states that an operator declares when it is opened; None: it cannot be said.

    A copy of it is opened and closed again. Sources and sinks are not: that may have effects.
    """
    if isinstance(operator, SourceOperator) or operator.delivery() is not None:
        return {}
    copy: Operator = cloudpickle.loads(cloudpickle.dumps(operator))
    context = OperatorContext(
        name="",
        operator_id=OperatorId(""),
        subtask=SubtaskIndex(0),
        parallelism=1,
        max_parallelism=1,
        key_groups=KeyGroupRange(0, 1),
        console=lambda line: None,
        operator_state=OperatorStateStore(),
    )
    try:
        copy.open(context, _Nowhere())
        snapshot = copy.snapshot(Barrier(CheckpointId(0), 0.0))
        keyed = None if snapshot is None else snapshot.keyed
        return {} if keyed is None else {m.name: m.declaration for m in keyed.metadata}
    except Exception:
        return None
    finally:
        with suppress(Exception):
            copy.close()
