"""ORC files: read by stripe and row, written by column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import IO, Any

import numpy as np
import pyarrow as pa
from pyarrow import orc

from tidegate.connectors.files.encodings import FileEncoder, FileEncoding, columns_as
from tidegate.connectors.files.file_system import open_file
from tidegate.connectors.files.row_groups import GroupedFile, GroupedFormat
from tidegate.core.errors import UnreadableInput
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat


class OrcFormat(GroupedFormat):
    """Typed rows from ORC. Without a type, the schema of the first file defines it."""

    def open(self, path: str) -> GroupedFile:
        return _OrcFile(path)


class _OrcFile(GroupedFile):
    def __init__(self, path: str) -> None:
        self._stream = open_file(path)
        try:
            self._file = orc.ORCFile(self._stream)
        except (pa.ArrowInvalid, OSError) as error:
            self._stream.close()
            advice = "specify ORC files, or the actual format of the files"
            raise UnreadableInput(path, str(error), advice) from None
        self.schema = self._file.schema
        self.groups = self._file.nstripes

    def batches(self, group: int, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        batch = self._file.read_stripe(group, columns)
        yield batch if columns is None else batch.select(columns)

    def close(self) -> None:
        self._stream.close()


class OrcEncoding(FileEncoding):
    """ORC, for streams of rows of this type."""

    suffix = ".orc"

    def __init__(self, format: ArrowFormat, options: Mapping[str, Any] | None = None) -> None:
        """`options` are those of `pyarrow.orc.ORCWriter`."""
        self._convert = columns_as(format)
        self._schema = format.schema
        self._options = dict(options or {})

    def open(self, stream: IO[bytes]) -> FileEncoder:
        return _OrcEncoder(orc.ORCWriter(stream, **self._options), self._schema, self._convert)


def _compact(column: pa.Array[Any]) -> pa.Array[Any]:
    """The same values: of the slice of a struct, Arrow would write the first ones of the struct."""
    if not pa.types.is_nested(column.type):
        return column
    return column.take(np.arange(len(column)))


class _OrcEncoder(FileEncoder):
    def __init__(self, writer: orc.ORCWriter, schema: pa.Schema, convert: Any) -> None:
        self._writer = writer
        self._schema = schema
        self._convert = convert
        self._is_empty = True

    def write(self, batch: Batch) -> None:
        self._is_empty = False
        rows = self._convert(batch)
        columns = list(map(_compact, rows.columns))
        self._writer.write(pa.Table.from_arrays(columns, schema=rows.schema))

    def finish(self) -> None:
        if self._is_empty:
            self._writer.write(self._schema.empty_table())
        self._writer.close()

    def discard(self) -> None:
        with suppress(OSError, ValueError):
            self._writer.close()
