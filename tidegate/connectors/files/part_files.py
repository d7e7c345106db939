"""Part files below a directory: written hidden, committed by a rename.

    .part-0-7f025c81d3e6aa0217f0-3.csv.<job>.<operator>   in progress; pending from the barrier on
    part-0-7f025c81d3e6aa0217f0-3.csv    finished: its checkpoint is durable

A name consists of subtask, writer and number; a writer is identified by prefixes of its operator's
and its job's ids, and a random part.

On object stores, a rename is a copy and a deletion. The copy appears atomically, and a commit that
was interrupted between the two is repeated: it copies the same bytes to the same name.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from pyarrow import fs

from tidegate.connectors.files.encodings import FileEncoder, FileEncoding
from tidegate.connectors.files.rolling import BucketAssigner, RollingPolicy
from tidegate.connectors.sink import Committer, CommittingWriter, WriterContext
from tidegate.core.errors import ConfigError, ExternalError, UnwritableOutput, UserError
from tidegate.core.permit import Permit
from tidegate.storage.local import make_directory, sync_directory
from tidegate.storage.locations import resolve, shown
from tidegate.stream.batch import Batch

_MOST_OPEN_FILES = 256
"""Open buckets per subtask; beyond that, the least recently used one is closed."""
_OPERATOR_DIGITS, _JOB_DIGITS = 4, 8
"""How many digits of the operator's and the job's id are part of file names."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class OutputFileConfig:
    """How part files are named: prefix, subtask, what makes them unique, suffix."""

    part_prefix: str = "part"
    part_suffix: str | None = None
    """None: that of the encoding, like ".csv"."""

    def name_of(self, subtask: int, unique: str, encoding: FileEncoding) -> str:
        """The name of a part file."""
        suffix = encoding.suffix if self.part_suffix is None else self.part_suffix
        return f"{self.part_prefix}-{subtask}-{unique}{suffix}"

    @staticmethod
    def builder() -> OutputFileConfig:
        """A configuration with the default names."""
        return OutputFileConfig()

    def with_part_prefix(self, prefix: str) -> OutputFileConfig:
        """A copy with another prefix."""
        return replace(self, part_prefix=prefix)

    def with_part_suffix(self, suffix: str) -> OutputFileConfig:
        """A copy with another suffix."""
        return replace(self, part_suffix=suffix)

    def build(self) -> OutputFileConfig:
        """Build the configuration."""
        return self


class ExistingFiles(Enum):
    """What a job that starts fresh does with the finished files of other jobs."""

    KEEP = auto()
    REPLACE = auto()
    REFUSE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSettings:
    """How a sink writes its part files."""

    encoding: FileEncoding
    names: OutputFileConfig
    rolling: RollingPolicy
    buckets: BucketAssigner
    existing: ExistingFiles = ExistingFiles.KEEP
    finds_any_name: bool = False
    """Whether it considers all visible files, or only those named like its own."""
    is_never_empty: bool = False
    """Whether to write a file even without records, so that readers find its columns."""


@dataclass(frozen=True, slots=True)
class PendingFile:
    """A complete but hidden file; its paths are relative to the directory of the sink."""

    hidden: str
    final: str


class PartDirectory:
    """The directory of a sink, and which files in it belong to whom."""

    def __init__(self, path: str, prefix: str, context: WriterContext) -> None:
        self.file_system, self._root = resolve(path)
        self._path = path
        self._prefix = prefix
        self._context = context
        # Two sinks of a job may share a directory; the operator id separates their files.
        self._mark = f"{context.job_id}.{context.operator_id[:8]}"
        self._hidden = re.compile(rf"\.{re.escape(prefix)}-(\d+)-.*\.{re.escape(self._mark)}")

    def inner(self, path: str) -> str:
        return str(PurePosixPath(self._root) / path)

    def hidden(self, path: str) -> str:
        """The name of a file in progress: readers, including Spark, skip such names."""
        parent, _, name = path.rpartition("/")
        return f"{parent}{'/' if parent else ''}.{name}.{self._mark}"

    def create(self) -> None:
        """Create the directory before the first record, so that a wrong path is found at once."""
        if self.file_system.get_file_info(self._root).is_file:
            raise ConfigError("directory", shown(self._path), "it is a file: specify a directory")
        with _writing(self._path):
            if isinstance(self.file_system, fs.LocalFileSystem):
                make_directory(Path(self._root))
                # Another subtask may have created it and not be through with this. Where the parent
                # cannot be read, its creator has synced it, or failed.
                with suppress(PermissionError):
                    sync_directory(Path(self._root).parent)
            else:
                self.file_system.create_dir(self._root, recursive=True)

    def prepare(self, existing: ExistingFiles, *, any_name: bool) -> None:
        """Start fresh: delete the job's own finished files, and handle those of others.

        Sinks without checkpoints commit files one by one, so a failed attempt may leave finished
        files. Other sinks of the job that share the directory take care of their own.
        """
        found = [p for p in self._all() if self._is_finished(PurePosixPath(p), any_name)]
        own = [path for path in found if self._is_own(PurePosixPath(path).name)]
        others = [path for path in found if not self._is_of_job(PurePosixPath(path).name)]
        if others and existing is ExistingFiles.REFUSE:
            raise ConfigError(
                "directory",
                shown(self._path),
                f"it contains files of another job, such as {others[0]}: specify another "
                'directory, or replace them with mode="overwrite"',
            )
        with _writing(self._path):
            for path in own + others if existing is ExistingFiles.REPLACE else own:
                self._context.permit.require()
                self.file_system.delete_file(self.inner(path))

    def remove_leftovers(self) -> None:
        """Delete hidden files of earlier attempts of this subtask, or of removed subtasks."""
        context = self._context
        awaited = {file.hidden for file in context.recovered}
        with _writing(self._path):
            for path in self._all():
                found = self._hidden.fullmatch(PurePosixPath(path).name)
                if (
                    found is not None
                    and int(found[1]) % context.parallelism == context.subtask
                    and path not in awaited
                ):
                    context.permit.require()
                    self.file_system.delete_file(self.inner(path))

    def unique(self) -> str:
        """The unique part of a writer's file names; it identifies the operator and the job."""
        return f"{self._own}{secrets.token_hex(4)}"

    @property
    def _own(self) -> str:
        return f"{self._context.operator_id[:_OPERATOR_DIGITS]}{self._context.job_id[:_JOB_DIGITS]}"

    def _is_own(self, name: str) -> bool:
        """Whether an earlier attempt of this operator and job has written the file."""
        own = re.escape(self._own)
        return re.match(rf"{re.escape(self._prefix)}-\d+-{own}[0-9a-f]{{8}}-\d+", name) is not None

    def _is_of_job(self, name: str) -> bool:
        """Whether this job has written the file, with this or another operator."""
        job = re.escape(self._context.job_id[:_JOB_DIGITS])
        unique = rf".{{,{_OPERATOR_DIGITS}}}{job}[0-9a-f]{{8}}"
        return re.search(rf"-\d+-{unique}-\d+", name) is not None

    def _is_finished(self, path: PurePosixPath, any_name: bool) -> bool:
        if any_name:
            return not any(part.startswith((".", "_")) for part in path.parts)
        return path.name.startswith(f"{self._prefix}-")

    def _all(self) -> list[str]:
        selector = fs.FileSelector(self._root, recursive=True, allow_not_found=True)
        start = len(self._root.rstrip("/")) + 1
        found = self.file_system.get_file_info(selector)
        return [info.path[start:] for info in found if info.is_file]


class _OpenPart:
    """A file in progress."""

    def __init__(
        self, directory: PartDirectory, path: str, encoding: FileEncoding, now: float
    ) -> None:
        self.file = PendingFile(directory.hidden(path), path)
        self.opened_at = self.written_at = now
        self._file_system = directory.file_system
        self._path = directory.inner(self.file.hidden)
        self._directories = [
            Path(directory.inner(str(each))) for each in PurePosixPath(self.file.hidden).parents
        ]
        """Its own one and those above it, up to that of the sink."""
        with _writing(self._path):
            parent = self._path.rpartition("/")[0]
            self._file_system.create_dir(parent, recursive=True)
            stream = self._file_system.open_output_stream(self._path)
            self._stream = cast("IO[bytes]", stream)
            with ExitStack() as undo:
                undo.callback(self._stream.close)
                self._encoder: FileEncoder = encoding.open(self._stream)
                undo.pop_all()

    @property
    def size(self) -> int:
        return self._stream.tell()

    def write(self, batch: Batch, now: float) -> None:
        self.written_at = now
        with _writing(self._path):
            self._encoder.write(batch)

    def finish(self) -> PendingFile:
        """Write everything, so that the file survives this process."""
        with _writing(self._path):
            self._encoder.finish()
            self._stream.close()
            if isinstance(self._file_system, fs.LocalFileSystem):
                with Path(self._path).open("rb") as file:
                    os.fsync(file.fileno())
                for directory in self._directories:
                    sync_directory(directory)
        return self.file

    def discard(self) -> None:
        """Discard the file; on a full disk, this may fail, and a successor cleans up."""
        self._encoder.discard()
        with suppress(OSError):
            self._stream.close()
        with suppress(OSError):
            self._file_system.delete_file(self._path)


class PartWriter(CommittingWriter):
    """Writes the part files of one subtask."""

    def __init__(self, path: str, context: WriterContext, settings: PartSettings) -> None:
        self._directory = PartDirectory(path, settings.names.part_prefix, context)
        self._context = context
        self._settings = settings
        self._unique = self._directory.unique()
        self._count = 0
        self._parts: dict[str, _OpenPart] = {}
        self._pending: list[PendingFile] = []

    def open(self) -> None:
        settings = self._settings
        self._directory.create()
        if self._context.subtask == 0 and not self._context.operator_state.is_restored:
            self._directory.prepare(settings.existing, any_name=settings.finds_any_name)
        self._directory.remove_leftovers()

    def write(self, batch: Batch) -> None:
        if not len(batch):
            return
        now = time.time()
        for bucket, records in self._settings.buckets.split(batch, now):
            part = self._parts.get(bucket)
            if part is None:
                part = self._parts[bucket] = self._begin(bucket, now)
            part.write(records, now)
        self._roll(now)

    def flush(self, end_of_input: bool = False) -> None:
        now = time.time()
        self._roll(now)
        if end_of_input and self._settings.is_never_empty and self._count == 0:
            self._parts[""] = self._begin("", now)

    def prepare_commit(self) -> Sequence[PendingFile]:
        for bucket in list(self._parts):
            self._end(bucket)
        pending, self._pending = self._pending, []
        return pending

    def close(self) -> None:
        while self._parts and self._context.permit.is_valid():
            _, part = self._parts.popitem()
            part.discard()

    def _begin(self, bucket: str, now: float) -> _OpenPart:
        if len(self._parts) >= _MOST_OPEN_FILES:
            self._end(min(self._parts, key=lambda each: self._parts[each].written_at))
        unique = f"{self._unique}-{self._count}"
        self._count += 1
        encoding = self._settings.encoding
        name = self._settings.names.name_of(self._context.subtask, unique, encoding)
        path = str(_checked(bucket) / name) if bucket else name
        return _OpenPart(self._directory, path, encoding, now)

    def _roll(self, now: float) -> None:
        rolling = self._settings.rolling
        for bucket, part in list(self._parts.items()):
            if rolling.is_full(part.size, part.opened_at, part.written_at, now):
                self._end(bucket)

    def _end(self, bucket: str) -> None:
        self._pending.append(self._parts[bucket].finish())
        del self._parts[bucket]


class PartCommitter(Committer):
    """Renames pending files to their final names."""

    def __init__(self, directory: str, permit: Permit) -> None:
        self._file_system, self._root = resolve(directory)
        self._permit = permit

    def commit(self, committables: Sequence[Any]) -> None:
        for file in committables:
            with _writing(f"{self._root}/{file.final}"):
                self._commit(file)
        if isinstance(self._file_system, fs.LocalFileSystem):
            finals = {Path(self._root, file.final).parent for file in committables}
            for directory in filter(Path.is_dir, finals):
                sync_directory(directory)

    def _commit(self, file: PendingFile) -> None:
        hidden = str(PurePosixPath(self._root) / file.hidden)
        final = str(PurePosixPath(self._root) / file.final)
        found = self._file_system.get_file_info([hidden, final])
        if found[0].is_file:
            self._permit.require()
            with suppress(FileNotFoundError):  # another job that started here commits it, too
                self._file_system.move(hidden, final)
                return
            found = self._file_system.get_file_info([hidden, final])
        if not found[1].is_file:
            raise ExternalError(
                f"{hidden}, which a checkpoint references, is missing: its records are lost "
                "unless the job resumes from an earlier checkpoint"
            )


def _checked(bucket: str) -> PurePosixPath:
    path = PurePosixPath(bucket)
    if path.is_absolute() or ".." in path.parts:
        raise UserError(
            f"bucket {bucket!r} is outside the sink's directory: the bucket function must "
            "return a relative path without '..'"
        )
    return path


@contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problem = error.strerror or str(error)
        advice = "specify a directory that every slot may write to"
        if error.errno in _FULL:
            problem = "the disk is full"
            advice = "free some space: the job resumes from its last checkpoint"
        raise UnwritableOutput(shown(path), problem, advice) from None
