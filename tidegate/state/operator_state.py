"""State of an operator as a whole, not of keys: lists that are split or joined, and maps for all.

It is small, so a snapshot pickles it at once. Elements are pickled one by one: a list can then be
dealt out to other subtasks without loading what it holds.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum, auto
from functools import partial
from itertools import zip_longest
from typing import Any

from tidegate.core.errors import StateMisuse, StateTypeChanged, shorten
from tidegate.state.backend import StateMetadata
from tidegate.state.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from tidegate.state.evolution import DeclaredState, element_conversion_of
from tidegate.state.handles import BroadcastState, ListState
from tidegate.types.evolution import TypeStructure


class Redistribution(Enum):
    """What happens to an operator state when the parallelism changes."""

    SPLIT = auto()
    """The elements of all subtasks are dealt out evenly."""
    UNION = auto()
    """Every subtask gets the elements of all."""
    BROADCAST = auto()
    """Every subtask has the same, and a new one gets it from another."""


@dataclass(frozen=True, slots=True)
class OperatorStateFacts:
    """What one operator state of one subtask is, known without loading it."""

    metadata: StateMetadata
    redistribution: Redistribution
    elements: int
    """How many there are."""

    @property
    def name(self) -> str:
        return self.metadata.name

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            **self.metadata.document(),
            "redistribution": self.redistribution.name.lower(),
            "elements": self.elements,
        }

    @classmethod
    def of_document(cls, document: Any) -> OperatorStateFacts:
        return cls(
            StateMetadata.of_document(document),
            Redistribution[document["redistribution"].upper()],
            document["elements"],
        )


@dataclass(frozen=True, slots=True)
class FrozenOperatorState:
    """One operator state of one subtask at one moment."""

    name: str
    declaration: str
    redistribution: Redistribution
    elements: tuple[bytes, ...]
    """Pickled: elements of a list, or (key, value) pairs of a map."""
    structure: TypeStructure | None = None
    """Of its descriptor; None: it was not stored."""

    @property
    def metadata(self) -> StateMetadata:
        return StateMetadata(self.name, self.declaration, structure=self.structure)

    @property
    def facts(self) -> OperatorStateFacts:
        return OperatorStateFacts(self.metadata, self.redistribution, len(self.elements))

    def __setstate__(self, values: Sequence[Any]) -> None:
        # What was pickled before there was a structure has none.
        for field, value in zip_longest(fields(self), values):
            object.__setattr__(self, field.name, value)


class OperatorStateStore:
    """The operator states of one subtask."""

    def __init__(self) -> None:
        self._states: dict[str, _OperatorList | _OperatorMap] = {}
        self._unclaimed: dict[str, FrozenOperatorState] = {}
        """Restored states that no function has requested yet."""
        self.is_restored = False
        """Whether the subtask resumes from a snapshot."""

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list whose elements are redistributed when the parallelism changes."""
        return self._list(state_descriptor, Redistribution.SPLIT)

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list that after a restore holds the elements of all subtasks, in each of them."""
        return self._list(state_descriptor, Redistribution.UNION)

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """A map that is the same in every subtask."""
        fresh = _OperatorMap(state_descriptor, Redistribution.BROADCAST)
        state = self._registered(fresh)
        assert isinstance(state, _OperatorMap)
        return state

    def freeze(self) -> tuple[FrozenOperatorState, ...]:
        """All states as they are now, the unclaimed ones too."""
        return (*(state.freeze() for state in self._states.values()), *self._unclaimed.values())

    def declared(self) -> dict[str, DeclaredState]:
        """What the program has asked for, by name."""
        return {
            name: DeclaredState(state.declaration, state.conversion_of)
            for name, state in self._states.items()
        }

    def restore(self, states: Iterable[FrozenOperatorState]) -> None:
        """Take over states, redistributed to this subtask."""
        self.is_restored = True
        for frozen in states:
            state = self._states.get(frozen.name)
            if state is None:
                self._unclaimed[frozen.name] = frozen
            else:
                state.restore(frozen)

    def _list(
        self, descriptor: ListStateDescriptor, redistribution: Redistribution
    ) -> ListState[Any]:
        state = self._registered(_OperatorList(descriptor, redistribution))
        assert isinstance(state, _OperatorList)
        return state

    def _registered(self, fresh: _OperatorList | _OperatorMap) -> _OperatorList | _OperatorMap:
        state = self._states.get(fresh.name)
        if state is None:
            if fresh.name in self._unclaimed:
                fresh.restore(self._unclaimed.pop(fresh.name))
            state = self._states[fresh.name] = fresh
        if state.declaration != fresh.declaration:
            raise StateTypeChanged(fresh.name, state.declaration, fresh.declaration)
        return state


class _OperatorState(ABC):
    """What both kinds share: who they are, and how they are stored."""

    def __init__(self, descriptor: StateDescriptor, redistribution: Redistribution) -> None:
        self.name = descriptor.name
        word = redistribution.name.lower()
        self.declaration = f"{word} {descriptor.declaration}"
        self.conversion_of = partial(element_conversion_of, descriptor, word)
        self._structure = descriptor.structure
        self._redistribution = redistribution

    def freeze(self) -> FrozenOperatorState:
        elements = tuple(self._pickled(element) for element in self._elements())
        return FrozenOperatorState(
            self.name, self.declaration, self._redistribution, elements, self._structure
        )

    def restore(self, frozen: FrozenOperatorState) -> None:
        conversion = self.conversion_of(frozen.metadata)
        elements = map(pickle.loads, frozen.elements)
        self._replace(list(elements if conversion is None else map(conversion, elements)))

    @abstractmethod
    def _elements(self) -> Iterable[Any]: ...

    @abstractmethod
    def _replace(self, elements: list[Any]) -> None: ...

    def _pickled(self, element: Any) -> bytes:
        try:
            return pickle.dumps(element, protocol=5)
        except Exception as failure:
            raise StateMisuse(
                f"operator state {self.name!r} holds {shorten(element)}, which cannot be stored: "
                f"{failure}. Keep connections, locks and other live objects out of state."
            ) from None


class _OperatorList(_OperatorState, ListState[Any]):
    def __init__(self, descriptor: StateDescriptor, redistribution: Redistribution) -> None:
        super().__init__(descriptor, redistribution)
        self._list: list[Any] = []

    def get(self) -> list[Any]:
        return self._list.copy()

    def add(self, value: Any) -> None:
        self._list.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        self._list.extend(values)

    def update(self, values: Iterable[Any]) -> None:
        self._list = list(values)

    def clear(self) -> None:
        self._list = []

    def _elements(self) -> Iterable[Any]:
        return self._list

    def _replace(self, elements: list[Any]) -> None:
        self._list = elements


class _OperatorMap(_OperatorState, BroadcastState[Any, Any]):
    def __init__(self, descriptor: StateDescriptor, redistribution: Redistribution) -> None:
        super().__init__(descriptor, redistribution)
        self._map: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        return self._map.get(key)

    def contains(self, key: Any) -> bool:
        return key in self._map

    def put(self, key: Any, value: Any) -> None:
        self._map[key] = value

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        self._map.update(dict_value)

    def remove(self, key: Any) -> None:
        self._map.pop(key, None)

    def items(self) -> Iterable[tuple[Any, Any]]:
        return list(self._map.items())

    def keys(self) -> Iterable[Any]:
        return list(self._map)

    def values(self) -> Iterable[Any]:
        return list(self._map.values())

    def is_empty(self) -> bool:
        return not self._map

    def clear(self) -> None:
        self._map.clear()

    def _elements(self) -> Iterable[Any]:
        return self._map.items()

    def _replace(self, elements: list[Any]) -> None:
        self._map = dict(elements)
