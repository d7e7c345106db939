"""Converts values of a stored type to the declared type, which may have more fields.

Named rows, dataclasses and named tuples may gain fields, even inside lists, maps and each other.
Any other change makes it a different type.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from tidegate.core.errors import shorten
from tidegate.types.row import Row, make_rows, row_class
from tidegate.types.typeinfo import (
    CompositeTypeInfo,
    ExternalTypeInfo,
    MapTypeInfo,
    NamedTupleTypeInfo,
    RecordClassTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    elements_of,
)

Convert: TypeAlias = Callable[[Any], Any]


class Inconvertible(Exception):
    """A type or value that cannot be converted to the declared type; says why."""


@dataclass(frozen=True, slots=True)
class TypeStructure:
    """The parts of a type, as stored with state."""

    kind: str
    """For a single value, the whole type, such as "Long"."""
    parts: tuple[tuple[str, TypeStructure], ...] = ()
    """The fields of a record, by name."""

    def document(self) -> Any:
        """The structure as JSON, such as {"row": {"user": "String", "total": "Long"}}."""
        if not self.parts:
            return self.kind
        return {self.kind: {name: part.document() for name, part in self.parts}}

    @classmethod
    def of_document(cls, document: Any) -> TypeStructure:
        if isinstance(document, str):
            return cls(document)
        [(kind, parts)] = document.items()
        return cls(kind, tuple((name, cls.of_document(part)) for name, part in parts.items()))


@dataclass(frozen=True, slots=True)
class Evolution:
    """The conversion of values to a type with more fields."""

    convert: Convert
    """Raises Inconvertible for a value that is not of the old type."""
    added: tuple[str, ...]
    """The new fields with their defaults, as text: "currency = 'EUR'"."""


def structure_of(type_info: TypeInformation | None) -> TypeStructure:
    """The structure of a type; undeclared values have one, too."""
    match type_info:
        case None:
            return TypeStructure("any value")
        case CompositeTypeInfo():
            names, types = type_info.get_field_names(), type_info.get_field_types()
            parts = tuple(zip(names, map(structure_of, types), strict=True))
            return TypeStructure(_kind_of_record(type_info), parts)
        case MapTypeInfo(key_type=key, value_type=value):
            parts = (("key", structure_of(key)), ("value", structure_of(value)))
            return TypeStructure("map", parts)
        case ExternalTypeInfo(type_info=inner):
            return TypeStructure("external", (("type", structure_of(inner)),))
    element = elements_of(type_info)
    if element is not None:
        return TypeStructure(type(type_info).__name__, (("element", structure_of(element)),))
    return TypeStructure(str(type_info))


def _kind_of_record(type_info: CompositeTypeInfo) -> str:
    match type_info:
        case RowTypeInfo():
            return "row" if type_info.has_names else "row without names"
        case TupleTypeInfo():
            return "tuple"
        case RecordClassTypeInfo(record_class=record_class):
            return record_class.__qualname__
    return type(type_info).__name__


def evolution(
    stored: TypeStructure, declared: TypeInformation | None, path: tuple[str, ...] = ()
) -> Evolution | None:
    """The conversion of the stored type to the declared one; None: they are the same.

    Raises:
        Inconvertible: it changed by more than new fields.
    """
    now = structure_of(declared)
    if stored == now:
        return None
    if stored.kind != now.kind:
        raise Inconvertible(f"{_shown(path)} was {stored.kind} and is {now.kind} now")
    was = dict(stored.parts)
    match declared:
        case RowTypeInfo() if declared.has_names:
            return _row_evolution(was, declared, path)
        case RecordClassTypeInfo():
            return _record_evolution(was, declared, path)
        case MapTypeInfo():
            if was["key"] != structure_of(declared.key_type):
                raise Inconvertible(f"the keys of {_shown(path)} have another type")
            return _inside(evolution(was["value"], declared.value_type, path), _map_values)
        case ExternalTypeInfo():
            return evolution(was["type"], declared.type_info, path)
        case CompositeTypeInfo():
            raise Inconvertible(
                f"the fields of {_shown(path)} have no names, so it is unknown which are new: "
                "use Types.ROW_NAMED, a dataclass or a NamedTuple for types that may gain fields"
            )
    element = None if declared is None else elements_of(declared)
    assert element is not None, "of one kind and with parts, but not the same"
    return _inside(evolution(was["element"], element, path), _elements)


def _shown(path: tuple[str, ...]) -> str:
    return f"field {'.'.join(path)!r}" if path else "the type"


def _inside(inner: Evolution | None, wrap: Callable[[Convert], Convert]) -> Evolution | None:
    return None if inner is None else Evolution(wrap(inner.convert), inner.added)


def _elements(convert: Convert) -> Convert:
    def convert_elements(value: Any) -> Any:
        if value is None:
            return None
        if type(value) in (list, tuple):
            return type(value)(map(convert, value))
        raise Inconvertible(f"{shorten(value)} is not a list")

    return convert_elements


def _map_values(convert: Convert) -> Convert:
    def convert_values(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, dict):
            return {key: convert(item) for key, item in value.items()}
        raise Inconvertible(f"{shorten(value)} is not a dict")

    return convert_values


@dataclass(frozen=True, slots=True)
class _FieldChanges:
    """How the fields of a record changed, if its kind is the same."""

    was: tuple[str, ...]
    now: tuple[str, ...]
    inner: Mapping[str, Evolution]
    """The conversions of fields that gained fields themselves."""

    @property
    def new(self) -> list[str]:
        return [name for name in self.now if name not in self.was]

    def added(self, path: tuple[str, ...], defaults: Mapping[str, str]) -> tuple[str, ...]:
        own = [f"{'.'.join((*path, name))} = {defaults[name]}" for name in self.new]
        return (*own, *(each for change in self.inner.values() for each in change.added))

    def convert_inner(self, held: dict[str, Any]) -> None:
        for name, change in self.inner.items():
            if name in held:
                held[name] = change.convert(held[name])


def _field_changes(
    was: Mapping[str, TypeStructure], declared: CompositeTypeInfo, path: tuple[str, ...]
) -> _FieldChanges:
    types = dict(zip(declared.get_field_names(), declared.get_field_types(), strict=True))
    for name in was:
        if name not in types:
            new = ", ".join(repr(each) for each in types if each not in was)
            renamed = f", and {new} is new (a renamed field is another field)" if new else ""
            raise Inconvertible(f"{_shown((*path, name))} is gone{renamed}")
    inner = {name: evolution(part, types[name], (*path, name)) for name, part in was.items()}
    return _FieldChanges(
        was=tuple(was),
        now=tuple(types),
        inner={name: change for name, change in inner.items() if change is not None},
    )


def _row_evolution(
    was: Mapping[str, TypeStructure], declared: RowTypeInfo, path: tuple[str, ...]
) -> Evolution:
    changes = _field_changes(was, declared, path)
    defaults = {name: declared.defaults.get(name) for name in changes.new}

    def with_new(held: dict[str, Any]) -> dict[str, Any]:
        changes.convert_inner(held)
        held.update(copy.deepcopy(defaults))
        return {name: held[name] for name in changes.now if name in held}

    def by_position(values: Sequence[Any], value: Any) -> tuple[Any, ...]:
        if len(values) != len(changes.was):
            raise Inconvertible(f"{shorten(value)} has not {len(changes.was)} field(s)")
        return tuple(with_new(dict(zip(changes.was, values, strict=True))).values())

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, Row):
            names = value._fields
            if names is None:
                held = by_position(value._values, value)
            elif set(names) == set(changes.was):
                held = tuple(with_new(value.as_dict()).values())
            else:
                raise Inconvertible(f"{shorten(value)} has other fields")
            kind = row_class(names and changes.now, value.get_row_kind(), value._base())
            return make_rows(kind, [held])[0]
        if type(value) in (tuple, list):
            return type(value)(by_position(value, value))
        if type(value) is dict and changes.was and set(value) <= set(changes.was):
            return with_new(dict(value))
        raise Inconvertible(
            f"{shorten(value)} is not a row with the fields {', '.join(changes.was)}"
        )

    return Evolution(convert, changes.added(path, {n: shorten(v) for n, v in defaults.items()}))


def _record_evolution(
    was: Mapping[str, TypeStructure], declared: RecordClassTypeInfo, path: tuple[str, ...]
) -> Evolution:
    changes = _field_changes(was, declared, path)
    record_class = declared.record_class
    # Named tuples, and dataclasses with slots, are pickled by field position.
    for name, old in zip(changes.now, changes.was, strict=False):
        if name != old:
            raise Inconvertible(
                f"{_shown((*path, name))} is in the position of {old!r}: new fields of a class "
                "must follow the old ones, which keep their order"
            )
    defaults = _defaults_of(declared)
    for name in changes.new:
        if name not in defaults:
            raise Inconvertible(
                f"{_shown((*path, name))} is new and has no default: give it one in the class "
                f"{record_class.__qualname__}"
            )
    is_tuple = isinstance(declared, NamedTupleTypeInfo)

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if type(value).__qualname__ != record_class.__qualname__:
            raise Inconvertible(
                f"{shorten(value)} is not an instance of {record_class.__qualname__}"
            )
        if is_tuple:
            # Unpickling called the class, which filled in the defaults.
            held = dict(zip(changes.now, value, strict=True))
            changes.convert_inner(held)
            return tuple.__new__(type(value), held.values())
        for name in changes.new:
            # The default of a field is an attribute of the class, too.
            if name not in getattr(value, "__dict__", {name}) or not hasattr(value, name):
                object.__setattr__(value, name, defaults[name][0]())
        for name, change in changes.inner.items():
            object.__setattr__(value, name, change.convert(getattr(value, name)))
        return value

    return Evolution(convert, changes.added(path, {name: d[1] for name, d in defaults.items()}))


def _defaults_of(declared: RecordClassTypeInfo) -> dict[str, tuple[Callable[[], Any], str]]:
    """For each field with a default: the function that creates it, and its text."""
    defaults: dict[str, tuple[Callable[[], Any], str]] = {}
    if isinstance(declared, NamedTupleTypeInfo):
        for name, value in declared.record_class._field_defaults.items():
            defaults[name] = (partial(copy.copy, value), shorten(value))
        return defaults
    for field in dataclasses.fields(declared.record_class):
        if field.default is not dataclasses.MISSING:
            defaults[field.name] = (partial(copy.copy, field.default), shorten(field.default))
        elif field.default_factory is not dataclasses.MISSING:
            named = getattr(field.default_factory, "__name__", "factory")
            defaults[field.name] = (field.default_factory, f"{named}()")
    return defaults
