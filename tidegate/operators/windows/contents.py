"""The contents of a window until it fires: a folded value, or its records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final

from tidegate.operators.functions import AggregateFunction, ReduceFunction, bound_method
from tidegate.operators.user_code import USER_FAILURES
from tidegate.operators.windows.evictors import Evictor, TimestampedValue
from tidegate.operators.windows.functions import Evaluation, evaluation_of
from tidegate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from tidegate.state.memory.row_backend import TableBackend
from tidegate.state.memory.tables import StateTable
from tidegate.types.privacy import ATOMIC, private_copy
from tidegate.types.typeinfo import TypeInformation

STATE: Final = "window-contents"


class WindowContents(ABC):
    """The contents of all windows of an operator, each at the place of its window.

    Before `bind` it is plain data. Added records belong to the operator.
    """

    is_single: ClassVar[bool]
    """Whether contents are one value rather than a list."""
    function: Any = None
    """The user's function; opened and closed with the operator."""
    table: StateTable

    def bind(self, backend: TableBackend) -> None:
        """Bind to the state; called once when the operator is opened."""
        self.table = backend.table(self.descriptor())
        self._private = backend.private

    @abstractmethod
    def descriptor(self) -> StateDescriptor: ...

    def evaluation(self, function: Any) -> Evaluation:
        """How the window function is called with what `get` returns."""
        return evaluation_of(function, is_single=self.is_single)

    @abstractmethod
    def add(self, place: int, record: Any, timestamp: int | None) -> None: ...

    @abstractmethod
    def add_all(self, place: int, records: list[Any]) -> None:
        """Add records without their timestamps; if it raises, `failed` is the record."""

    failed: Any = None
    """The record on which `add_all` failed."""
    takes_timestamps: ClassVar[bool] = False

    @abstractmethod
    def get(self, place: int, window: Any) -> Any:
        """The argument of the window function; None: the window is empty, do not call it."""

    def after(self, place: int, window: Any) -> None:
        """Called after the window function has processed what `get` returned."""

    def clear(self, place: int) -> None:
        self.table.values[place] = None

    def merge(self, target: int, sources: Sequence[int]) -> None:
        """Move the contents of the sources to the target, after its own."""
        values = self.table.values
        merged = self.owned(target)
        for source in sources:
            if source == target:
                continue
            added = self.owned(source)
            values[source] = None
            if added is not None:
                merged = added if merged is None else self._merged_privately(merged, added)
        values[target] = merged

    def _merged_privately(self, one: Any, other: Any) -> Any:
        merged = self._merged(one, other)
        is_given = merged is one or merged is other or type(merged) in ATOMIC
        return merged if is_given else self._private(merged)

    @abstractmethod
    def _merged(self, one: Any, other: Any) -> Any: ...

    def owned(self, place: int) -> Any:
        """What is stored, free to be changed in place."""
        stored = self.table.values[place]
        return self.table.owned(place, stored) if self.table.frozen else stored


class ReducedContents(WindowContents):
    """One record, to which all are reduced."""

    is_single = True

    def __init__(self, function: Any, type_info: TypeInformation | None) -> None:
        bound_method(function, ReduceFunction, "reduce")
        self.function = function
        self._type = type_info

    def descriptor(self) -> StateDescriptor:
        return ReducingStateDescriptor(STATE, self.function, self._type)

    def bind(self, backend: TableBackend) -> None:
        super().bind(backend)
        self._reduce = bound_method(self.function, ReduceFunction, "reduce")

    def add(self, place: int, record: Any, timestamp: int | None) -> None:
        self.add_all(place, [record])

    def add_all(self, place: int, records: list[Any]) -> None:
        stored, rest, reduce = self.owned(place), iter(records), self._reduce
        reduced = next(rest) if stored is None else stored
        record = None
        try:
            for record in rest:
                reduced = reduce(reduced, record)
        except USER_FAILURES:
            self.failed = record
            raise
        is_given = reduced is stored or reduced is record or reduced is records[0]
        if not is_given and type(reduced) not in ATOMIC:
            reduced = self._private(reduced)
        self.table.values[place] = reduced

    def get(self, place: int, window: Any) -> Any:
        return self.owned(place)

    def _merged(self, one: Any, other: Any) -> Any:
        return self._reduce(one, other)


class AggregatedContents(WindowContents):
    """An accumulator of an AggregateFunction."""

    is_single = True

    def __init__(
        self, function: AggregateFunction, accumulator_type: TypeInformation | None
    ) -> None:
        self.function = function
        self._type = accumulator_type
        self.descriptor()

    def descriptor(self) -> StateDescriptor:
        return AggregatingStateDescriptor(STATE, self.function, self._type)

    def add(self, place: int, record: Any, timestamp: int | None) -> None:
        self.add_all(place, [record])

    def add_all(self, place: int, records: list[Any]) -> None:
        function, stored = self.function, self.owned(place)
        accumulator = function.create_accumulator() if stored is None else stored
        add, record = function.add, None
        try:
            for record in records:
                accumulator = add(record, accumulator)
        except USER_FAILURES:
            self.failed = record
            raise
        if type(accumulator) not in ATOMIC and accumulator is not stored:
            accumulator = self._private(accumulator)
        self.table.values[place] = accumulator

    def get(self, place: int, window: Any) -> Any:
        accumulator = self.owned(place)
        return None if accumulator is None else _Result(self.function.get_result(accumulator))

    def evaluation(self, function: Any) -> Evaluation:
        call = super().evaluation(function)
        return lambda key, window, result, context: call(key, window, result.value, context)

    def _merged(self, one: Any, other: Any) -> Any:
        return self.function.merge(one, other)


class _Result:
    """A result, which may be None even if the window is not empty."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class ListedContents(WindowContents):
    """All records, in the order of arrival."""

    is_single = False

    def __init__(self, type_info: TypeInformation | None) -> None:
        self._type = type_info

    def descriptor(self) -> StateDescriptor:
        return ListStateDescriptor(STATE, self._type)

    def add(self, place: int, record: Any, timestamp: int | None) -> None:
        self.add_all(place, [record])

    def add_all(self, place: int, records: list[Any]) -> None:
        stored = self.owned(place)
        if stored is None:
            self.table.values[place] = records.copy()
        else:
            stored.extend(records)

    def get(self, place: int, window: Any) -> Any:
        stored = self.owned(place)
        return None if stored is None else stored.copy()

    def _merged(self, one: Any, other: Any) -> Any:
        one.extend(other)
        return one


class EvictedContents(WindowContents):
    """All records with their timestamps; an evictor removes some at each firing."""

    is_single = False
    takes_timestamps = True

    def __init__(self, evictor: Evictor[Any, Any], folded: WindowContents) -> None:
        self.evictor = evictor
        self.folded = folded
        """What the remaining records become: a list, or a folded value."""
        self.function = folded.function
        self.context: Evictor.EvictorContext
        self._left: list[TimestampedValue] = []

    def descriptor(self) -> StateDescriptor:
        return ListStateDescriptor(STATE)

    def evaluation(self, function: Any) -> Evaluation:
        call = self.folded.evaluation(function)
        fold = _fold_of(self.folded)

        def evaluated(key: Any, window: Any, contents: Any, context: Any) -> Any:
            found = fold(contents)
            return () if found is None else call(key, window, found, context)

        return evaluated

    def add(self, place: int, record: Any, timestamp: int | None) -> None:
        element = record, timestamp
        stored = self.owned(place)
        if stored is None:
            self.table.values[place] = [element]
        else:
            stored.append(element)

    def add_all(self, place: int, records: list[Any]) -> None:
        raise NotImplementedError("an evictor needs timestamps")

    def get(self, place: int, window: Any) -> Any:
        stored = self.owned(place)
        if stored is None:
            return None
        self._left = [TimestampedValue(*element) for element in stored]
        self.evictor.evict_before(self._left, len(self._left), window, self.context)
        return [element.value for element in self._left]

    def after(self, place: int, window: Any) -> None:
        self.evictor.evict_after(self._left, len(self._left), window, self.context)
        self.table.values[place] = [tuple(element) for element in self._left] or None
        self._left = []

    def _merged(self, one: Any, other: Any) -> Any:
        one.extend(other)
        return one


def _fold_of(contents: WindowContents) -> Callable[[list[Any]], Any]:
    """What `WindowContents.get` returns for a window with these records."""
    if isinstance(contents, ReducedContents):
        reduce = bound_method(contents.function, ReduceFunction, "reduce")
        return lambda records: _reduced(reduce, map(private_copy, records))
    if isinstance(contents, AggregatedContents):
        function = contents.function

        def aggregated(records: list[Any]) -> Any:
            accumulator = function.create_accumulator()
            for record in map(private_copy, records):
                accumulator = function.add(record, accumulator)
            return _Result(function.get_result(accumulator))

        return aggregated
    return lambda records: records


def _reduced(reduce: Callable[[Any, Any], Any], records: Iterable[Any]) -> Any:
    reduced = None
    for record in records:
        reduced = record if reduced is None else reduce(reduced, record)
    return reduced
