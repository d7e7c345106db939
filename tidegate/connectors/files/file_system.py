"""Finds and opens files by path or URL."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Any, cast

from pyarrow import fs

from tidegate.core.errors import UnreadableInput
from tidegate.storage.locations import below, resolve

_COMPRESSED = (".gz", ".bz2", ".xz")
_CHECKED_BYTES = 4096


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file at or below a given path."""

    path: str
    size: int


def find_files(path: str) -> list[FoundFile]:
    """The file itself, or all files below a directory; hidden ones (._) are skipped."""
    file_system, inner = resolve(path)
    found = file_system.get_file_info(inner)
    if found.type is fs.FileType.NotFound:
        raise UnreadableInput(
            path,
            "there is no such file or directory",
            "specify a path that exists on every machine that runs the job",
        )
    if found.is_file:
        return [FoundFile(path, found.size)]
    listed = file_system.get_file_info(fs.FileSelector(inner, recursive=True))
    return [
        FoundFile(below(path, info.path[len(inner) :].lstrip("/")), info.size)
        for info in sorted(listed, key=lambda info: info.path)
        if info.is_file and not _is_hidden(info.path, inner)
    ]


def is_compressed(path: str) -> bool:
    return _suffix(path) in _COMPRESSED


def open_file(path: str) -> IO[bytes]:
    """Open a file; it is decompressed if its name has a known extension."""
    raw = cast("IO[bytes]", _open_raw(path))
    match _suffix(path):
        case ".gz":
            return cast("IO[bytes]", gzip.open(raw))
        case ".bz2":
            return bz2.open(raw)
        case ".xz":
            return lzma.open(raw)
        case _:
            return raw


@dataclass(frozen=True, slots=True)
class FileVersion:
    """Identifies the content of a file, by its last bytes at some time.

    More may have been appended since. Times and inodes do not identify it: a copy on another
    machine has others.
    """

    size: int
    checksum: int

    @staticmethod
    def of(path: str, size: int | None = None) -> FileVersion:
        """The version of a file, or of its first `size` bytes."""
        with _open_raw(path) as file:
            size = file.size() if size is None else min(size, file.size())
            length = min(size, _CHECKED_BYTES)
            return FileVersion(size, zlib.crc32(file.read_at(length, size - length)))

    def require(self, path: str) -> None:
        """Raise UnreadableInput if a file does not begin with this version."""
        if FileVersion.of(path, self.size) != self:
            raise UnreadableInput(
                path,
                "it has been replaced, or has become shorter, since the job began to read it",
                "restore the file, or start without the checkpoints that reference it; add "
                "changed files under new names",
            )


def lines_before(path: str, offset: int) -> int:
    """How many lines end before this offset; reads the file from the start."""
    lines = 0
    with open_file(path) as file:
        while offset > 0 and (block := file.read(min(offset, 1 << 20))):
            lines += block.count(b"\n")
            offset -= len(block)
    return lines


def read_fully(file: IO[bytes], size: int) -> bytes:
    """Read this many bytes; fewer only at the end of the file."""
    block = file.read(size)
    if len(block) in (0, size):
        return block
    parts = io.BytesIO()
    while block:
        parts.write(block)
        block = file.read(size - parts.tell())
    return parts.getvalue()


def _open_raw(path: str) -> Any:
    file_system, inner = resolve(path)
    try:
        return file_system.open_input_file(inner)
    except OSError as error:
        raise UnreadableInput(
            path,
            error.strerror or str(error),
            "it disappeared after the job had found it: keep files until the job has read them",
        ) from None


def _suffix(path: str) -> str:
    return PurePosixPath(path.partition("?")[0] if "://" in path else path).suffix


def _is_hidden(path: str, root: str) -> bool:
    parts = PurePosixPath(path).parts[len(PurePosixPath(root).parts) :]
    return any(part.startswith((".", "_")) for part in parts)
