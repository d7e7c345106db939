"""Files as a sink, each record once: in progress, then pending, then finished by a rename.

    .part-0-5c81-3.csv.<job>      in progress, and from the barrier on pending: hidden from readers
    part-0-5c81-3.csv             finished: the checkpoint that holds the pending file is durable

A reader never sees a part of a file. Every checkpoint ends the files that are open; without
checkpoints they are finished when the input has ended.
"""

from __future__ import annotations

import dataclasses
import os
import re
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from pyarrow import fs

from tidegate.connectors.file_encodings import FileEncoder, FileEncoding
from tidegate.connectors.rolling import BucketAssigner, RollingPolicy
from tidegate.connectors.sink import (
    Committer,
    CommittingWriter,
    SupportsCommitter,
    WriterContext,
)
from tidegate.core.errors import ConfigError, ExternalError
from tidegate.storage.locations import resolve
from tidegate.stream.batch import Batch


class FileSink(SupportsCommitter):
    """Writes `part-…` files below a directory.

    The directory must not hold part files of another job when this one begins anew, unless they
    may be replaced (`overwrite`). As a table it has a file even if there is no record, so that
    readers find its columns.
    """

    def __init__(
        self,
        directory: str,
        encoding: FileEncoding,
        *,
        overwrite: bool = False,
        names: OutputFileConfig | None = None,
        rolling: RollingPolicy | None = None,
        buckets: BucketAssigner | None = None,
        is_table: bool = False,
    ) -> None:
        self._directory = str(directory)
        self._is_table = is_table
        self._encoding = encoding
        self._overwrite = overwrite
        self._names = names or OutputFileConfig()
        self._rolling = rolling or RollingPolicy()
        self._buckets = buckets or BucketAssigner.base_path_bucket_assigner()

    @staticmethod
    def for_row_format(base_path: str, encoder: FileEncoding) -> FileSinkBuilder:
        return FileSinkBuilder(base_path, encoder)

    @staticmethod
    def for_bulk_format(base_path: str, writer_factory: FileEncoding) -> FileSinkBuilder:
        return FileSinkBuilder(base_path, writer_factory)

    def create_writer(self, context: WriterContext) -> CommittingWriter:
        directory = _Directory(self._directory, self._names.part_prefix, context.job_id)
        return _FileWriter(
            directory,
            context,
            self._encoding,
            self._names,
            self._rolling,
            self._buckets,
            overwrite=self._overwrite,
            is_table=self._is_table,
        )

    def create_committer(self, context: WriterContext) -> Committer:
        return _FileCommitter(self._directory)


@dataclasses.dataclass(frozen=True, slots=True)
class OutputFileConfig:
    """How part files are named: prefix, subtask, what makes them unique, suffix."""

    part_prefix: str = "part"
    part_suffix: str | None = None
    """None: what the encoding has, like ".csv"."""

    def name_of(self, subtask: int, unique: str, encoding: FileEncoding) -> str:
        suffix = encoding.suffix if self.part_suffix is None else self.part_suffix
        return f"{self.part_prefix}-{subtask}-{unique}{suffix}"

    @staticmethod
    def builder() -> OutputFileConfig:
        return OutputFileConfig()

    def with_part_prefix(self, prefix: str) -> OutputFileConfig:
        return dataclasses.replace(self, part_prefix=prefix)

    def with_part_suffix(self, suffix: str) -> OutputFileConfig:
        return dataclasses.replace(self, part_suffix=suffix)

    def build(self) -> OutputFileConfig:
        return self


class FileSinkBuilder:
    """Settings of a FileSink, under PyFlink's names."""

    def __init__(self, directory: str, encoding: FileEncoding) -> None:
        self._directory = directory
        self._encoding = encoding
        self._settings: dict[str, Any] = {}

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> FileSinkBuilder:
        self._settings["names"] = output_file_config
        return self

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> FileSinkBuilder:
        self._settings["rolling"] = rolling_policy
        return self

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> FileSinkBuilder:
        self._settings["buckets"] = bucket_assigner
        return self

    def with_bucket_check_interval(self, interval: int) -> FileSinkBuilder:
        """Accepted for PyFlink's sake: buckets are looked at after every step."""
        return self

    def build(self) -> FileSink:
        return FileSink(self._directory, self._encoding, **self._settings)


@dataclasses.dataclass(frozen=True, slots=True)
class PendingFile:
    """A file that is complete but hidden; its paths are below the directory of the sink."""

    hidden: str
    final: str


class _Directory:
    """The directory of the sink, and which files in it are whose."""

    def __init__(self, path: str, prefix: str, job_id: str) -> None:
        self.file_system, self._root = resolve(path)
        self._path = path
        self._prefix = prefix
        self._job_id = job_id
        self._hidden = re.compile(rf"\.{re.escape(prefix)}-(\d+)-.*\.{re.escape(job_id)}")

    def inner(self, path: str) -> str:
        return str(PurePosixPath(self._root) / path)

    def hidden(self, path: str) -> str:
        """Under which name a file is written: readers, and Spark, leave such names out."""
        parent, _, name = path.rpartition("/")
        return f"{parent}{'/' if parent else ''}.{name}.{self._job_id}"

    def prepare(self, *, overwrite: bool) -> None:
        """The job begins anew: see to it that no other job's files are mixed with its own."""
        finished = [p for p in self._all() if PurePosixPath(p).name.startswith(f"{self._prefix}-")]
        if finished and not overwrite:
            raise ConfigError(
                "directory",
                self._path,
                "it holds files of another job: give another one, or overwrite=True",
            )
        for path in finished:
            self.file_system.delete_file(self.inner(path))

    def remove_leftovers(self, context: WriterContext) -> None:
        """Delete what earlier attempts of this subtask, or of one that is no more, left hidden."""
        awaited = {file.hidden for file in context.recovered}
        for path in self._all():
            found = self._hidden.fullmatch(PurePosixPath(path).name)
            if (
                found is not None
                and int(found[1]) % context.parallelism == context.subtask
                and path not in awaited
            ):
                self.file_system.delete_file(self.inner(path))

    def _all(self) -> list[str]:
        selector = fs.FileSelector(self._root, recursive=True, allow_not_found=True)
        start = len(self._root.rstrip("/")) + 1
        found = self.file_system.get_file_info(selector)
        return [info.path[start:] for info in found if info.is_file]


class _Part:
    """A file in progress."""

    def __init__(
        self, directory: _Directory, path: str, encoding: FileEncoding, now: float
    ) -> None:
        self.file = PendingFile(directory.hidden(path), path)
        self.opened_at = self.written_at = now
        self._file_system = directory.file_system
        self._place = directory.inner(self.file.hidden)
        try:
            parent = self._place.rpartition("/")[0]
            self._file_system.create_dir(parent, recursive=True)
            stream = self._file_system.open_output_stream(self._place)
        except OSError as error:
            raise ExternalError(
                f"{self._place} cannot be written: {error.strerror or error}; give a directory "
                "that every slot may write to"
            ) from None
        self._stream = cast("IO[bytes]", stream)
        self._encoder: FileEncoder = encoding.open(self._stream)

    @property
    def size(self) -> int:
        return self._stream.tell()

    def write(self, batch: Batch, now: float) -> None:
        self.written_at = now
        self._encoder.write(batch)

    def finish(self) -> PendingFile:
        """Write all of it, so that it survives whatever happens to this process."""
        self._encoder.finish()
        self._stream.close()
        if isinstance(self._file_system, fs.LocalFileSystem):
            with Path(self._place).open("rb") as file:
                os.fsync(file.fileno())
        return self.file

    def discard(self) -> None:
        self._stream.close()
        with suppress(FileNotFoundError):  # a successor has cleaned up
            self._file_system.delete_file(self._place)


class _FileWriter(CommittingWriter):
    def __init__(
        self,
        directory: _Directory,
        context: WriterContext,
        encoding: FileEncoding,
        names: OutputFileConfig,
        rolling: RollingPolicy,
        buckets: BucketAssigner,
        *,
        overwrite: bool,
        is_table: bool,
    ) -> None:
        self._is_table = is_table
        self._directory = directory
        self._context = context
        self._encoding = encoding
        self._names = names
        self._rolling = rolling
        self._buckets = buckets
        self._overwrite = overwrite
        self._unique = secrets.token_hex(4)
        self._count = 0
        self._parts: dict[str, _Part] = {}
        self._pending: list[PendingFile] = []

    def open(self) -> None:
        context = self._context
        if context.subtask == 0 and not context.operator_state.is_restored:
            self._directory.prepare(overwrite=self._overwrite)
        self._directory.remove_leftovers(context)

    def write(self, batch: Batch) -> None:
        now = time.time()
        for bucket, records in self._buckets.split(batch, now):
            part = self._parts.get(bucket)
            if part is None:
                part = self._parts[bucket] = self._begin(bucket, now)
            part.write(records, now)
        self._roll(now)

    def flush(self, end_of_input: bool = False) -> None:
        now = time.time()
        self._roll(now)
        if end_of_input and self._is_table and self._count == 0:
            self._parts[""] = self._begin("", now)

    def prepare_commit(self) -> Sequence[PendingFile]:
        for bucket in list(self._parts):
            self._end(bucket)
        pending, self._pending = self._pending, []
        return pending

    def close(self) -> None:
        while self._parts:
            _, part = self._parts.popitem()
            part.discard()

    def _begin(self, bucket: str, now: float) -> _Part:
        unique = f"{self._unique}-{self._count}"
        self._count += 1
        name = self._names.name_of(self._context.subtask, unique, self._encoding)
        path = str(PurePosixPath(bucket) / name) if bucket else name
        return _Part(self._directory, path, self._encoding, now)

    def _roll(self, now: float) -> None:
        for bucket, part in list(self._parts.items()):
            if self._rolling.is_full(part.size, part.opened_at, part.written_at, now):
                self._end(bucket)

    def _end(self, bucket: str) -> None:
        self._pending.append(self._parts.pop(bucket).finish())


class _FileCommitter(Committer):
    def __init__(self, directory: str) -> None:
        self._file_system, self._root = resolve(directory)

    def commit(self, committables: Sequence[Any]) -> None:
        for file in committables:
            hidden = str(PurePosixPath(self._root) / file.hidden)
            final = str(PurePosixPath(self._root) / file.final)
            found = self._file_system.get_file_info([hidden, final])
            if found[0].is_file:
                self._file_system.move(hidden, final)
            elif not found[1].is_file:
                raise ExternalError(
                    f"{hidden}, which a checkpoint holds, is gone: its records are lost unless the "
                    "job goes on from an earlier checkpoint"
                )
