"""Aggregations of whatever records there are, one record at a time."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

from tidegate.core.errors import MissingField
from tidegate.operators.aggregation_kinds import Aggregation
from tidegate.state.selectors import FieldByName
from tidegate.types.row import Row

Combine = Callable[[Any, Any], Any]
"""(what the key had so far, a new record) -> what it has now; never changes its arguments."""


def combining(aggregation: Aggregation, field: int | str) -> Combine:
    """How records of one key become one."""
    match aggregation:
        case Aggregation.SUM:
            return _Sum(field)
        case Aggregation.MIN | Aggregation.MAX:
            return _Extreme(field, greatest=aggregation is Aggregation.MAX)
        case Aggregation.MIN_BY | Aggregation.MAX_BY:
            return _ExtremeBy(field, greatest=aggregation is Aggregation.MAX_BY)
        case _:
            raise AssertionError(aggregation)
