"""A disk for the file sink: files that are written, renamed and deleted like transactions.

A complete hidden file is a prepared transaction, and its rename is the commit. Files that a dying
process was writing stay truncated: they must never be renamed.
"""

from __future__ import annotations

import errno
import io
from ast import literal_eval
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from pyarrow import fs

from tests.sim.bank import Bank
from tests.sim.clockwork import Wrong, world
from tidegate.connectors.files import part_files
from tidegate.connectors.files.encodings import Encoder
from tidegate.connectors.files.rolling import BucketAssigner
from tidegate.connectors.files.sink import FileSink

ROOT = "/simulated/files"


def file_sink(pipeline: int) -> FileSink:
    buckets = BucketAssigner.by(bucket_of)
    return FileSink(f"{ROOT}/{pipeline}", Encoder(repr), buckets=buckets)


def bucket_of(record: Any) -> str:
    return str(record[0])


def resolve(path: str) -> tuple[Disk, str]:
    """Stands in for `tidegate.storage.locations.resolve`."""
    bank: Any = world().banks[int(path.rpartition("/")[2])]
    return Disk(bank), path


@dataclass
class Files(Bank):
    """The directory of one pipeline. A crash of the machine loses what was not synced."""

    finished: dict[str, str] = field(default_factory=dict)
    """The files with their final names, and the hidden names that they had."""
    torn: set[str] = field(default_factory=set)
    unwritten: dict[str, Any] = field(default_factory=dict)
    """Files whose content is not on the disk yet, with the processes that have written them."""
    unnamed: dict[str, Any] = field(default_factory=dict)
    """Files and directories that are not listed in their directory on the disk yet, likewise."""
    directories: set[str] = field(default_factory=lambda: {ROOT})

    def lost(self, process: Any) -> None:
        for path in [path for path in self.open if self.owners[path] is process]:
            self.prepared[path] = self.open.pop(path)
            self.prepared_by[path] = 0, 0
            self.torn.add(path)

    def crash(self, processes: Sequence[Any]) -> None:
        """What is not on the disk may be there or not."""
        chance = world().sim.chance
        for path in _of(processes, self.unwritten):
            if path in self.prepared and chance(0.7):
                self.torn.add(path)
        for path in _of(processes, self.unnamed):
            if chance(0.5):
                self._unlist(path)

    def _unlist(self, path: str) -> None:
        """The disk does not know its name, or knows the one that it had before."""
        world().sim.note(f"    {path} is lost")
        if path in self.finished:
            self._hide(path)
        elif path in self.directories:
            self.directories.discard(path)
            below = f"{path}/"
            for final in [each for each in self.finished if each.startswith(below)]:
                self._hide(final)
            for found in (self.open, self.prepared):
                for each in [each for each in found if each.startswith(below)]:
                    del found[each]
        else:
            self.prepared.pop(path, None)

    def _hide(self, final: str) -> None:
        hidden = self.finished.pop(final)
        self.prepared[hidden] = self.committed.pop(hidden)
        self.visible -= Counter(self.prepared[hidden])

    def changed(self, found: dict[str, Any], path: str) -> None:
        found[path] = world().sim.current

    def make_directory(self, path: str) -> None:
        if path not in self.directories:
            self.directories.add(path)
            self.changed(self.unnamed, path)
            self.make_directory(path.rpartition("/")[0])

    def sync(self, path: str) -> None:
        """The content of a file, or the names in a directory, are on the disk."""
        with self.called("sync"):
            self.unwritten.pop(path, None)
            for each in [each for each in self.unnamed if each.rpartition("/")[0] == path]:
                del self.unnamed[each]

    def failure_of(self, what: str) -> Exception:
        return OSError(errno.ENOSPC, f"no space to {what}")


def _of(processes: Sequence[Any], changed: dict[str, Any]) -> list[str]:
    """What these processes have changed; it is decided now."""
    found = [path for path, process in changed.items() if process in processes]
    for path in found:
        del changed[path]
    return found


class Disk:
    """The part of Arrow's file system interface that the sink uses."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def get_file_info(self, asked: Any) -> Any:
        with self.files.called("look"):
            if isinstance(asked, fs.FileSelector):
                return [_info(path, True) for path in sorted(self._all())]
            if isinstance(asked, str):
                return _info(asked, asked in self._all())
            return [_info(path, path in self._all()) for path in asked]

    def _all(self) -> set[str]:
        return {*self.files.open, *self.files.prepared, *self.files.finished}

    def create_dir(self, path: str, *, recursive: bool) -> None:
        self.files.make_directory(path)

    def open_output_stream(self, path: str) -> _Stream:
        self.files.begin(path)
        return _Stream(self.files, path)

    def move(self, hidden: str, final: str) -> None:
        if hidden in self.files.torn:
            raise Wrong(f"{hidden} is truncated, but is renamed")
        if hidden not in self.files.prepared:
            raise FileNotFoundError(errno.ENOENT, "it is gone", hidden)
        self.files.commit(hidden, lambda: self._rename(hidden, final))

    def _rename(self, hidden: str, final: str) -> None:
        self.files.finished[final] = hidden
        self.files.changed(self.files.unnamed, final)

    def delete_file(self, path: str) -> None:
        if path in self.files.finished:
            raise Wrong(f"{path} is finished and deleted")
        self.files.abort(path)
        self.files.torn.discard(path)


class _Stream(io.BytesIO):
    def __init__(self, files: Files, path: str) -> None:
        super().__init__()
        self.files, self._path = files, path

    def close(self) -> None:
        if not self.closed:
            records = [literal_eval(line) for line in self.getvalue().decode().splitlines()]
            super().close()
            if self._path in self.files.open:
                self.files.write(self._path, records)
                self.files.prepare(self._path)
                self.files.changed(self.files.unwritten, self._path)
                self.files.changed(self.files.unnamed, self._path)

    def __del__(self) -> None:
        """A stream that was never closed belongs to a dead process."""


@dataclass(frozen=True)
class DiskPath:
    """As much of `pathlib.Path` as the sink uses."""

    name: str

    def __init__(self, *parts: str) -> None:
        object.__setattr__(self, "name", "/".join(parts))

    @property
    def parent(self) -> DiskPath:
        return DiskPath(self.name.rpartition("/")[0])

    def is_dir(self) -> bool:
        return True

    def open(self, mode: str) -> DiskPath:
        return self

    def fileno(self) -> str:
        return self.name

    def __enter__(self) -> DiskPath:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is held."""


def sync(path: str) -> None:
    """The banks share the directory in which theirs are."""
    banks: Any = world().banks
    for bank in banks:
        if f"{path}/".startswith(f"{ROOT}/{bank.pipeline}/") or path == ROOT:
            bank.sync(path)


def make_directory(path: DiskPath) -> None:
    if path.name != ROOT and path.name not in (bank := resolve(path.name)[0].files).directories:
        make_directory(path.parent)
        bank.make_directory(path.name)
        sync(path.parent.name)


def _info(path: str, is_file: bool) -> SimpleNamespace:
    return SimpleNamespace(path=path, is_file=is_file)


PATCHES = (
    (part_files, "resolve", resolve),
    (part_files, "Path", DiskPath),
    (part_files, "os", SimpleNamespace(fsync=sync)),
    (part_files, "make_directory", make_directory),
    (part_files, "sync_directory", lambda directory: sync(directory.name)),
    (part_files, "fs", SimpleNamespace(FileSelector=fs.FileSelector, LocalFileSystem=Disk)),
)
