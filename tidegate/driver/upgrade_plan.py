"""What would become of a savepoint's state in a job started from it. Runs no job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Literal, TypeAlias

import cloudpickle

from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorRecord
from tidegate.core.errors import StateMisuse, StateTypeChanged
from tidegate.core.ids import CheckpointId, OperatorId, SubtaskIndex
from tidegate.graph.exchanges import exchanges_of
from tidegate.graph.job_graph import ChainedOperator, JobGraph, Vertex
from tidegate.operators.base import Operator, OperatorContext
from tidegate.operators.endpoints.operators import SourceOperator
from tidegate.protocol.restore import check_in_flight
from tidegate.state.backend import KeyedStateImage, StateMetadata
from tidegate.state.canonical.tables import TIMERS
from tidegate.state.columnar.backend import check_unchanged
from tidegate.state.evolution import DeclaredState, conversion_of
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.operator_state import OperatorStateStore
from tidegate.stream.batch import Batch
from tidegate.stream.elements import Barrier, Watermark, WatermarkStatus

_Name: TypeAlias = tuple[Literal["by key", "operator"], str]
"""The kind of a state, and its name."""
_Stored: TypeAlias = dict[_Name, StateMetadata]
_Declared: TypeAlias = dict[_Name, DeclaredState]


class StateFate(Enum):
    """What happens to a state."""

    RESTORED = "restored"
    CONVERTED = "converted"
    """It has new fields, which get their defaults."""
    NEW = "new"
    DROPPED = "dropped"
    CHANGED = "changed type"


@dataclass(frozen=True, slots=True)
class StatePlan:
    """One state of an operator: stored, declared, or both."""

    name: str
    fate: StateFate
    stored: str | None = None
    declared: str | None = None
    added: tuple[str, ...] = ()
    """The new fields of a converted state, with their defaults."""
    obstacle: str | None = None
    """Why it cannot be restored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPlan:
    """One operator of the savepoint, the job, or both."""

    operator_id: OperatorId
    uid: str | None
    name: str
    fate: StateFate
    bytes: int = 0
    """The size of its state in the savepoint."""
    states: tuple[StatePlan, ...] = ()
    obstacles: tuple[str, ...] = ()
    """Why it cannot be restored."""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UpgradePlan:
    """What happens to every operator."""

    operators: tuple[OperatorPlan, ...]
    in_flight_obstacle: str | None = None
    """Why the records in flight cannot be delivered."""

    @property
    def dropped(self) -> tuple[OperatorPlan, ...]:
        """Operators whose state the job would drop."""
        return tuple(o for o in self.operators if o.fate is StateFate.DROPPED and o.bytes)

    @property
    def bytes_not_restored(self) -> int:
        return sum(operator.bytes for operator in self.dropped)

    @property
    def obstacles(self) -> tuple[str, ...]:
        reasons = [reason for operator in self.operators for reason in operator.obstacles]
        return (*reasons, *([self.in_flight_obstacle] if self.in_flight_obstacle else ()))

    def fits(self, *, allow_non_restored: bool = False) -> bool:
        """Whether the job would start."""
        return not self.obstacles and (allow_non_restored or not self.dropped)


def plan_upgrade(metadata: CheckpointMetadata, graph: JobGraph) -> UpgradePlan:
    """Compare the operators of a job with a savepoint."""
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
            fate=StateFate.DROPPED,
            bytes=_size(record),
            states=tuple(
                StatePlan(state.name, StateFate.DROPPED, state.declaration)
                for state in _stored(record).values()
            ),
        )
        for record in metadata.operators.values()
        if record.operator_id not in known
    ]
    return UpgradePlan((*kept, *gone), _in_flight_obstacle(metadata, graph))


def _in_flight_obstacle(metadata: CheckpointMetadata, graph: JobGraph) -> str | None:
    try:
        check_in_flight(metadata, exchanges_of(graph))
    except StateMisuse as misfit:
        return str(misfit)
    return None


def _operator(
    record: OperatorRecord | None, vertex: Vertex, chained: ChainedOperator
) -> OperatorPlan:
    stored = {} if record is None else _stored(record)
    declared: _Declared | None = None
    remarks: list[str] = []
    operator = chained.operator
    is_source = isinstance(operator, SourceOperator)
    # Opening sources and sinks to list their states may have side effects.
    if operator is not None and not is_source and operator.delivery() is None:
        declared = declared_states(operator)
        if declared is None:
            remarks.append("the states it declares are unknown before it runs")
    if chained.uid is None and (declared or stored):
        remarks.append("it has no uid(): its state is found only while the graph is unchanged")
    states = tuple(_states(stored, declared))
    remarks += [
        f"state {state.name!r} is no longer declared: it stays in savepoints, unused"
        for state in states
        if state.fate is StateFate.DROPPED
    ]
    changed = [
        f"{chained.name!r}: {state.obstacle}" for state in states if state.obstacle is not None
    ]
    return OperatorPlan(
        operator_id=chained.operator_id,
        uid=chained.uid,
        name=chained.name,
        fate=StateFate.NEW if record is None else StateFate.RESTORED,
        bytes=0 if record is None else _size(record),
        states=states,
        obstacles=(*_obstacles(record, vertex), *changed),
        remarks=tuple(remarks),
    )


def _states(stored: _Stored, declared: _Declared | None) -> Iterator[StatePlan]:
    for name, state in stored.items():
        if declared is None or state.declaration == TIMERS:
            yield StatePlan(state.name, StateFate.RESTORED, state.declaration)
        elif name not in declared:
            yield StatePlan(state.name, StateFate.DROPPED, state.declaration)
        else:
            yield _kept(state, declared[name])
    for name, new in (declared or {}).items():
        if name not in stored:
            yield StatePlan(name[1], StateFate.NEW, None, new.declaration)


def _kept(stored: StateMetadata, declared: DeclaredState) -> StatePlan:
    plan = StatePlan(stored.name, StateFate.RESTORED, stored.declaration, declared.declaration)
    try:
        conversion = declared.conversion_of(stored)
    except StateTypeChanged as change:
        return replace(plan, fate=StateFate.CHANGED, obstacle=str(change))
    if conversion is None:
        return plan
    return replace(plan, fate=StateFate.CONVERTED, added=conversion.added)


def _obstacles(record: OperatorRecord | None, vertex: Vertex) -> Iterator[str]:
    if record is None:
        return
    keyed = any(handle.keyed is not None for handle in record.subtasks.values())
    limit = record.max_parallelism
    if keyed and vertex.is_max_parallelism_chosen and vertex.max_parallelism != limit:
        yield (
            f"{record.name!r} was saved with a max parallelism of {limit}, but the job sets "
            f"{vertex.max_parallelism}: the max parallelism of a state cannot change"
        )
    if keyed and vertex.parallelism > limit:
        yield (
            f"{record.name!r} has {vertex.parallelism} subtasks, but its max parallelism is {limit}"
        )


def _stored(record: OperatorRecord) -> _Stored:
    """The states, as far as they are known without reading them."""
    found: _Stored = {}
    for handle in record.subtasks.values():
        keyed = () if handle.keyed is None else handle.keyed.metadata
        found.update((("by key", state.name), state) for state in keyed)
        found.update((("operator", each.name), each.metadata) for each in handle.operator_states)
    return found


def _size(record: OperatorRecord) -> int:
    splits = [len(s) for handle in record.subtasks.values() for s in handle.source_splits]
    segments = [s.size for handle in record.subtasks.values() for s in handle.segments]
    return sum(splits) + sum(segments) + len(record.enumerator or b"")


class _Nowhere:
    """An unused output."""

    def emit(self, batch: Batch) -> None: ...

    def emit_side(self, tag: str, batch: Batch) -> None: ...

    def emit_watermark(self, watermark: Watermark) -> None: ...

    def emit_watermark_status(self, status: WatermarkStatus) -> None: ...


def declared_states(operator: Operator) -> _Declared | None:
    """The states that an operator declares in `open`; None if that cannot be determined.

    A copy of it is opened and closed again.
    """
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
        found: _Declared = {} if keyed is None else _declared_by_key(keyed)
        for name, state in context.operator_state.declared().items():
            found["operator", name] = state
        return found
    except Exception:
        return None
    finally:
        with suppress(Exception):
            copy.close()


def _declared_by_key(keyed: KeyedStateImage) -> _Declared:
    found: _Declared = {}
    for state in keyed.metadata:
        descriptor = keyed.descriptors.get(state.name)
        how = (
            partial(check_unchanged, state)
            if descriptor is None
            else partial(conversion_of, descriptor)
        )
        found["by key", state.name] = DeclaredState(state.declaration, how)
    return found
