"""Checks that decoded dataclasses have the declared types."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Final

Check = Callable[[Any], None]
"""Raises TypeError for a value of another type."""
_LEAVES: Final = frozenset({bool, bytes, float, int, str, types.NoneType})


def check_types(value: Any, declared: Any = None) -> None:
    """Check a dataclass and everything in it.

    Raises:
        TypeError: a value has another type than its field declares.
    """
    found: Any = type(value) if declared is None else declared
    _check_of(found)(value)


@cache
def _check_of(declared: Any) -> Check:
    """The check of a type, put together once."""
    declared = getattr(declared, "__supertype__", declared)
    origin, parts = typing.get_origin(declared), typing.get_args(declared)
    if origin in (types.UnionType, typing.Union):
        return _union(parts)
    if origin is tuple and parts[-1] is not Ellipsis:
        return _tuple(declared, parts)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(declared, parts)
    if origin is not None:
        return _collection(declared, origin, parts)
    if isinstance(declared, type) and is_dataclass(declared):
        return _dataclass(declared)
    return _plain(declared)


def _plain(declared: Any) -> Check:
    def check(value: Any) -> None:
        if type(value) is declared or declared is Any:
            return
        # In Python, a bool is an int, and an int is acceptable as a float.
        is_number = declared is float and type(value) is int
        _require(
            is_number or (declared is not int and isinstance(value, declared)), value, declared
        )

    return check


def _dataclass(declared: type) -> Check:
    def check(value: Any) -> None:
        _require(isinstance(value, declared), value, declared)
        for name, check_field in _fields_of(declared):
            check_field(getattr(value, name))

    return check


@cache
def _fields_of(declared: type) -> list[tuple[str, Check]]:
    """Asked for with the first value: a class may have fields of its own type."""
    hints = typing.get_type_hints(declared)
    return [(each.name, _check_of(hints[each.name])) for each in fields(declared)]


def _tuple(declared: Any, parts: tuple[Any, ...]) -> Check:
    checks = [_check_of(part) for part in parts]

    def check(value: Any) -> None:
        _require(isinstance(value, tuple) and len(value) == len(checks), value, declared)
        for each, check_part in zip(value, checks, strict=True):
            check_part(each)

    return check


def _mapping(declared: Any, parts: tuple[Any, ...]) -> Check:
    check_key, check_value = _check_of(parts[0]), _check_of(parts[1])

    def check(value: Any) -> None:
        _require(isinstance(value, Mapping), value, declared)
        for key, each in value.items():
            check_key(key)
            check_value(each)

    return check


def _collection(declared: Any, origin: type, parts: tuple[Any, ...]) -> Check:
    check_element = _check_of(parts[0])

    def check(value: Any) -> None:
        _require(isinstance(value, origin), value, declared)
        for each in value:
            check_element(each)

    return check


def _union(choices: tuple[Any, ...]) -> Check:
    checks = [_check_of(choice) for choice in choices]
    leaves = _LEAVES.intersection(choices)

    def check(value: Any) -> None:
        found: Any = type(value)
        if found in leaves:
            return
        if found in choices:
            _check_of(found)(value)
            return
        for check_choice in checks[:-1]:
            try:
                check_choice(value)
            except TypeError:
                continue
            return
        checks[-1](value)

    return check


def _require(is_met: bool, value: Any, declared: Any) -> None:
    if not is_met:
        name = getattr(declared, "__name__", str(declared))
        raise TypeError(f"{type(value).__name__} where {name} is expected")
