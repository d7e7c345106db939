"""Reads foreign savepoints without running code in them.

Pickled objects can run any code while they are loaded. Python audits every name that a pickle
refers to before it is looked up; without trust, only plain values are let through.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from tidegate.core.errors import UntrustedState

_PLAIN = {
    "builtins": ("bytearray", "complex", "frozenset", "range", "set", "slice"),
    "collections": ("OrderedDict", "deque"),
    "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
    "decimal": ("Decimal",),
    "tidegate.types.row": ("Row", "_create_row"),
    "uuid": ("UUID",),
    "zoneinfo": ("ZoneInfo._unpickle",),
    "numpy": ("dtype", "ndarray"),
    "numpy._core.multiarray": ("_reconstruct", "scalar"),
    "numpy._core.numeric": ("_frombuffer",),
}
_OURS = "tidegate."
_is_hooked = False
_readers = 0
"""The number of readers without trust."""


@contextmanager
def untrusted(*, trust: bool = False) -> Iterator[None]:
    """Within the block, a pickle that is more than plain values raises UntrustedState."""
    global _is_hooked, _readers  # noqa: PLW0603 - a hook is one of the whole process
    if trust:
        yield
        return
    if not _is_hooked:
        sys.addaudithook(_look)
        _is_hooked = True
    _readers += 1
    try:
        yield
    finally:
        _readers -= 1


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "pickle.find_class" or not _readers:
        return
    module, name = arguments
    if name not in _PLAIN.get(module, ()) and not _is_plain_of_ours(module, name):
        raise UntrustedState(f"{module}.{name}")


def _is_plain_of_ours(module: str, name: str) -> bool:
    """Whether it is a class of plain values, which are only looked up, built and compared."""
    if not module.startswith(_OURS) or "." in name:
        return False
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return False
    return (
        isinstance(found, type)
        and found.__module__.startswith(_OURS)
        and (dataclasses.is_dataclass(found) or issubclass(found, Enum | tuple))
        and not any("__call__" in vars(base) for base in found.__mro__)
    )
