"""Tables of state in Parquet files, written, read and verified by row group."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh3_64, xxh3_64_hexdigest

from tidegate.core.errors import CorruptCheckpoint
from tidegate.state.backend import StateChunk, StateMetadata
from tidegate.state.canonical.tables import (
    KEY_GROUP,
    Entries,
    TableForm,
    choose_form,
    entries_of,
    table_of,
)
from tidegate.state.descriptors import StateDescriptor
from tidegate.state.keys.key_order import Runs
from tidegate.state.pointers import FileSegment, RowGroupHandle, StoredFile, TableHandle

ROWS_PER_GROUP: Final = 1 << 16
_BYTES_PER_GROUP: Final = 16 << 20
_LONGEST_NAME: Final = 120
_UNSEEN: Final = re.compile(r"^[._]")
"""Spark ignores files with such names."""


def directory_name(name: str) -> str:
    """A directory name for a user-defined name."""
    safe = _UNSEEN.sub(lambda found: f"%{ord(found[0]):02X}", quote(name, safe=" "))
    if len(safe) > _LONGEST_NAME:
        safe = f"{safe[:_LONGEST_NAME]}-{xxh3_64_hexdigest(name.encode('utf-8', 'replace'))}"
    return safe or "%"


class OpenFile(Protocol):
    """A file that is being written."""

    file: StoredFile

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class TableWriter:
    """Writes the entries of one state to one or more Parquet files.

    It starts another file when the type of keys or columns changes.
    """

    def __init__(
        self,
        metadata: StateMetadata,
        declared: StateDescriptor | None,
        create: Callable[[], OpenFile],
    ) -> None:
        self._metadata = metadata
        self._declared = declared
        self._create = create
        self._held: list[Entries] = []
        self._rows = 0
        self._bytes = 0
        self._form: TableForm | None = None
        self._file: _ParquetFile | None = None
        self._tables: list[TableHandle] = []

    def add(self, chunk: StateChunk) -> None:
        is_full = self._rows >= ROWS_PER_GROUP or self._bytes >= _BYTES_PER_GROUP
        if self._held and (is_full or chunk.groups[0][0] < self._held[-1].groups[-1][0]):
            self._flush()
        self._held.append(entries_of(chunk, self._metadata.form))
        self._rows += len(self._held[-1])
        self._bytes += len(chunk.payload)

    def close(self) -> list[TableHandle]:
        """Finish; returns the written tables, none if there were no entries."""
        self._flush()
        self._end_file()
        return self._tables

    def _flush(self) -> None:
        if not self._held:
            return
        if self._form is None:
            self._form = choose_form(self._metadata, self._held, self._declared)
        batches = self._batches(self._form)
        if batches is None:
            self._end_file()
            self._form = choose_form(self._metadata, self._held, self._declared)
            batches = self._batches(self._form)
            assert batches is not None, "the form was chosen for these entries"
        if self._file is None:
            self._file = _ParquetFile(self._create(), self._form.schema)
        self._file.write(pa.Table.from_batches(batches), _joined(self._held))
        self._held, self._rows, self._bytes = [], 0, 0

    def _batches(self, form: TableForm) -> list[pa.RecordBatch] | None:
        batches = [table_of(each, form) for each in self._held]
        known = [batch for batch in batches if batch is not None]
        return known if len(known) == len(batches) else None

    def _end_file(self) -> None:
        if self._file is not None:
            self._tables.append(self._file.close(self._metadata.name))
            self._file = None


def _joined(entries: Sequence[Entries]) -> Runs:
    runs: dict[int, int] = {}
    for each in entries:
        for group, count in each.groups:
            runs[group] = runs.get(group, 0) + count
    return tuple(runs.items())


class _ParquetFile:
    """A Parquet file that records the positions and checksums of its row groups."""

    def __init__(self, file: OpenFile, schema: pa.Schema) -> None:
        self._file = file
        self._sink = _Sink(file)
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._sink, "w"),
            schema,
            compression="zstd",
            use_dictionary=[KEY_GROUP],  # type: ignore[arg-type]
            write_page_index=False,
        )
        self._row_groups: list[RowGroupHandle] = []

    def write(self, rows: pa.Table, groups: Runs) -> None:
        self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        self._row_groups.append(RowGroupHandle(groups, self._sink.segment()))

    def close(self, state: str) -> TableHandle:
        self._writer.close()
        self._file.close()
        return TableHandle(state, tuple(self._row_groups), self._sink.segment())


class _Sink(io.RawIOBase):
    """Forwards bytes, and computes their number and checksum."""

    def __init__(self, target: OpenFile) -> None:
        self._target = target
        self._start = 0
        self._position = 0
        self._checksum = xxh3_64()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raw = bytes(data)
        self._target.write(raw)
        self._checksum.update(raw)
        self._position += len(raw)
        return len(raw)

    def tell(self) -> int:
        return self._position

    def segment(self) -> FileSegment:
        """The segment written since the last call."""
        size = self._position - self._start
        segment = FileSegment(self._target.file, self._start, size, self._checksum.intdigest())
        self._start, self._checksum = self._position, xxh3_64()
        return segment


class OpenedTable:
    """A stored table, read in verified parts."""

    def __init__(
        self, handle: TableHandle, read: Callable[[FileSegment], bytes], where: str
    ) -> None:
        self.handle = handle
        self._read = read
        self._where = where
        try:
            # Arrow finds the metadata at the end of the buffer.
            with pq.ParquetFile(pa.BufferReader(read(handle.footer))) as file:
                self._metadata = file.metadata
                self.schema: pa.Schema = file.schema_arrow
            self.form = TableForm.of(self.schema)
        except (pa.ArrowException, OSError, KeyError, ValueError) as problem:
            raise CorruptCheckpoint(where, "a table of state", str(problem)) from None
        found, expected = self._metadata.num_row_groups, len(handle.row_groups)
        if found != expected:
            raise CorruptCheckpoint(where, f"{expected} row groups", f"{found}")

    def rows(self, number: int) -> pa.RecordBatch:
        content = self.handle.row_groups[number].content
        source = pa.PythonFile(_FilePart(content.offset, self._read(content)), "r")
        try:
            with pq.ParquetFile(source, metadata=self._metadata) as file:
                table = file.read_row_group(number, use_threads=False).combine_chunks()
            (rows,) = table.to_batches()
        except (pa.ArrowException, OSError, ValueError) as problem:
            raise CorruptCheckpoint(self._where, "a row group", str(problem)) from None
        return rows


class _FilePart(io.RawIOBase):
    """A file of which only one part is available."""

    def __init__(self, offset: int, data: bytes) -> None:
        self._offset = offset
        self._data = memoryview(data)
        self._end = offset + len(data)
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._end}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        stop = self._end if size < 0 else min(self._position + size, self._end)
        if self._position < self._offset:
            raise OSError(f"byte {self._position} is outside the available part")
        start = self._position - self._offset
        self._position = max(stop, self._position)
        return bytes(self._data[start : stop - self._offset])
