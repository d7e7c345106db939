"""Objects are private: an emitted or stored value does not change if its object changes later.

A value is copied only if that makes a difference: the object or a part of it is mutable, and
somebody else refers to it. Objects that a function creates for each record are passed on as they
are, and so are numbers, texts and tuples of them.
"""

from __future__ import annotations

import copy
import datetime as dt
import pickle
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from decimal import Decimal
from enum import Enum
from itertools import chain, repeat
from operator import attrgetter
from struct import calcsize
from sys import getrefcount
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final
from uuid import UUID

import numpy as np

from tidegate.types.instant import Instant
from tidegate.types.row import Row

ATOMIC: Final[frozenset[type]] = frozenset(
    {
        *(int, float, str, bytes, bool, complex, type(None), Decimal, UUID, Instant),
        *(dt.date, dt.datetime, dt.time, dt.timedelta),
    }
)
"""Types whose values are immutable and can be shared."""


def private(value: Any, given: Any = None, held: int = 0) -> Any:
    """The value as it is now, even if somebody changes the object later.

    It is the object itself if nobody else can reach it: the caller has it in one variable, and if
    it is the record `given` to a function, also in a list and in a second variable. `held` counts
    other references of the caller to that record.
    """
    kind = type(value)
    if kind in ATOMIC:
        return value
    can_change, parts_of = _shapes[kind]
    is_shared = getrefcount(value) > (_GIVEN + held if value is given else _FRESH)
    if is_shared and can_change:
        return _copied(value)
    inside = 0 if is_shared else _INSIDE
    try:
        for part in parts_of(value):
            if type(part) not in ATOMIC and _is_exposed(part, inside):
                return _copied(value)
    except (AttributeError, RecursionError):  # an attribute without a value; a reference cycle
        return _copied(value)
    return value


def shared(value: Any, given: Any = None, held: int = 0) -> Any:
    """Replaces `private` and `private_copy` if objects are reused."""
    return value


def for_arguments(private: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What replaces `private` for values that user code passes as arguments.

    Some interpreters lend an argument to the called function without counting the reference: a
    value that the caller keeps in a variable looks like one that nobody else can reach.
    """
    return private if private is shared or _COUNTS_ARGUMENTS else private_copy


def private_copy(value: Any) -> Any:
    """A copy that can change by itself; the original if it is immutable."""
    return _copied(value) if _is_exposed(value, 0) else value


def never_change(values: Collection[Any], plain_class: type | None = None) -> bool:
    """Whether all values are immutable: of such a type, of `plain_class`, or tuples of such."""
    found = set(map(type, values)) - {plain_class}
    if found == {tuple}:
        values = values if plain_class is None else [v for v in values if type(v) is tuple]
        found = set(map(type, chain.from_iterable(values)))
    return ATOMIC.issuperset(found)


def _is_exposed(value: Any, references: int) -> bool:
    """Whether somebody else can reach a mutable part of it.

    `references` are those that the value itself has if it is private; 0: it is not.
    """
    kind = type(value)
    if kind in ATOMIC:
        return False
    can_change, parts_of = _shapes[kind]
    is_shared = getrefcount(value) > references
    if is_shared and can_change:
        return True
    inside = 0 if is_shared else _INSIDE
    try:
        for part in parts_of(value):
            if type(part) not in ATOMIC and _is_exposed(part, inside):
                return True
    except (AttributeError, RecursionError):  # an attribute without a value; a reference cycle
        return True
    return False


def _copied(value: Any) -> Any:
    kind = type(value)
    # Copy one level of the usual containers at the speed of C.
    is_usual = kind is list or (kind is dict and never_change(value.values()))
    if is_usual and never_change(value):
        return value.copy()
    for copied in (_pickled_copy, copy.deepcopy):  # deepcopy works for classes unknown to pickle
        with suppress(Exception):
            return copied(value)
    return value  # a lock or a connection: it can neither be stored nor sent


def _pickled_copy(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value, 5))


Shape = tuple[bool, Callable[[Any], Iterable[Any]]]
"""Whether values of a type are mutable, and what such a value refers to."""


def _no_parts(value: Any) -> tuple[()]:
    return ()


def _entries(value: dict[Any, Any]) -> Iterable[Any]:
    return value.values() if ATOMIC.issuperset(map(type, value)) else chain(value, value.values())


def _unknown_parts(value: Any) -> Iterable[Any]:
    raise AttributeError(f"it is unknown what a {type(value).__name__} refers to")


class _Shapes(dict[type, Shape]):
    """Each type is examined once."""

    def __missing__(self, kind: type) -> Shape:
        self[kind] = shape = _can_change(kind), _parts_of(kind)
        return shape


def _can_change(kind: type) -> bool:
    parameters = vars(kind).get("__dataclass_params__")  # not of its base: a subclass is not frozen
    is_frozen = parameters is not None and parameters.frozen
    return not (is_frozen or _never_changes(kind) or issubclass(kind, tuple | frozenset))


def _never_changes(kind: type) -> bool:
    return issubclass(kind, _NEVER_CHANGE) and not issubclass(kind, np.void)  # a view of an array


def _parts_of(kind: type) -> Callable[[Any], Iterable[Any]]:
    if _never_changes(kind):
        return _no_parts
    has_dict = bool(kind.__dictoffset__)
    if issubclass(kind, tuple) and not has_dict:
        return iter
    if issubclass(kind, Row) and not has_dict:
        return attrgetter("_values")
    slots = [_names(vars(each).get("__slots__", ())) for each in kind.__mro__]
    names = tuple(chain.from_iterable(slots))
    fields = len(names) + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    # A class written in C has fields of its own.
    is_plain = kind.__basicsize__ == object.__basicsize__ + fields * calcsize("P")
    if not is_plain or not (has_dict or names):
        return _unknown_parts
    if not names:
        return lambda value: vars(value).values()
    if not has_dict:
        return lambda value: map(getattr, repeat(value), names)
    return lambda value: chain(vars(value).values(), map(getattr, repeat(value), names))


def _names(slots: str | Iterable[str]) -> list[str]:
    every = [slots] if isinstance(slots, str) else slots
    return [name for name in every if name not in ("__dict__", "__weakref__")]


_NEVER_CHANGE: Final = (Enum, np.generic, type, FunctionType, BuiltinFunctionType)
_shapes: Final = _Shapes(
    {
        tuple: (False, iter),
        list: (True, iter),
        dict: (True, _entries),
        set: (True, iter),
        frozenset: (False, iter),
        bytearray: (True, _no_parts),
    }
)


def declare_immutable(kind: type) -> None:
    """Declare values of this type immutable, whatever it looks like."""
    _shapes[kind] = False, _no_parts


# The reference count of a private object depends on the interpreter: measure it by calling the
# functions above as they are called for records.


def _references(value: Any, _: int) -> int:
    return getrefcount(value)


def _references_when_private(value: Any, given: Any = None, held: int = 0) -> int:
    return getrefcount(value)


def _references_of_fresh() -> int:
    result: list[Any] = []
    return _references_when_private(result, None)


def _references_of_given(turns: Callable[[list[Any]], Iterable[Any]]) -> int:
    records: list[list[Any]] = [[]]
    for record in turns(records):
        result = record
        return _references_when_private(result, record, 0)
    raise AssertionError


def _references_of_part() -> int:
    whole: list[list[Any]] = [[]]
    for part in whole:
        return _references(part, 0)
    raise AssertionError


def _references_of_argument(value: Any) -> int:
    return _references_when_private(value)


def _counts_arguments() -> bool:
    kept: list[Any] = []
    return _references_of_argument(kept) > _references_of_argument([])


_FRESH: Final = _references_of_fresh()
_GIVEN: Final = _references_of_given(iter)
HELD_BY_TURN: Final = (
    _references_of_given(lambda records: (r for _, r in zip([0], records, strict=True))) - _GIVEN
)
"""References held by the generator that takes the record out of a `zip`."""
_INSIDE: Final = _references_of_part()
_COUNTS_ARGUMENTS: Final = _counts_arguments()
