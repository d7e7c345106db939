"""Converts Spark schemas to type information and back, and batches for Spark.

The only module of this package that imports pyspark; it is imported when a Spark type occurs.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from tidegate.core.errors import TypeMismatch
from tidegate.types.arrow import VALUE_COLUMN, ArrowFormat
from tidegate.types.spark_versions import TIME_TYPE
from tidegate.types.typeinfo import (
    ArrowTypeInfo,
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    CompositeTypeInfo,
    DateTypeInfo,
    ExternalTypeInfo,
    ListTypeInfo,
    LocalTimeTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
    Types,
)

__all__ = ["to_spark_batch", "to_spark_schema", "type_info_of_spark"]

_FROM_SPARK: dict[type[spark.DataType], TypeInformation] = {
    spark.BooleanType: Types.BOOLEAN(),
    spark.ByteType: Types.BYTE(),
    spark.ShortType: Types.SHORT(),
    spark.IntegerType: Types.INT(),
    spark.LongType: Types.LONG(),
    spark.FloatType: Types.FLOAT(),
    spark.DoubleType: Types.DOUBLE(),
    spark.StringType: Types.STRING(),
    spark.CharType: Types.STRING(),
    spark.VarcharType: Types.STRING(),
    spark.BinaryType: Types.PRIMITIVE_ARRAY(Types.BYTE()),
    spark.DateType: Types.SQL_DATE(),
    spark.TimestampNTZType: Types.SQL_TIMESTAMP(),
    # A Spark timestamp is a point in time, so its datetimes have a zone here.
    spark.TimestampType: ArrowTypeInfo(pa.timestamp("us", tz="UTC")),
    spark.DayTimeIntervalType: ArrowTypeInfo(pa.duration("us")),
    spark.NullType: ArrowTypeInfo(pa.null()),
}
if TIME_TYPE is not None:
    _FROM_SPARK[TIME_TYPE] = Types.SQL_TIME()

_BASIC_TO_SPARK: dict[BasicType, spark.DataType] = {
    BasicType.STRING: spark.StringType(),
    BasicType.CHAR: spark.StringType(),
    BasicType.BOOLEAN: spark.BooleanType(),
    BasicType.BYTE: spark.ByteType(),
    BasicType.SHORT: spark.ShortType(),
    BasicType.INT: spark.IntegerType(),
    BasicType.LONG: spark.LongType(),
    BasicType.FLOAT: spark.FloatType(),
    BasicType.DOUBLE: spark.DoubleType(),
    BasicType.BIG_INT: spark.DecimalType(38, 0),
    BasicType.BIG_DEC: spark.DecimalType(38, 18),
    BasicType.INSTANT: spark.TimestampType(),
}


def type_info_of_spark(data_type: spark.DataType | type[spark.DataType]) -> TypeInformation:
    """The type of the values of a Spark column, or of the rows of a Spark schema."""
    if isinstance(data_type, type):
        data_type = data_type()
    match data_type:
        case spark.StructType():
            types = [type_info_of_spark(field.dataType) for field in data_type.fields]
            return Types.ROW_NAMED(data_type.names, types)
        case spark.ArrayType():
            return Types.LIST(type_info_of_spark(data_type.elementType))
        case spark.MapType():
            key = type_info_of_spark(data_type.keyType)
            return Types.MAP(key, type_info_of_spark(data_type.valueType))
        case spark.DecimalType():
            return ArrowTypeInfo(pa.decimal128(data_type.precision, data_type.scale))
        case spark.UserDefinedType():
            return type_info_of_spark(data_type.sqlType())
        case _ if type(data_type) in _FROM_SPARK:
            return _FROM_SPARK[type(data_type)]
        case _:
            raise TypeError(
                f"a Spark column of type {data_type.simpleString()} cannot be a field of a "
                "stream: cast it in Spark first, for example to string"
            )


def to_spark_schema(type_info: TypeInformation) -> spark.StructType:
    """The Spark schema for records of a type; single values form one column, "value"."""
    found = _spark_type(type_info)
    if isinstance(found, spark.StructType) and isinstance(_unwrapped(type_info), CompositeTypeInfo):
        return found
    return spark.StructType([spark.StructField(VALUE_COLUMN, found)])


def to_spark_batch(format: ArrowFormat, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with columns that Spark reads according to `to_spark_schema`.

    Raises:
        TypeMismatch: A BIG_INT or BIG_DEC has more digits than a Spark decimal.
    """
    type_info = _unwrapped(format.type_info)
    if isinstance(type_info, CompositeTypeInfo):
        types = type_info.get_field_types()
    else:
        types = [type_info]
    columns = [
        _spark_column(kind, column) for kind, column in zip(types, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(format.field_names))


def _unwrapped(type_info: TypeInformation) -> TypeInformation:
    while isinstance(type_info, ExternalTypeInfo):
        type_info = type_info.type_info
    return type_info


def _spark_type(type_info: TypeInformation) -> spark.DataType:
    match _unwrapped(type_info):
        case BasicTypeInfo() as basic:
            return _BASIC_TO_SPARK[basic.basic_type]
        case DateTypeInfo() | LocalTimeTypeInfo(time_type=LocalTimeTypeInfo.TimeType.LOCAL_DATE):
            return spark.DateType()
        case TimeTypeInfo() | LocalTimeTypeInfo(time_type=LocalTimeTypeInfo.TimeType.LOCAL_TIME):
            return _time_of_day()
        case TimestampTypeInfo() | LocalTimeTypeInfo():
            return spark.TimestampNTZType()
        case PrimitiveArrayTypeInfo(element_type=BasicTypeInfo(basic_type=BasicType.BYTE)):
            return spark.BinaryType()
        case (
            PrimitiveArrayTypeInfo() | BasicArrayTypeInfo() | ObjectArrayTypeInfo() | ListTypeInfo()
        ) as elements:
            return spark.ArrayType(_spark_type(elements.element_type))
        case MapTypeInfo() as mapping:
            return spark.MapType(_spark_type(mapping.key_type), _spark_type(mapping.value_type))
        case CompositeTypeInfo() as record:
            named = zip(record.get_field_names(), record.get_field_types(), strict=True)
            return spark.StructType(
                [spark.StructField(name, _spark_type(kind)) for name, kind in named]
            )
        case ArrowTypeInfo() as arrow:
            return _spark_type_of_arrow(arrow.arrow_type)
        case other:
            raise TypeError(
                f"records of type {other} have no columns in Spark: declare the type of "
                "the stream, for example with output_type of the last map"
            )


def _spark_type_of_arrow(arrow_type: Any) -> spark.DataType:
    is_ = pa.types
    if is_.is_decimal(arrow_type) and arrow_type.precision <= 38:
        return spark.DecimalType(arrow_type.precision, arrow_type.scale)
    if is_.is_timestamp(arrow_type):
        return spark.TimestampNTZType() if arrow_type.tz is None else spark.TimestampType()
    if is_.is_time(arrow_type):
        return _time_of_day()
    if is_.is_duration(arrow_type):
        return spark.DayTimeIntervalType()
    if is_.is_uint64(arrow_type):
        return spark.DecimalType(20, 0)
    if is_.is_null(arrow_type):
        return spark.NullType()
    raise TypeError(f"Spark has no type for Arrow's {arrow_type}: convert the field first")


def _time_of_day() -> spark.DataType:
    if TIME_TYPE is None:
        raise TypeError(
            "Spark has no type for times of day before version 4.1: convert the field first, for "
            "example to a string"
        )
    return TIME_TYPE()


def _spark_column(type_info: TypeInformation, column: Any) -> Any:
    """The column in a form that Spark reads; most need no conversion."""
    match _unwrapped(type_info):
        case BasicTypeInfo(basic_type=BasicType.BIG_INT):
            return _cast(type_info, column, pa.decimal128(38, 0))
        case BasicTypeInfo(basic_type=BasicType.BIG_DEC):
            return _decimals(type_info, column)
        case BasicTypeInfo(basic_type=BasicType.INSTANT):
            return _timestamps(type_info, column)
        case ArrowTypeInfo(arrow_type=arrow_type) if pa.types.is_uint64(arrow_type):
            return column.cast(pa.decimal128(20, 0))
        case ArrowTypeInfo(arrow_type=arrow_type) if pa.types.is_timestamp(arrow_type):
            return column.cast(pa.timestamp("us", tz=arrow_type.tz), safe=False)
        case ArrowTypeInfo(arrow_type=arrow_type) if pa.types.is_duration(arrow_type):
            return column.cast(pa.duration("us"), safe=False)
        case (BasicArrayTypeInfo() | ObjectArrayTypeInfo() | ListTypeInfo()) as elements:
            column = _without_offset(column)
            values = _spark_column(elements.element_type, column.values)
            return pa.ListArray.from_arrays(column.offsets, values, mask=_mask(column))
        case MapTypeInfo() as mapping:
            column = _without_offset(column)
            keys = _spark_column(mapping.key_type, column.keys)
            items = _spark_column(mapping.value_type, column.items)
            return pa.MapArray.from_arrays(column.offsets, keys, items, mask=_mask(column))
        case CompositeTypeInfo() as record:
            parts = [
                _spark_column(kind, column.field(position))
                for position, kind in enumerate(record.get_field_types())
            ]
            names = record.get_field_names()
            return pa.StructArray.from_arrays(parts, names=names, mask=_mask(column))
        case _:
            return column


def _without_offset(column: Any) -> Any:
    """The same values at the beginning of their memory: Arrow takes no mask for offsets within."""
    return column.take(np.arange(len(column))) if column.offset else column


def _mask(column: Any) -> Any:
    return column.is_null() if column.null_count else None


def _cast(type_info: TypeInformation, column: Any, arrow_type: pa.DataType) -> Any:
    try:
        return column.cast(arrow_type)
    except pa.ArrowInvalid as failure:
        raise TypeMismatch(str(type_info), f"<a column as {arrow_type}>", str(failure)) from None


def _decimals(type_info: TypeInformation, column: Any) -> Any:
    digits = column.flatten()[0].to_pylist()
    decimals = [None if text is None else Decimal(text) for text in digits]
    arrow_type = pa.decimal128(38, 18)
    try:
        return pa.array(decimals, arrow_type)
    except (pa.ArrowException, ValueError) as failure:
        raise TypeMismatch(str(type_info), f"<a column as {arrow_type}>", str(failure)) from None


def _timestamps(type_info: TypeInformation, column: Any) -> Any:
    seconds, nanos = column.flatten()
    try:
        micros = pc.add_checked(
            pc.multiply_checked(seconds, pa.scalar(1_000_000)),
            pc.divide(nanos, pa.scalar(1_000, pa.int32())),
        )
    except pa.ArrowInvalid as failure:
        raise TypeMismatch(str(type_info), "<a column of instants>", str(failure)) from None
    return micros.cast(pa.timestamp("us", tz="UTC"))
