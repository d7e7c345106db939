"""Copies the contents of a checkpoint to another one, except for unwanted state."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tidegate.state.pointers import (
    FileSegment,
    KeyedStateHandle,
    OperatorHandle,
    RowGroupHandle,
    Segment,
    TableHandle,
)
from tidegate.state.snapshot.reader import FileResolver, StoredImage, read_blocks, read_segment
from tidegate.state.snapshot.writer import SnapshotWriter, TableDirectory


class Carrier:
    """Copies handles with everything they point to; every byte is verified."""

    def __init__(self, resolve: FileResolver, writer: SnapshotWriter) -> None:
        self._resolve = resolve
        self._writer = writer

    def operator(
        self, handle: OperatorHandle, directory: TableDirectory, without: Collection[str] = ()
    ) -> OperatorHandle:
        """Copy a handle, without the keyed states of these names."""
        channels = tuple(
            replace(each, content=self._segment(each.content)) for each in handle.in_flight
        )
        return replace(
            handle,
            keyed=None if handle.keyed is None else self._keyed(handle.keyed, directory, without),
            operator=None if handle.operator is None else self._segment(handle.operator),
            in_flight=channels,
            owned=tuple(
                replace(
                    each,
                    file=self._writer.write_file(read_blocks(each, self._resolve), each.file.name),
                )
                for each in handle.owned
            ),
        )

    def _keyed(
        self, handle: KeyedStateHandle, directory: TableDirectory, without: Collection[str]
    ) -> KeyedStateHandle:
        kept = tuple(state for state in handle.metadata if state.name not in without)
        if handle.native_form is not None and without:
            # The files of a database contain all states, and cannot be combined with others.
            image = StoredImage(handle, self._resolve)
            tables = self._writer.write_tables(image, directory, {state.name for state in kept})
            return replace(handle, metadata=kept, native_form=None, native_files=(), tables=tables)
        return replace(
            handle,
            metadata=kept,
            chunks=tuple(
                replace(chunk, payload=self._segment(chunk.payload))
                for chunk in handle.chunks
                if chunk.state not in without
            ),
            native_files=tuple(
                replace(file, content=self._whole_file(file.content))
                for file in handle.native_files
            ),
            tables=tuple(
                self._table(table) for table in handle.tables if table.state not in without
            ),
        )

    def _segment(self, segment: Segment) -> Segment:
        return self._writer.write(read_segment(segment, self._resolve))

    def _whole_file(self, content: Segment) -> Segment:
        if not isinstance(content, FileSegment):
            return self._segment(content)
        file = self._writer.write_file([read_segment(content, self._resolve)])
        return replace(content, file=file, offset=0)

    def _table(self, table: TableHandle) -> TableHandle:
        parts = (read_segment(segment, self._resolve) for segment in table.segments)
        file = self._writer.write_file(parts, table.footer.file.name)
        return TableHandle(
            table.state,
            tuple(
                RowGroupHandle(each.groups, replace(each.content, file=file))
                for each in table.row_groups
            ),
            replace(table.footer, file=file),
        )
