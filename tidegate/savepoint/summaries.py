"""The contents of a checkpoint, from its metadata alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tidegate.checkpoint.metadata import OperatorRecord
from tidegate.state.backend import PayloadForm, StateMetadata
from tidegate.state.canonical.tables import TIMERS
from tidegate.state.operator_state import FrozenOperatorState
from tidegate.state.pointers import KeyedStateHandle


@dataclass(frozen=True, slots=True)
class StateSummary:
    name: str
    kind: str
    """value, list, map, reducing, aggregating, aggregation (columns) or timers; for operator state,
    split list, union list or broadcast map."""
    type: str
    """Its type, as text."""
    is_keyed: bool
    entries: int | None
    """Keys with state, timers, or elements; None if the files of a database would have to be
    read."""
    size: int | None
    """Bytes; None if the files contain several states."""


@dataclass(frozen=True, slots=True)
class OperatorSummary:
    uid: str | None
    operator_id: str
    name: str
    parallelism: int
    max_parallelism: int
    states: tuple[StateSummary, ...]
    source_splits: int
    """The number of splits of its readers."""
    size: int
    """Bytes of all its state."""

    @property
    def label(self) -> str:
        """How to refer to it: by its uid, or by its id if it has none."""
        return self.uid or self.operator_id


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """The position of a source reader in a split."""

    uid: str
    name: str
    subtask: int
    split: Any
    """The source's own split; text if its class cannot be loaded here."""


def summary_of(
    record: OperatorRecord, operator_states: Iterable[FrozenOperatorState]
) -> OperatorSummary:
    handles = list(record.subtasks.values())
    keyed = [handle.keyed for handle in handles if handle.keyed is not None]
    known = {state.name: state for handle in keyed for state in handle.metadata}
    states = [_keyed_summary(state, keyed) for state in known.values()]
    splits = sum(len(handle.source_splits) for handle in handles)
    return OperatorSummary(
        uid=record.uid,
        operator_id=record.operator_id,
        name=record.name,
        parallelism=record.parallelism,
        max_parallelism=record.max_parallelism,
        states=(*states, *_operator_summaries(operator_states)),
        source_splits=splits,
        size=sum(segment.size for handle in handles for segment in handle.segments),
    )


def kind_and_type(metadata: StateMetadata) -> tuple[str, str]:
    """The two parts of a declaration."""
    if metadata.declaration == TIMERS:
        return TIMERS, "milliseconds since 1970"
    if metadata.form is PayloadForm.ARROW:
        return "aggregation", metadata.declaration
    kind, mark, held = metadata.declaration.partition(" state of ")
    return (kind, held) if mark else ("state", metadata.declaration)


def _keyed_summary(state: StateMetadata, handles: Iterable[KeyedStateHandle]) -> StateSummary:
    entries: int | None = 0
    size: int | None = 0
    for handle in handles:
        if handle.native_form is not None:
            entries = size = None
            break
        assert entries is not None and size is not None
        for chunk in handle.chunks:
            if chunk.state == state.name:
                entries += sum(count for _, count in chunk.groups)
                size += chunk.payload.size
        for table in handle.tables:
            if table.state == state.name:
                entries += table.entries
                size += sum(segment.size for segment in table.segments)
    kind, held = kind_and_type(state)
    return StateSummary(state.name, kind, held, is_keyed=True, entries=entries, size=size)


def _operator_summaries(states: Iterable[FrozenOperatorState]) -> list[StateSummary]:
    found: dict[str, StateSummary] = {}
    for state in states:
        kind, _, held = state.declaration.partition(" state of ")
        before = found.get(state.name)
        entries = len(state.elements) + (before.entries or 0 if before else 0)
        size = sum(map(len, state.elements)) + (before.size or 0 if before else 0)
        found[state.name] = StateSummary(
            state.name, kind, held, is_keyed=False, entries=entries, size=size
        )
    return list(found.values())
