"""Writes the state of one subtask in one checkpoint.

    writer = SnapshotWriter(target, is_canceled)
    handle = OperatorHandle(keyed=writer.write_keyed(...), operator=writer.write(...), ...)
    writer.close()       durable: the handles may be acknowledged
    writer.discard()     instead, after an error: removes everything

A subtask writes one file, however many states it has, and none at all if its state is small.
Immutable files of an embedded database are separate files that checkpoints share. In the canonical
form, every keyed state is a separate Parquet file, however small.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from xxhash import xxh3_64, xxh3_64_intdigest

from tidegate.core.errors import SnapshotWriteAborted, StateTooLarge, StorageError
from tidegate.core.modes import SavepointFormat
from tidegate.state.backend import (
    FrozenState,
    KeyedStateImage,
    NativeFile,
    StateChunk,
    StateMetadata,
)
from tidegate.state.canonical.files import TableWriter, directory_name
from tidegate.state.canonical.tables import TIMERS
from tidegate.state.descriptors import StateDescriptor
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.pointers import (
    ChunkHandle,
    FileScope,
    FileSegment,
    InlineBytes,
    KeyedStateHandle,
    NativeFileHandle,
    Segment,
    StoredFile,
    TableHandle,
    path_of,
)
from tidegate.storage.blob_store import BlobStore, BlobWriter

_BLOCK: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class FileTarget:
    """State goes to files, unless it is small."""

    store: BlobStore
    """The directory of the job."""
    directory: str
    """The directory of the checkpoint, such as "chk-7"."""
    inline_threshold: int
    """State of a subtask up to this many bytes is stored in its pointers."""
    shares: bool = True
    """Whether other checkpoints may reference its files; a savepoint is self-contained."""
    format: SavepointFormat = SavepointFormat.NATIVE


@dataclass(frozen=True, slots=True)
class MemoryTarget:
    """State is sent to the driver in its pointers, up to a limit per subtask."""

    limit: int


Target = FileTarget | MemoryTarget


@dataclass(frozen=True, slots=True)
class TableDirectory:
    """Where the tables of an operator go: by its uid and the names of its states."""

    operator: str
    """The uid, or the id if it has none."""
    subtask: int

    def new_file(self, metadata: StateMetadata) -> str:
        """A unique file name within the savepoint."""
        root, state = "state", metadata.name
        if metadata.declaration == TIMERS:
            root, state = "timers", metadata.name.rpartition("/")[2]
        directory = f"{root}/{directory_name(self.operator)}/{directory_name(state)}"
        return f"{directory}/part-{self.subtask:05}-{secrets.token_hex(8)}.parquet"


class SnapshotWriter:
    """Writes the state of one subtask in one checkpoint. Used by one thread."""

    def __init__(
        self,
        target: Target,
        is_canceled: Callable[[], bool] = lambda: False,
        *,
        transfer_threads: int = 1,
    ) -> None:
        self._target = target
        self._transfer_threads = transfer_threads
        """How many files of a database are copied concurrently."""
        self._is_canceled = is_canceled
        self._file: _OpenFile | None = None
        self._own_files: list[_OpenFile] = []
        self._written: list[StoredFile] = []
        match target:
            case FileTarget(inline_threshold=room) | MemoryTarget(limit=room):
                self._room = room
        self.bytes_written = 0
        """The incremental size: without reused files of earlier checkpoints."""

    def write(self, payload: bytes) -> Segment:
        """Store bytes; the caller knows how to decode them."""
        self._stop_if_canceled()
        return self._inline(payload) if self._fits(len(payload)) else self._append(payload)

    def write_keyed(
        self,
        frozen: FrozenState,
        key_groups: KeyGroupRange,
        reusable: Mapping[str, FileSegment],
        directory: TableDirectory | None = None,
    ) -> KeyedStateHandle:
        """Store keyed state: its native files if it has them, otherwise its chunks.

        Args:
            frozen: the state.
            key_groups: those of the subtask.
            reusable: shared files of the base checkpoint, by their name in the database.
            directory: where tables go, if the target requires them.
        """
        target = self._target
        handle = KeyedStateHandle(
            metadata=frozen.metadata,
            max_parallelism=frozen.max_parallelism,
            key_groups=key_groups,
        )
        if isinstance(target, FileTarget) and target.format is SavepointFormat.CANONICAL:
            tables = self.write_tables(frozen, directory or TableDirectory("state", 0))
            return replace(handle, tables=tables)
        if frozen.native_form is None:
            return replace(handle, chunks=tuple(self._write_chunks(frozen.chunks())))
        files = tuple(self._write_native(frozen.native_files(), reusable))
        return replace(handle, native_form=frozen.native_form, native_files=files)

    def write_tables(
        self,
        image: KeyedStateImage,
        directory: TableDirectory,
        states: Collection[str] | None = None,
    ) -> tuple[TableHandle, ...]:
        """Store the states with these names, by default all, as tables."""
        writers = {
            each.name: self.table_writer(each, directory, image.descriptors.get(each.name))
            for each in image.metadata
            if states is None or each.name in states
        }
        for chunk in image.chunks():
            self._stop_if_canceled()
            if states is None or chunk.state in states:
                writers[chunk.state].add(chunk)
        return tuple(table for writer in writers.values() for table in writer.close())

    def table_writer(
        self,
        metadata: StateMetadata,
        directory: TableDirectory,
        declared: StateDescriptor | None = None,
    ) -> TableWriter:
        return TableWriter(metadata, declared, partial(self._open_table, metadata, directory))

    def _open_table(self, metadata: StateMetadata, directory: TableDirectory) -> _OpenFile:
        file = self._open(FileScope.EXCLUSIVE, directory.new_file(metadata))
        self._own_files.append(file)
        return file

    def write_file(self, parts: Iterable[bytes], name: str | None = None) -> StoredFile:
        """Store a separate file next to the metadata; its name is random by default."""
        self._stop_if_canceled()
        file = self._open(FileScope.EXCLUSIVE, name)
        self._own_files.append(file)
        for part in parts:
            self._stop_if_canceled()
            file.write(part)
        file.close()
        return file.file

    def close(self) -> None:
        """Make everything written durable."""
        self._stop_if_canceled()
        if self._file is not None:
            self._file.close()
            self._file = None
        self.bytes_written += sum(file.size for file in self._own_files)
        self._own_files.clear()
        self._stop_if_canceled()  # after a slow write, nobody else may be left to delete it

    def discard(self) -> None:
        """Remove everything written; only before it has been acknowledged."""
        for begun in (self._file, *self._own_files):
            if begun is not None:
                begun.abandon()
        self._file = None
        self._own_files.clear()
        if isinstance(self._target, FileTarget):
            for file in self._written:
                with suppress(StorageError):  # the next start of the job removes it
                    self._target.store.delete(path_of(file, self._target.directory))
        self._written.clear()

    def _write_chunks(self, chunks: Iterator[StateChunk]) -> Iterator[ChunkHandle]:
        """Store all chunks inline, or all of them in the file."""
        held: list[StateChunk] = []
        size = 0
        for chunk in chunks:
            self._stop_if_canceled()
            held.append(chunk)
            size += len(chunk.payload)
            if not self._fits(size):
                break
        else:
            yield from (_handle(chunk, self._inline(chunk.payload)) for chunk in held)
            return
        yield from (_handle(chunk, self._append(chunk.payload)) for chunk in held)
        held.clear()
        for chunk in chunks:
            self._stop_if_canceled()
            yield _handle(chunk, self._append(chunk.payload))

    def _write_native(
        self, files: Sequence[NativeFile], reusable: Mapping[str, FileSegment]
    ) -> Iterator[NativeFileHandle]:
        sizes = {file.name: file.path.stat().st_size for file in files}
        reused = {file.name for file in files if file.is_immutable and file.name in reusable}
        is_small = not reused and self._fits(sum(sizes.values()))
        new = [file for file in files if file.is_immutable and file.name not in reused]
        copies = {} if is_small else self._copy_all_to_shared(new)
        for file in files:
            self._stop_if_canceled()
            content: Segment
            if file.name in reused:
                content = reusable[file.name]
            elif is_small or (not file.is_immutable and self._fits(sizes[file.name])):
                content = self._inline(file.path.read_bytes())
            elif file.is_immutable:
                content = copies[file.name]
            else:
                content = self._append(file.path.read_bytes())
            yield NativeFileHandle(file.name, content)

    def _fits(self, size: int) -> bool:
        if size <= self._room:
            return True
        if isinstance(self._target, MemoryTarget):
            raise StateTooLarge(self._target.limit - self._room + size, self._target.limit)
        return False

    def _inline(self, payload: bytes) -> InlineBytes:
        self._room -= len(payload)
        self.bytes_written += len(payload)
        return InlineBytes(payload)

    def _append(self, payload: bytes) -> FileSegment:
        if self._file is None:
            self._file = self._open(FileScope.EXCLUSIVE)
        segment = FileSegment(
            self._file.file, self._file.size, len(payload), xxh3_64_intdigest(payload)
        )
        self._file.write(payload)
        self.bytes_written += len(payload)
        return segment

    def _copy_all_to_shared(self, files: Sequence[NativeFile]) -> dict[str, FileSegment]:
        with ThreadPoolExecutor(self._transfer_threads, "tidegate-transfer") as threads:
            copies = list(threads.map(self._copy_to_shared, files))
        self.bytes_written += sum(copy.size for copy in copies)
        return {file.name: copy for file, copy in zip(files, copies, strict=True)}

    def _copy_to_shared(self, source: NativeFile) -> FileSegment:
        checksum = xxh3_64()
        assert isinstance(self._target, FileTarget)
        copy = self._open(FileScope.SHARED if self._target.shares else FileScope.EXCLUSIVE)
        try:
            with source.path.open("rb", buffering=0) as file:
                while block := file.read(_BLOCK):
                    checksum.update(block)
                    copy.write(block)
                    self._stop_if_canceled()
            copy.close()
        except BaseException:
            copy.abandon()
            raise
        return FileSegment(copy.file, 0, copy.size, checksum.intdigest())

    def _open(self, scope: FileScope, name: str | None = None) -> _OpenFile:
        assert isinstance(self._target, FileTarget)
        file = StoredFile(scope, name or secrets.token_hex(16))
        self._written.append(file)
        return _OpenFile(file, self._target.store.writer(path_of(file, self._target.directory)))

    def _stop_if_canceled(self) -> None:
        if self._is_canceled():
            raise SnapshotWriteAborted("the checkpoint was aborted while its state was written")


class _OpenFile:
    """A file that is being written."""

    def __init__(self, file: StoredFile, context: AbstractContextManager[BlobWriter]) -> None:
        self.file = file
        self.size = 0
        self._is_closed = False
        self._context = context
        self._writer = context.__enter__()

    def write(self, data: bytes) -> None:
        # Arrow writes the end of a Parquet file even if its writer is abandoned.
        if not self._is_closed:
            self._writer.write(data)
            self.size += len(data)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._context.__exit__(None, None, None)

    def abandon(self) -> None:
        """Abandon the file; the store removes it."""
        if self._is_closed:
            return
        self._is_closed = True
        reason = SnapshotWriteAborted("the file is removed")
        with suppress(SnapshotWriteAborted, StorageError):
            self._context.__exit__(SnapshotWriteAborted, reason, None)


def _handle(chunk: StateChunk, payload: Segment) -> ChunkHandle:
    return ChunkHandle(chunk.state, chunk.groups, payload)
