"""Parquet files, read by row group and row."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import parquet as pq

from tidegate.connectors.files.row_groups import GroupedFile, GroupedFormat
from tidegate.core.errors import UnreadableInput
from tidegate.storage.locations import resolve

_ROWS_AT_ONCE = 1 << 16


class ParquetFormat(GroupedFormat):
    """Typed rows from Parquet. Without a type, the schema of the first file defines it."""

    def open(self, path: str) -> GroupedFile:
        return _GroupedParquet(open_parquet(path))


class _GroupedParquet(GroupedFile):
    def __init__(self, file: pq.ParquetFile) -> None:
        self._file = file
        self.schema = file.schema_arrow
        self.groups = file.num_row_groups

    def batches(self, group: int, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        return self._file.iter_batches(
            _ROWS_AT_ONCE, row_groups=[group], columns=columns, use_threads=False
        )

    def rows_from(self, group: int, stop: int) -> int:
        return sum(self._file.metadata.row_group(each).num_rows for each in range(group, stop))

    def close(self) -> None:
        self._file.close()


def open_parquet(path: str) -> pq.ParquetFile:
    file_system, inner = resolve(path)
    try:
        return pq.ParquetFile(inner, filesystem=file_system)
    except FileNotFoundError:
        problem, advice = "there is no such file", "keep files until the job has read them"
    except (pa.ArrowInvalid, OSError) as error:
        problem, advice = str(error), "specify Parquet files, or the actual format of the files"
    raise UnreadableInput(path, problem, advice)
