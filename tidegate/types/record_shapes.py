"""Shapes of values with parts: tuples, rows, user records; and shapes from documents."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

from tidegate.types.instant import Instant
from tidegate.types.row import make_rows, row_class
from tidegate.types.shapes import (
    ListShape,
    MapShape,
    Misfit,
    Shape,
    Single,
    StructShape,
    Text,
)


class TupleStruct(StructShape):
    """Tuples of one length."""

    kind = "tuple"

    def split(self, values: list[Any]) -> Sequence[Sequence[Any]]:
        if not {tuple}.issuperset(map(type, values)):
            raise Misfit
        return _columns(values, len(self.parts))

    def join(self, columns: list[list[Any]]) -> list[Any]:
        return list(zip(*columns, strict=True))


class RowStruct(StructShape):
    """Rows with names."""

    kind = "row"

    def __init__(self, names: Sequence[str], parts: Sequence[Shape]) -> None:
        super().__init__(names, parts)
        self._row_class = row_class(self._names_of_rows())

    def _names_of_rows(self) -> tuple[str, ...] | None:
        return self.names

    def split(self, values: list[Any]) -> Sequence[Sequence[Any]]:
        if not {self._row_class}.issuperset(map(type, values)):
            raise Misfit
        return _columns([row._values for row in values], len(self.parts))

    def join(self, columns: list[list[Any]]) -> list[Any]:
        return make_rows(self._row_class, zip(*columns, strict=True))


class NamelessRowStruct(RowStruct):
    """Rows without names."""

    kind = "nameless row"

    def _names_of_rows(self) -> tuple[str, ...] | None:
        return None


class InstantShape(StructShape):
    kind = "instant"

    def split(self, values: list[Any]) -> Sequence[Sequence[Any]]:
        if not {Instant}.issuperset(map(type, values)):
            raise Misfit
        return [[value.seconds for value in values], [value.nanos for value in values]]

    def join(self, columns: list[list[Any]]) -> list[Any]:
        seconds, nanos = columns
        return list(map(Instant, seconds, nanos))


class ObjectStruct(StructShape):
    """Instances of a user class, for reading only: only pickle can restore them."""

    kind = "record"

    def __init__(self, names: Sequence[str], parts: Sequence[Shape]) -> None:
        super().__init__(names, parts)
        self.is_exact = False

    def split(self, values: list[Any]) -> Sequence[Sequence[Any]]:
        for found in set(map(type, values)):
            if names_of(found) != self.names:
                raise Misfit
        try:
            return [list(map(attrgetter(name), values)) for name in self.names]
        except AttributeError:
            raise Misfit from None

    def join(self, columns: list[list[Any]]) -> list[Any]:
        return list(zip(*columns, strict=True))


_STRUCTS: Final = {
    shape.kind: shape
    for shape in (TupleStruct, RowStruct, NamelessRowStruct, InstantShape, ObjectStruct)
}
ANY: Final = Text()


def names_of(record_class: type[Any]) -> tuple[str, ...] | None:
    """The fields of a dataclass or named tuple; None: it is neither."""
    if dataclasses.is_dataclass(record_class):
        return tuple(field.name for field in dataclasses.fields(record_class)) or None
    if issubclass(record_class, tuple) and hasattr(record_class, "_fields"):
        return tuple(record_class._fields) or None
    return None


def shape_of_document(document: Any) -> Shape:
    if isinstance(document, str):
        return ANY if document == ANY.document() else Single(document)
    [(kind, inner)] = document.items()
    if kind == "list":
        return ListShape(shape_of_document(inner))
    if kind == "map":
        return MapShape(*map(shape_of_document, inner))
    names, parts = inner
    return _STRUCTS[kind](names, list(map(shape_of_document, parts)))


def numbered(count: int) -> list[str]:
    """Names for parts without names."""
    return [f"f{position}" for position in range(count)]


def _columns(values: Sequence[Sequence[Any]], width: int) -> Sequence[Sequence[Any]]:
    if not {width}.issuperset(map(len, values)):
        raise Misfit
    return [[value[position] for value in values] for position in range(width)]
