"""Files that a source keeps beside its positions, carried along by a savepoint.

<job>/taskowned/<operator>/<path>  ──▶  <savepoint>/taskowned/<operator>/<path>
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from xxhash import xxh3_64

from tidegate.state.pointers import FileSegment
from tidegate.state.snapshot.writer import SnapshotWriter
from tidegate.storage.filesystem import open_store
from tidegate.storage.locations import parent_and_name

_BLOCK: Final = 4 << 20


def copy_owned(
    writer: SnapshotWriter, directory: str, files: Mapping[str, str]
) -> tuple[FileSegment, ...]:
    """Copy files, given as paths or URLs, to these paths in a directory beside the metadata."""
    return tuple(_copy(writer, url, f"{directory}/{path}") for path, url in files.items())


def _copy(writer: SnapshotWriter, url: str, path: str) -> FileSegment:
    directory, name = parent_and_name(url)
    store = open_store(directory)
    checksum = xxh3_64()
    size = store.size(name)

    def blocks() -> Iterator[bytes]:
        for offset in range(0, size, _BLOCK):
            block = store.read(name, offset, min(_BLOCK, size - offset))
            checksum.update(block)
            yield block

    file = writer.write_file(blocks(), path)
    return FileSegment(file, 0, size, checksum.intdigest())
