"""Converts Python values to readable Arrow columns and back, without loss.

A codec of a typed stream converts similar values. A shape refuses every value that it could not
restore exactly: an integer is not a float, True is not 1, a named tuple is not a tuple.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from tidegate.types.nested import (
    Absent,
    absent_in,
    column_of_lists,
    column_of_maps,
    decoded_lists,
    decoded_maps,
    mask_of,
    spread,
    with_none,
)

_LONGEST_TEXT: Final = 1_000
_NONE: Final = type(None)


class Misfit(Exception):
    """A value would not be restored exactly."""


class Shape(ABC):
    """How values become a column. None is a value of every shape, stored as null."""

    arrow_type: pa.DataType
    is_exact = True
    """Whether the column alone restores the values; otherwise it only serves readers."""

    @abstractmethod
    def encode(self, values: Sequence[Any]) -> pa.Array[Any]:
        """The column; raises Misfit."""

    @abstractmethod
    def decode(self, column: pa.Array[Any]) -> list[Any]:
        """Decode a column from `encode`."""

    @abstractmethod
    def document(self) -> Any:
        """The shape as JSON, for `shape_of_document`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.document(),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shape) and self.document() == other.document()

    def __hash__(self) -> int:
        return hash(str(self.document()))


def _rebuilt(document: Any) -> Shape:
    """The same shape in another process."""
    from tidegate.types.record_shapes import shape_of_document

    return shape_of_document(document)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A Python type of single values, and its column."""

    python_type: type
    arrow_type: pa.DataType
    encode: Callable[[Any], Any] | None = None
    decode: Callable[[Any], Any] | None = None
    fits: Callable[[Any], bool] | None = None
    """A condition besides the type."""


def _is_naive(value: dt.datetime | dt.time) -> bool:
    return value.tzinfo is None and not value.fold


_KINDS: Final = {
    "text": _Kind(str, pa.large_string()),
    "integer": _Kind(int, pa.int64()),
    "big integer": _Kind(int, pa.decimal128(38, 0), encode=Decimal, decode=int),
    "float": _Kind(float, pa.float64()),
    "boolean": _Kind(bool, pa.bool_()),
    "bytes": _Kind(bytes, pa.large_binary()),
    "date": _Kind(dt.date, pa.date32()),
    "time": _Kind(  # Spark's own type for it is not always enabled
        dt.time,
        pa.large_string(),
        encode=dt.time.isoformat,
        decode=dt.time.fromisoformat,
        fits=_is_naive,
    ),
    "datetime": _Kind(dt.datetime, pa.timestamp("us"), fits=_is_naive),
    "datetime in UTC": _Kind(
        dt.datetime,
        pa.timestamp("us", "UTC"),
        decode=lambda value: value.replace(tzinfo=dt.UTC),
        fits=lambda value: value.tzinfo is dt.UTC,
    ),
    "decimal": _Kind(Decimal, pa.large_string(), encode=str, decode=Decimal),
    "uuid": _Kind(UUID, pa.large_string(), encode=str, decode=UUID),
}


class Single(Shape):
    """Numbers, text, times."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._kind = _KINDS[name]
        self.arrow_type = self._kind.arrow_type

    def encode(self, values: Sequence[Any]) -> pa.Array[Any]:
        kind = self._kind
        if not {kind.python_type, _NONE}.issuperset(map(type, values)):
            raise Misfit
        if kind.fits is not None and not all(v is None or kind.fits(v) for v in values):
            raise Misfit
        if kind.encode is not None:
            convert = kind.encode
            values = [None if value is None else convert(value) for value in values]
        try:
            return pa.array(values, kind.arrow_type)
        except (OverflowError, UnicodeEncodeError, ValueError, pa.ArrowException):
            raise Misfit from None

    def decode(self, column: pa.Array[Any]) -> list[Any]:
        values: list[Any] = column.to_pylist()
        if self._kind.decode is None:
            return values
        convert = self._kind.decode
        return [None if value is None else convert(value) for value in values]

    def document(self) -> Any:
        return self.name


class Text(Shape):
    """Any values, as text for people."""

    arrow_type = pa.large_string()
    is_exact = False

    def encode(self, values: Sequence[Any]) -> pa.Array[Any]:
        return pa.array(list(map(readable, values)), self.arrow_type)

    def decode(self, column: pa.Array[Any]) -> list[Any]:
        return column.to_pylist()

    def document(self) -> Any:
        return "any"


class ListShape(Shape):
    def __init__(self, element: Shape) -> None:
        self.element = element
        self.arrow_type = pa.list_(element.arrow_type)
        self.is_exact = element.is_exact

    def encode(self, values: Sequence[Any]) -> pa.Array[Any]:
        absent = _absent(values, list)
        present = values if absent is None else [v or () for v in values]
        elements = self.element.encode(list(chain.from_iterable(present)))
        return column_of_lists(present, elements, absent)

    def decode(self, column: pa.Array[Any]) -> list[Any]:
        return decoded_lists(column, self.element.decode)

    def document(self) -> Any:
        return {"list": self.element.document()}


class MapShape(Shape):
    """Dicts, in their order."""

    def __init__(self, key: Shape, value: Shape) -> None:
        self.key = key
        self.value = value
        self.arrow_type = pa.map_(key.arrow_type, value.arrow_type)
        self.is_exact = key.is_exact and value.is_exact

    def encode(self, values: Sequence[Any]) -> pa.Array[Any]:
        absent = _absent(values, dict)
        present: Sequence[dict[Any, Any]]
        present = values if absent is None else [v or {} for v in values]
        keys = self.key.encode(list(chain.from_iterable(present)))
        if keys.null_count:
            raise Misfit
        items = self.value.encode(list(chain.from_iterable(d.values() for d in present)))
        return column_of_maps(present, keys, items, absent)

    def decode(self, column: pa.Array[Any]) -> list[Any]:
        return decoded_maps(column, self.key.decode, self.value.decode)

    def document(self) -> Any:
        return {"map": [self.key.document(), self.value.document()]}


class StructShape(Shape):
    """Values with a fixed number of parts, each of which is a column."""

    kind: str

    def __init__(self, names: Sequence[str], parts: Sequence[Shape]) -> None:
        self.names = tuple(names)
        self.parts = tuple(parts)
        self._fields = [
            pa.field(name, part.arrow_type)
            for name, part in zip(self.names, self.parts, strict=True)
        ]
        self.arrow_type = pa.struct(self._fields)
        self.is_exact = all(part.is_exact for part in self.parts)

    @abstractmethod
    def split(self, values: list[Any]) -> Sequence[Sequence[Any]]:
        """The parts of values, none of which is None, by column; raises Misfit."""

    @abstractmethod
    def join(self, columns: list[list[Any]]) -> list[Any]:
        """The values with these parts."""

    def encode(self, values: Sequence[Any]) -> pa.Array[Any]:
        absent = absent_in(values)
        if absent is None:
            columns = self.split(list(values))
        else:
            present = self.split([value for value in values if value is not None])
            columns = [spread(column, absent) for column in present]
        encoded = [part.encode(column) for part, column in zip(self.parts, columns, strict=True)]
        return pa.StructArray.from_arrays(encoded, fields=self._fields, mask=mask_of(absent))

    def decode(self, column: pa.Array[Any]) -> list[Any]:
        assert isinstance(column, pa.StructArray)
        columns = [part.decode(column.field(position)) for position, part in enumerate(self.parts)]
        return with_none(self.join(columns), column)

    def document(self) -> Any:
        return {self.kind: [list(self.names), [part.document() for part in self.parts]]}


def readable(value: Any) -> str | None:
    """A text for people; None stays None."""
    if value is None:
        return None
    if type(value) is str:
        text = value
    else:
        try:
            text = repr(value)
        except Exception as failure:
            text = f"<{type(value).__name__} without a text: {failure}>"
    if len(text) > _LONGEST_TEXT:
        text = text[: _LONGEST_TEXT - 1] + "…"
    return text.encode("utf-8", "replace").decode()


def _absent(values: Sequence[Any], kind: type) -> Absent:
    """Where values are None, if anywhere; raises Misfit for values of another type."""
    if not {kind, _NONE}.issuperset(map(type, values)):
        raise Misfit
    return absent_in(values)
