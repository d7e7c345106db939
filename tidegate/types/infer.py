"""Derives type information from declarations: classes, Python types, schemas."""

from __future__ import annotations

import dataclasses
import datetime
import types
import typing
from collections.abc import Iterable
from decimal import Decimal
from typing import Annotated, Any, Union, get_args, get_origin

import pyarrow as pa

from tidegate.types.columns import is_list
from tidegate.types.instant import Instant
from tidegate.types.typeinfo import (
    ArrowTypeInfo,
    DataclassTypeInfo,
    NamedTupleTypeInfo,
    RowTypeInfo,
    TypeInformation,
    Types,
)

__all__ = ["as_type_info", "type_info_of_arrow", "typed_schema_from_arrow"]

_PYTHON_TYPES: dict[type, TypeInformation] = {
    bool: Types.BOOLEAN(),
    int: Types.LONG(),
    float: Types.DOUBLE(),
    str: Types.STRING(),
    bytes: Types.PRIMITIVE_ARRAY(Types.BYTE()),
    Decimal: Types.BIG_DEC(),
    datetime.date: Types.SQL_DATE(),
    datetime.time: Types.SQL_TIME(),
    datetime.datetime: Types.SQL_TIMESTAMP(),
    Instant: Types.INSTANT(),
    object: Types.PICKLED_BYTE_ARRAY(),
}


def as_type_info(declared: Any) -> TypeInformation:
    """The type information for a declaration.

    It may be type information, a dataclass or named tuple, a Python type such as `int` or
    `list[str]`, an Arrow schema or type, or a Spark schema or type.

    Raises:
        TypeError: It is none of these.
    """
    found = _known(declared, inside=())
    if found is not None:
        return found
    name = getattr(declared, "__name__", "")
    if callable(declared) and getattr(Types, name, None) is declared:
        raise TypeError(f"Types.{name} is a function: write Types.{name}()")
    if declared in (list, dict, tuple):
        raise TypeError(f"declare the contents of a {name}, such as list[int] or dict[str, float]")
    if isinstance(declared, type):
        raise TypeError(
            f"{declared.__qualname__} declares no fields: make it a dataclass or a NamedTuple, or "
            "omit the type, then its instances are pickled"
        )
    raise TypeError(
        f"{declared!r} is not a type of records: use Types.STRING() and the like, a dataclass, a "
        "NamedTuple, a Python type, an Arrow schema or a Spark schema"
    )


def typed_schema_from_arrow(fields: Iterable[pa.Field[Any]]) -> RowTypeInfo:
    """The type of rows with the columns of an Arrow schema, or the fields of a struct."""
    named = [(field.name, type_info_of_arrow(field.type)) for field in fields]
    return Types.ROW_NAMED([name for name, _ in named], [kind for _, kind in named])


def type_info_of_arrow(arrow_type: pa.DataType) -> TypeInformation:
    """The type of the values of an Arrow column.

    Arrow has several forms for the same values (`string`, `large_string`, `string_view`, each
    possibly dictionary-encoded). Here they are one type, and `ArrowFormat.conform` converts them.
    """
    is_ = pa.types
    match arrow_type:
        case _ if arrow_type in _ARROW_TYPES:
            return _ARROW_TYPES[arrow_type]
        case _ if is_.is_dictionary(arrow_type):
            return type_info_of_arrow(arrow_type.value_type)
        case _ if is_.is_fixed_size_binary(arrow_type):
            return Types.PRIMITIVE_ARRAY(Types.BYTE())
        case _ if is_.is_struct(arrow_type):
            return typed_schema_from_arrow(arrow_type)
        case _ if is_.is_map(arrow_type):
            key = type_info_of_arrow(arrow_type.key_type)
            value = type_info_of_arrow(arrow_type.item_type)
            return Types.MAP(key, value)
        case _ if is_list(arrow_type):
            return Types.LIST(type_info_of_arrow(arrow_type.value_type))
        case _:
            return ArrowTypeInfo(arrow_type)


_ARROW_TYPES = {
    pa.bool_(): Types.BOOLEAN(),
    pa.int8(): Types.BYTE(),
    pa.uint8(): Types.SHORT(),
    pa.int16(): Types.SHORT(),
    pa.uint16(): Types.INT(),
    pa.int32(): Types.INT(),
    pa.uint32(): Types.LONG(),
    pa.int64(): Types.LONG(),
    pa.float16(): Types.FLOAT(),
    pa.float32(): Types.FLOAT(),
    pa.float64(): Types.DOUBLE(),
    pa.string(): Types.STRING(),
    pa.large_string(): Types.STRING(),
    pa.string_view(): Types.STRING(),
    pa.binary(): Types.PRIMITIVE_ARRAY(Types.BYTE()),
    pa.large_binary(): Types.PRIMITIVE_ARRAY(Types.BYTE()),
    pa.binary_view(): Types.PRIMITIVE_ARRAY(Types.BYTE()),
    pa.date32(): Types.SQL_DATE(),
    pa.date64(): Types.SQL_DATE(),
    pa.time32("s"): Types.SQL_TIME(),
    pa.time32("ms"): Types.SQL_TIME(),
    pa.time64("us"): Types.SQL_TIME(),
    pa.timestamp("s"): Types.SQL_TIMESTAMP(),
    pa.timestamp("ms"): Types.SQL_TIMESTAMP(),
    pa.timestamp("us"): Types.SQL_TIMESTAMP(),
}


def _known(declared: Any, inside: tuple[Any, ...]) -> TypeInformation | None:
    """The type, or None if `declared` is unknown; `inside` are the enclosing classes."""
    match declared:
        case TypeInformation():
            return declared
        case pa.Schema():
            return typed_schema_from_arrow(declared)
        case pa.DataType():
            return type_info_of_arrow(declared)
        case type() if declared in _PYTHON_TYPES:
            return _PYTHON_TYPES[declared]
        case type() if declared in inside:
            return Types.PICKLED_BYTE_ARRAY()  # a class that contains itself
        case type() if dataclasses.is_dataclass(declared):
            names = [field.name for field in dataclasses.fields(declared)]
            return DataclassTypeInfo(declared, names, _field_types(declared, names, inside))
        case type() if issubclass(declared, tuple) and hasattr(declared, "_fields"):
            names = list(declared._fields)
            return NamedTupleTypeInfo(declared, names, _field_types(declared, names, inside))
        case _ if _is_of_spark(declared):
            from tidegate.types.spark import type_info_of_spark

            return type_info_of_spark(declared)
        case _:
            return _known_generic(declared, inside)


def _known_generic(declared: Any, inside: tuple[Any, ...]) -> TypeInformation | None:
    arguments = get_args(declared)
    match get_origin(declared):
        case None:
            return Types.PICKLED_BYTE_ARRAY() if declared is Any else None
        case origin if origin is Annotated:
            explicit = (_known(extra, inside) for extra in declared.__metadata__)
            found = next((kind for kind in explicit if kind is not None), None)
            return found or _known(arguments[0], inside)
        case origin if origin in (Union, types.UnionType):
            # Every field may be None, so an optional type is the type itself.
            chosen = [argument for argument in arguments if argument is not type(None)]
            return _known(chosen[0], inside) if len(chosen) == 1 else Types.PICKLED_BYTE_ARRAY()
        case origin if origin is list:
            return Types.LIST(_part(arguments[0], inside))
        case origin if origin is dict:
            return Types.MAP(_part(arguments[0], inside), _part(arguments[1], inside))
        case origin if origin is tuple and Ellipsis not in arguments:
            return Types.TUPLE([_part(argument, inside) for argument in arguments])
        case _:
            return None


def _part(declared: Any, inside: tuple[Any, ...]) -> TypeInformation:
    """The type of a field or an element; unknown types are pickled."""
    return _known(declared, inside) or Types.PICKLED_BYTE_ARRAY()


def _field_types(
    record_class: type[Any], names: list[str], inside: tuple[Any, ...]
) -> list[TypeInformation]:
    try:
        hints = typing.get_type_hints(record_class, include_extras=True)
    except NameError as failure:
        raise TypeError(
            f"the annotations of {record_class.__qualname__} cannot be resolved: {failure}; import "
            "the name in the module of the class, not only for type checking"
        ) from None
    return [_part(hints.get(name, Any), (*inside, record_class)) for name in names]


def _is_of_spark(declared: Any) -> bool:
    kind = declared if isinstance(declared, type) else type(declared)
    return any(base.__module__ == "pyspark.sql.types" for base in kind.__mro__)
