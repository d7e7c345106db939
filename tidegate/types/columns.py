"""Converts single Python values (numbers, text, times) to an Arrow column and back.

A codec first tries to convert the whole column at once, in a way that rejects wrong values. If that
fails, it checks the values one by one: it converts those allowed (numpy scalars, None, whole floats
for integers) and explains why others are not.
"""

from __future__ import annotations

import datetime
import math
import operator
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from numbers import Number
from typing import Any, ClassVar, Final, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.errors import shorten
from tidegate.types.instant import Instant

_NONE_TYPE = type(None)


class Unfit(Exception):
    """A value is not of the declared type; the text is the reason."""


class ColumnCodec(ABC):
    """Converts between values and a column of `arrow_type`, without loss."""

    arrow_type: pa.DataType
    layout: tuple[Any, ...]
    """Equal for codecs that read each other's columns and return the same values."""
    none_is_a_record = True
    """Whether a stream of such values may contain None (a field always may)."""
    is_immutable = True
    """Whether the values may be shared by several records."""

    @abstractmethod
    def encode(self, values: Sequence[Any]) -> pa.Array[Any]:
        """Return the column; raises Unfit if a value is not of the type."""

    def decode(self, column: pa.Array[Any]) -> list[Any]:
        """Return the values of a column of `arrow_type`."""
        return column.to_pylist()

    def decode_any(self, column: pa.Array[Any]) -> list[Any]:
        """Return the values of a column in another physical form, such as dictionary-encoded."""
        if column.type == self.arrow_type:
            return self.decode(column)
        if isinstance(column, pa.DictionaryArray):
            if not self.is_immutable:
                return self.decode_any(column.dictionary_decode())
            # None is the last entry: index -1 selects it.
            entries = [*self.decode_any(column.dictionary), None]
            return list(map(entries.__getitem__, _whole_numbers(column.indices, absent=-1)))
        return self.decode(column.cast(self.arrow_type))


class NumberCodec(ColumnCodec):
    """Integers and floating-point numbers of fixed width."""

    none_is_a_record = False

    def __init__(self, name: str, arrow_type: pa.DataType, array_code: str) -> None:
        self.name = name
        self.arrow_type = arrow_type
        self.layout = (name,)
        self._array_code = array_code
        self._numpy_type = np.dtype(array_code)

    def encode(self, values: Sequence[Any]) -> pa.Array[Any]:
        try:
            # array() checks ranges, refuses floats as integers, and takes numpy scalars and bool.
            numbers = array(self._array_code, values)
        except (TypeError, OverflowError):
            return self._encode_one_by_one(values)
        return pa.Array.from_buffers(
            self.arrow_type, len(numbers), [None, pa.py_buffer(numbers)], null_count=0
        )

    def _encode_one_by_one(self, values: Sequence[Any]) -> pa.Array[Any]:
        absent = np.fromiter((value is None for value in values), np.bool_, len(values))
        filled = [0 if value is None else value for value in values]
        try:
            numbers = array(self._array_code, filled)
        except (TypeError, OverflowError):
            numbers = array(self._array_code, map(self._convert, filled))
        return pa.array(np.frombuffer(numbers, self._numpy_type), self.arrow_type, mask=absent)

    @abstractmethod
    def _convert(self, value: Any) -> Any: ...

    def decode(self, column: pa.Array[Any]) -> list[Any]:
        if column.null_count == 0:
            return column.to_numpy().tolist()  # type: ignore[no-any-return]
        return super().decode(column)


class IntegerCodec(NumberCodec):
    """Integers of 8 to 64 bits."""

    def __init__(self, name: str, bits: int) -> None:
        arrow_type = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]
        super().__init__(name, arrow_type, {8: "b", 16: "h", 32: "i", 64: "q"}[bits])
        self._least, self._most = -(1 << bits - 1), (1 << bits - 1) - 1

    def _convert(self, value: Any) -> int:
        number = _whole_number(value)
        if not self._least <= number <= self._most:
            wider = "Types.LONG()" if self.name != "LONG" else "Types.BIG_INT()"
            raise Unfit(
                f"{shorten(number, 80)} is outside the range of Types.{self.name}(), "
                f"{self._least} to {self._most}: declare {wider}"
            )
        return number


class FloatCodec(NumberCodec):
    """Floating-point numbers of 32 or 64 bits."""

    def __init__(self, name: str, bits: int) -> None:
        super().__init__(
            name, pa.float32() if bits == 32 else pa.float64(), "f" if bits == 32 else "d"
        )

    def encode(self, values: Sequence[Any]) -> pa.Array[Any]:
        column = super().encode(values)
        if self.arrow_type == pa.float32():
            self._check_range(values, pc.is_inf(column))
        return column

    @staticmethod
    def _check_range(values: Sequence[Any], infinite: pa.BooleanArray) -> None:
        if pc.any(infinite).as_py():
            for value, is_infinite in zip(values, infinite.to_pylist(), strict=True):
                if is_infinite and not math.isinf(value):
                    raise Unfit(
                        f"{shorten(value, 80)} is outside the range of Types.FLOAT(): declare "
                        "Types.DOUBLE()"
                    )

    def _convert(self, value: Any) -> float:
        if not isinstance(value, Number | np.bool_):
            raise Unfit(f"{_described(value)}, expected a number")
        try:
            return float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            raise Unfit(f"{_described(value)}, which no float represents") from None


class BooleanCodec(ColumnCodec):
    """True and False; the numbers 1 and 0 are accepted."""

    none_is_a_record = False
    arrow_type = pa.bool_()
    layout = ("BOOLEAN",)

    def encode(self, values: Sequence[Any]) -> pa.Array[Any]:
        try:
            return pa.array(values, self.arrow_type)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            return pa.array(list(map(self._convert, values)), self.arrow_type)

    @staticmethod
    def _convert(value: Any) -> bool | None:
        if value is None:
            return None
        if isinstance(value, Number | np.bool_) and value in (0, 1):
            return bool(value)
        raise Unfit(f"{_described(value)}, expected True or False")

    def decode(self, column: pa.Array[Any]) -> list[Any]:
        if column.null_count == 0:
            return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
        return column.to_pylist()


class TextCodec(ColumnCodec):
    arrow_type = pa.string()

    def __init__(self, name: str, *, none_is_a_record: bool) -> None:
        self.layout = (name,)
        self.none_is_a_record = none_is_a_record

    def encode(self, values: Sequence[Any]) -> pa.Array[Any]:
        try:
            # Arrow would accept bytes as text. Joining is the fastest check that all values are
            # str.
            "".join(values)
        except TypeError:
            require(values, str, "a str")
        try:
            return pa.array(values, self.arrow_type)
        except UnicodeEncodeError as failure:
            raise Unfit(f"it is not valid Unicode: {failure}") from None


class BytesCodec(ColumnCodec):
    """Bytes; `bytearray` and `memoryview` become `bytes`."""

    arrow_type = pa.binary()
    layout = ("BYTES",)

    def encode(self, values: Sequence[Any]) -> pa.Array[Any]:
        require(values, (bytes, bytearray, memoryview), "bytes")
        return pa.array(values, self.arrow_type)


class BigIntegerCodec(ColumnCodec):
    """Integers of up to 76 digits; most fit 64 bits, and are converted as such."""

    arrow_type = pa.decimal256(76, 0)
    layout = ("BIG_INT",)
    _LIMIT = 10**76

    def encode(self, values: Sequence[Any]) -> pa.Array[Any]:
        try:
            return pa.array(np.asarray(array("q", values)), pa.int64()).cast(self.arrow_type)
        except (TypeError, OverflowError):
            return pa.array(
                [None if v is None else self._convert(v) for v in values], self.arrow_type
            )

    def _convert(self, value: Any) -> int:
        number = _whole_number(value)
        if not -self._LIMIT < number < self._LIMIT:
            raise Unfit("it has more than 76 digits: omit the type to keep it")
        return number

    def decode(self, column: pa.Array[Any]) -> list[Any]:
        try:
            return column.cast(pa.int64()).to_pylist()
        except pa.ArrowInvalid:
            return [None if v is None else int(v) for v in column.to_pylist()]


class BigDecimalCodec(ColumnCodec):
    """Decimals of any precision, stored digit by digit.

    The digits are wrapped in a struct so that nothing mistakes the column for text, which compares
    and hashes differently.
    """

    _DIGITS = pa.field("decimal", pa.string())
    arrow_type = pa.struct([_DIGITS])
    layout = ("BIG_DEC",)

    def encode(self, values: Sequence[Any]) -> pa.Array[Any]:
        digits = pa.array([None if v is None else self._digits(v) for v in values], pa.string())
        mask = digits.is_null() if digits.null_count else None
        return pa.StructArray.from_arrays([digits], fields=[self._DIGITS], mask=mask)

    @staticmethod
    def _digits(value: Any) -> str:
        if isinstance(value, Decimal):
            return str(value)
        if isinstance(value, Number) and not isinstance(value, bool):
            try:
                return str(Decimal(str(value)))
            except InvalidOperation:
                pass
        raise Unfit(f"{_described(value)}, expected a Decimal")

    def decode(self, column: pa.Array[Any]) -> list[Any]:
        assert isinstance(column, pa.StructArray)
        digits: list[Any] = column.flatten()[0].to_pylist()
        if column.null_count == 0:
            return list(map(Decimal, digits))
        return [None if text is None else Decimal(text) for text in digits]


class DateCodec(ColumnCodec):
    """Dates; a `datetime` is reduced to its date, as in PyFlink."""

    arrow_type = pa.date32()
    layout = ("DATE",)

    def encode(self, values: Sequence[Any]) -> pa.Array[Any]:
        require(values, datetime.date, "a datetime.date")
        return pa.array(values, self.arrow_type)


class ZonelessTimeCodec(ColumnCodec):
    """Times of day, and dates with time, without a zone; to the microsecond."""

    def __init__(
        self,
        name: str,
        arrow_type: pa.DataType,
        python_type: type[datetime.time | datetime.datetime],
    ) -> None:
        self.layout = (name,)
        self.arrow_type = arrow_type
        self._python_type = python_type

    def encode(self, values: Sequence[Any]) -> pa.Array[Any]:
        require(values, self._python_type, f"a datetime.{self._python_type.__name__}")
        for value in values:
            if value is not None and value.tzinfo is not None:
                raise Unfit(
                    f"{value!r} has a time zone, which this type does not keep: remove it with "
                    ".replace(tzinfo=None), or declare the field with the Arrow type "
                    "pa.timestamp('us', tz='UTC')"
                )
        return pa.array(values, self.arrow_type)


class InstantCodec(ColumnCodec):
    """Instants, in two parts as in Flink: Arrow's nanoseconds only cover 1677 to 2262."""

    _FIELDS: ClassVar[list[pa.Field[Any]]] = [
        pa.field("seconds", pa.int64()),
        pa.field("nanos", pa.int32()),
    ]
    arrow_type = pa.struct(_FIELDS)
    layout = ("INSTANT",)

    def encode(self, values: Sequence[Any]) -> pa.Array[Any]:
        require(values, Instant, "an Instant")
        absent = np.fromiter((value is None for value in values), np.bool_, len(values))
        try:
            parts: list[pa.Array[Any]] = [
                pa.array([0 if v is None else v.seconds for v in values], pa.int64()),
                pa.array([0 if v is None else v.nanos for v in values], pa.int32()),
            ]
        except (pa.ArrowInvalid, OverflowError) as failure:
            raise Unfit(f"it is too far from 1970: {failure}") from None
        return pa.StructArray.from_arrays(parts, fields=self._FIELDS, mask=pa.array(absent))

    def decode(self, column: pa.Array[Any]) -> list[Any]:
        assert isinstance(column, pa.StructArray)
        pairs: Iterable[tuple[Any, Any]]
        pairs = zip(*(part.to_pylist() for part in column.flatten()), strict=True)
        return [None if seconds is None else Instant(seconds, nanos) for seconds, nanos in pairs]


class ArrowValueCodec(ColumnCodec):
    """Values of any Arrow type, converted by pyarrow."""

    def __init__(self, arrow_type: pa.DataType) -> None:
        self.arrow_type = arrow_type
        self.layout = ("arrow", arrow_type)
        self.is_immutable = not pa.types.is_nested(arrow_type)

    def encode(self, values: Sequence[Any]) -> pa.Array[Any]:
        kind = self.arrow_type
        # Arrow would cut fractions, drop zones and take numbers for times.
        if pa.types.is_integer(kind):
            values = [None if value is None else _whole_number(value) for value in values]
        elif pa.types.is_temporal(kind):
            self._check_times(values)
        try:
            column: pa.Array[Any] = pa.array(values, _in_microseconds(kind))
            return column.cast(kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as failure:
            raise Unfit(f"Arrow cannot convert it to {kind}: {failure}") from None

    def _check_times(self, values: Sequence[Any]) -> None:
        kind: Any = self.arrow_type
        for is_kind, expected in _PYTHON_TIMES:
            if is_kind(kind):
                require(values, expected, f"a {expected[0].__name__}")
        if pa.types.is_timestamp(kind) and kind.tz is None:
            for value in values:
                if getattr(value, "tzinfo", None) is not None:
                    raise Unfit(f"{value!r} has a time zone, which this type does not keep")


_PYTHON_TIMES: Final[list[tuple[Any, tuple[type, ...]]]] = [
    (pa.types.is_timestamp, (datetime.datetime, datetime.date, np.datetime64)),
    (pa.types.is_date, (datetime.date, np.datetime64)),
    (pa.types.is_time, (datetime.time,)),
    (pa.types.is_duration, (datetime.timedelta, np.timedelta64)),
]


_LONG_UNITS: Final = ("s", "ms")


def _in_microseconds(kind: Any) -> Any:
    """The type itself, or for times in longer units one that keeps all of Python's digits."""
    is_ = pa.types
    if is_.is_time32(kind):
        return pa.time64("us")
    if is_.is_timestamp(kind) and kind.unit in _LONG_UNITS:
        return pa.timestamp("us", kind.tz)
    if is_.is_duration(kind) and kind.unit in _LONG_UNITS:
        return pa.duration("us")
    return kind


def is_text(kind: pa.DataType) -> bool:
    """Whether a column contains text, in any of Arrow's forms."""
    return (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def is_binary(kind: pa.DataType) -> bool:
    """Whether a column contains bytes, in any form."""
    return (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def is_list(kind: pa.DataType) -> TypeGuard[pa.ListType[Any]]:
    """Whether a column contains lists, in any form."""
    return (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def require(values: Sequence[Any], kind: type | tuple[type, ...], expected: str) -> None:
    for found in set(map(type, values)):
        if found is not _NONE_TYPE and not issubclass(found, kind):
            value = next(value for value in values if type(value) is found)
            raise Unfit(f"{_described(value)}, expected {expected}")


def _whole_number(value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        pass
    if not isinstance(value, Number | np.bool_):
        raise Unfit(f"{_described(value)}, expected an integer")
    try:
        number = int(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or number != value:
        raise Unfit(f"{value!r} is not a whole number: round it, or declare Types.DOUBLE()")
    return int(number)


def _whole_numbers(column: pa.Array[Any], absent: int) -> list[int]:
    if column.null_count:
        column = column.cast(pa.int64()).fill_null(absent)
    return column.to_numpy().tolist()  # type: ignore[no-any-return]


def _described(value: object) -> str:
    if value is None:
        return "it is None"
    return f"{shorten(value, 80)} is of type {type(value).__name__}"
