"""What a stream is keyed by: columns of a typed stream, or a function of the record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.state.hash_columns import Hashes, hash_column, hash_columns, hash_values
from tidegate.state.selectors import field_getter, field_of_selector
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat, arrow_format
from tidegate.types.typeinfo import TypeInformation

Key = int | str | tuple[int | str, ...] | Callable[[Any], Any]
"""A field by position or name, several of them, or a function or KeySelector."""


@dataclass(frozen=True, slots=True)
class KeySelection:
    """How to find the key of a record. Made by `select_key`; travels pickled."""

    selector: Any
    """A callable, or an object with `get_key` and perhaps `open` and `close`."""
    columns: int | tuple[int, ...] | None = None
    """Where the key stands in a typed stream: one column, or several that make a tuple."""

    def open(self, runtime_context: Any) -> None:
        """Once in the life of a subtask, where the selector is an object that wants it."""
        if hasattr(self.selector, "open"):
            self.selector.open(runtime_context)

    def close(self) -> None:
        if hasattr(self.selector, "close"):
            self.selector.close()

    @property
    def function(self) -> Callable[[Any], Any]:
        """The key of one record, as Python sees records."""
        chosen: Callable[[Any], Any] = getattr(self.selector, "get_key", self.selector)
        return chosen

    def column(self, batch: Batch) -> pa.Array[Any] | None:
        """The keys as one column, where one column is the key."""
        if isinstance(self.columns, int) and batch.format is not None:
            return batch.columns.column(self.columns)
        return None

    def values(self, batch: Batch) -> list[Any]:
        """The key of every record, in order; decodes no more than the key where it can."""
        chosen = self._chosen(batch) if batch.is_columnar else None
        if chosen is None or not all(_decodes_alike(column) for column in chosen):
            return list(map(self.function, batch.records))
        if isinstance(self.columns, int):
            return chosen[0].to_pylist()
        return list(zip(*(column.to_pylist() for column in chosen), strict=True))

    def hashes(self, batch: Batch) -> Hashes:
        """The stable hash of every record's key."""
        chosen = self._chosen(batch)
        if chosen is None or any(_is_nested(column) for column in chosen):
            return hash_values(self.values(batch))
        return hash_column(chosen[0]) if isinstance(self.columns, int) else hash_columns(chosen)

    def _chosen(self, batch: Batch) -> list[pa.Array[Any]] | None:
        if self.columns is None or batch.format is None:
            return None
        places = (self.columns,) if isinstance(self.columns, int) else self.columns
        return [batch.columns.column(place) for place in places]


def select_key(key: Key, type_info: TypeInformation | None = None) -> KeySelection:
    """What `key_by(key)` means on a stream of this type; raises MissingField.

    On a typed stream fields become columns, and so do functions that do nothing but take fields.
    """
    format = None if type_info is None else arrow_format(type_info)
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
    kind = column.type
    if isinstance(kind, pa.DictionaryType):
        kind = kind.value_type
    return pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType)


def _decodes_alike(column: pa.Array[Any]) -> bool:
    """Whether pyarrow makes of the column what the record holds; an Instant it would not know."""
    kind = column.type
    if isinstance(kind, pa.DictionaryType):
        kind = kind.value_type
    is_instant = isinstance(kind, pa.TimestampType) and kind.unit == "ns" and kind.tz is not None
    return not is_instant and not _is_nested(column)
