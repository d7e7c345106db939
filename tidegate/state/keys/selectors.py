"""Selects fields of records, and detects functions that only do that."""

from __future__ import annotations

import dis
from collections.abc import Callable
from operator import attrgetter, itemgetter
from types import FunctionType
from typing import Any

from tidegate.core.errors import MissingField
from tidegate.types.arrow import VALUE_COLUMN
from tidegate.types.row import Row
from tidegate.types.typeinfo import (
    CompositeTypeInfo,
    DataclassTypeInfo,
    NamedTupleTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TypeInformation,
)

Fields = int | tuple[int, ...]


class FieldByName:
    """Selects a field by name: from rows and dicts by item, from objects by attribute."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, record: Any) -> Any:
        if isinstance(record, Row | dict):
            return record[self.name]
        return getattr(record, self.name)


class TupleOf:
    """Several fields as one tuple."""

    __slots__ = ("getters",)

    def __init__(self, getters: tuple[Any, ...]) -> None:
        self.getters = getters

    def __call__(self, record: Any) -> tuple[Any, ...]:
        return tuple([getter(record) for getter in self.getters])


def itself(record: Any) -> Any:
    """Return the record: a single value is its own only field."""
    return record


def field_getter(
    field: int | str | tuple[int | str, ...], type_info: TypeInformation | None
) -> Callable[[Any], Any]:
    """A picklable function that selects a field, or several as a tuple, from records of a type.

    Raises:
        MissingField: the type has no such field.
    """
    if isinstance(field, tuple):
        return TupleOf(tuple(field_getter(part, type_info) for part in field))
    if type_info is not None:
        field = field_position(field, type_info)
    if isinstance(type_info, DataclassTypeInfo):
        return attrgetter(type_info.get_field_names()[int(field)])
    if type_info is None or isinstance(type_info, CompositeTypeInfo | PickledBytesTypeInfo):
        return itemgetter(field) if isinstance(field, int) else FieldByName(field)
    return itself


def field_position(field: int | str, type_info: TypeInformation) -> int | str:
    """The position of a field, if the type defines it; raises MissingField if there is none."""
    if isinstance(type_info, PickledBytesTypeInfo):
        return field
    names = [VALUE_COLUMN]
    if isinstance(type_info, CompositeTypeInfo):
        names = type_info.get_field_names()
    if isinstance(field, str) and field in names:
        return names.index(field)
    if isinstance(field, int) and 0 <= field < len(names):
        return field
    raise MissingField(field, tuple(names), str(type_info))


def field_of_selector(selector: Any, type_info: TypeInformation) -> Fields | None:
    """The fields that a key selector selects, if it does nothing else: `lambda x: x[0]` gives 0.

    A tuple means that the selector returns a tuple. None in case of doubt.
    """
    if not isinstance(type_info, CompositeTypeInfo):
        return 0 if _is_straight_identity(selector) else None
    if not _only_takes_fields(selector):
        return None
    probe = _Probe(type_info)
    try:
        taken = getattr(selector, "get_key", selector)(probe)
    except Exception:
        return None
    if isinstance(taken, _Taken):
        return taken.field
    if type(taken) is tuple and taken and all(isinstance(part, _Taken) for part in taken):
        return tuple(part.field for part in taken)
    return None


# Straight-line code on the argument alone: no branch, call, global, closure or store. The names
# differ between Python versions; an unknown one makes the selector an ordinary function.
_HARMLESS = frozenset(
    {
        "BINARY_OP",
        "BINARY_SUBSCR",
        "BUILD_TUPLE",
        "CACHE",
        "LOAD_ATTR",
        "LOAD_CONST",
        "LOAD_FAST",
        "LOAD_FAST_BORROW",
        "LOAD_FAST_BORROW_LOAD_FAST_BORROW",
        "LOAD_FAST_LOAD_FAST",
        "LOAD_SMALL_INT",
        "NOP",
        "RESUME",
        "RETURN_VALUE",
    }
)


def _only_takes_fields(selector: Any) -> bool:
    """Whether a probe sees everything that the selector will ever do."""
    if type(selector) in (itemgetter, attrgetter):
        return True
    function = _plain_function(selector)
    if function is None:
        return False
    loaded: set[str] = set()
    for instruction in dis.get_instructions(function):
        if instruction.opname not in _HARMLESS:
            return False
        if instruction.opname.startswith("LOAD_FAST"):
            names = instruction.argval
            loaded.update(names if isinstance(names, tuple) else (names,))
    return loaded == {_record_argument(selector, function)}


def _is_straight_identity(selector: Any) -> bool:
    """Whether it is `lambda x: x`."""
    if _plain_function(selector) is None or not _only_takes_fields(selector):
        return False
    record = object()
    try:
        return getattr(selector, "get_key", selector)(record) is record
    except Exception:
        return False


def _plain_function(selector: Any) -> FunctionType | None:
    """The Python function of a stateless selector; None for anything else."""
    method = getattr(selector, "get_key", None)
    function = selector if method is None else getattr(method, "__func__", None)
    return function if isinstance(function, FunctionType) else None


def _record_argument(selector: Any, function: FunctionType) -> str | None:
    position = 0 if selector is function else 1
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return names[position] if len(names) > position else None


class _Taken:
    """A placeholder for the value of a field; any operation on it raises."""

    __slots__ = ("field",)

    def __init__(self, field: int) -> None:
        self.field = field


class _Probe:
    """A placeholder for a record; has only the fields that a record of the type has."""

    __slots__ = ("_type",)

    def __init__(self, type_info: CompositeTypeInfo) -> None:
        self._type = type_info

    def __getitem__(self, item: Any) -> _Taken:
        names = self._type.get_field_names()
        if type(item) is int and not isinstance(self._type, DataclassTypeInfo):
            return _Taken(range(len(names))[item])
        if type(item) is str and isinstance(self._type, RowTypeInfo):
            return _Taken(names.index(item))
        raise TypeError(item)

    def __getattr__(self, name: str) -> _Taken:
        hidden = isinstance(self._type, RowTypeInfo) and hasattr(Row, name)
        named = RowTypeInfo | DataclassTypeInfo | NamedTupleTypeInfo
        if isinstance(self._type, named) and not hidden:
            return _Taken(self._type.get_field_names().index(name))
        raise AttributeError(name)
