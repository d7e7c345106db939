"""Converts records to Arrow record batches and back."""

from __future__ import annotations

import datetime
import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from tidegate.core.errors import MissingField, TypeMismatch
from tidegate.types.columns import (
    ArrowValueCodec,
    BigDecimalCodec,
    BigIntegerCodec,
    BooleanCodec,
    BytesCodec,
    ColumnCodec,
    DateCodec,
    FloatCodec,
    InstantCodec,
    IntegerCodec,
    TextCodec,
    Unfit,
    ZonelessTimeCodec,
)
from tidegate.types.exact_cast import cast_exactly
from tidegate.types.nested import ListCodec, MapCodec, StructCodec
from tidegate.types.records import (
    DataclassShape,
    NamedTupleShape,
    RecordShape,
    RowShape,
    TupleShape,
)
from tidegate.types.typeinfo import (
    ArrowTypeInfo,
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    CompositeTypeInfo,
    DataclassTypeInfo,
    DateTypeInfo,
    ExternalTypeInfo,
    ListTypeInfo,
    LocalTimeTypeInfo,
    MapTypeInfo,
    NamedTupleTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)

VALUE_COLUMN = "value"
"""The name of the only column of a stream of single values."""


class ArrowFormat:
    """How the records of a typed stream become columns.

    Two formats are equal if each reads the other's batches and returns the same records. Unlike in
    `RowTypeInfo`, the names of fields therefore count.
    """

    __slots__ = (
        "_codec",
        "_hash",
        "field_names",
        "is_scalar",
        "plain_class",
        "schema",
        "type_info",
    )

    def __init__(self, type_info: TypeInformation, codec: ColumnCodec) -> None:
        self.type_info = type_info
        self._codec = codec
        self.is_scalar = not isinstance(codec, StructCodec)
        """Whether a record is a single value: a number, text, a list or a map."""
        if isinstance(codec, StructCodec):
            self.field_names = codec.shape.names
            self.schema = pa.schema(codec.arrow_fields)
        else:
            self.field_names = (VALUE_COLUMN,)
            self.schema = pa.schema([pa.field(VALUE_COLUMN, codec.arrow_type)])
        self._hash = hash(codec.layout)
        self.plain_class = _plain_class(codec)
        """The class of the records, if neither they nor anything in them can change."""

    def encode(self, records: Sequence[Any]) -> pa.RecordBatch:
        """Return the records as columns; raises TypeMismatch for the first that does not fit."""
        try:
            return self._encode(records)
        except Unfit as unfit:
            record, reason = self._first_unfit(records, str(unfit))
        raise TypeMismatch(str(self.type_info), record, reason)

    def _encode(self, records: Sequence[Any]) -> pa.RecordBatch:
        codec = self._codec
        if isinstance(codec, StructCodec):
            columns = codec.encode_fields(records)
        else:
            columns = [codec.encode(records)]
            if columns[0].null_count and not codec.none_is_a_record:
                raise Unfit("a stream of this type has no None: return a value, or filter first")
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _first_unfit(self, records: Sequence[Any], reason: str) -> tuple[Any, str]:
        first, count = 0, len(records)
        while count > 1:
            half = count // 2
            try:
                self._encode(records[first : first + half])
            except Unfit as unfit:
                count, reason = half, str(unfit)
            else:
                first, count = first + half, count - half
        try:
            self._encode(records[first : first + 1])
        except Unfit as unfit:
            reason = str(unfit)
        return records[first], reason

    def decode(
        self, batch: pa.RecordBatch, known: Mapping[int, list[Any]] | None = None
    ) -> list[Any]:
        """Return the records of a batch with the columns of `schema`, in whatever encoding.

        `known` are fields that have been decoded already.
        """
        codec = self._codec
        with collector_paused():
            if isinstance(codec, StructCodec):
                return codec.decode_fields(batch.columns, known or {})
            return known[0] if known else codec.decode_any(batch.column(0))

    def decode_field(self, batch: pa.RecordBatch, position: int) -> list[Any]:
        """Return the values of one field of the records; of a stream of single values, those."""
        codec = self._codec
        field = codec.fields[position] if isinstance(codec, StructCodec) else codec
        return field.decode_any(batch.column(position))

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert foreign columns to the order and the types of `schema`, without loss.

        Raises:
            MissingField: A field has no column.
            TypeMismatch: A value of a column would change.
        """
        if batch.schema.equals(self.schema):
            return batch
        return pa.RecordBatch.from_arrays(
            [self._conformed(batch, field) for field in self.schema], schema=self.schema
        )

    def _conformed(self, batch: pa.RecordBatch, field: pa.Field[Any]) -> pa.Array[Any]:
        available = tuple(batch.schema.names)
        if self.is_scalar and len(available) == 1:
            column = batch.column(0)
        elif field.name in available:
            column = batch.column(available.index(field.name))
        else:
            raise MissingField(field.name, available, f"a batch for {self.type_info}")
        try:
            return cast_exactly(column, field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as failure:
            found = f"<the column {field.name!r} of type {column.type}>"
            raise TypeMismatch(str(self.type_info), found, str(failure)) from None

    def column_of(self, field: int | str) -> int:
        """The position of the column of a field; raises MissingField if there is none."""
        if isinstance(field, str):
            if field in self.field_names:
                return self.field_names.index(field)
        elif 0 <= field < len(self.field_names):
            return field
        raise MissingField(field, self.field_names, str(self.type_info))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, ArrowFormat)
            and self._hash == other._hash
            and self._codec.layout == other._codec.layout
            and self.field_names == other.field_names
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"ArrowFormat({self.type_info})"

    def __reduce__(self) -> tuple[Any, ...]:
        return arrow_format, (self.type_info,)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause cyclic garbage collection: it runs every 700 objects and costs more than they do."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _plain_class(codec: ColumnCodec) -> type | None:
    if not isinstance(codec, StructCodec):
        return None
    # Bytes may still be a bytearray.
    if not all(field.is_immutable and not isinstance(field, BytesCodec) for field in codec.fields):
        return None
    match codec.shape:
        case TupleShape():
            return tuple
        case NamedTupleShape(record_class=record_class):
            return record_class
        case _:
            return None


def arrow_format(type_info: TypeInformation | None) -> ArrowFormat | None:
    """The columns for a type; None if there is no type, or (parts of) its records are pickled."""
    codec = None if type_info is None else _codec_of(type_info)
    return None if type_info is None or codec is None else ArrowFormat(type_info, codec)


def _codec_of(type_info: TypeInformation) -> ColumnCodec | None:
    match type_info:
        case BasicTypeInfo():
            return _BASIC[type_info.basic_type]
        case DateTypeInfo():
            return DateCodec()
        case TimeTypeInfo():
            return _TIME
        case TimestampTypeInfo():
            return _TIMESTAMP
        case LocalTimeTypeInfo():
            return _LOCAL_TIME[type_info.time_type]
        case ArrowTypeInfo():
            return ArrowValueCodec(type_info.arrow_type)
        case ExternalTypeInfo():
            return _codec_of(type_info.type_info)
        case PrimitiveArrayTypeInfo(element_type=BasicTypeInfo(basic_type=BasicType.BYTE)):
            return BytesCodec()
        case (
            PrimitiveArrayTypeInfo() | BasicArrayTypeInfo() | ObjectArrayTypeInfo() | ListTypeInfo()
        ):
            element = _codec_of(type_info.element_type)
            may_be_none = not isinstance(type_info, PrimitiveArrayTypeInfo)
            return element and ListCodec(element, none_is_an_element=may_be_none)
        case MapTypeInfo():
            key, value = _codec_of(type_info.key_type), _codec_of(type_info.value_type)
            return key and value and MapCodec(key, value)
        case CompositeTypeInfo():
            return _struct_codec(type_info)
        case _:
            return None


def _struct_codec(type_info: CompositeTypeInfo) -> StructCodec | None:
    fields = [_codec_of(field_type) for field_type in type_info.get_field_types()]
    known = [codec for codec in fields if codec is not None]
    # A batch without columns would not know its number of records.
    if not fields or len(known) < len(fields):
        return None
    names = tuple(type_info.get_field_names())
    shape: RecordShape
    match type_info:
        case RowTypeInfo():
            shape = RowShape(names)
        case TupleTypeInfo():
            shape = TupleShape(names)
        case DataclassTypeInfo(record_class=record_class):
            # Only pickle can restore classes that are constructed differently, such as subclasses
            # of dict.
            own_constructor: object = record_class.__new__
            if own_constructor is not object.__new__:
                return None
            shape = DataclassShape(record_class, names)
        case NamedTupleTypeInfo():
            shape = NamedTupleShape(type_info.record_class, names)
        case _:
            return None
    return StructCodec(shape, known)


_TIME = ZonelessTimeCodec("TIME", pa.time64("us"), datetime.time)
_TIMESTAMP = ZonelessTimeCodec("TIMESTAMP", pa.timestamp("us"), datetime.datetime)
_BASIC: dict[BasicType, ColumnCodec] = {
    BasicType.STRING: TextCodec("STRING", none_is_a_record=True),
    BasicType.CHAR: TextCodec("CHAR", none_is_a_record=False),
    BasicType.BOOLEAN: BooleanCodec(),
    BasicType.BYTE: IntegerCodec("BYTE", bits=8),
    BasicType.SHORT: IntegerCodec("SHORT", bits=16),
    BasicType.INT: IntegerCodec("INT", bits=32),
    BasicType.LONG: IntegerCodec("LONG", bits=64),
    BasicType.FLOAT: FloatCodec("FLOAT", bits=32),
    BasicType.DOUBLE: FloatCodec("DOUBLE", bits=64),
    BasicType.BIG_INT: BigIntegerCodec(),
    BasicType.BIG_DEC: BigDecimalCodec(),
    BasicType.INSTANT: InstantCodec(),
}
_LOCAL_TIME: dict[LocalTimeTypeInfo.TimeType, ColumnCodec] = {
    LocalTimeTypeInfo.TimeType.LOCAL_DATE: DateCodec(),
    LocalTimeTypeInfo.TimeType.LOCAL_TIME: _TIME,
    LocalTimeTypeInfo.TimeType.LOCAL_DATE_TIME: _TIMESTAMP,
}
