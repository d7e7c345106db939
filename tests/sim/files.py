"""A disk for the file sink: files that are written, renamed and deleted like transactions.

A complete hidden file is a prepared transaction, and its rename is the commit. Files that a dying
process was writing stay truncated: they must never be renamed.
"""

from __future__ import annotations

import errno
import io
from ast import literal_eval
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from pyarrow import fs

from tests.sim.bank import Bank
from tests.sim.clockwork import Wrong, world
from tidegate.connectors.files.encodings import Encoder
from tidegate.connectors.files.sink import FileSink

ROOT = "/simulated/files"


def file_sink(pipeline: int) -> FileSink:
    return FileSink(f"{ROOT}/{pipeline}", Encoder(repr))


def resolve(path: str) -> tuple[Disk, str]:
    """Stands in for `tidegate.storage.locations.resolve`."""
    bank: Any = world().banks[int(path.rpartition("/")[2])]
    return Disk(bank), path


@dataclass
class Files(Bank):
    """The directory of one pipeline."""

    finished: set[str] = field(default_factory=set)
    torn: set[str] = field(default_factory=set)

    def lost(self, process: Any) -> None:
        for path in [path for path in self.open if self.owners[path] is process]:
            self.prepared[path] = self.open.pop(path)
            self.prepared_by[path] = 0, 0
            self.torn.add(path)

    def failure_of(self, what: str) -> Exception:
        return OSError(errno.ENOSPC, f"no space to {what}")


class Disk:
    """The part of Arrow's file system interface that the sink uses."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def get_file_info(self, asked: Any) -> Any:
        with self._files.called("look"):
            if isinstance(asked, fs.FileSelector):
                return [_info(path, True) for path in sorted(self._all())]
            if isinstance(asked, str):
                return _info(asked, asked in self._all())
            return [_info(path, path in self._all()) for path in asked]

    def _all(self) -> set[str]:
        return {*self._files.open, *self._files.prepared, *self._files.finished}

    def create_dir(self, path: str, *, recursive: bool) -> None:
        """Directories exist implicitly."""

    def open_output_stream(self, path: str) -> _Stream:
        self._files.begin(path)
        return _Stream(self._files, path)

    def move(self, hidden: str, final: str) -> None:
        if hidden in self._files.torn:
            raise Wrong(f"{hidden} is truncated, but is renamed")
        if hidden not in self._files.prepared:
            raise FileNotFoundError(errno.ENOENT, "it is gone", hidden)
        self._files.commit(hidden, lambda: self._files.finished.add(final))

    def delete_file(self, path: str) -> None:
        if path in self._files.finished:
            raise Wrong(f"{path} is finished and deleted")
        self._files.abort(path)
        self._files.torn.discard(path)


class _Stream(io.BytesIO):
    def __init__(self, files: Files, path: str) -> None:
        super().__init__()
        self._files, self._path = files, path

    def close(self) -> None:
        if not self.closed:
            records = [literal_eval(line) for line in self.getvalue().decode().splitlines()]
            super().close()
            if self._path in self._files.open:
                self._files.write(self._path, records)
                self._files.prepare(self._path)

    def __del__(self) -> None:
        """A stream that was never closed belongs to a dead process."""


def _info(path: str, is_file: bool) -> SimpleNamespace:
    return SimpleNamespace(path=path, is_file=is_file)
