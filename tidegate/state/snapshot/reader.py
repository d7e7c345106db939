"""Reads stored state, and verifies every byte of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from xxhash import xxh3_64, xxh3_64_intdigest

from tidegate.core.errors import BlobNotFound, CorruptCheckpoint
from tidegate.state.backend import KeyedStateImage, StateChunk
from tidegate.state.canonical.files import OpenedTable
from tidegate.state.canonical.tables import chunk_of_table
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.keys.key_order import Runs
from tidegate.state.pointers import (
    ChunkHandle,
    FileSegment,
    InlineBytes,
    KeyedStateHandle,
    NativeFileHandle,
    Segment,
    StoredFile,
    TableHandle,
    path_of,
)
from tidegate.storage.blob_store import BlobStore
from tidegate.storage.filesystem import open_store
from tidegate.storage.locations import below, shown

_READ_AT_ONCE: Final = 16 << 20
_SMALL_GAP: Final = 256 << 10
"""Reading this many unneeded bytes is cheaper than another request."""
_PARALLEL_READS: Final = 4


FileResolver: TypeAlias = Callable[[StoredFile], tuple[BlobStore, str]]
"""Resolves a file of a checkpoint to its store and path."""


class CheckpointLocation(NamedTuple):
    """Where the files of a checkpoint are; sent to the slots that restore from it."""

    job_directory: str
    """A path or URL."""
    name: str
    """The name of the checkpoint in it, such as "chk-7"."""

    def resolver(self) -> FileResolver:
        return resolver_in(open_store(self.job_directory), self.name)


def resolver_in(store: BlobStore, checkpoint: str) -> FileResolver:
    """A resolver for the files of a checkpoint, such as "chk-7", in the store of its job."""
    return lambda file: (store, path_of(file, checkpoint))


def read_segment(segment: Segment, resolve: FileResolver) -> bytes:
    """The bytes of a segment, verified."""
    match segment:
        case InlineBytes(data):
            return data
        case FileSegment():
            data = _read(resolve, segment.file, segment.offset, segment.size)
            _verify(xxh3_64_intdigest(data), segment, resolve)
            return data


def read_blocks(segment: FileSegment, resolve: FileResolver) -> Iterator[bytes]:
    """The bytes of a segment piece by piece; verified after the last one."""
    checksum = xxh3_64()
    for offset in range(0, segment.size, _READ_AT_ONCE):
        wanted = min(_READ_AT_ONCE, segment.size - offset)
        block = _read(resolve, segment.file, segment.offset + offset, wanted)
        checksum.update(block)
        yield block
    _verify(checksum.intdigest(), segment, resolve)


def location_of(file: StoredFile, resolve: FileResolver) -> str:
    """The location of a file, for messages."""
    store, path = resolve(file)
    return shown(below(store.url, path)).partition("?")[0]


class StoredImage(KeyedStateImage):
    """The keyed state of one operator of a subtask in a checkpoint."""

    def __init__(self, handle: KeyedStateHandle, resolve: FileResolver) -> None:
        self.metadata = handle.metadata
        self.max_parallelism = handle.max_parallelism
        self.key_groups = handle.key_groups
        self.native_form = handle.native_form
        self._handle = handle
        self._resolve = resolve

    def chunks(self, key_groups: KeyGroupRange | None = None) -> Iterator[StateChunk]:
        if self.native_form is not None:
            return self._chunks_of_database(key_groups)
        wanted = [chunk for chunk in self._handle.chunks if _holds(chunk.groups, key_groups)]
        return chain(self._read_chunks(wanted), self._chunks_of_tables(key_groups))

    def tables(self, state: str | None = None) -> Iterator[OpenedTable]:
        """The tables with entries of a state, or of all."""
        for handle in self._handle.tables:
            if state in (None, handle.state):
                yield self._opened(handle)

    def _opened(self, handle: TableHandle) -> OpenedTable:
        def read(segment: FileSegment) -> bytes:
            return read_segment(segment, self._resolve)

        return OpenedTable(handle, read, location_of(handle.footer.file, self._resolve))

    def _chunks_of_tables(self, key_groups: KeyGroupRange | None) -> Iterator[StateChunk]:
        for handle in self._handle.tables:
            row_groups = list(enumerate(handle.row_groups))
            wanted = [number for number, each in row_groups if _holds(each.groups, key_groups)]
            if wanted:
                table = self._opened(handle)
                for number in wanted:
                    groups = handle.row_groups[number].groups
                    yield chunk_of_table(table.rows(number), table.form, groups)

    def fetch(self, directory: Path) -> None:
        if self.native_form is None:
            super().fetch(directory)
        directory.mkdir(parents=True)
        with ThreadPoolExecutor(_PARALLEL_READS, "tidegate-fetch") as threads:
            for _ in threads.map(
                lambda file: self._fetch_file(file, directory), self._handle.native_files
            ):
                pass

    def _read_chunks(self, handles: list[ChunkHandle]) -> Iterator[StateChunk]:
        for run in _runs(handles):
            first, last = run[0].payload, run[-1].payload
            if not (isinstance(first, FileSegment) and isinstance(last, FileSegment)):
                yield from (
                    _chunk(handle, read_segment(handle.payload, self._resolve)) for handle in run
                )
                continue
            size = last.offset + last.size - first.offset
            data = memoryview(_read(self._resolve, first.file, first.offset, size))
            for handle in run:
                segment = handle.payload
                assert isinstance(segment, FileSegment)
                start = segment.offset - first.offset
                payload = bytes(data[start : start + segment.size])
                _verify(xxh3_64_intdigest(payload), segment, self._resolve)
                yield _chunk(handle, payload)

    def _chunks_of_database(self, key_groups: KeyGroupRange | None) -> Iterator[StateChunk]:
        from tidegate.state.rocksdb.image import chunks_of_database

        with tempfile.TemporaryDirectory(prefix="tidegate-image-") as parent:
            directory = Path(parent) / "database"
            self.fetch(directory)
            yield from chunks_of_database(directory, key_groups)

    def _fetch_file(self, file: NativeFileHandle, directory: Path) -> None:
        with (directory / file.name).open("xb") as copy:
            match file.content:
                case InlineBytes(data):
                    copy.write(data)
                case FileSegment() as segment:
                    copy.writelines(read_blocks(segment, self._resolve))


def _chunk(handle: ChunkHandle, payload: bytes) -> StateChunk:
    return StateChunk(handle.state, handle.groups, payload)


def _holds(groups: Runs, key_groups: KeyGroupRange | None) -> bool:
    return key_groups is None or any(group in key_groups for group, _ in groups)


def _runs(handles: Iterable[ChunkHandle]) -> Iterator[list[ChunkHandle]]:
    """Group consecutive chunks of a file, so that one read gets them all."""
    run: list[ChunkHandle] = []
    for handle in handles:
        if run and not _continues(run[0].payload, run[-1].payload, handle.payload):
            yield run
            run = []
        run.append(handle)
    if run:
        yield run


def _continues(first: Segment, last: Segment, following: Segment) -> bool:
    if not (
        isinstance(first, FileSegment)
        and isinstance(last, FileSegment)
        and isinstance(following, FileSegment)
    ):
        return False
    return (
        following.file == first.file
        and 0 <= following.offset - (last.offset + last.size) <= _SMALL_GAP
        and following.offset + following.size - first.offset <= _READ_AT_ONCE
    )


def _read(resolve: FileResolver, file: StoredFile, offset: int, size: int) -> bytes:
    store, path = resolve(file)
    try:
        data = store.read(path, offset, size)
    except BlobNotFound:
        raise CorruptCheckpoint(location_of(file, resolve), "a file", "none") from None
    if len(data) != size:
        raise CorruptCheckpoint(
            location_of(file, resolve),
            f"at least {offset + size} bytes",
            f"an end after {offset + len(data)}",
        )
    return data


def _verify(checksum: int, segment: FileSegment, resolve: FileResolver) -> None:
    if checksum != segment.checksum:
        raise CorruptCheckpoint(
            location_of(segment.file, resolve),
            f"{segment.size} bytes at byte {segment.offset} with the checksum "
            f"{segment.checksum:016x}",
            f"{checksum:016x}",
        )
