"""State of old subtasks → state of new ones, when the parallelism changes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from tidegate.state.key_groups import KeyGroupRange
from tidegate.state.operator_state import FrozenOperatorState, Redistribution

SubtaskStates = Sequence[FrozenOperatorState]
"""The operator states of one subtask."""


def owners_within(key_groups: KeyGroupRange, old: Sequence[KeyGroupRange]) -> list[int]:
    """The old subtasks that hold something of these key groups."""
    return [place for place, range in enumerate(old) if len(range.intersection(key_groups))]


def redistribute(old: Sequence[SubtaskStates], parallelism: int) -> list[list[FrozenOperatorState]]:
    """The operator states of each new subtask from those of all old ones, in their order."""
    new: list[list[FrozenOperatorState]] = [[] for _ in range(parallelism)]
    for name in dict.fromkeys(state.name for states in old for state in states):
        found = [next((state for state in states if state.name == name), None) for states in old]
        for subtask, state in enumerate(_dealt(found, parallelism)):
            new[subtask].append(state)
    return new


def _dealt(
    old: Sequence[FrozenOperatorState | None], parallelism: int
) -> list[FrozenOperatorState]:
    known = [state for state in old if state is not None]
    match known[0].redistribution:
        case Redistribution.BROADCAST:
            # Subtasks that stay keep their own: they are the same, but it need not travel.
            return [old[i % len(old)] or known[0] for i in range(parallelism)]
        case Redistribution.UNION:
            return [_with(known[0], _all(known))] * parallelism
        case Redistribution.SPLIT:
            if len(old) == parallelism:
                return [state or _with(known[0], ()) for state in old]
            elements = _all(known)
            bounds = [len(elements) * i // parallelism for i in range(parallelism + 1)]
            return [_with(known[0], elements[a:b]) for a, b in pairwise(bounds)]


def _all(states: Sequence[FrozenOperatorState]) -> tuple[bytes, ...]:
    return tuple(element for state in states for element in state.elements)


def _with(state: FrozenOperatorState, elements: tuple[bytes, ...]) -> FrozenOperatorState:
    return replace(state, elements=elements)
