"""State handles for user functions. Every call applies to the key of the current record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from tidegate.types.privacy import private_copy

__all__ = [
    "AggregatingState",
    "AppendingState",
    "BroadcastState",
    "ListState",
    "MapState",
    "MergingState",
    "ReadOnlyBroadcastState",
    "ReducingState",
    "State",
    "ValueState",
]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class State(ABC):
    """The common base of all kinds of state."""

    __slots__ = ()

    @abstractmethod
    def clear(self) -> None:
        """Delete what is stored."""


class ValueState(State, Generic[T]):
    """One value."""

    __slots__ = ()

    @abstractmethod
    def value(self) -> T | None:
        """The value, or None."""

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Replace the value; None deletes it."""


class ValueStateWithDefault(ValueState[T]):
    """One value, with a default."""

    __slots__ = ("_default", "_state")

    def __init__(self, state: ValueState[T], default: T) -> None:
        self._state = state
        self._default = default

    def value(self) -> T | None:
        value = self._state.value()
        if value is None:
            default: Any = private_copy(self._default)
            return default  # type: ignore[no-any-return]
        return value

    def update(self, value: T | None) -> None:
        self._state.update(value)

    def clear(self) -> None:
        self._state.clear()


class AppendingState(State, Generic[IN, OUT]):
    """State to which elements are added."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> OUT | None:
        """The combined elements; None if there are none."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add a value."""


class MergingState(AppendingState[IN, OUT]):
    """Appending state that can be merged."""

    __slots__ = ()


class ReducingState(MergingState[T, T]):
    """One value that combines all added values."""

    __slots__ = ()


class AggregatingState(MergingState[IN, OUT]):
    """An accumulator with a result."""

    __slots__ = ()


class ListState(MergingState[T, Iterable[T]]):
    """A list; `get` returns an empty one if nothing was added."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> Iterable[T]: ...

    @abstractmethod
    def update(self, values: Iterable[T]) -> None:
        """Replace the whole list."""

    @abstractmethod
    def add_all(self, values: Iterable[T]) -> None:
        """Add several values."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class _MapView(State, Generic[K, V]):
    __slots__ = ()

    @abstractmethod
    def get(self, key: K) -> V | None:
        """The value of a key in the map; None if it has none."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Whether the map has this key."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """All entries."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """All keys."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """All values."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the map has no entries."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class _ChangeableMap(_MapView[K, V]):
    __slots__ = ()

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value of a key in the map."""

    @abstractmethod
    def put_all(self, dict_value: Mapping[K, V]) -> None:
        """Set several entries."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove the entry, if it exists."""

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class MapState(_ChangeableMap[K, V]):
    """A map; `get` of an unknown key is None."""

    __slots__ = ()


class ReadOnlyBroadcastState(_MapView[K, V]):
    """A read-only map with the same contents in every subtask."""

    __slots__ = ()


class BroadcastState(ReadOnlyBroadcastState[K, V], _ChangeableMap[K, V]):
    """The writable view for broadcast records, which must change it equally in every subtask."""

    __slots__ = ()
