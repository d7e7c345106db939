"""State handles over a list: an access is one lookup at the place of the current key.

A stored value is private: it does not change if the function changes the object later. A value that
is read is the state itself: it may be changed in place while its record is processed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidegate.state.backend import PlaceHolder
from tidegate.state.descriptors import AggregatingStateDescriptor, ReducingStateDescriptor
from tidegate.state.handles import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
)
from tidegate.state.keys.key_bytes import NEVER_NAN, key_in
from tidegate.state.memory.tables import StateTable
from tidegate.types.privacy import ATOMIC, for_arguments


class Handle(State):
    """The common base of handles: the place of the current key in the table."""

    __slots__ = ("_holder", "_private", "_table", "_values")

    def __init__(self, holder: PlaceHolder, table: StateTable) -> None:
        self._holder = holder
        self._table = table
        self._values = table.values
        self._private = for_arguments(holder.private)

    def clear(self) -> None:
        self._values[self._holder.place] = None

    def _owned(self) -> Any:
        """What is stored, free to be changed in place."""
        place = self._holder.place
        stored = self._values[place]
        if self._table.frozen:
            stored = self._table.owned(place, stored)
        return stored

    def _all_private(self, values: Iterable[Any], known: Iterable[Any] = ()) -> list[Any]:
        """Private copies of values to store, except, once each, of those stored already."""
        stored = set(map(id, known))
        added = []
        for value in values:
            if type(value) not in ATOMIC:
                if id(value) in stored:
                    stored.remove(id(value))
                else:
                    value = self._private(value)
            added.append(value)
        return added


class HashMapValueState(Handle, ValueState[Any]):
    """One value per key, of an immutable type."""

    __slots__ = ()

    @property
    def by_place(self) -> list[Any]:
        """The values of all keys: reading and changing them is reading and changing the state."""
        return self._values

    def value(self) -> Any:
        return self._values[self._holder.place]

    def update(self, value: Any) -> None:
        self._values[self._holder.place] = value


class HashMapObjectState(HashMapValueState):
    """One value per key, which may be a mutable object."""

    __slots__ = ()

    def value(self) -> Any:
        value = self._values[self._holder.place]
        if self._table.frozen:
            return self._table.owned(self._holder.place, value)
        return value

    def update(self, value: Any) -> None:
        place = self._holder.place
        if type(value) not in ATOMIC and value is not self._values[place]:
            value = self._private(value)
        self._values[place] = value


class HashMapListState(Handle, ListState[Any]):
    """A list per key."""

    __slots__ = ()

    def get(self) -> list[Any]:
        stored = self._owned()
        return [] if stored is None else stored.copy()

    def add(self, value: Any) -> None:
        stored = self._owned()
        if type(value) not in ATOMIC:
            value = self._private(value)
        if stored is None:
            self._values[self._holder.place] = [value]
        else:
            stored.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        added = self._all_private(values)
        stored = self._owned()
        if stored is not None:
            stored.extend(added)
        elif added:
            self._values[self._holder.place] = added

    def update(self, values: Iterable[Any]) -> None:
        replacing = self._all_private(values, self._owned() or ())
        if replacing:
            self._values[self._holder.place] = replacing
        else:
            self.clear()


class HashMapMapState(Handle, MapState[Any, Any]):
    """A dict per key; views are lists, so that the map may change while they are read."""

    __slots__ = ()

    def get(self, key: Any) -> Any:
        stored = self._owned()
        if stored is None:
            return None
        if type(key) not in NEVER_NAN:
            key = key_in(stored, key)
        return stored.get(key)

    def contains(self, key: Any) -> bool:
        stored = self._values[self._holder.place]
        return bool(stored) and (key in stored or key_in(stored, key) in stored)

    def put(self, key: Any, value: Any) -> None:
        stored = self._owned()
        if stored and type(key) not in NEVER_NAN:
            key = key_in(stored, key)
        if type(value) not in ATOMIC and not (stored and stored.get(key) is value):
            value = self._private(value)
        if stored is None:
            self._values[self._holder.place] = {key: value}
        else:
            stored[key] = value

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        stored = self._owned()
        if stored is not None:
            stored.pop(key_in(stored, key), None)
            if not stored:
                self.clear()

    def items(self) -> Iterable[tuple[Any, Any]]:
        return list((self._owned() or {}).items())

    def keys(self) -> Iterable[Any]:
        return list(self._owned() or ())

    def values(self) -> Iterable[Any]:
        return list((self._owned() or {}).values())

    def is_empty(self) -> bool:
        return not self._values[self._holder.place]


class HashMapReducingState(Handle, ReducingState[Any]):
    """One value per key, into which added values are reduced."""

    __slots__ = ("_reduce",)

    def __init__(
        self, holder: PlaceHolder, table: StateTable, descriptor: ReducingStateDescriptor
    ) -> None:
        super().__init__(holder, table)
        self._reduce = descriptor.reduce

    def get(self) -> Any:
        return self._owned()

    def add(self, value: Any) -> None:
        stored = self._owned()
        if stored is not None:
            value = self._reduce(stored, value)
        if type(value) not in ATOMIC and value is not stored:
            value = self._private(value)
        self._values[self._holder.place] = value


class HashMapAggregatingState(Handle, AggregatingState[Any, Any]):
    """One accumulator per key."""

    __slots__ = ("_function",)

    def __init__(
        self, holder: PlaceHolder, table: StateTable, descriptor: AggregatingStateDescriptor
    ) -> None:
        super().__init__(holder, table)
        self._function = descriptor.get_agg_function()

    def get(self) -> Any:
        accumulator = self._owned()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        stored = self._owned()
        before = self._function.create_accumulator() if stored is None else stored
        accumulator = self._function.add(value, before)
        if type(accumulator) not in ATOMIC and accumulator is not stored:
            del before
            accumulator = self._private(accumulator)
        self._values[self._holder.place] = accumulator
