"""A hash of keys that is the same in every process, on every machine and in every version.

It is defined on the *value*: keys that are equal in a dict have equal hashes, whatever their types
(`1`, `1.0`, `True`, `Decimal(1)` and a NumPy scalar are one key), because equal keys must share
their state. The built-in `hash` is salted per process and cannot be used.

    integer     splitmix64 of the two's complement, if it fits 64 bits signed
                splitmix64 with a salt up to 64 bits unsigned; beyond, xxh3 of its bytes
    float       integral: as the integer; else splitmix64 of the bits, one NaN
    text        xxh3 of UTF-8
    bytes       xxh3 with a seed of its own
    tuple       parts folded in order; lists, named tuples and frozen dataclasses alike
    row         parts folded in order, those of a named row in the order of their names
    date, time  splitmix64 of days or microseconds, with a salt for each type

`hash_column` in `hash_columns` does the same for whole Arrow columns.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterable
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

import numpy as np
import xxhash

from tidegate.core.errors import UnsupportedKey
from tidegate.types.instant import Instant
from tidegate.types.row import Row

MASK: Final = (1 << 64) - 1
NONE_HASH: Final = 0x5BD1E995A4093822
NAN_HASH: Final = 0x7FF8A0761D6478BD
UNSIGNED_SALT: Final = 0xE7037ED1A0B428DB
FLOAT_SALT: Final = 0x8EBC6AF09C88C6E3
DATE_SALT: Final = 0x589965CC75374CC3
TIME_SALT: Final = 0x1D8E4E27C47D124F
NAIVE_DATETIME_SALT: Final = 0xEB44ACCAB455D165
INSTANT_SALT: Final = 0xA0761D6478BD642F
DURATION_SALT: Final = 0x2D358DCCAA6C78A5
TUPLE_SEED: Final = 0x9AE16A3B2F90404F
FOLD_FACTOR: Final = 0x9E3779B97F4A7C15

BYTES_SEED: Final = 1
_BIG_INTEGER_SEED: Final = 2
_DECIMAL_SEED: Final = 3
_UUID_SEED: Final = 4
_ENUM_SEED: Final = 5

_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - naive datetimes are counted from here
_UTC_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()


def stable_hash(key: Any) -> int:
    """The hash of a key, 0 to 2**64 - 1; raises UnsupportedKey."""
    kind = type(key)
    if kind is str:
        return int(xxhash.xxh3_64_intdigest(key.encode("utf-8", "surrogatepass")))
    if kind is int or kind is bool:
        return hash_integer(key)
    if kind is tuple:
        return fold(map(stable_hash, key), TUPLE_SEED + len(key))
    if kind is float:
        return hash_float(key)
    if key is None:
        return NONE_HASH
    return _hash_of_less_usual(key)


def holds_list(key: Any) -> bool:
    """Whether a key is or contains a list, which cannot be a key of a dict."""
    return isinstance(key, list) or (type(key) is tuple and any(map(holds_list, key)))


def without_lists(key: Any) -> Any:
    """The key with tuples instead of lists; they have the same hash."""
    return tuple(map(without_lists, key)) if holds_list(key) else key


def splitmix64(value: int) -> int:
    """Spread the bits of a 64-bit number; a bijection, so equal results mean equal numbers."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def fold(hashes: Iterable[int], seed: int) -> int:
    """The hash of a sequence of parts."""
    folded = seed & MASK
    for part in hashes:
        folded = splitmix64((folded * FOLD_FACTOR + part) & MASK)
    return folded


def hash_integer(value: int) -> int:
    """The hash of an integer of any size."""
    if -(1 << 63) <= value < 1 << 63:
        return splitmix64(value & MASK)
    if 0 < value <= MASK:
        return splitmix64(value ^ UNSIGNED_SALT)
    raw = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
    return int(xxhash.xxh3_64_intdigest(raw, seed=_BIG_INTEGER_SEED))


def hash_float(value: float) -> int:
    """The hash of a float; that of the integer if it equals one."""
    if value != value:
        return NAN_HASH
    if value.is_integer():
        return hash_integer(int(value))
    bits = int(np.float64(value).view(np.uint64))
    return splitmix64(bits ^ FLOAT_SALT)


def _hash_of_less_usual(key: Any) -> int:
    """Check subclasses before their bases: a datetime is a date, an IntEnum an int."""
    match key:
        case str():
            return stable_hash(str.__str__(key))
        case bytes():
            return int(xxhash.xxh3_64_intdigest(key, seed=BYTES_SEED))
        case int() | np.integer() | np.bool_():
            return hash_integer(int(key))
        case float() | np.floating():
            return hash_float(float(key))
        case tuple() | list():
            return stable_hash(tuple(key))
        case Decimal():
            return _hash_decimal(key)
        case dt.datetime():
            return hash_datetime(key)
        case Instant():
            micros = key.seconds * 1_000_000 + key.nanos // 1_000
            return splitmix64(micros & MASK ^ INSTANT_SALT)
        case dt.date():
            return splitmix64((key.toordinal() - _EPOCH_DAY) & MASK ^ DATE_SALT)
        case dt.time():
            return _hash_time(key)
        case dt.timedelta():
            return splitmix64(key // _MICROSECOND & MASK ^ DURATION_SALT)
        case UUID():
            return int(xxhash.xxh3_64_intdigest(key.bytes, seed=_UUID_SEED))
        case Enum():
            # Without the module: the user's main module has another name in the slots.
            name = f"{type(key).__qualname__}.{key.name}".encode()
            return int(xxhash.xxh3_64_intdigest(name, seed=_ENUM_SEED))
    return _hash_of_parts(key)


def hash_datetime(key: dt.datetime) -> int:
    """Aware datetimes by instant, as they compare; naive ones by their local time."""
    if key.utcoffset() is None:
        naive = key.replace(tzinfo=None)
        return splitmix64((naive - _EPOCH) // _MICROSECOND & MASK ^ NAIVE_DATETIME_SALT)
    return splitmix64((key - _UTC_EPOCH) // _MICROSECOND & MASK ^ INSTANT_SALT)


def _hash_time(key: dt.time) -> int:
    if key.tzinfo is not None:
        raise UnsupportedKey(key, "a time of day with a time zone has no unique order")
    since_midnight = dt.timedelta(
        hours=key.hour, minutes=key.minute, seconds=key.second, microseconds=key.microsecond
    )
    return splitmix64(since_midnight // _MICROSECOND ^ TIME_SALT)


def _hash_decimal(key: Decimal) -> int:
    if key.is_nan():
        return NAN_HASH
    if key.is_infinite():
        return hash_float(float(key))
    if key == key.to_integral_value():
        return hash_integer(int(key))
    if (nearest := float(key)) == key:
        return hash_float(nearest)
    text = format(key, "f").rstrip("0").encode()
    return int(xxhash.xxh3_64_intdigest(text, seed=_DECIMAL_SEED))


def _hash_of_parts(key: Any) -> int:
    """Rows and frozen dataclasses."""
    if isinstance(key, Row):
        # Rows that are equal by name may have their fields in another order.
        if key._fields is None:
            return stable_hash(tuple(key))
        named = key.as_dict()
        return stable_hash(tuple(named[name] for name in sorted(named)))
    if dataclasses.is_dataclass(key) and not isinstance(key, type):
        _check_dataclass(key)
        return stable_hash(tuple(getattr(key, field.name) for field in dataclasses.fields(key)))
    if isinstance(key, (dict, set, bytearray, np.ndarray)):
        raise UnsupportedKey(key, f"a {type(key).__name__} is mutable")
    raise UnsupportedKey(
        key, f"Tidegate has no hash of {type(key).__name__} that is the same in every process"
    )


def _check_dataclass(key: Any) -> None:
    name = type(key).__name__
    settings = type(key).__dataclass_params__
    if not (settings.eq and (settings.frozen or settings.unsafe_hash)):
        raise UnsupportedKey(key, f"{name} is mutable; declare it @dataclass(frozen=True)")
    if ignored := [field.name for field in dataclasses.fields(key) if not field.compare]:
        raise UnsupportedKey(
            key, f"{name} does not compare {', '.join(ignored)}, so equal keys would differ in it"
        )
