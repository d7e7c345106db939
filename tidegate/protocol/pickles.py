"""Pickling of dataclasses with slots, made faster; the pickles stay the same, byte by byte.

Python looks for the fields of a class whenever it pickles one of its objects, which takes longer
than everything else about pickling a small message.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T")


def quickly_pickled(cls: type[T]) -> type[T]:
    """Prepare a frozen dataclass with slots."""
    prepared: Any = cls
    names = [field.name for field in dataclasses.fields(prepared)]
    prepared.__getstate__, prepared.__setstate__ = _getting(names), _setting(cls, names)
    return cls


def _getting(names: list[str]) -> Callable[[Any], list[Any]]:
    if len(names) < 2:  # otherwise `attrgetter` returns a tuple
        return lambda self: [getattr(self, name) for name in names]
    get = attrgetter(*names)
    return lambda self: list(get(self))


def _setting(cls: type, names: list[str]) -> Callable[[Any, list[Any]], None]:
    setters = [getattr(cls, name).__set__ for name in names]

    def set_state(self: Any, state: list[Any]) -> None:
        for set_, value in zip(setters, state, strict=True):
            set_(self, value)

    return set_state
