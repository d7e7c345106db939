"""Parquet files: read by row group and row, written by column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyarrow import parquet as pq

from tidegate.connectors.files.file_system import FoundFile
from tidegate.connectors.files.formats import FileFormat
from tidegate.connectors.splits import Cursor
from tidegate.core.errors import MissingField, UnreadableInput
from tidegate.storage.locations import resolve
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat
from tidegate.types.infer import as_type_info, typed_schema_from_arrow
from tidegate.types.typeinfo import TypeInformation

_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class RowGroupSplit:
    """Row groups of a file from `group` up to, not including, `stop`, the first from `row` on."""

    path: str
    group: int
    stop: int
    row: int = 0


class ParquetFormat(FileFormat):
    """Typed rows from Parquet. Without a type the first file's schema tells it."""

    def __init__(self, type_info: Any = None) -> None:
        self._type = None if type_info is None else as_type_info(type_info)

    def splits(self, files: Sequence[FoundFile], parallelism: int) -> Sequence[RowGroupSplit]:
        counts = [open_parquet(file.path).num_row_groups for file in files]
        size = max(1, -(-sum(counts) // (4 * parallelism)))
        return [
            RowGroupSplit(file.path, group, min(group + size, count))
            for file, count in zip(files, counts, strict=True)
            for group in range(0, count, size)
        ]

    def cursor(self, split: RowGroupSplit, format: ArrowFormat | None) -> Cursor:
        return RowGroupCursor(split, format)

    def produced_type(self, paths: Sequence[str]) -> TypeInformation | None:
        if self._type is None and paths:
            self._type = typed_schema_from_arrow(open_parquet(paths[0]).schema_arrow)
        return self._type


class RowGroupCursor(Cursor):
    """Reads row groups in batches; without a format the rows are dicts."""

    def __init__(self, split: RowGroupSplit, format: ArrowFormat | None) -> None:
        self._split = split
        self._format = format
        self._file = open_parquet(split.path)
        self._columns = self._wanted_columns()
        self._group = split.group
        self._row = split.row
        self._batches = self._read_group()
        self._batch: pa.RecordBatch | None = None

    def _wanted_columns(self) -> list[str] | None:
        if self._format is None or self._format.is_scalar:
            return None
        available = self._file.schema_arrow.names
        for name in self._format.schema.names:
            if name not in available:
                raise MissingField(name, tuple(available), self._split.path)
        return list(self._format.schema.names)

    def _read_group(self) -> Iterator[pa.RecordBatch]:
        """The batches of the current row group from the current row on."""
        if self._group >= self._split.stop:
            return
        skip = self._row
        for batch in self._file.iter_batches(
            _ROWS_AT_ONCE, row_groups=[self._group], columns=self._columns, use_threads=False
        ):
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

    def pending_records(self) -> int:
        groups = range(self._group, self._split.stop)
        rows = sum(self._file.metadata.row_group(group).num_rows for group in groups)
        return rows - self._row

    def close(self) -> None:
        self._file.close()


def open_parquet(path: str) -> pq.ParquetFile:
    file_system, inner = resolve(path)
    try:
        return pq.ParquetFile(inner, filesystem=file_system)
    except FileNotFoundError:
        problem, advice = "there is no such file", "keep files until the job has read them"
    except (pa.ArrowInvalid, OSError) as error:
        problem, advice = str(error), "give Parquet files, or the format that the files have"
    raise UnreadableInput(path, problem, advice)
