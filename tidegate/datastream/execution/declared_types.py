"""Converts declarations of users to the types, fields and keys of a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tidegate.core.errors import MissingField
from tidegate.operators.functions import KeySelector, bound_method
from tidegate.state.keys.selection import KeySelection, select_key
from tidegate.types.infer import as_type_info
from tidegate.types.typeinfo import CompositeTypeInfo, TypeInformation, Types

TypeLike: TypeAlias = Any
"""Types.STRING() and the like, a list of them for a row, a dataclass, a NamedTuple, a Python type,
an Arrow schema or a Spark schema."""

KeyLike: TypeAlias = KeySelector | Callable[[Any], Any] | int | str | tuple[int | str, ...]
"""A function of the record, the key field, or a tuple of fields."""


def declared_type(declared: TypeLike | None) -> TypeInformation | None:
    """The declared type; None for a stream of any Python objects."""
    if declared is None:
        return None
    if isinstance(declared, list):
        return Types.ROW([as_type_info(field) for field in declared])
    return as_type_info(declared)


def field_position(type_info: CompositeTypeInfo, field: int | str, call: str) -> int:
    """The position of a field given by position or name."""
    names = type_info.get_field_names()
    if isinstance(field, str) and field in names:
        return names.index(field)
    if isinstance(field, int) and not isinstance(field, bool) and 0 <= field < len(names):
        return field
    raise MissingField(field, tuple(names), call)


def declared_key(key: KeyLike, type_info: TypeInformation | None) -> KeySelection:
    """How to find the key: by columns if possible, otherwise by calling the function."""
    if isinstance(key, int | str | tuple):
        return select_key(key, type_info)
    bound_method(key, KeySelector, "get_key")
    chosen: Any = key
    return select_key(chosen, type_info)
