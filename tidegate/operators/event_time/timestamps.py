"""The timestamps of records: existing ones, from a column, or from a user function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegate.core.errors import GraphError, MissingField, TidegateError, TypeMismatch
from tidegate.operators.event_time.strategy import TimestampAssigner, WatermarkStrategy
from tidegate.operators.user_code import USER_FAILURES, Timestamps, UserCode
from tidegate.stream.batch import Batch
from tidegate.stream.elements import NO_WATERMARK
from tidegate.types.arrow import arrow_format
from tidegate.types.typeinfo import TypeInformation

Stamped = tuple[Batch, TidegateError | None]
"""The records before one whose timestamp cannot be determined, and the reason."""

_PER_MILLISECOND: Final = {"s": 1, "ms": 1, "us": 1000, "ns": 1_000_000}


def stamping(
    strategy: WatermarkStrategy, field: int | None, user_code: UserCode
) -> Callable[[Batch], Stamped]:
    """How batches get their timestamps."""
    assigner = strategy.assigner
    if field is not None:
        return lambda batch: _by_column(batch, field)
    if assigner is None:
        return lambda batch: (batch, None)
    assert callable(assigner) or isinstance(assigner, TimestampAssigner)
    extract = assigner.extract_timestamp if isinstance(assigner, TimestampAssigner) else assigner
    return lambda batch: _by_function(batch, extract, user_code)


def stamped_until(batch: Batch, stamps: Timestamps) -> Batch:
    """The first records of a batch, with these timestamps."""
    taken = batch if len(stamps) == len(batch) else batch.slice(0, len(stamps))
    return taken.stamped(stamps)


def _by_function(batch: Batch, extract: Callable[[Any, int], int], user_code: UserCode) -> Stamped:
    records = batch.records
    known = batch.timestamps
    before: Iterable[int] = repeat(NO_WATERMARK) if known is None else known.tolist()
    found: list[Any] = []
    failure = None
    try:
        found.extend(map(extract, records, before))
        if len(found) < len(records):
            raise StopIteration("raised by extract_timestamp()")
    except USER_FAILURES as error:
        failure = user_code.failure(error, records[len(found)], len(found))
    stamps = np.array(found) if found else np.empty(0, np.int64)
    if stamps.dtype != np.int64:
        place = next((i for i, each in enumerate(found) if not _is_timestamp(each)), len(found))
        if place < len(found):
            wrong = TypeError(
                "a timestamp is an integer of 64 bits, milliseconds since the epoch; "
                f"extract_timestamp() returned {found[place]!r}"
            )
            failure = user_code.failure(wrong, records[place], place)
        stamps = np.array([int(each) for each in found[:place]], np.int64)
    return stamped_until(batch, stamps), failure


def _is_timestamp(value: Any) -> bool:
    return isinstance(value, int | np.integer) and -(2**63) <= int(value) < 2**63


def _by_column(batch: Batch, field: int) -> Stamped:
    column = batch.columns.column(field)
    missing = None
    if column.null_count:
        assert batch.format is not None
        place = column.is_null().index(True).as_py()
        reason = f"{batch.format.field_names[field]!r} is its timestamp and must not be None"
        missing = TypeMismatch(str(batch.format.type_info), batch.records[place], reason)
        missing.suspects = range(place, place + 1)
        column = column.slice(0, place)
    return stamped_until(batch, milliseconds(column)), missing


def milliseconds(column: Any) -> Timestamps:
    """A column of integers or points in time as milliseconds since the epoch."""
    if not pa.types.is_timestamp(column.type):
        return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False))
    ticks = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    if column.type.unit == "s":
        return np.asarray(ticks * 1000)
    return np.asarray(ticks // _PER_MILLISECOND[column.type.unit])


def timestamp_field(strategy: WatermarkStrategy, type_info: TypeInformation | None) -> int | None:
    """The position of the timestamp field of the strategy; None: it uses no field.

    Raises:
        GraphError: the stream has no such field, or it has another type.
    """
    field = strategy.assigner
    if not isinstance(field, str | int):
        return None
    format = arrow_format(type_info)
    if format is None or format.is_scalar:
        raise GraphError(
            f"with_timestamp_assigner({field!r}) names a field, but the records of the stream "
            "have none: declare their type as Types.ROW_NAMED or Types.TUPLE, or use a function"
        )
    names = format.field_names
    place = names.index(field) if field in names else field
    if not isinstance(place, int) or not 0 <= place < len(names):
        raise MissingField(field, tuple(names), "with_timestamp_assigner()")
    kind = format.schema.field(place).type
    if not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind)):
        raise GraphError(
            f"with_timestamp_assigner({field!r}): the field is a {kind}, but a timestamp is an "
            "integer (milliseconds since the epoch) or a point in time; use a function"
        )
    return place
