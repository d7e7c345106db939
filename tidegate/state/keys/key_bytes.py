"""Keys as bytes, which are equal exactly if the keys are equal in Python.

The forms follow `stable_hash`, so keys that share a form share a hash. Plain keys (text, bytes,
integers, non-integral floats, None, and windows of such) can be decoded; other keys are stored next
to their bytes.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import struct
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from enum import Enum
from operator import is_
from typing import Any, Final
from uuid import UUID

import numpy as np

from tidegate.core.errors import UnsupportedKey
from tidegate.state.keys.window_keys import OF_WINDOW, is_window_key
from tidegate.types.instant import Instant
from tidegate.types.row import Row

_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - naive datetimes are counted from here
_UTC_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_PLAIN_TYPES: Final = frozenset({str, int, bytes, type(None)})
NEVER_NAN: Final = frozenset({str, int, bool, bytes, type(None)})
_MAY_BE_NAN: Final = (float, Decimal, np.floating)
_ONE_NAN: Final = float("nan")
_WITH_NAN: Final[dict[tuple[Any, ...], Any]] = {}
"""Dataclasses with NaN by class and fields: from Python 3.13 on, a dict finds only the object."""


def key_bytes(key: Any) -> bytes:
    """The bytes of a key; the first byte is below 0xFF."""
    kind = type(key)
    if kind is str:
        return b"s" + key.encode("utf-8", "surrogatepass")  # type: ignore[no-any-return]
    if kind is int or kind is bool:
        return _of_integer(key)
    if kind is tuple:
        return b"w" + _of_parts(key[1:]) if is_window_key(key) else b"t" + _of_parts(key)
    if kind is float:
        return _of_float(key)
    if key is None:
        return b"0"
    return _of_less_usual(key)


def is_plain(key: Any) -> bool:
    """Whether `key_of_bytes` returns the same key."""
    kind = type(key)
    if kind is tuple:
        return is_window_key(key) and all(map(is_plain, key[1:]))
    return kind in _PLAIN_TYPES or (kind is float and not key.is_integer())


def key_of_bytes(raw: bytes) -> Any:
    """The plain key with these bytes."""
    match raw[:1]:
        case b"s":
            return raw[1:].decode("utf-8", "surrogatepass")
        case b"i":
            return int.from_bytes(raw[1:], "big", signed=True)
        case b"b":
            return raw[1:]
        case b"0":
            return None
        case b"n":
            return float("nan")
        case b"w":
            return OF_WINDOW, *map(key_of_bytes, _parts_of(raw[1:]))
    return struct.unpack(">d", raw[1:])[0]


def with_one_nan(key: Any) -> Any:
    """The key with the same NaN object everywhere: a dict finds NaN only by identity."""
    if type(key) in NEVER_NAN:
        return key
    if is_window_key(key) and type(key[1]) in NEVER_NAN:
        return key
    if isinstance(key, tuple | Row):
        parts = tuple(map(with_one_nan, key))
        if all(map(is_, parts, key)):
            return key
        if isinstance(key, Row):
            row = copy.copy(key)
            row[:] = parts
            return row
        return key._make(parts) if hasattr(key, "_make") else parts
    if dataclasses.is_dataclass(key) and not isinstance(key, type):
        return _with_one_nan_in_fields(key) if _has_nan(key) else key
    return _ONE_NAN if isinstance(key, _MAY_BE_NAN) and key != key else key


def _with_one_nan_in_fields(key: Any) -> Any:
    fields = dataclasses.fields(key)
    values = {field.name: with_one_nan(getattr(key, field.name)) for field in fields}
    compared = [values[field.name] for field in fields if field.compare]
    return _WITH_NAN.setdefault((type(key), *compared), dataclasses.replace(key, **values))


def key_in(stored: Mapping[Any, Any], key: Any) -> Any:
    """The key under which a map has the value of this one: a dict finds NaN only by identity."""
    if key in stored or not _has_nan(key):
        return key
    wanted = with_one_nan(key)
    if wanted in stored:
        return wanted
    # A map that was restored has other NaN objects.
    return next((known for known in stored if wanted in (with_one_nan(known),)), wanted)


def _has_nan(key: Any) -> bool:
    if type(key) in NEVER_NAN:
        return False
    if isinstance(key, tuple | Row):
        return any(map(_has_nan, key))
    if dataclasses.is_dataclass(key) and not isinstance(key, type):
        return any(_has_nan(getattr(key, field.name)) for field in dataclasses.fields(key))
    return isinstance(key, _MAY_BE_NAN) and key != key


def _of_integer(value: int) -> bytes:
    return b"i" + value.to_bytes((value.bit_length() + 8) // 8, "big", signed=True)


def _of_float(value: float) -> bytes:
    if value != value:
        return b"n"
    return _of_integer(int(value)) if value.is_integer() else b"f" + struct.pack(">d", value)


def _of_parts(parts: Iterable[Any]) -> bytes:
    encoded = [key_bytes(part) for part in parts]
    return b"".join(len(part).to_bytes(4, "big") + part for part in encoded)


def _parts_of(encoded: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(encoded):
        start = place + 4
        place = start + int.from_bytes(encoded[place:start], "big")
        yield encoded[start:place]


def _of_less_usual(key: Any) -> bytes:
    """Check subclasses before their bases: a datetime is a date, an IntEnum an int."""
    match key:
        case str():
            return key_bytes(str.__str__(key))
        case bytes():
            return b"b" + key
        case int() | np.integer() | np.bool_():
            return _of_integer(int(key))
        case float() | np.floating():
            return _of_float(float(key))
        case tuple():
            return b"t" + _of_parts(key)
        case Decimal():
            return _of_decimal(key)
        case dt.datetime() if key.utcoffset() is None:
            return b"N" + _of_integer((key.replace(tzinfo=None) - _EPOCH) // _MICROSECOND)
        case dt.datetime():
            return b"Z" + _of_integer((key - _UTC_EPOCH) // _MICROSECOND)
        case Instant():
            return b"I" + _of_parts((key.seconds, key.nanos))
        case dt.date():
            return b"D" + _of_integer(key.toordinal())
        case dt.time():
            return b"T" + key.isoformat("microseconds").encode()
        case dt.timedelta():
            return b"L" + _of_integer(key // _MICROSECOND)
        case UUID():
            return b"u" + key.bytes
        case Enum():
            return b"e" + _of_parts((*_class_name(key), key.name))
        case Row():
            return b"r" + _of_row(key)
        case type():
            return b"c" + _of_parts((key.__module__, key.__qualname__))
    if dataclasses.is_dataclass(key) and not isinstance(key, type):
        values = [getattr(key, field.name) for field in dataclasses.fields(key)]
        return b"o" + _of_parts((*_class_name(key), *values))
    raise UnsupportedKey(key, f"keys of type {type(key).__name__} are not supported")


def _of_decimal(key: Decimal) -> bytes:
    if key.is_nan():
        return b"n"
    if key.is_infinite():
        return _of_float(float(key))
    if key == key.to_integral_value():
        return _of_integer(int(key))
    if (nearest := float(key)) == key:
        return _of_float(nearest)
    return b"d" + format(key, "f").rstrip("0").encode()


def _of_row(row: Row) -> bytes:
    """Rows that are equal by name may have their fields in another order."""
    kind = row.get_row_kind().name
    if row._fields is None:
        return _of_parts((kind, tuple(row)))
    named = row.as_dict()
    return _of_parts((kind, *(part for name in sorted(named) for part in (name, named[name]))))


def _class_name(key: Any) -> tuple[str, str]:
    return type(key).__module__, type(key).__qualname__
