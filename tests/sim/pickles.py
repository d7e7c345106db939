"""Pickling of dataclasses with slots, made faster; the pickles stay the same, byte by byte.

Python looks for the fields of a class whenever it pickles one of its objects. In schedules, this
takes longer than all else about pickling.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any


def hasten() -> None:
    """Prepare all classes that are defined by now."""
    usual: Any = dataclasses
    for cls in _below(object):
        if vars(cls).get("__getstate__") is usual._dataclass_getstate:
            names = [each.name for each in dataclasses.fields(cls)]
            cls.__getstate__, cls.__setstate__ = _getting(names), _setting(cls, names)


def _below(cls: type) -> Iterator[Any]:
    for each in type.__subclasses__(cls):
        yield each
        yield from _below(each)


def _getting(names: list[str]) -> Callable[[Any], list[Any]]:
    if len(names) < 2:  # otherwise `attrgetter` returns a tuple
        return lambda self: [getattr(self, name) for name in names]
    get = attrgetter(*names)
    return lambda self: list(get(self))


def _setting(cls: Any, names: list[str]) -> Callable[[Any, list[Any]], None]:
    setters = [getattr(cls, name).__set__ for name in names]

    def set_state(self: Any, state: list[Any]) -> None:
        for set_, value in zip(setters, state, strict=True):
            set_(self, value)

    return set_state
