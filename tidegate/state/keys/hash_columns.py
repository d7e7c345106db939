"""`stable_hash` of whole Arrow columns, without a Python object per value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from tidegate.core.errors import UnsupportedKey
from tidegate.state.keys.stable_hash import (
    BYTES_SEED,
    DATE_SALT,
    DURATION_SALT,
    FLOAT_SALT,
    FOLD_FACTOR,
    INSTANT_SALT,
    MASK,
    NAIVE_DATETIME_SALT,
    NAN_HASH,
    NONE_HASH,
    TIME_SALT,
    TUPLE_SEED,
    UNSIGNED_SALT,
    hash_float,
    stable_hash,
)
from tidegate.types.columns import is_binary, is_text

Hashes = npt.NDArray[np.uint64]

_FEW: Final = 64
"""Below this many values, a loop is faster than the vectorized path."""
_FEW_TEXTS: Final = 2048
"""The same for text and bytes: polars takes half a millisecond to begin, on all cores."""
_BLOCK: Final = 1 << 14
"""Values mixed at a time, so that intermediate results stay in the CPU cache."""
_COLUMN_TYPES: Final = {
    frozenset({str}): pa.large_string(),
    frozenset({bytes}): pa.large_binary(),
    frozenset({int}): pa.int64(),
    frozenset({float}): pa.float64(),
}
_BYTES_OF: Final = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}
_MICROSECONDS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}


def hash_column(column: pa.Array[Any]) -> Hashes:
    """The stable hash of every value; raises UnsupportedKey for a type that cannot be a key."""
    kind = column.type
    if isinstance(column, pa.DictionaryArray):
        return _hash_dictionary(column)
    if isinstance(column, pa.ExtensionArray):
        return hash_column(column.storage)
    if pa.types.is_null(kind):
        return np.full(len(column), NONE_HASH, np.uint64)
    if is_text(kind):
        return _hash_binary(column, seed=0)
    if is_binary(kind):
        return _hash_binary(column, seed=BYTES_SEED)
    if pa.types.is_decimal(kind):
        return _hash_dictionary(column.dictionary_encode())
    if pa.types.is_floating(kind):
        hashes = _hash_floats(_values(column).astype(np.float64, copy=False))
    elif kind == pa.uint64():
        hashes = _hash_unsigned(_values(column))
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        hashes = splitmix64_column(_values(column).astype(np.int64).view(np.uint64))
    else:
        ticks, salt = _ticks(column)
        hashes = splitmix64_column(ticks.view(np.uint64) ^ np.uint64(salt))
    return _with_nulls(hashes, column)


def hash_columns(columns: Sequence[pa.Array[Any]]) -> Hashes:
    """The stable hash of the tuples that the columns form."""
    return fold_hashes([hash_column(column) for column in columns], len(columns[0]))


def hash_values(values: Sequence[Any]) -> Hashes:
    """The stable hash of Python values; values of one plain type are hashed as a column."""
    kinds = set(map(type, values))
    column_type = _COLUMN_TYPES.get(frozenset(kinds - {type(None)}))
    if column_type is not None and len(values) >= _FEW:
        try:
            return hash_column(pa.array(values, column_type))
        except (OverflowError, UnicodeEncodeError, pa.ArrowInvalid):
            pass  # an integer beyond 64 bits, or a lone surrogate: rare, and impossible in a column
    if kinds == {tuple} and len(set(map(len, values))) == 1 and len(values) >= _FEW:
        return fold_hashes([hash_values(part) for part in zip(*values, strict=True)], len(values))
    return _hash_one_by_one(values)


def _hash_one_by_one(values: Sequence[Any]) -> Hashes:
    known: dict[Any, int] = {}
    hashes = np.empty(len(values), np.uint64)
    for position, value in enumerate(values):
        try:
            found = known.get(value)
        except TypeError:  # a list, or not a key at all
            hashes[position] = stable_hash(value)
            continue
        if found is None:
            found = known[value] = stable_hash(value)
        hashes[position] = found
    return hashes


def fold_hashes(parts: Sequence[Hashes], length: int) -> Hashes:
    """The hashes of tuples, computed from the hashes of their parts."""
    folded = np.full(length, (TUPLE_SEED + len(parts)) & MASK, np.uint64)
    for part in parts:
        folded *= np.uint64(FOLD_FACTOR)
        folded += part
        folded = splitmix64_column(folded)
    return folded


def splitmix64_column(values: Hashes) -> Hashes:
    mixed = np.empty_like(values)
    scratch = np.empty(min(len(values), _BLOCK), np.uint64)
    for start in range(0, len(values), _BLOCK):
        block = mixed[start : start + _BLOCK]
        shifted = scratch[: len(block)]
        np.add(values[start : start + _BLOCK], np.uint64(0x9E3779B97F4A7C15), out=block)
        np.right_shift(block, np.uint64(30), out=shifted)
        np.bitwise_xor(block, shifted, out=block)
        np.multiply(block, np.uint64(0xBF58476D1CE4E5B9), out=block)
        np.right_shift(block, np.uint64(27), out=shifted)
        np.bitwise_xor(block, shifted, out=block)
        np.multiply(block, np.uint64(0x94D049BB133111EB), out=block)
        np.right_shift(block, np.uint64(31), out=shifted)
        np.bitwise_xor(block, shifted, out=block)
    return mixed


def _hash_dictionary(column: pa.DictionaryArray[Any, Any]) -> Hashes:
    """Hash each distinct value once."""
    dictionary = column.dictionary
    if pa.types.is_decimal(dictionary.type):
        distinct = np.array([stable_hash(value) for value in dictionary.to_pylist()], np.uint64)
    else:
        distinct = hash_column(dictionary)
    indices = column.indices
    if indices.null_count == 0:
        return np.take(distinct, _values(indices))
    with_null = np.append(distinct, np.uint64(NONE_HASH))
    return np.take(with_null, _values(indices.fill_null(len(distinct))))


def _hash_binary(column: pa.Array[Any], seed: int) -> Hashes:
    if len(column) < _FEW_TEXTS:
        digest = xxhash.xxh3_64_intdigest
        # A view, because looking up Arrow's functions for a cast takes longer than all else here.
        values = column.view(_BYTES_OF.get(column.type, column.type)).to_pylist()
        return np.array(
            [NONE_HASH if value is None else digest(value, seed) for value in values], np.uint64
        )
    import polars as pl
    import polars_hash

    # Polars stores text and bytes as views, which Arrow creates several times faster.
    view = pa.string_view() if is_text(column.type) else pa.binary_view()
    series = pl.Series("key", column.cast(view))
    expression = polars_hash.col("key").nchash.xxh3_64(seed=seed)
    hashed = series.to_frame().select(expression).to_series()
    return hashed.fill_null(NONE_HASH).to_numpy()


def _hash_floats(values: npt.NDArray[np.float64]) -> Hashes:
    # The bounds are powers of two, which floats represent exactly.
    fits_signed = (values >= -(2.0**63)) & (values < 2.0**63)
    integers = np.where(fits_signed, values, 0.0).astype(np.int64)
    integral = fits_signed & (integers == values)
    bits = values.view(np.uint64) ^ np.uint64(FLOAT_SALT)
    hashes = splitmix64_column(np.where(integral, integers.view(np.uint64), bits))
    hashes[np.isnan(values)] = NAN_HASH
    for position in np.flatnonzero(np.isfinite(values) & ~fits_signed).tolist():
        hashes[position] = hash_float(float(values[position]))
    return hashes


def _hash_unsigned(values: Hashes) -> Hashes:
    beyond_signed = values >= np.uint64(1 << 63)
    return splitmix64_column(np.where(beyond_signed, values ^ np.uint64(UNSIGNED_SALT), values))


def _ticks(column: pa.Array[Any]) -> tuple[npt.NDArray[np.int64], int]:
    """Days or microseconds as integers, and the salt of their type."""
    kind: Any = column.type
    if pa.types.is_date32(kind):
        return _values(column.view(pa.int32())).astype(np.int64), DATE_SALT
    if pa.types.is_date64(kind):
        return _values(column.view(pa.int64())) // 86_400_000, DATE_SALT
    if pa.types.is_timestamp(kind):
        salt = NAIVE_DATETIME_SALT if kind.tz is None else INSTANT_SALT
    elif pa.types.is_time(kind):
        salt = TIME_SALT
    elif pa.types.is_duration(kind):
        salt = DURATION_SALT
    else:
        raise UnsupportedKey(f"<a column of {kind}>", "its values have no stable hash")
    width = pa.int32() if pa.types.is_time32(kind) else pa.int64()
    ticks = _values(column.view(width)).astype(np.int64, copy=False)
    if kind.unit == "ns":
        return ticks // 1_000, salt
    return ticks * _MICROSECONDS[kind.unit], salt


def _values(column: pa.Array[Any]) -> npt.NDArray[Any]:
    """The values; where they are null, anything."""
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(0).cast(column.type))
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


def _with_nulls(hashes: Hashes, column: pa.Array[Any]) -> Hashes:
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = NONE_HASH
    return hashes
