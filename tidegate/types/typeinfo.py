"""The types of records: `Types` and the type information that it creates, as in PyFlink.

Two declarations are equal if values of the one are values of the other. As in PyFlink, the names of
a row's fields do not count: `Types.ROW([t])` equals `Types.ROW_NAMED(["a"], [t])`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar

import pyarrow as pa

__all__ = [
    "BasicArrayTypeInfo",
    "BasicType",
    "BasicTypeInfo",
    "DateTypeInfo",
    "ExternalTypeInfo",
    "InstantTypeInfo",
    "ListTypeInfo",
    "LocalTimeTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "SqlTimeTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
]


class TypeInformation:
    """The type of a record, a field or a state value."""

    _identity: tuple[Any, ...]
    """The basis of equality and hash; it excludes the names of fields."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeInformation) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return type(self).__name__


class BasicType(Enum):
    """The types of single values; the enum value is the Java class name, which Flink shows."""

    STRING = "String"
    BYTE = "Byte"
    BOOLEAN = "Boolean"
    SHORT = "Short"
    INT = "Integer"
    LONG = "Long"
    FLOAT = "Float"
    DOUBLE = "Double"
    CHAR = "Char"
    BIG_INT = "BigInteger"
    BIG_DEC = "BigDecimal"
    INSTANT = "Instant"


def _maker(basic_type: BasicType) -> staticmethod[[], BasicTypeInfo]:
    """PyFlink's names for the basic types."""
    if basic_type is BasicType.INSTANT:
        return staticmethod(lambda: InstantTypeInfo(basic_type))
    return staticmethod(lambda: BasicTypeInfo(basic_type))


class BasicTypeInfo(TypeInformation):
    """A single value: a number, text or a boolean."""

    def __init__(self, basic_type: BasicType) -> None:
        self.basic_type = basic_type
        self._identity = ("basic", basic_type.value)

    def __repr__(self) -> str:
        return self.basic_type.value

    STRING_TYPE_INFO = _maker(BasicType.STRING)
    BOOLEAN_TYPE_INFO = _maker(BasicType.BOOLEAN)
    BYTE_TYPE_INFO = _maker(BasicType.BYTE)
    SHORT_TYPE_INFO = _maker(BasicType.SHORT)
    INT_TYPE_INFO = _maker(BasicType.INT)
    LONG_TYPE_INFO = _maker(BasicType.LONG)
    FLOAT_TYPE_INFO = _maker(BasicType.FLOAT)
    DOUBLE_TYPE_INFO = _maker(BasicType.DOUBLE)
    CHAR_TYPE_INFO = _maker(BasicType.CHAR)
    BIG_INT_TYPE_INFO = _maker(BasicType.BIG_INT)
    BIG_DEC_TYPE_INFO = _maker(BasicType.BIG_DEC)
    INSTANT_TYPE_INFO = _maker(BasicType.INSTANT)


class InstantTypeInfo(BasicTypeInfo):
    """An `Instant`: a point on the time line to the nanosecond."""


class SqlTimeTypeInfo(TypeInformation):
    """Dates and times without a zone: the common base of the three kinds."""

    @staticmethod
    def DATE() -> DateTypeInfo:
        return DateTypeInfo()

    @staticmethod
    def TIME() -> TimeTypeInfo:
        return TimeTypeInfo()

    @staticmethod
    def TIMESTAMP() -> TimestampTypeInfo:
        return TimestampTypeInfo()


class DateTypeInfo(SqlTimeTypeInfo):
    """A `datetime.date`."""

    _identity = ("date",)


class TimeTypeInfo(SqlTimeTypeInfo):
    """A `datetime.time` without a zone."""

    _identity = ("time",)


class TimestampTypeInfo(SqlTimeTypeInfo):
    """A `datetime.datetime` without a zone."""

    _identity = ("timestamp",)


class LocalTimeTypeInfo(TypeInformation):
    """Java's local dates and times; in Python, the same values as for SQL types."""

    class TimeType(Enum):
        """Which of the three."""

        LOCAL_DATE = 0
        LOCAL_TIME = 1
        LOCAL_DATE_TIME = 2

    def __init__(self, time_type: TimeType) -> None:
        self.time_type = time_type
        self._identity = ("local time", time_type.name)

    def __repr__(self) -> str:
        return f"LocalTimeTypeInfo<{self.time_type.name}>"


class PickledBytesTypeInfo(TypeInformation):
    """Any Python object, pickled: the type of a stream that declares none."""

    _identity = ("pickled",)

    def __repr__(self) -> str:
        return "PickledByteArrayTypeInfo"


class ArrowTypeInfo(TypeInformation):
    """A value of an Arrow type that `Types` has no name for, such as `decimal128(10, 2)`."""

    def __init__(self, arrow_type: pa.DataType) -> None:
        if pa.types.is_string_view(arrow_type) or pa.types.is_binary_view(arrow_type):
            raise TypeError(
                f"Arrow cannot select rows of {arrow_type}: declare Types.STRING() or "
                "Types.PRIMITIVE_ARRAY(Types.BYTE()), to which such columns are converted"
            )
        self.arrow_type = arrow_type
        self._identity = ("arrow", arrow_type)

    def __repr__(self) -> str:
        return f"ArrowTypeInfo<{self.arrow_type}>"


class ExternalTypeInfo(TypeInformation):
    """A type with another class in Flink's tables; its values are those of `type_info`."""

    def __init__(self, type_info: TypeInformation) -> None:
        self.type_info = _checked(type_info)
        self._identity = ("external", type_info._identity)

    def __repr__(self) -> str:
        return f"ExternalTypeInfo<{self.type_info}>"


class _ElementsTypeInfo(TypeInformation):
    """A sequence of values of one type; a list in Python."""

    def __init__(self, element_type: TypeInformation) -> None:
        self.element_type = _checked(element_type)
        self._identity = (type(self).__name__, element_type._identity)

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{self.element_type}>"


class PrimitiveArrayTypeInfo(_ElementsTypeInfo):
    """A list of numbers, booleans or characters without None; `bytes` for BYTE."""

    _ELEMENTS: ClassVar = frozenset(
        {
            BasicType.BOOLEAN,
            BasicType.BYTE,
            BasicType.SHORT,
            BasicType.INT,
            BasicType.LONG,
            BasicType.FLOAT,
            BasicType.DOUBLE,
            BasicType.CHAR,
        }
    )

    def __init__(self, element_type: TypeInformation) -> None:
        super().__init__(element_type)
        _check_element(element_type, self._ELEMENTS, "Types.PRIMITIVE_ARRAY")


class BasicArrayTypeInfo(_ElementsTypeInfo):
    """A list of numbers, booleans, characters or strings, which may contain None."""

    _ELEMENTS: ClassVar = PrimitiveArrayTypeInfo._ELEMENTS | {BasicType.STRING}

    def __init__(self, element_type: TypeInformation) -> None:
        super().__init__(element_type)
        _check_element(element_type, self._ELEMENTS, "Types.BASIC_ARRAY")


class ObjectArrayTypeInfo(_ElementsTypeInfo):
    """A list of values of any type, which may contain None."""


class ListTypeInfo(_ElementsTypeInfo):
    """A list of values of any type, which may contain None."""

    @property
    def elem_type(self) -> TypeInformation:
        return self.element_type


class MapTypeInfo(TypeInformation):
    """A dict; values may be None, keys may not."""

    def __init__(self, key_type_info: TypeInformation, value_type_info: TypeInformation) -> None:
        self.key_type = _checked(key_type_info)
        self.value_type = _checked(value_type_info)
        self._identity = ("map", key_type_info._identity, value_type_info._identity)

    def __repr__(self) -> str:
        return f"MapTypeInfo<{self.key_type}, {self.value_type}>"


class CompositeTypeInfo(TypeInformation):
    """A record of fields, each with a name and a type."""

    def __init__(
        self, kind: str, field_types: Sequence[TypeInformation], field_names: Sequence[str] | None
    ) -> None:
        self._field_types = tuple(map(_checked, field_types))
        if field_names is None:
            self._field_names = tuple(f"f{i}" for i in range(len(self._field_types)))
        else:
            self._field_names = _checked_names(field_names, len(self._field_types))
        self._identity = (kind, *(field_type._identity for field_type in self._field_types))

    def get_field_names(self) -> list[str]:
        """The names of the fields; f0, f1, ... by default."""
        return list(self._field_names)

    def get_field_types(self) -> list[TypeInformation]:
        return list(self._field_types)

    def get_field_index(self, field_name: str) -> int:
        """The position of a field; raises ValueError if there is none of this name."""
        if field_name not in self._field_names:
            known = ", ".join(self._field_names) or "none"
            raise ValueError(f"no field {field_name!r}; the fields are: {known}")
        return self._field_names.index(field_name)

    def _named_types(self) -> str:
        pairs = zip(self._field_names, self._field_types, strict=True)
        return ", ".join(f"{name}: {field_type}" for name, field_type in pairs)


class RowTypeInfo(CompositeTypeInfo):
    """A `Row`."""

    def __init__(
        self,
        field_types: Sequence[TypeInformation],
        field_names: Sequence[str] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__("row", field_types, field_names)
        self.has_names = field_names is not None
        self._defaults = dict(defaults or {})
        for name, value in self._defaults.items():
            self._check_default(name, value)

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The values that rows of older state get in new fields; None if no default is set."""
        return MappingProxyType(self._defaults)

    def _check_default(self, name: str, value: Any) -> None:
        from tidegate.types.arrow import arrow_format  # which imports this module

        format = arrow_format(TupleTypeInfo([self._field_types[self.get_field_index(name)]]))
        if format is not None:
            format.encode([(value,)])

    def __repr__(self) -> str:
        if self.has_names:
            return f"RowTypeInfo({self._named_types()})"
        return f"RowTypeInfo({', '.join(map(str, self._field_types))})"


class TupleTypeInfo(CompositeTypeInfo):
    """A tuple of fixed length."""

    def __init__(self, field_types: Sequence[TypeInformation]) -> None:
        super().__init__("tuple", field_types, None)

    def __repr__(self) -> str:
        return f"TupleTypeInfo({', '.join(map(str, self._field_types))})"


class RecordClassTypeInfo(CompositeTypeInfo):
    """Instances of a user class that declares its fields."""

    def __init__(
        self,
        record_class: type[Any],
        field_names: Sequence[str],
        field_types: Sequence[TypeInformation],
    ) -> None:
        super().__init__(type(self).__name__, field_types, field_names)
        self.record_class = record_class
        self._identity = (*self._identity, record_class, self._field_names)

    def __repr__(self) -> str:
        return f"{self.record_class.__qualname__}({self._named_types()})"


class DataclassTypeInfo(RecordClassTypeInfo):
    """Instances of a dataclass."""


class NamedTupleTypeInfo(RecordClassTypeInfo):
    """Instances of a named tuple."""


class Types:
    """Creates the type information of common types.

    Every field of a row or tuple may be None, and so may records of a stream of STRING, BIG_INT,
    BIG_DEC, INSTANT or SQL times; a stream of the other basic types has no None.
    """

    @staticmethod
    def STRING() -> TypeInformation:
        """Text."""
        return BasicTypeInfo.STRING_TYPE_INFO()

    @staticmethod
    def BYTE() -> TypeInformation:
        """A signed 8-bit integer."""
        return BasicTypeInfo.BYTE_TYPE_INFO()

    @staticmethod
    def BOOLEAN() -> TypeInformation:
        """True or False."""
        return BasicTypeInfo.BOOLEAN_TYPE_INFO()

    @staticmethod
    def SHORT() -> TypeInformation:
        """A signed 16-bit integer."""
        return BasicTypeInfo.SHORT_TYPE_INFO()

    @staticmethod
    def INT() -> TypeInformation:
        """A signed 32-bit integer."""
        return BasicTypeInfo.INT_TYPE_INFO()

    @staticmethod
    def LONG() -> TypeInformation:
        """A signed 64-bit integer."""
        return BasicTypeInfo.LONG_TYPE_INFO()

    @staticmethod
    def FLOAT() -> TypeInformation:
        """A 32-bit floating-point number."""
        return BasicTypeInfo.FLOAT_TYPE_INFO()

    @staticmethod
    def DOUBLE() -> TypeInformation:
        """A 64-bit floating-point number: Python's float."""
        return BasicTypeInfo.DOUBLE_TYPE_INFO()

    @staticmethod
    def CHAR() -> TypeInformation:
        """A character; as in PyFlink, its length is not checked."""
        return BasicTypeInfo.CHAR_TYPE_INFO()

    @staticmethod
    def BIG_INT() -> TypeInformation:
        """An integer of any size."""
        return BasicTypeInfo.BIG_INT_TYPE_INFO()

    @staticmethod
    def BIG_DEC() -> TypeInformation:
        """A `decimal.Decimal`, stored digit by digit."""
        return BasicTypeInfo.BIG_DEC_TYPE_INFO()

    @staticmethod
    def INSTANT() -> TypeInformation:
        """An `Instant`."""
        return BasicTypeInfo.INSTANT_TYPE_INFO()

    @staticmethod
    def SQL_DATE() -> TypeInformation:
        """A `datetime.date`."""
        return SqlTimeTypeInfo.DATE()

    @staticmethod
    def SQL_TIME() -> TypeInformation:
        """A `datetime.time` without a zone."""
        return SqlTimeTypeInfo.TIME()

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:
        """A `datetime.datetime` without a zone."""
        return SqlTimeTypeInfo.TIMESTAMP()

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        """Any Python object."""
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: Sequence[TypeInformation]) -> RowTypeInfo:
        """A `Row` with fields named f0, f1, ..."""
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(
        field_names: Sequence[str],
        field_types: Sequence[TypeInformation],
        defaults: Mapping[str, Any] | None = None,
    ) -> RowTypeInfo:
        """A `Row` with the given names.

        `defaults` are for state: rows that were stored without a field get its default, or None,
        when they are restored.
        """
        return RowTypeInfo(field_types, field_names, defaults)

    @staticmethod
    def TUPLE(field_types: Sequence[TypeInformation]) -> TupleTypeInfo:
        """A tuple with one type for each position."""
        return TupleTypeInfo(field_types)

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """A list of a basic type without None; `bytes` for BYTE."""
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """A list of a basic type."""
        return BasicArrayTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """A list of any type."""
        return ObjectArrayTypeInfo(element_type)

    @staticmethod
    def MAP(key_type_info: TypeInformation, value_type_info: TypeInformation) -> TypeInformation:
        """A dict."""
        return MapTypeInfo(key_type_info, value_type_info)

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> TypeInformation:
        """A list of any type."""
        return ListTypeInfo(element_type_info)


def elements_of(type_info: TypeInformation) -> TypeInformation | None:
    """The type of the elements, if it is a list."""
    return type_info.element_type if isinstance(type_info, _ElementsTypeInfo) else None


def _checked(candidate: object) -> TypeInformation:
    if isinstance(candidate, TypeInformation):
        return candidate
    name = getattr(candidate, "__name__", "")
    if callable(candidate) and getattr(Types, name, None) is candidate:
        raise TypeError(f"Types.{name} is a function: write Types.{name}()")
    raise TypeError(f"expected a type such as Types.STRING(), got {candidate!r}")


def _checked_names(names: Sequence[str], count: int) -> tuple[str, ...]:
    if isinstance(names, str):
        raise TypeError(f"expected a list of field names, got the string {names!r}")
    if len(names) != count:
        raise ValueError(f"{len(names)} field names for {count} field types: {list(names)}")
    repeated = sorted({name for name in names if list(names).count(name) > 1})
    if repeated:
        raise ValueError(f"field names must differ, repeated: {', '.join(repeated)}")
    return tuple(names)


def _check_element(
    element_type: TypeInformation, allowed: frozenset[BasicType], factory: str
) -> None:
    if isinstance(element_type, BasicTypeInfo) and element_type.basic_type in allowed:
        return
    names = ", ".join(basic_type.name for basic_type in BasicType if basic_type in allowed)
    raise TypeError(
        f"{factory} contains one of {names}, not {element_type}: use Types.OBJECT_ARRAY for others"
    )
