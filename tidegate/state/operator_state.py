"""State of an operator rather than of keys: lists that are split or joined, and broadcast maps.

It is small, so a snapshot pickles it at once. Elements are pickled one by one, so that a list can
be redistributed without loading its elements.
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
from tidegate.state.keys.key_bytes import key_in
from tidegate.types.evolution import TypeStructure


class Redistribution(Enum):
    """What happens to an operator state when the parallelism changes."""

    SPLIT = auto()
    """The elements of all subtasks are distributed evenly."""
    UNION = auto()
    """Every subtask gets the elements of all."""
    BROADCAST = auto()
    """Every subtask has the same state, and a new one copies it from another."""


@dataclass(frozen=True, slots=True)
class OperatorStateFacts:
    """The description of a subtask's operator state, available without loading it."""

    metadata: StateMetadata
    redistribution: Redistribution
    elements: int
    """The number of elements."""

    @property
    def name(self) -> str:
        return self.metadata.name

    def document(self) -> dict[str, Any]:
        """The description as JSON."""
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
    """One operator state of a subtask at one moment."""

    name: str
    declaration: str
    redistribution: Redistribution
    elements: tuple[bytes, ...]
    """Pickled: elements of a list, or (key, value) pairs of a map."""
    structure: TypeStructure | None = None
    """That of its descriptor; None: it was not stored."""

    @property
    def metadata(self) -> StateMetadata:
        return StateMetadata(self.name, self.declaration, structure=self.structure)

    @property
    def facts(self) -> OperatorStateFacts:
        return OperatorStateFacts(self.metadata, self.redistribution, len(self.elements))

    def __setstate__(self, values: Sequence[Any]) -> None:
        # Older pickles have no structure.
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
        """A list that, after a restore, has the elements of all subtasks in each of them."""
        return self._list(state_descriptor, Redistribution.UNION)

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """A map that is the same in every subtask."""
        fresh = _OperatorMap(state_descriptor, Redistribution.BROADCAST)
        state = self._registered(fresh)
        assert isinstance(state, _OperatorMap)
        return state

    def freeze(self) -> tuple[FrozenOperatorState, ...]:
        """All current states, including unclaimed ones."""
        return (*(state.freeze() for state in self._states.values()), *self._unclaimed.values())

    def declared(self) -> dict[str, DeclaredState]:
        """The states that the program has declared, by name."""
        return {
            name: DeclaredState(state.declaration, state.conversion_of)
            for name, state in self._states.items()
        }

    def restore(self, states: Iterable[FrozenOperatorState]) -> None:
        """Restore states, already redistributed to this subtask."""
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
    """The common base of both kinds: identity and storage."""

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
        return self._map.get(key_in(self._map, key))

    def contains(self, key: Any) -> bool:
        return key_in(self._map, key) in self._map

    def put(self, key: Any, value: Any) -> None:
        self._map[key_in(self._map, key)] = value

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._map.pop(key_in(self._map, key), None)

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
