"""Finds and opens files by path or URL."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, cast

from pyarrow import fs

from tidegate.core.errors import UnreadableInput
from tidegate.storage.locations import below, resolve

_COMPRESSED = (".gz", ".bz2", ".xz")


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
    file_system, inner = resolve(path)
    try:
        raw = cast("IO[bytes]", file_system.open_input_file(inner))
    except OSError as error:
        raise UnreadableInput(
            path,
            error.strerror or str(error),
            "it disappeared after the job had found it: keep files until the job has read them",
        ) from None
    match _suffix(path):
        case ".gz":
            return cast("IO[bytes]", gzip.open(raw))
        case ".bz2":
            return bz2.open(raw)
        case ".xz":
            return lzma.open(raw)
        case _:
            return raw


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


def _suffix(path: str) -> str:
    return PurePosixPath(path.partition("?")[0] if "://" in path else path).suffix


def _is_hidden(path: str, root: str) -> bool:
    parts = PurePosixPath(path).parts[len(PurePosixPath(root).parts) :]
    return any(part.startswith((".", "_")) for part in parts)
