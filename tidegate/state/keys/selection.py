"""The key of a stream: columns of a typed stream, or a function of the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from tidegate.state.keys.hash_columns import Hashes, hash_column, hash_columns, hash_values
from tidegate.state.keys.selectors import field_getter, field_of_selector
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat, arrow_format
from tidegate.types.typeinfo import TypeInformation

Key = int | str | tuple[int | str, ...] | Callable[[Any], Any]
"""A field by position or name, several of them, or a function or KeySelector."""


class KeyColumns(NamedTuple):
    """Columnar keys of plain types, in any encoding."""

    columns: list[pa.Array[Any]]
    is_tuple: bool
    """Whether a key is a tuple of the columns, possibly of only one."""

    @property
    def kinds(self) -> list[pa.DataType]:
        """The types of the values, without their encoding."""
        return [_plain_kind(column.type) for column in self.columns]

    def values(self) -> list[Any]:
        """The keys as Python values; only correct if they `decode_alike`."""
        parts = [column.to_pylist() for column in self.columns]
        return list(zip(*parts, strict=True)) if self.is_tuple else parts[0]

    def slice(self, start: int, stop: int) -> KeyColumns:
        """The keys in a range of rows."""
        return KeyColumns([c.slice(start, stop - start) for c in self.columns], self.is_tuple)

    def hashes(self) -> Hashes:
        return hash_columns(self.columns) if self.is_tuple else hash_column(self.columns[0])

    @property
    def decode_alike(self) -> bool:
        """Whether pyarrow decodes the columns to the values of the records; not so for BIG_INT."""
        return not any(map(pa.types.is_decimal256, self.kinds))


@dataclass(frozen=True, slots=True)
class KeySchema:
    """The types of columnar keys."""

    kinds: tuple[pa.DataType, ...]
    is_tuple: bool

    def columns(self, keys: Sequence[Any]) -> KeyColumns:
        """Convert Python values, at least one, to these columns."""
        parts = zip(*keys, strict=True) if self.is_tuple else [keys]
        columns = [pa.array(list(p), kind) for p, kind in zip(parts, self.kinds, strict=True)]
        return KeyColumns(columns, self.is_tuple)


@dataclass(frozen=True, slots=True)
class KeySelection:
    """How to find the key of a record. Created by `select_key`; picklable."""

    selector: Any
    """A callable, or an object with `get_key` and optionally `open` and `close`."""
    columns: int | tuple[int, ...] | None = None
    """The key of a typed stream: one column, or several that form a tuple."""

    def open(self, runtime_context: Any) -> None:
        """Open the selector, once per subtask, if it has `open`."""
        if hasattr(self.selector, "open"):
            self.selector.open(runtime_context)

    def close(self) -> None:
        if hasattr(self.selector, "close"):
            self.selector.close()

    @property
    def function(self) -> Callable[[Any], Any]:
        """A function that returns the key of a record."""
        chosen: Callable[[Any], Any] = getattr(self.selector, "get_key", self.selector)
        return chosen

    def column(self, batch: Batch) -> pa.Array[Any] | None:
        """The keys as one column, if the key is one column."""
        if isinstance(self.columns, int) and batch.format is not None:
            return batch.columns.column(self.columns)
        return None

    def key_columns(self, batch: Batch) -> KeyColumns | None:
        """The keys as columns; None if a function computes them, or their types are not plain."""
        if self.columns is None or batch.format is None:
            return None
        is_tuple = isinstance(self.columns, tuple)
        positions = self.columns if isinstance(self.columns, tuple) else (self.columns,)
        columns = [batch.columns.column(position) for position in positions]
        return None if any(map(_is_nested, columns)) else KeyColumns(columns, is_tuple)

    def fields(self, batch: Batch) -> list[Any]:
        """The keys that are columns as records hold them, which are then decoded for less."""
        if isinstance(self.columns, int):
            return batch.field(self.columns)
        assert self.columns is not None
        return list(zip(*map(batch.field, self.columns), strict=True))

    def values(self, batch: Batch) -> list[Any]:
        """The key of every record, in order; decodes only the key if possible."""
        keys = self.key_columns(batch)
        if keys is not None and keys.decode_alike:
            return keys.values()
        # Records may change when they are encoded, as 0.1 does as a FLOAT.
        records = batch.records if batch.format is None else batch.format.decode(batch.columns)
        return list(map(self.function, records))

    def hashes(self, batch: Batch) -> Hashes:
        """The stable hash of every record's key."""
        keys = self.key_columns(batch)
        return hash_values(self.values(batch)) if keys is None else keys.hashes()


def select_key(key: Key, type_info: TypeInformation | None = None) -> KeySelection:
    """The meaning of `key_by(key)` on a stream of this type; raises MissingField.

    On a typed stream, fields become columns, and so do functions that only select fields.
    """
    format = arrow_format(type_info)
    if isinstance(key, int | str | tuple):
        columns = None if format is None else _columns(key, format)
        return KeySelection(field_getter(key, type_info), columns)
    if not callable(getattr(key, "get_key", key)):
        raise TypeError(
            f"key_by() takes a field, a function or a KeySelector, got {type(key).__name__}"
        )
    if type_info is None or format is None:
        return KeySelection(key)
    return KeySelection(key, field_of_selector(key, type_info))


def _columns(key: int | str | tuple[int | str, ...], format: ArrowFormat) -> int | tuple[int, ...]:
    if isinstance(key, tuple):
        return tuple(map(format.column_of, key))
    return format.column_of(key)


def _is_nested(column: pa.Array[Any]) -> bool:
    kind = _plain_kind(column.type)
    return pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType)


def _plain_kind(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.DictionaryType):
        kind = kind.value_type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind
