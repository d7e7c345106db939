"""Chooses the operator of an aggregation: on columns if the type allows it, else by record."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tidegate.core.errors import GraphError
from tidegate.operators.aggregations.by_record import RecordAggregation, RecordCount
from tidegate.operators.aggregations.columnar import (
    CountAggregation,
    ExtremeAggregation,
    SumAggregation,
)
from tidegate.operators.aggregations.kinds import Aggregation
from tidegate.operators.base import Operator
from tidegate.state.keys.key_index import can_be_indexed
from tidegate.state.keys.selection import KeySelection
from tidegate.state.keys.selectors import field_position
from tidegate.types.arrow import ArrowFormat, arrow_format
from tidegate.types.typeinfo import (
    CompositeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)


def aggregation_operator(
    aggregation: Aggregation,
    field: int | str | None,
    key: KeySelection,
    type_info: TypeInformation | None,
) -> Operator:
    """The operator of `key_by(key).<aggregation>(field)` on a stream of this type.

    Raises:
        MissingField: the type has no such field.
        GraphError: the field's type does not support the aggregation.
    """
    if field is not None and type_info is not None:
        field = field_position(field, type_info)
    format = None if type_info is None else arrow_format(type_info)
    output_type = aggregation_output_type(aggregation, key, type_info)
    output_format = None if output_type is None else arrow_format(output_type)
    if format is not None and output_format is not None:
        position = 0 if field is None else format.column_of(field)
        kind = format.schema.field(position).type
        check_aggregation(aggregation, position, format)
        columns = key.columns
        positions = (columns,) if isinstance(columns, int) else columns or ()
        kinds = [format.schema.field(column).type for column in positions]
        if columns is not None and can_be_indexed(kinds):
            if aggregation is Aggregation.COUNT:
                counted = None if field is None else position
                return CountAggregation(columns, counted, format, output_format)
            if aggregation is Aggregation.SUM and adds_up_in_columns(kind):
                return SumAggregation(columns, position, format)
            if aggregation in _EXTREMES and not pa.types.is_nested(kind):
                greatest, whole_record = _EXTREMES[aggregation]
                return ExtremeAggregation(
                    columns, position, format, greatest=greatest, whole_record=whole_record
                )
    if aggregation is Aggregation.COUNT:
        return RecordCount(field, key, output_format)
    return RecordAggregation(aggregation, 0 if field is None else field, key, format)


_EXTREMES: Final = {
    Aggregation.MIN: (False, False),
    Aggregation.MAX: (True, False),
    Aggregation.MIN_BY: (False, True),
    Aggregation.MAX_BY: (True, True),
}


def aggregation_output_type(
    aggregation: Aggregation, key: KeySelection, type_info: TypeInformation | None
) -> TypeInformation | None:
    """The type of the results: that of the records, or a tuple of key and count."""
    if aggregation is not Aggregation.COUNT or type_info is None:
        return type_info
    if key.columns is None:
        return None
    fields = [type_info]
    if isinstance(type_info, CompositeTypeInfo):
        fields = type_info.get_field_types()
    if isinstance(key.columns, int):
        return TupleTypeInfo([fields[key.columns], Types.LONG()])
    key_type = TupleTypeInfo([fields[position] for position in key.columns])
    return TupleTypeInfo([key_type, Types.LONG()])


def check_aggregation(aggregation: Aggregation, place: int, format: ArrowFormat) -> None:
    """Raise GraphError if the type of a field does not support the aggregation."""
    if aggregation is Aggregation.SUM and _has_no_sum(format.schema.field(place).type):
        raise GraphError(
            f"sum() of field {format.field_names[place]!r} of {format.type_info}: values of "
            f"this type cannot be added; choose a numeric field"
        )


def _has_no_sum(kind: pa.DataType) -> bool:
    return (
        pa.types.is_boolean(kind)
        or pa.types.is_map(kind)
        or (pa.types.is_temporal(kind) and not pa.types.is_duration(kind))
    )


def adds_up_in_columns(kind: pa.DataType) -> bool:
    """Whether sums are computed on columns; those of text or decimals use Python."""
    return (
        pa.types.is_float32(kind)
        or pa.types.is_float64(kind)
        or (pa.types.is_integer(kind) and kind != pa.uint64())
    )
