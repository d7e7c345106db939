"""Named aggregates, as in `agg(bids=count(), total=sum_("price"))`.

The results are rows: the fields of the key, then the aggregates under their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import pyarrow as pa

from tidegate.core.errors import GraphError
from tidegate.operators.aggregations.accumulators import (
    Accumulator,
    Average,
    Count,
    Extreme,
    Sum,
    can_be_numbers,
)
from tidegate.state.keys.key_index import can_be_indexed
from tidegate.state.keys.selection import KeySelection
from tidegate.state.keys.selectors import field_position
from tidegate.types.arrow import ArrowFormat, arrow_format
from tidegate.types.typeinfo import (
    ArrowTypeInfo,
    BasicType,
    BasicTypeInfo,
    CompositeTypeInfo,
    RowTypeInfo,
    TypeInformation,
    Types,
)


class AggregateKind(Enum):
    COUNT = "count"
    SUM = "sum_"
    MIN = "min_"
    MAX = "max_"
    AVG = "avg_"
    WINDOW_START = "window_start"
    WINDOW_END = "window_end"


_OF_WINDOWS: Final = (AggregateKind.WINDOW_START, AggregateKind.WINDOW_END)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate, of a field or of whole records."""

    kind: AggregateKind
    field: int | str | None = None


def count(field: int | str | None = None) -> Aggregate:
    """The number of records; with a field, of those in which it is not None."""
    return Aggregate(AggregateKind.COUNT, field)


def sum_(field: int | str = 0) -> Aggregate:
    """The sum of a field, as a LONG or DOUBLE; None if it is always None."""
    return Aggregate(AggregateKind.SUM, field)


def min_(field: int | str = 0) -> Aggregate:
    """The smallest value of a field; None if it is always None."""
    return Aggregate(AggregateKind.MIN, field)


def max_(field: int | str = 0) -> Aggregate:
    """The greatest value of a field; None if it is always None. NaN is the greatest number."""
    return Aggregate(AggregateKind.MAX, field)


def avg_(field: int | str = 0) -> Aggregate:
    """The mean of a field, as a DOUBLE; None if it is always None."""
    return Aggregate(AggregateKind.AVG, field)


def window_start() -> Aggregate:
    """The start of the window, in milliseconds since the epoch, inclusive."""
    return Aggregate(AggregateKind.WINDOW_START)


def window_end() -> Aggregate:
    """The end of the window, in milliseconds since the epoch, exclusive."""
    return Aggregate(AggregateKind.WINDOW_END)


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatePlan:
    """How the results of aggregates are computed. Picklable."""

    key_names: tuple[str, ...]
    key_is_tuple: bool
    aggregates: Mapping[str, Aggregate]
    """By name; fields are positions if the type of the records is known."""
    output_type: TypeInformation | None
    """The type of the results; None: unknown."""
    key_columns: int | tuple[int, ...] | None
    format: ArrowFormat | None
    """The format of the records, if all aggregates can be computed on columns."""

    @property
    def names(self) -> tuple[str, ...]:
        """The fields of a result."""
        return (*self.key_names, *self.aggregates)

    @property
    def output_format(self) -> ArrowFormat | None:
        return arrow_format(self.output_type)

    def accumulators(self) -> list[Accumulator]:
        """One for each aggregate that is not about the window."""
        return [
            self._accumulator(name, aggregate)
            for name, aggregate in self.aggregates.items()
            if aggregate.kind not in _OF_WINDOWS
        ]

    def _accumulator(self, name: str, aggregate: Aggregate) -> Accumulator:
        assert self.format is not None
        position = None if aggregate.field is None else self.format.column_of(aggregate.field)
        if aggregate.kind is AggregateKind.COUNT:
            return Count(name, position)
        assert position is not None
        kind = self.format.schema.field(position).type
        match aggregate.kind:
            case AggregateKind.SUM:
                is_float = pa.types.is_floating(kind)
                return Sum(name, position, kind, pa.float64() if is_float else pa.int64())
            case AggregateKind.AVG:
                return Average(name, position, kind)
        return Extreme(name, position, kind, greatest=aggregate.kind is AggregateKind.MAX)


def plan_aggregates(
    aggregates: Mapping[str, Aggregate],
    key: KeySelection | None,
    type_info: TypeInformation | None,
    key_type: TypeInformation | None,
    *,
    has_windows: bool,
) -> AggregatePlan:
    """The plan of `agg` on a stream of this type; without a key, results have no key fields.

    Raises:
        MissingField: the type has no such field.
        GraphError: the field's type does not support the aggregate, or a name is used twice.
    """
    _check(aggregates, has_windows)
    if type_info is not None:
        aggregates = {
            name: Aggregate(each.kind, field_position(each.field, type_info))
            if each.field is not None
            else each
            for name, each in aggregates.items()
        }
    key_names, key_types = _key_fields(key, type_info, key_type)
    names = [*key_names, *aggregates]
    for name in key_names:
        if name in aggregates:
            raise GraphError(
                f"agg({name}=...): the key already has a field {name!r}: choose another name"
            )
    types = [*key_types, *(_result_type(name, a, type_info) for name, a in aggregates.items())]
    known = [each for each in types if each is not None]
    output_type = RowTypeInfo(known, names) if len(known) == len(types) else None
    format = arrow_format(type_info)
    is_columnar = arrow_format(output_type) is not None and _fits_columns(
        format, key, aggregates, has_windows
    )
    return AggregatePlan(
        key_names=tuple(key_names),
        key_is_tuple=key is None or isinstance(key.columns, tuple),
        aggregates=aggregates,
        output_type=output_type,
        key_columns=None if key is None else key.columns,
        format=format if is_columnar else None,
    )


def _check(aggregates: Mapping[str, Any], has_windows: bool) -> None:
    if not aggregates:
        raise GraphError("agg() needs aggregates, such as agg(records=count())")
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise GraphError(
                f"agg({name}={aggregate!r}): expected count(), sum_(), min_(), max_(), avg_(), "
                "window_start() or window_end() of tidegate.datastream.aggregates"
            )
        if aggregate.kind in _OF_WINDOWS and not has_windows:
            raise GraphError(
                f"agg({name}={aggregate.kind.value}()): the stream has no windows: call window() "
                "first, or omit it"
            )


def _key_fields(
    key: KeySelection | None, type_info: TypeInformation | None, key_type: TypeInformation | None
) -> tuple[list[str], list[TypeInformation | None]]:
    if key is None:
        return [], []
    if key.columns is None or type_info is None:
        return ["key"], [key_type]
    if not isinstance(type_info, CompositeTypeInfo):
        return ["key"], [type_info]
    columns = (key.columns,) if isinstance(key.columns, int) else key.columns
    names, types = type_info.get_field_names(), type_info.get_field_types()
    return [names[position] for position in columns], [types[position] for position in columns]


def _result_type(
    name: str, aggregate: Aggregate, type_info: TypeInformation | None
) -> TypeInformation | None:
    if aggregate.kind in (AggregateKind.COUNT, *_OF_WINDOWS):
        return Types.LONG()
    if type_info is None:
        return Types.DOUBLE() if aggregate.kind is AggregateKind.AVG else None
    held = type_info
    if isinstance(type_info, CompositeTypeInfo):
        held = type_info.get_field_types()[_position(aggregate.field, type_info)]
    if aggregate.kind in (AggregateKind.MIN, AggregateKind.MAX):
        return held
    added_up = _sum_type(held)
    if added_up is None:
        raise GraphError(
            f"agg({name}={aggregate.kind.value}(...)) of a field of {held}: values of this type "
            "cannot be added; choose a numeric field"
        )
    return Types.DOUBLE() if aggregate.kind is AggregateKind.AVG else added_up


def _sum_type(held: TypeInformation) -> TypeInformation | None:
    if isinstance(held, ArrowTypeInfo):
        kind = held.arrow_type
        if pa.types.is_floating(kind):
            return Types.DOUBLE()
        return Types.LONG() if pa.types.is_integer(kind) and kind != pa.uint64() else None
    basic = held.basic_type if isinstance(held, BasicTypeInfo) else None
    return None if basic not in _SUMS else BasicTypeInfo(_SUMS[basic])


def _position(field: int | str | None, type_info: CompositeTypeInfo) -> int:
    if isinstance(field, int):
        return field
    return type_info.get_field_names().index(str(field))


_SUMS: Final[dict[BasicType | None, BasicType]] = {
    BasicType.BYTE: BasicType.LONG,
    BasicType.SHORT: BasicType.LONG,
    BasicType.INT: BasicType.LONG,
    BasicType.LONG: BasicType.LONG,
    BasicType.FLOAT: BasicType.DOUBLE,
    BasicType.DOUBLE: BasicType.DOUBLE,
    BasicType.BIG_INT: BasicType.BIG_INT,
    BasicType.BIG_DEC: BasicType.BIG_DEC,
}


def key_fits_columns(format: ArrowFormat, key: KeySelection) -> bool:
    """Whether the keys of a stream can be numbered as columns."""
    if key.columns is None:
        return False
    positions = (key.columns,) if isinstance(key.columns, int) else key.columns
    return can_be_indexed([format.schema.field(position).type for position in positions])


def _fits_columns(
    format: ArrowFormat | None,
    key: KeySelection | None,
    aggregates: Mapping[str, Aggregate],
    has_windows: bool,
) -> bool:
    if format is None or key is None or not key_fits_columns(format, key):
        return False
    for aggregate in aggregates.values():
        if aggregate.field is None or aggregate.kind is AggregateKind.COUNT:
            continue
        kind = format.schema.field(format.column_of(aggregate.field)).type
        is_extreme = aggregate.kind in (AggregateKind.MIN, AggregateKind.MAX)
        # Running extremes compare their value with a batch, so any orderable type works.
        if not can_be_numbers(kind) and not (
            is_extreme and not has_windows and not pa.types.is_nested(kind)
        ):
            return False
    return True
