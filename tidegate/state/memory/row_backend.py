"""Keyed state in lists by place: the common part of the backends."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final

from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import StateTypeChanged
from tidegate.state.backend import KeyedStateBackend, PlaceHolder, StateMetadata
from tidegate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidegate.state.evolution import Conversion, conversion_of
from tidegate.state.handles import AggregatingState, ListState, MapState, ReducingState, ValueState
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.keys.key_index import can_be_indexed
from tidegate.state.keys.key_rows import ColumnKeys, ObjectKeys
from tidegate.state.keys.selection import KeyColumns
from tidegate.state.memory.expiring_handles import (
    Lifetime,
    TtlAggregatingState,
    TtlListState,
    TtlMapState,
    TtlReducingState,
    TtlValueState,
)
from tidegate.state.memory.handles import (
    HashMapAggregatingState,
    HashMapListState,
    HashMapMapState,
    HashMapObjectState,
    HashMapReducingState,
    HashMapValueState,
)
from tidegate.state.memory.tables import StateTable
from tidegate.state.timers import TimerQueue
from tidegate.types.privacy import private
from tidegate.types.typeinfo import BasicTypeInfo

PROCESSING_TIMERS: Final = "_timers/processing-time"
EVENT_TIMERS: Final = "_timers/event-time"


class TableBackend(KeyedStateBackend):
    """A list for each state, indexed by the places of the keys.

    Columnar keys of a typed stream are found by an index over whole columns, all others by a dict.
    """

    def __init__(
        self,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        clock: Clock | None = None,
        processing_timers: TimerQueue | None = None,
        event_timers: TimerQueue | None = None,
    ) -> None:
        self.key_groups = key_groups
        self.max_parallelism = max_parallelism
        self.private: Callable[[Any], Any] = private
        """Makes a private copy of what is stored."""
        self.leave_key()
        self.processing_timers = TimerQueue() if processing_timers is None else processing_timers
        self.event_timers = TimerQueue() if event_timers is None else event_timers
        self._clock = clock or SystemClock()
        self._keys: ObjectKeys | ColumnKeys | None = None
        """None until the type of keys is known."""
        self._tables: dict[str, StateTable] = {}
        self._descriptors: dict[str, StateDescriptor] = {}

    def places_of(self, keys: Sequence[Any], columns: KeyColumns | None = None) -> list[int]:
        if columns is not None and self._takes(columns):
            if self._keys is None:
                self._keys = ColumnKeys.like(columns)
            assert isinstance(self._keys, ColumnKeys)
            return self._grown(self._keys.find_or_add(columns))
        if not isinstance(self._keys, ObjectKeys):
            # Two inputs may have keys of different types, but equal keys must share their state.
            self._keys = ObjectKeys([] if self._keys is None else self._keys.values())
        return self._grown(self._keys.find_or_add(keys))

    def _takes(self, columns: KeyColumns) -> bool:
        """Whether keys can be looked up by these columns."""
        if self._keys is None:
            return columns.decode_alike and can_be_indexed(columns.kinds)
        return isinstance(self._keys, ColumnKeys) and self._keys.takes(columns)

    def _grown(self, places: list[int]) -> list[int]:
        for table in self._tables.values():
            table.grow(self._places())
        return places

    def value_state(
        self, descriptor: ValueStateDescriptor, holder: PlaceHolder | None = None
    ) -> ValueState[Any]:
        table = self.table(descriptor)
        if table.ttl is not None:
            return TtlValueState(holder or self, table, Lifetime(table.ttl, self._clock))
        is_basic = isinstance(descriptor.type_info, BasicTypeInfo)
        return (HashMapValueState if is_basic else HashMapObjectState)(holder or self, table)

    def list_state(
        self, descriptor: ListStateDescriptor, holder: PlaceHolder | None = None
    ) -> ListState[Any]:
        table = self.table(descriptor)
        if table.ttl is not None:
            return TtlListState(holder or self, table, Lifetime(table.ttl, self._clock))
        return HashMapListState(holder or self, table)

    def map_state(
        self, descriptor: MapStateDescriptor, holder: PlaceHolder | None = None
    ) -> MapState[Any, Any]:
        table = self.table(descriptor)
        if table.ttl is not None:
            return TtlMapState(holder or self, table, Lifetime(table.ttl, self._clock))
        return HashMapMapState(holder or self, table)

    def reducing_state(
        self, descriptor: ReducingStateDescriptor, holder: PlaceHolder | None = None
    ) -> ReducingState[Any]:
        table = self.table(descriptor)
        if table.ttl is not None:
            lifetime = Lifetime(table.ttl, self._clock)
            return TtlReducingState(holder or self, table, lifetime, descriptor)
        return HashMapReducingState(holder or self, table, descriptor)

    def aggregating_state(
        self, descriptor: AggregatingStateDescriptor, holder: PlaceHolder | None = None
    ) -> AggregatingState[Any, Any]:
        table = self.table(descriptor)
        if table.ttl is not None:
            lifetime = Lifetime(table.ttl, self._clock)
            return TtlAggregatingState(holder or self, table, lifetime, descriptor)
        return HashMapAggregatingState(holder or self, table, descriptor)

    def table(self, descriptor: StateDescriptor) -> StateTable:
        """The table of a state, for operators that loop over records themselves."""
        name = descriptor.name
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = self._new_table(StateMetadata.of(descriptor))
        if name in self._descriptors:
            if table.metadata.declaration != descriptor.declaration:
                raise StateTypeChanged(name, table.metadata.declaration, descriptor.declaration)
        elif (conversion := conversion_of(descriptor, table.metadata)) is not None:
            table.metadata = StateMetadata.of(descriptor)
            self._convert(table, conversion)
        table.ttl = descriptor.ttl_config
        self._descriptors[name] = descriptor
        return table

    @abstractmethod
    def _new_table(self, metadata: StateMetadata) -> StateTable:
        """A table with the current number of places."""

    @abstractmethod
    def _convert(self, table: StateTable, conversion: Conversion) -> None:
        """Convert all values of a state that was restored before it was declared."""

    def _expect(self, stored: StateMetadata) -> Conversion | None:
        """Prepare for values of a stored state; returns their conversion, if any.

        Raises:
            StateTypeChanged: the state is declared with another type.
        """
        declared = self._descriptors.get(stored.name)
        if declared is not None:
            return conversion_of(declared, stored)
        known = self._known(stored)
        if known != stored:
            raise StateTypeChanged(stored.name, stored.declaration, known.declaration)
        return None

    @abstractmethod
    def _known(self, stored: StateMetadata) -> StateMetadata:
        """The metadata of a state that is not declared yet: by default, the stored one."""

    def _places(self) -> int:
        return 0 if self._keys is None else len(self._keys)

    def _lifetime(self, table: StateTable) -> Lifetime | None:
        return None if table.ttl is None else Lifetime(table.ttl, self._clock)
