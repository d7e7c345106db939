"""State handles over a dict: an access is one look-up of the current key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from tidegate.state.descriptors import AggregatingStateDescriptor, ReducingStateDescriptor
from tidegate.state.handles import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
)
from tidegate.state.tables import Table


class KeyHolder(Protocol):
    """Knows the key that all handles mean."""

    current_key: Any


class Handle(State):
    """What the handles share: the current key's entry in the table."""

    __slots__ = ("_entries", "_holder", "_table")

    def __init__(self, holder: KeyHolder, table: Table) -> None:
        self._holder = holder
        self._table = table
        self._entries = table.entries

    def clear(self) -> None:
        self._entries.pop(self._holder.current_key, None)

    def _owned(self) -> Any:
        """What is stored, free to be changed in place."""
        key = self._holder.current_key
        stored = self._entries.get(key)
        if self._table.frozen:
            stored = self._table.owned(key, stored)
        return stored


class HashMapValueState(Handle, ValueState[Any]):
    """One value per key."""

    __slots__ = ()

    def value(self) -> Any:
        value = self._entries.get(self._holder.current_key)
        if self._table.frozen:
            return self._table.owned(self._holder.current_key, value)
        return value

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            self._entries[self._holder.current_key] = value


class HashMapListState(Handle, ListState[Any]):
    """A list per key."""

    __slots__ = ()

    def get(self) -> list[Any]:
        stored = self._owned()
        return [] if stored is None else stored

    def add(self, value: Any) -> None:
        stored = self._owned()
        if stored is None:
            self._entries[self._holder.current_key] = [value]
        else:
            stored.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        added = list(values)
        stored = self._owned()
        if stored is not None:
            stored.extend(added)
        elif added:
            self._entries[self._holder.current_key] = added

    def update(self, values: Iterable[Any]) -> None:
        replacing = list(values)
        if replacing:
            self._entries[self._holder.current_key] = replacing
        else:
            self.clear()


class HashMapMapState(Handle, MapState[Any, Any]):
    """A dict per key; views of it are lists, so that the map may change while they are read."""

    __slots__ = ()

    def get(self, key: Any) -> Any:
        stored = self._owned()
        return None if stored is None else stored.get(key)

    def contains(self, key: Any) -> bool:
        stored = self._entries.get(self._holder.current_key)
        return stored is not None and key in stored

    def put(self, key: Any, value: Any) -> None:
        stored = self._owned()
        if stored is None:
            self._entries[self._holder.current_key] = {key: value}
        else:
            stored[key] = value

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        stored = self._owned()
        if stored is not None:
            stored.update(dict_value)
        elif dict_value:
            self._entries[self._holder.current_key] = dict(dict_value)

    def remove(self, key: Any) -> None:
        stored = self._owned()
        if stored is not None:
            stored.pop(key, None)
            if not stored:
                self.clear()

    def items(self) -> Iterable[tuple[Any, Any]]:
        return list((self._owned() or {}).items())

    def keys(self) -> Iterable[Any]:
        return list(self._owned() or ())

    def values(self) -> Iterable[Any]:
        return list((self._owned() or {}).values())

    def is_empty(self) -> bool:
        return not self._entries.get(self._holder.current_key)


class HashMapReducingState(Handle, ReducingState[Any]):
    """One value per key, into which added values are reduced."""

    __slots__ = ("_reduce",)

    def __init__(
        self, holder: KeyHolder, table: Table, descriptor: ReducingStateDescriptor
    ) -> None:
        super().__init__(holder, table)
        self._reduce = descriptor.reduce

    def get(self) -> Any:
        return self._owned()

    def add(self, value: Any) -> None:
        stored = self._owned()
        reduced = value if stored is None else self._reduce(stored, value)
        self._entries[self._holder.current_key] = reduced


class HashMapAggregatingState(Handle, AggregatingState[Any, Any]):
    """One accumulator per key."""

    __slots__ = ("_function",)

    def __init__(
        self, holder: KeyHolder, table: Table, descriptor: AggregatingStateDescriptor
    ) -> None:
        super().__init__(holder, table)
        self._function = descriptor.get_agg_function()

    def get(self) -> Any:
        accumulator = self._owned()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        accumulator = self._owned()
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        self._entries[self._holder.current_key] = self._function.add(value, accumulator)
