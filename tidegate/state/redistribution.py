"""Redistributes operator state of old subtasks to new ones, at any parallelism. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tidegate.state.operator_state import FrozenOperatorState, OperatorStateFacts, Redistribution


@dataclass(frozen=True, slots=True)
class Part:
    """Some elements of an operator state, as an old subtask stored them."""

    state: str
    owner: int
    """The old subtask."""
    start: int
    stop: int


def share_of(
    subtask: int,
    parallelism: int,
    old: Sequence[Iterable[OperatorStateFacts]],
    *,
    is_used: bool = True,
) -> tuple[Part, ...]:
    """The share of one new subtask; `old` has the states of every old one.

    A subtask that only keeps its state for later checkpoints gets its share of a union list, not
    all of it, so that each element is kept once.
    """
    states: dict[str, dict[int, OperatorStateFacts]] = {}
    for owner, found in enumerate(old):
        for facts in found:
            states.setdefault(facts.name, {})[owner] = facts
    return tuple(
        part
        for owners in states.values()
        for part in _share(owners, len(old), subtask, parallelism, is_used)
        if part.start < part.stop
    )


def _share(
    owners: Mapping[int, OperatorStateFacts],
    old: int,
    subtask: int,
    parallelism: int,
    is_used: bool,
) -> Iterator[Part]:
    whole = [Part(facts.name, owner, 0, facts.elements) for owner, facts in owners.items()]
    match next(iter(owners.values())).redistribution:
        case Redistribution.BROADCAST:
            # Subtasks that stay keep their own copy: it is the same, and need not be moved.
            yield next((part for part in whole if part.owner == subtask % old), whole[0])
        case Redistribution.UNION if is_used:
            yield from whole
        case _ if old == parallelism:
            yield from (part for part in whole if part.owner == subtask)
        case _:
            total = sum(part.stop for part in whole)
            first, last = total * subtask // parallelism, total * (subtask + 1) // parallelism
            before = 0
            for part in whole:
                start, stop = max(first - before, 0), min(last - before, part.stop)
                before += part.stop
                yield replace(part, start=start, stop=stop)


def put_together(
    parts: Iterable[Part], states_of: Callable[[int], Iterable[FrozenOperatorState]]
) -> list[FrozenOperatorState]:
    """Combine the share of a subtask into its states."""
    stored: dict[int, dict[str, FrozenOperatorState]] = {}
    taken: dict[str, list[bytes]] = {}
    for part in parts:
        if part.owner not in stored:
            stored[part.owner] = {state.name: state for state in states_of(part.owner)}
        elements = stored[part.owner][part.state].elements[part.start : part.stop]
        taken.setdefault(part.state, []).extend(elements)
    declared = {state.name: state for states in stored.values() for state in states.values()}
    return [replace(declared[name], elements=tuple(found)) for name, found in taken.items()]
