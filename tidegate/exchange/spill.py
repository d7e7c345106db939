"""Waiting bytes: in memory up to a budget, then in a file."""

from __future__ import annotations

import os
from collections.abc import Sized
from pathlib import Path
from typing import BinaryIO, cast

from tidegate.core.errors import ExternalError

Bytes = bytes | bytearray | memoryview


class SpilledBytes:
    """Bytes in a spill file, which is deleted with the last of them."""

    __slots__ = ("_file", "_length", "_offset")

    def __init__(self, file: _SpillFile, offset: int, length: int) -> None:
        self._file = file
        self._offset = offset
        self._length = length

    def __len__(self) -> int:
        return self._length

    def load(self) -> bytes:
        return self._file.read(self._offset, self._length)


class SpillStore:
    """Decides what stays in memory, for one pipeline in one slot. Used by one thread at a time."""

    def __init__(self, directory: Path, budget: int) -> None:
        self._directory = directory
        self._budget = budget
        self._file: _SpillFile | None = None
        self._in_memory = 0
        self.bytes_spilled = 0

    def keep(self, body: Bytes) -> Bytes | SpilledBytes:
        """Keep these bytes until the step ends.

        Raises:
            ExternalError: the disk is full or cannot be written.
        """
        if self._in_memory + len(body) <= self._budget:
            self._in_memory += len(body)
            return body
        if self._file is None:
            self._file = _SpillFile(self._directory)
        self.bytes_spilled += len(body)
        return SpilledBytes(self._file, self._file.append(body), len(body))

    def end_step(self) -> None:
        """Reset the budget: everything kept has been sent or used."""
        self._in_memory = 0
        self._file = None


class _SpillFile:
    """An unlinked temporary file, which needs no cleanup if the process dies."""

    def __init__(self, directory: Path) -> None:
        path = directory / f"spill-{os.getpid()}-{id(self):x}"
        try:
            self._file: BinaryIO = path.open("w+b", buffering=0)
            path.unlink()
        except OSError as failure:
            raise _cannot_spill(directory, failure) from failure
        self._directory = directory
        self._end = 0

    def append(self, body: Bytes) -> int:
        offset, view = self._end, memoryview(body)
        try:
            while view:
                view = view[os.pwrite(self._file.fileno(), view, self._end) :]
                self._end = offset + len(body) - len(view)
        except OSError as failure:
            raise _cannot_spill(self._directory, failure) from failure
        return offset

    def read(self, offset: int, length: int) -> bytes:
        try:
            return os.pread(self._file.fileno(), length, offset)
        except OSError as failure:
            raise ExternalError(
                f"waiting packets cannot be read back from {self._directory}: {failure}; check the "
                "disk, or set TMPDIR to another one"
            ) from failure


def _cannot_spill(directory: Path, failure: OSError) -> ExternalError:
    return ExternalError(
        f"waiting packets do not fit into memory and cannot be written to {directory}: {failure}; "
        "free disk space, set TMPDIR to a larger disk, lower tidegate.step.max-bytes, or raise "
        "tidegate.slot.spill-threshold"
    )


def loaded(body: Sized) -> Bytes:
    """The bytes of a packet's body, in memory or from disk."""
    return body.load() if isinstance(body, SpilledBytes) else cast(Bytes, body)
