"""Columnar accumulators: arrays with a place for each key, and how they combine.

lift     records → arrays with a value for each record
scatter  values of records into places, possibly several into the same one
reduce   values of records → values of groups
merge    values of groups into places, one for each
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.errors import TypeMismatch
from tidegate.operators.aggregations.running import Segments, means
from tidegate.state.columns import ColumnStore, take_from
from tidegate.state.keys.word_index import Places
from tidegate.types.exact_cast import cast_exactly

Array: TypeAlias = "npt.NDArray[Any]"
Arrays: TypeAlias = "list[npt.NDArray[Any]]"
Columns: TypeAlias = "list[pa.Array[Any]]"
Stored: TypeAlias = "Callable[[Arrays], Columns]"
"""Converts values to their snapshot form. May be called on another thread."""

_LEAST: Final = np.iinfo(np.int64).min
_MOST: Final = np.iinfo(np.int64).max
_BEHIND: Final = 1 << 62
"""Added to the number of a record whose value is null: it comes last among equal ranks."""
_SPARE_RECORDS: Final = 1 << 12


class Field(NamedTuple):
    """One array of an accumulator."""

    name: str
    dtype: npt.DTypeLike
    initial: float
    """The neutral value of an empty place."""


class Accumulator(ABC):
    """The state of one aggregate."""

    fields: tuple[Field, ...]

    @abstractmethod
    def lift(self, columns: Columns, first: int) -> Arrays:
        """The values of records, which are numbered from `first`."""

    @abstractmethod
    def scatter(self, into: Arrays, places: Places, values: Arrays, columns: Columns) -> None:
        """Combine records into their places."""

    @abstractmethod
    def reduce(self, segments: Segments, values: Arrays) -> Arrays:
        """Combine the values of each segment."""

    @abstractmethod
    def merge(self, into: Arrays, places: Places | slice, values: Arrays) -> None:
        """Combine one value into each of the places."""

    def merged(self, values: Arrays, others: Arrays) -> Arrays:
        """New arrays that combine two values for each place."""
        merged = [array.copy() for array in values]
        self.merge(merged, slice(None), others)
        return merged

    def keep(self, values: Arrays, columns: Columns) -> Arrays:
        """The values of records in a form that outlives the batch with these columns."""
        return values

    def freeze(self) -> Stored:
        """A function that converts the current values to their snapshot form."""
        return lambda values: [pa.array(array) for array in values]

    def restored(self, columns: Columns) -> Arrays:
        """The values from the columns of a snapshot."""
        return [column.to_numpy(zero_copy_only=False) for column in columns]

    @property
    def stored_names(self) -> list[str]:
        return [field.name for field in self.fields]

    @abstractmethod
    def results(self, values: Arrays) -> Columns:
        """The results for groups with these values."""


class _Combined(Accumulator):
    """Arrays that are combined by NumPy functions."""

    functions: tuple[np.ufunc, ...]

    def scatter(self, into: Arrays, places: Places, values: Arrays, columns: Columns) -> None:
        with np.errstate(invalid="ignore", over="ignore"):
            for function, array, value in zip(self.functions, into, values, strict=True):
                if function is np.logical_or:
                    # Nearly always all are true, and setting them is cheaper than combining.
                    array[places if value.all() else places[value]] = True
                else:
                    # Values from a packet may be unaligned, which makes this 40 times slower.
                    function.at(array, places, np.require(value, requirements="A"))

    def reduce(self, segments: Segments, values: Arrays) -> Arrays:
        with np.errstate(invalid="ignore", over="ignore"):
            return [
                function.reduceat(segments.ordered(value), segments.starts)
                for function, value in zip(self.functions, values, strict=True)
            ]

    def merge(self, into: Arrays, places: Places | slice, values: Arrays) -> None:
        with np.errstate(invalid="ignore", over="ignore"):
            for function, array, value in zip(self.functions, into, values, strict=True):
                if isinstance(places, slice):
                    function(array[places], value, out=array[places])
                else:
                    array[places] = function(array[places], value)

    def merged(self, values: Arrays, others: Arrays) -> Arrays:
        with np.errstate(invalid="ignore", over="ignore"):
            parts = zip(self.functions, values, others, strict=True)
            return [function(value, other) for function, value, other in parts]


class Presence(_Combined):
    """Whether there was a record."""

    fields = (Field("present", np.bool_, False),)
    functions = (np.logical_or,)

    def lift(self, columns: Columns, first: int) -> Arrays:
        return [np.ones(len(columns[0]), np.bool_)]

    def results(self, values: Arrays) -> Columns:
        return []


class Count(_Combined):
    """The number of records; with a column, of those in which it is not null."""

    functions = (np.add,)

    def __init__(self, name: str, place: int | None) -> None:
        self.fields = (Field(name, np.int64, 0),)
        self._place = place

    def lift(self, columns: Columns, first: int) -> Arrays:
        if self._place is None or not columns[self._place].null_count:
            return [np.ones(len(columns[0]), np.int64)]
        return [_valid(columns[self._place]).astype(np.int64)]

    def results(self, values: Arrays) -> Columns:
        return [pa.array(values[0])]


class Sum(_Combined):
    """The sum of a column of numbers; null if there was none."""

    def __init__(self, name: str, place: int, kind: pa.DataType, result: pa.DataType) -> None:
        self._is_float = pa.types.is_floating(kind)
        # -0.0 is neutral for addition, even for the sign of a zero.
        initial = -0.0 if self._is_float else 0
        dtype = np.float64 if self._is_float else np.int64
        self.fields = (Field(name, dtype, initial), Field(f"{name} present", np.bool_, False))
        self.functions = (np.add, np.logical_or)
        self._name = name
        self._place = place
        self._initial = initial
        self._result = result
        self._reach = 0
        """A bound for the absolute value of all sums, valid while it fits 63 bits."""

    def lift(self, columns: Columns, first: int) -> Arrays:
        column = columns[self._place]
        numbers = _numbers(column, self._initial)
        values = numbers.astype(self.fields[0].dtype, copy=False)
        if not self._is_float:
            self._reach += _magnitude(values) * len(values)
        return [values, _valid(column)]

    def scatter(self, into: Arrays, places: Places, values: Arrays, columns: Columns) -> None:
        if not self.is_strained:
            super().scatter(into, places, values, columns)
        else:
            segments = Segments(places, len(into[0]))
            self.merge(into, segments.places, self.reduce(segments, values))

    def reduce(self, segments: Segments, values: Arrays) -> Arrays:
        reduced = super().reduce(segments, values)
        if self.is_strained:
            near = np.add.reduceat(segments.ordered(values[0].astype(float)), segments.starts)
            # They differ by a multiple of 2 ** 64 if the exact one has wrapped around.
            self._refuse(np.abs(near - reduced[0]) > 1 << 62)
        return reduced

    def merge(self, into: Arrays, places: Places | slice, values: Arrays) -> None:
        before = into[0][places].copy() if self.is_strained else None
        super().merge(into, places, values)
        if before is not None:
            self._check(into[0][places], before, values[0])

    def merged(self, values: Arrays, others: Arrays) -> Arrays:
        merged = super().merged(values, others)
        if self.is_strained:
            self._check(merged[0], values[0], others[0])
        return merged

    def restored(self, columns: Columns) -> Arrays:
        values = super().restored(columns)
        if not self._is_float:
            self._reach += int(np.abs(values[0].astype(float)).sum())
        return values

    @property
    def is_strained(self) -> bool:
        """Whether sums must be checked because they may exceed 64 bits."""
        return self._reach > _MOST

    def relax(self, living: Sequence[Array], together: int) -> None:
        """Recompute the bound from all current sums; of each array, so many may be added up."""
        self._reach = together * sum(map(_magnitude, living))

    def _check(self, sums: Array, values: Array, others: Array) -> None:
        # The sign of a sum differs from those of both its parts only if it wrapped around.
        self._refuse(((sums ^ values) & (sums ^ others)) < 0)

    def _refuse(self, wrapped: Array) -> None:
        if wrapped.any():
            raise TypeMismatch("int64", f"<{self._name}>", _OUT_OF_RANGE.format(self._name))

    def results(self, values: Arrays) -> Columns:
        sums, valid = values
        if not self._is_float and self._result != pa.int64():
            narrow: npt.DTypeLike = self._result.to_pandas_dtype()
            outside = sums.astype(narrow) != sums
            if outside.any():
                found = int(sums[outside][0])
                reason = f"a {self._name} of {found} exceeds the range of {self._result}"
                raise TypeMismatch(str(self._result), found, f"{reason}: declare a wider type")
        column: pa.Array[Any] = pa.array(sums, mask=None if valid.all() else ~valid)
        try:
            return [cast_exactly(column, self._result)]
        except pa.ArrowInvalid as outside:
            reason = f"a {self._name}: {outside}: declare a wider type"
            raise TypeMismatch(str(self._result), f"<{self._name}>", reason) from None


_OUT_OF_RANGE: Final = "the {} exceeds the range of 64-bit integers: declare Types.BIG_INT()"


class Average(Sum):
    """The mean of a column of numbers; null if there was none."""

    def __init__(self, name: str, place: int, kind: pa.DataType) -> None:
        super().__init__(f"{name} sum", place, kind, pa.float64())
        self._counted = Count(f"{name} count", place)
        self.fields = (self.fields[0], self._counted.fields[0])
        self.functions = (np.add, np.add)

    def lift(self, columns: Columns, first: int) -> Arrays:
        return [super().lift(columns, first)[0], *self._counted.lift(columns, first)]

    def results(self, values: Arrays) -> Columns:
        sums, counts = values
        absent = counts == 0
        return [pa.array(means(sums, counts), mask=absent if absent.any() else None)]


class Extreme(_Combined):
    """The smallest or greatest value of a column; null if there was none.

    NaN is the greatest number, as in Java.
    """

    def __init__(self, name: str, place: int, kind: pa.DataType, *, greatest: bool) -> None:
        self._kind = kind
        self._place = place
        self._initial: float
        function: np.ufunc
        if pa.types.is_floating(kind):
            self._initial = -np.inf if greatest else np.nan
            dtype: npt.DTypeLike = np.float64
            function = np.maximum if greatest else np.fmin
        else:
            self._initial = _LEAST if greatest else _MOST
            dtype = np.int64
            function = np.maximum if greatest else np.minimum
        self.fields = (Field(name, dtype, self._initial), Field(f"{name} present", np.bool_, False))
        self.functions = (function, np.logical_or)

    def lift(self, columns: Columns, first: int) -> Arrays:
        column = columns[self._place]
        values = _numbers(column, 0).astype(self.fields[0].dtype, copy=False)
        valid = _valid(column)
        return [values if valid.all() else np.where(valid, values, self._initial), valid]

    def results(self, values: Arrays) -> Columns:
        best, valid = values
        if not valid.all():
            best = np.where(valid, best, 0)
        return [_of_numbers(best, None if valid.all() else ~valid, self._kind)]


class Pick(Accumulator):
    """Columns of the record with the best value of a column; the first among equals.

    Without a column to compare, it is the first record.
    """

    def __init__(
        self,
        name: str,
        judged: int | None,
        kept: Sequence[int],
        kinds: Sequence[pa.DataType],
        *,
        greatest: bool = False,
    ) -> None:
        self.fields = (
            Field(f"{name} rank", np.int64, _MOST),
            Field(f"{name} number", np.int64, _MOST),
            Field(f"{name} place", np.intp, 0),
        )
        self._name = name
        self._judged = judged
        self._greatest = greatest
        self._kept = tuple(kept)
        self._kinds = tuple(kinds)
        self._records = [ColumnStore() for _ in kept]

    def lift(self, columns: Columns, first: int) -> Arrays:
        count = len(columns[0])
        numbers = np.arange(first, first + count)
        if self._judged is None:
            return [np.zeros(count, np.int64), numbers, np.arange(count)]
        column = columns[self._judged]
        ranks = _ranks(column)
        if self._greatest:
            ranks = ~ranks
        if column.null_count:
            null = ~_valid(column)
            ranks = np.where(null, _MOST, ranks)
            numbers = np.where(null, numbers + _BEHIND, numbers)
        return [ranks, numbers, np.arange(count)]

    def scatter(self, into: Arrays, places: Places, values: Arrays, columns: Columns) -> None:
        improves = np.flatnonzero(_is_better(values, [array[places] for array in into]))
        if len(improves):
            candidates = [value[improves] for value in values]
            segments = Segments(places[improves], len(into[0]))
            winners = self.keep(self.reduce(segments, candidates), columns)
            self.merge(into, segments.places, winners)

    def reduce(self, segments: Segments, values: Arrays) -> Arrays:
        rank, number, place = (segments.ordered(value) for value in values)
        owners = segments.spread(np.arange(len(segments.places)))
        order = np.lexsort((number, rank, owners))[segments.starts]
        return [rank[order], number[order], place[order]]

    def merge(self, into: Arrays, places: Places | slice, values: Arrays) -> None:
        improves = _is_better(values, [array[places] for array in into])
        if isinstance(places, slice):
            places = np.arange(len(into[0]))[places]
        for array, value in zip(into, values, strict=True):
            array[places[improves]] = value[improves]

    def keep(self, values: Arrays, columns: Columns) -> Arrays:
        rank, number, rows = values
        stored = len(self)
        for store, place, kind in zip(self._records, self._kept, self._kinds, strict=True):
            column = columns[place]
            store.append((column if column.type == kind else column.cast(kind)).take(rows))
        return [rank, number, np.arange(stored, stored + len(rows))]

    def __len__(self) -> int:
        """How many records are stored, including those no longer needed."""
        return len(self._records[0])

    def forget_others(self, places: Sequence[Array]) -> Sequence[Array] | None:
        """Keep only the records at these places, if that saves much; returns their new places."""
        needed = sum(map(len, places))
        if len(self) <= 2 * needed + _SPARE_RECORDS:
            return None
        joined = np.concatenate([*places, _NOTHING])
        kept = [store.take(joined) if needed else None for store in self._records]
        self._records = [ColumnStore() for _ in self._kept]
        for store, values in zip(self._records, kept, strict=True):
            if values is not None:
                store.append(values)
        ends = np.cumsum([0, *map(len, places)])
        return [np.arange(start, end) for start, end in pairwise(ends)]

    def results(self, values: Arrays) -> Columns:
        return [store.take(values[2]) for store in self._records]

    @property
    def stored_names(self) -> list[str]:
        rank, number, _ = (field.name for field in self.fields)
        return [rank, number, *(f"{self._name} {place}" for place in self._kept)]

    def freeze(self) -> Stored:
        chunks = [store.chunks() for store in self._records]

        def stored(values: Arrays) -> Columns:
            records = [take_from(column, values[2]) for column in chunks]
            return [pa.array(values[0]), pa.array(values[1]), *records]

        return stored

    def restored(self, columns: Columns) -> Arrays:
        rank, number = (column.to_numpy() for column in columns[:2])
        stored = len(self)
        for store, column in zip(self._records, columns[2:], strict=True):
            store.append(column)
        return [rank, number, np.arange(stored, stored + len(rank))]


_NOTHING: Final = np.arange(0)


def _is_better(values: Arrays, others: Arrays) -> Array:
    better: Array = values[0] < others[0]
    better |= (values[0] == others[0]) & (values[1] < others[1])
    return better


def can_be_numbers(kind: pa.DataType) -> bool:
    """Whether `Extreme` and `Pick` can compare values of this type."""
    is_ = pa.types
    return (
        is_.is_float32(kind)
        or is_.is_float64(kind)
        or is_.is_boolean(kind)
        or (is_.is_integer(kind) and kind != pa.uint64())
        or (is_.is_temporal(kind) and not is_.is_interval(kind))
    )


def _valid(column: pa.Array[Any]) -> npt.NDArray[np.bool_]:
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    return column.is_valid().to_numpy(zero_copy_only=False)


def _numbers(column: pa.Array[Any], absent: float) -> Array:
    """The values as numbers of the same width; times as they are stored."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_temporal(kind):
        column = column.view(_ticks(kind))
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(absent, column.type))
    return column.to_numpy(zero_copy_only=False)


def _of_numbers(
    numbers: Array, absent: npt.NDArray[np.bool_] | None, kind: pa.DataType
) -> pa.Array[Any]:
    column: pa.Array[Any] = pa.array(numbers, mask=absent)
    if pa.types.is_temporal(kind):
        return column.cast(_ticks(kind)).view(kind)
    return column.cast(kind)


def _ticks(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if kind.bit_width == 32 else pa.int64()


def _ranks(column: pa.Array[Any]) -> npt.NDArray[np.int64]:
    """Integers in the order of the values; NaN is the greatest number, both zeros are equal."""
    numbers = _numbers(column, 0)
    if numbers.dtype.kind != "f":
        return numbers.astype(np.int64, copy=False)
    plain = numbers.astype(np.float64) + 0.0
    plain[np.isnan(plain)] = np.nan
    bits = plain.view(np.int64)
    # Without the sign, the bits of floats are ordered; for negative ones, in reverse.
    ranks: npt.NDArray[np.int64] = bits ^ ((bits >> 63) & _MOST)
    return ranks


def _magnitude(values: Array) -> int:
    return max(-int(values.min(initial=0)), int(values.max(initial=0)))


class Accumulators:
    """Several accumulators side by side; the first array marks the places in use."""

    def __init__(self, parts: Sequence[Accumulator]) -> None:
        self.parts = (Presence(), *parts)
        self.fields = [field for part in self.parts for field in part.fields]
        ends = np.cumsum([0, *(len(part.fields) for part in self.parts)]).tolist()
        self._spans = [slice(a, b) for a, b in pairwise(ends)]
        self._number = 0
        """The number of the next record."""

    def empty(self, places: int) -> Arrays:
        return [np.full(places, field.initial, field.dtype) for field in self.fields]

    def lift(self, columns: Columns) -> Arrays:
        first = self._number
        self._number += len(columns[0])
        return [array for part in self.parts for array in part.lift(columns, first)]

    def scatter(self, into: Arrays, places: Places, values: Arrays, columns: Columns) -> None:
        for part, span in zip(self.parts, self._spans, strict=True):
            part.scatter(into[span], places, values[span], columns)

    def reduce(self, segments: Segments, values: Arrays, columns: Columns | None = None) -> Arrays:
        """One value for each segment; given the columns of the records, it outlives the batch."""
        reduced: Arrays = []
        for part, span in zip(self.parts, self._spans, strict=True):
            reduced += part.reduce(segments, values[span])
        return reduced if columns is None else self.keep(reduced, columns)

    def keep(self, values: Arrays, columns: Columns) -> Arrays:
        """The values of records in a form that outlives the batch with these columns."""
        parts = zip(self.parts, self._spans, strict=True)
        return [array for part, span in parts for array in part.keep(values[span], columns)]

    def forget(self, living: Sequence[Arrays]) -> bool:
        """Drop what only other values than these needed.

        Returns:
            Whether values have changed, which invalidates copies of them.
        """
        has_moved = False
        for part, span in zip(self.parts, self._spans, strict=True):
            if isinstance(part, Pick):
                place = span.stop - 1
                moved = part.forget_others([values[place] for values in living])
                for values, places in zip(living, moved or (), strict=False):
                    values[place] = places
                has_moved |= moved is not None
        return has_moved

    def merge(self, into: Arrays, places: Places | slice, values: Arrays) -> None:
        for part, span in zip(self.parts, self._spans, strict=True):
            part.merge(into[span], places, values[span])

    def merged(self, values: Arrays, others: Arrays) -> Arrays:
        parts = zip(self.parts, self._spans, strict=True)
        return [array for part, span in parts for array in part.merged(values[span], others[span])]

    def relax(self, living: Callable[[], tuple[Sequence[Arrays], int]]) -> None:
        """Check all current sums if they might exceed 64 bits.

        Args:
            living: returns them, and how many of each array may be added up.
        """
        for part, span in zip(self.parts, self._spans, strict=True):
            if isinstance(part, Sum) and part.is_strained:
                found, together = living()
                part.relax([values[span.start] for values in found], together)

    def results(self, values: Arrays) -> list[Columns]:
        return [
            part.results(values[span])
            for part, span in zip(self.parts[1:], self._spans[1:], strict=True)
        ]

    @property
    def stored_names(self) -> list[str]:
        return [name for part in self.parts[1:] for name in part.stored_names]

    def freeze(self) -> Stored:
        """A function that converts the current values, all present, to their snapshot form."""
        parts = [part.freeze() for part in self.parts]

        def stored(values: Arrays) -> Columns:
            spans = zip(parts[1:], self._spans[1:], strict=True)
            return [column for store, span in spans for column in store(values[span])]

        return stored

    def restored(self, columns: Columns, count: int) -> Arrays:
        """This many values from the columns of a snapshot."""
        values: Arrays = [np.ones(count, np.bool_)]
        start = 0
        for part in self.parts[1:]:
            width = len(part.stored_names)
            found = part.restored(columns[start : start + width])
            if isinstance(part, Pick) and len(found[1]):
                self._number = max(self._number, int((found[1] & (_BEHIND - 1)).max()) + 1)
            values += found
            start += width
        return values
