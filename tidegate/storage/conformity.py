"""Checks that decoded dataclasses have the declared types."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Final

_LEAVES: Final = frozenset({bool, bytes, float, int, str, types.NoneType})


def check_types(value: Any, declared: Any = None) -> None:
    """Check a dataclass and everything in it.

    Raises:
        TypeError: a value has another type than its field declares.
    """
    if declared is None:
        declared = type(value)
    declared, origin, parts = _shape(declared)
    if declared in _LEAVES and type(value) is declared:
        return
    if origin in (types.UnionType, typing.Union):
        _check_any(value, parts)
    elif origin is tuple and parts[-1] is not Ellipsis:
        _check(isinstance(value, tuple) and len(value) == len(parts), value, declared)
        for each, part in zip(value, parts, strict=True):
            check_types(each, part)
    elif origin is not None and issubclass(origin, Mapping):
        _check(isinstance(value, Mapping), value, declared)
        for key, each in value.items():
            check_types(key, parts[0])
            check_types(each, parts[1])
    elif origin is not None:
        _check(isinstance(value, origin), value, declared)
        for each in value:
            check_types(each, parts[0])
    elif declared is not Any:
        # In Python, a bool is an int, and an int is acceptable as a float.
        is_number = declared in (int, float) and type(value) in (int, declared)
        _check(is_number or (declared is not int and isinstance(value, declared)), value, declared)
        if isinstance(declared, type) and is_dataclass(declared):
            for name, part in _fields(declared).items():
                check_types(getattr(value, name), part)


def _check_any(value: Any, choices: tuple[Any, ...]) -> None:
    if type(value) in choices:
        check_types(value, type(value))
        return
    for choice in choices[:-1]:
        try:
            check_types(value, choice)
        except TypeError:
            continue
        return
    check_types(value, choices[-1])


def _check(is_met: bool, value: Any, declared: Any) -> None:
    if not is_met:
        name = getattr(declared, "__name__", str(declared))
        raise TypeError(f"{type(value).__name__} where {name} is expected")


@cache
def _shape(declared: Any) -> tuple[Any, Any, tuple[Any, ...]]:
    """The type itself, what it is a kind of, and the types of its parts."""
    plain = getattr(declared, "__supertype__", declared)
    return plain, typing.get_origin(plain), typing.get_args(plain)


@cache
def _fields(declared: type) -> dict[str, Any]:
    hints = typing.get_type_hints(declared)
    return {each.name: hints[each.name] for each in fields(declared)}
