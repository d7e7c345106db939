"""Copies of values that are shared with a snapshot."""

from __future__ import annotations

import copy
import datetime as dt
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from tidegate.types.row import Row

ATOMIC: Final = frozenset(
    {
        *(int, float, str, bytes, bool, complex, type(None), Decimal, UUID),
        *(dt.date, dt.datetime, dt.time, dt.timedelta),
    }
)
"""Types whose values never change, so that two owners may hold one."""


def private_copy(value: Any) -> Any:
    """A value that may be changed without the original noticing; the original if it cannot be."""
    kind = type(value)
    if kind in ATOMIC:
        return value
    # One level of the usual containers is copied at the speed of C; deepcopy takes the rest.
    if kind is list and ATOMIC.issuperset(map(type, value)):
        return value.copy()
    if kind is dict and ATOMIC.issuperset(map(type, value.values())):
        return value.copy()
    if kind is tuple and ATOMIC.issuperset(map(type, value)):
        return value
    if kind is Row and ATOMIC.issuperset(map(type, value)):
        return copy.copy(value)
    return copy.deepcopy(value)
