"""Key columns as rows of 64-bit words, which are equal if the keys are equal.

For most keys the words are exact: numbers, times, and text or bytes of up to 12 bytes, whose length
and bytes fill two words. Longer keys are represented by length, first bytes and a hash, so the keys
themselves must be compared, too.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.state.keys.hash_columns import Hashes, hash_column
from tidegate.state.keys.word_index import Words
from tidegate.types.columns import is_binary, is_text

_INLINE_BYTES: Final = 12
"""The bytes that Arrow's views of text and bytes store next to the length, without a pointer."""
_MILLISECONDS_PER_DAY: Final = 86_400_000
_QUIET_NAN: Final = np.uint64(0x7FF8000000000000)


class KeyWords(NamedTuple):
    """The words of a column without nulls."""

    words: Words
    long_rows: npt.NDArray[np.intp]
    """The rows whose words are not exact."""


def can_be_words(kind: pa.DataType) -> bool:
    """Whether `words_of` supports columns of this type."""
    return (
        is_text_or_bytes(kind)
        or pa.types.is_decimal128(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))
    )


def words_per_key(kind: pa.DataType) -> int:
    """How many words a key of this type has."""
    return 2 if is_text_or_bytes(kind) or pa.types.is_decimal128(kind) else 1


def words_of(column: pa.Array[Any]) -> KeyWords:
    """The words of a column without nulls, of a type for which `can_be_words`."""
    kind = column.type
    if is_text_or_bytes(kind):
        return _words_of_bytes(column)
    if pa.types.is_decimal128(kind):
        return KeyWords(_pairs(column), _NO_ROWS)
    return KeyWords(_one_word(column).reshape(-1, 1), _NO_ROWS)


def is_text_or_bytes(kind: pa.DataType) -> bool:
    return is_text(kind) or is_binary(kind)


_NO_ROWS: Final = np.empty(0, np.intp)


def _words_of_bytes(column: pa.Array[Any]) -> KeyWords:
    words = _pairs(column.cast(pa.binary_view()))
    lengths = words.view(np.uint32)[:, 0]
    long_rows = (lengths > _INLINE_BYTES).nonzero()[0]
    if len(long_rows):
        # For a long value, the second word is an address, which is unrelated to the key.
        words = words.copy()
        every = len(long_rows) == len(column)
        words[long_rows, 1] = digest(column if every else column.take(long_rows))
    return KeyWords(words, long_rows)


def digest(column: pa.Array[Any]) -> Hashes:
    """A digest of long keys; different keys with the same digest are distinguished later."""
    return hash_column(column)


def _pairs(column: pa.Array[Any]) -> Words:
    buffer = column.buffers()[1]
    assert buffer is not None
    words: Words = np.frombuffer(memoryview(buffer), np.uint64)
    return words.reshape(-1, 2)[column.offset : column.offset + len(column)]


def _one_word(column: pa.Array[Any]) -> Hashes:
    kind = column.type
    if pa.types.is_floating(kind):
        # Adding zero turns -0.0 into 0.0.
        values = column.to_numpy(zero_copy_only=False).astype(np.float64) + 0.0
        return np.where(np.isnan(values), _QUIET_NAN, values.view(np.uint64))
    if pa.types.is_date64(kind):
        days = column.view(pa.int64()).to_numpy() // _MILLISECONDS_PER_DAY
        return days.view(np.uint64)
    if pa.types.is_temporal(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    numbers = column.to_numpy(zero_copy_only=False)
    if numbers.dtype == np.uint64:
        return numbers
    return numbers.astype(np.int64, copy=False).view(np.uint64)
