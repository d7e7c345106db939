"""The differences between two savepoints or checkpoints."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tidegate.core.errors import shorten
from tidegate.savepoint.reader import StateReader
from tidegate.savepoint.summaries import OperatorSummary, StateSummary
from tidegate.state.canonical.tables import TIMERS
from tidegate.state.keys.key_bytes import key_bytes

_MOST_EXAMPLES: Final = 5


@dataclass(slots=True)
class StateChange:
    """How a state differs."""

    name: str
    added: int = 0
    """Keys, timers or elements that only the second has."""
    removed: int = 0
    changed: int = 0
    """Keys with another value."""
    same: int = 0
    type_before: str | None = None
    """Set if its kind or type differs in the second."""
    type_after: str | None = None
    examples: list[str] = field(default_factory=list)

    @property
    def is_same(self) -> bool:
        return not (self.added or self.removed or self.changed or self.type_before)


@dataclass(slots=True)
class OperatorChange:
    """How an operator that both have differs."""

    label: str
    states_added: list[str] = field(default_factory=list)
    states_removed: list[str] = field(default_factory=list)
    states: list[StateChange] = field(default_factory=list)
    """States that both have and that differ."""

    @property
    def is_same(self) -> bool:
        return not (self.states_added or self.states_removed or self.states)


@dataclass(slots=True)
class SavepointDifference:
    """Operators by uid, or by id if they have none."""

    operators_added: list[str]
    operators_removed: list[str]
    operators: list[OperatorChange]
    """Operators that both have and that differ."""

    @property
    def is_empty(self) -> bool:
        return not (self.operators_added or self.operators_removed or self.operators)


def difference(before: StateReader, after: StateReader) -> SavepointDifference:
    """The changes from the first to the second."""
    old = {each.operator_id: each for each in before.operators()}
    new = {each.operator_id: each for each in after.operators()}
    changes = [_operator_change(before, after, old[id], new[id]) for id in old if id in new]
    return SavepointDifference(
        operators_added=[new[id].label for id in new if id not in old],
        operators_removed=[old[id].label for id in old if id not in new],
        operators=[change for change in changes if not change.is_same],
    )


def _operator_change(
    before: StateReader, after: StateReader, old: OperatorSummary, new: OperatorSummary
) -> OperatorChange:
    olds = {(state.is_keyed, state.name): state for state in old.states}
    news = {(state.is_keyed, state.name): state for state in new.states}
    change = OperatorChange(old.label)
    change.states_added = [name for at, name in news if (at, name) not in olds]
    change.states_removed = [name for at, name in olds if (at, name) not in news]
    for key, state in olds.items():
        if key in news:
            entries = (_entries(before, old, state), _entries(after, new, news[key]))
            found = _state_change(state, news[key], *entries)
            if not found.is_same:
                change.states.append(found)
    return change


def _state_change(
    old: StateSummary, new: StateSummary, before: Iterator[Entry], after: Iterator[Entry]
) -> StateChange:
    change = StateChange(old.name)
    if (old.kind, old.type) != (new.kind, new.type):
        change.type_before, change.type_after = f"{old.kind} {old.type}", f"{new.kind} {new.type}"
    known = {id: (key, pickle.dumps(value, 5)) for id, key, value in before}
    for id, key, value in after:
        if id not in known:
            change.added += 1
            _show(change, change.added, f"+ {shorten(key)}: {shorten(value)}")
            continue
        _, stored = known.pop(id)
        if stored == pickle.dumps(value, 5) or _are_equal(was := pickle.loads(stored), value):
            change.same += 1
        else:
            change.changed += 1
            text = f"~ {shorten(key)}: {shorten(was)} → {shorten(value)}"
            _show(change, change.changed, text)
    for key, stored in known.values():
        change.removed += 1
        _show(change, change.removed, f"- {shorten(key)}: {shorten(pickle.loads(stored))}")
    return change


def _show(change: StateChange, number: int, text: str) -> None:
    if number <= _MOST_EXAMPLES:
        change.examples.append(text)


def _are_equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other or repr(one) == repr(other))


Entry = tuple[Any, Any, Any]
"""Its identity, key and value."""


def _entries(
    reader: StateReader, operator: OperatorSummary, state: StateSummary
) -> Iterator[Entry]:
    if not state.is_keyed:
        return _elements(reader, operator.label, state)
    return _keyed(reader, operator.label, state)


def _keyed(reader: StateReader, uid: str, state: StateSummary) -> Iterator[Entry]:
    for key, value in reader.stored_entries(uid, state.name):
        raw = key_bytes(key)
        # A key may have several timers.
        yield (raw, value) if state.kind == TIMERS else raw, key, value


def _elements(reader: StateReader, uid: str, state: StateSummary) -> Iterator[Entry]:
    """Elements have no key: equal elements of both lists count as the same."""
    counts: dict[bytes, int] = {}
    for subtask, element in reader.elements(uid, state.name):
        raw = pickle.dumps(element, 5)
        counts[raw] = counts.get(raw, 0) + 1
        yield (raw, counts[raw]), f"subtask {subtask}", element
