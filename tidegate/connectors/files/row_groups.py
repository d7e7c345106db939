"""Columnar files that are read by row group: the common part of Parquet and ORC."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidegate.connectors.files.file_system import FoundFile
from tidegate.connectors.files.formats import FileFormat
from tidegate.connectors.splits import Cursor
from tidegate.core.errors import MissingField
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat
from tidegate.types.infer import as_type_info, typed_schema_from_arrow
from tidegate.types.typeinfo import TypeInformation


class GroupedFile(ABC):
    """An open file whose rows are stored in groups."""

    schema: pa.Schema
    groups: int

    @abstractmethod
    def batches(self, group: int, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        """The rows of a group in order."""

    def rows_from(self, group: int, stop: int) -> int | None:
        """How many rows these groups have, if known without reading them."""
        return None

    @abstractmethod
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RowGroupSplit:
    """Row groups of a file in [`group`, `stop`), the first one from `row`."""

    path: str
    group: int
    stop: int
    row: int = 0


class GroupedFormat(FileFormat):
    """Typed rows from such files. Without a type, the schema of the first file defines it."""

    def __init__(self, type_info: Any = None, *, as_dicts: bool = False) -> None:
        self._type = None if type_info is None else as_type_info(type_info)
        self._as_dicts = as_dicts

    @abstractmethod
    def open(self, path: str) -> GroupedFile:
        """Open a file; raises UnreadableInput if it is not of this kind."""

    def splits(self, files: Sequence[FoundFile], parallelism: int) -> Sequence[RowGroupSplit]:
        counts = [self._count(file.path) for file in files]
        size = max(1, -(-sum(counts) // (4 * parallelism)))
        return [
            RowGroupSplit(file.path, group, min(group + size, count))
            for file, count in zip(files, counts, strict=True)
            for group in range(0, count, size)
        ]

    def _count(self, path: str) -> int:
        file = self.open(path)
        try:
            return file.groups
        finally:
            file.close()

    def cursor(self, split: RowGroupSplit, format: ArrowFormat | None) -> Cursor:
        return RowGroupCursor(split, self.open(split.path), format)

    def produced_type(self, paths: Sequence[str]) -> TypeInformation | None:
        if self._as_dicts:
            return None
        if self._type is None and paths:
            file = self.open(paths[0])
            self._type = typed_schema_from_arrow(file.schema)
            file.close()
        return self._type


class RowGroupCursor(Cursor):
    """Reads row groups in batches; without a format, the rows are dicts."""

    def __init__(self, split: RowGroupSplit, file: GroupedFile, format: ArrowFormat | None) -> None:
        self._split = split
        self._format = format
        self._file = file
        self._columns = self._wanted_columns()
        self._group = split.group
        self._row = split.row
        self._batches = self._read_group()
        self._batch: pa.RecordBatch | None = None

    def _wanted_columns(self) -> list[str] | None:
        if self._format is None or self._format.is_scalar:
            return None
        available = self._file.schema.names
        for name in self._format.schema.names:
            if name not in available:
                raise MissingField(name, tuple(available), self._split.path)
        return list(self._format.schema.names)

    def _read_group(self) -> Iterator[pa.RecordBatch]:
        """The batches of the current row group from the current row on."""
        if self._group >= self._split.stop:
            return
        skip = self._row
        for batch in self._file.batches(self._group, self._columns):
            if skip < batch.num_rows:
                yield batch.slice(skip)
            skip = max(0, skip - batch.num_rows)

    def read(self, max_records: int) -> Batch | None:
        while self._batch is None:
            self._batch = next(self._batches, None)
            if self._batch is None:
                if self._group >= self._split.stop:
                    return None
                self._group, self._row = self._group + 1, 0
                self._batches = self._read_group()
        columns = self._batch.slice(0, max_records)
        rest = self._batch.slice(columns.num_rows)
        self._batch = rest if rest.num_rows else None
        self._row += columns.num_rows
        if self._format is None:
            return Batch.of_records(columns.to_pylist())
        return Batch.of_columns(self._format.conform(columns), self._format)

    @property
    def is_done(self) -> bool:
        return self._group >= self._split.stop

    def position(self) -> RowGroupSplit:
        return replace(self._split, group=self._group, row=self._row)

    def pending_records(self) -> int | None:
        rows = self._file.rows_from(self._group, self._split.stop)
        return None if rows is None else rows - self._row

    def close(self) -> None:
        self._file.close()
