"""Directories of a partitioned table: `country=de/day=2026-01-31`, as Spark and Hive name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from tidegate.connectors.files.file_system import find_files
from tidegate.connectors.files.parquet import open_parquet
from tidegate.connectors.files.rolling import BucketAssigner
from tidegate.core.errors import TableMismatch, UnreadableInput
from tidegate.stream.batch import Batch

NULL = "__HIVE_DEFAULT_PARTITION__"
"""Stands for None, and for empty text."""
_ESCAPED = {code: f"%{code:02X}" for code in (*range(1, 32), 127, *map(ord, "\"#%'*/:=?\\{[]^"))}


class PartitionAssigner(BucketAssigner):
    """Assigns rows to directories by the values of text, number, boolean or date columns."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = tuple(columns)

    def split(self, batch: Batch, now: float) -> list[tuple[str, Batch]]:
        encoded = [batch.columns.column(name).dictionary_encode() for name in self._columns]
        codes = np.stack([_codes(column) for column in encoded])
        found, members = np.unique(codes, axis=1, return_inverse=True)
        names = [
            "/".join(
                f"{escaped(name)}={_directory(column, code)}"
                for name, column, code in zip(self._columns, encoded, combination, strict=True)
            )
            for combination in found.T.tolist()
        ]
        if len(names) == 1:
            return [(names[0], batch)]
        order = np.argsort(members.reshape(-1), kind="stable")
        ends = np.cumsum(np.bincount(members.reshape(-1), minlength=len(names)))
        return [
            (name, batch.take(rows))
            for name, rows in zip(names, np.split(order, ends[:-1]), strict=True)
        ]


def _codes(column: Any) -> Any:
    """The dictionary index of every row; -1 for null."""
    return column.indices.fill_null(-1).to_numpy(zero_copy_only=False)


def _directory(column: Any, code: int) -> str:
    if code < 0:
        return NULL
    return escaped(column.dictionary[code].cast(pa.string()).as_py()) or NULL


def escaped(text: str) -> str:
    return text.translate(_ESCAPED)


def values_of(directory: str) -> dict[str, str | None]:
    """The partition of a directory, by column."""
    pairs = (part.partition("=") for part in directory.split("/"))
    return {unquote(name): None if text == NULL else unquote(text) for name, _, text in pairs}


def check_directory(directory: str, wanted: pa.Schema, partition_by: Sequence[str]) -> None:
    """Check that existing Parquet files have the same columns.

    Raises:
        TableMismatch: they have other columns, or other partitions.
    """
    try:
        paths = [file.path for file in find_files(directory)]
    except UnreadableInput:
        return  # there is no directory yet
    paths = [path for path in paths if path.endswith(".parquet")]
    if not paths:
        return
    found = open_parquet(paths[0]).schema_arrow
    partitions = [part.partition("=")[0] for part in paths[0].split("/")[:-1] if "=" in part]
    if partitions == list(partition_by) and _is_same(found, wanted):
        return
    raise TableMismatch(
        directory,
        f"{paths[0]} has other columns than the stream: map() to them, or use another directory",
        (*(f"{field.name} {field.type}" for field in found), *partitions),
        (*(f"{field.name} {field.type}" for field in wanted), *partition_by),
    )


def _is_same(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether both are the same to a reader, ignoring order and units of time."""
    if sorted(one.names) != sorted(other.names):
        return False
    types = [(one.field(name).type, other.field(name).type) for name in one.names]
    return all(a == b for a, b in types if not any(map(_is_lenient, (a, b))))


def _is_lenient(arrow_type: Any) -> bool:
    return pa.types.is_nested(arrow_type) or pa.types.is_timestamp(arrow_type)
