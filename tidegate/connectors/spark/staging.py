"""Parquet files that pass micro-batches from Spark to the readers.

    <source>/stream/<run>/batch-7/part-….parquet     rows that Spark wrote
    <source>/stream/<run>/batch-7/_part-….read       a reader has reached the end of this file
    <source>/adopted/<run>/…-batch-7/part-….parquet  a copy: the job was started from elsewhere

Every attempt of a job is a run. A file stays while a restore may need it: its reader deletes it
after enough completed checkpoints without it, and the driver deletes what no checkpoint ever
referenced.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pyarrow import fs
from xxhash import xxh3_64

from tidegate.connectors.files.file_system import find_files
from tidegate.connectors.files.parquet import ParquetFormat, open_parquet
from tidegate.connectors.files.row_groups import RowGroupSplit
from tidegate.connectors.source import ReaderContext
from tidegate.connectors.splits import Cursor, SequentialReader
from tidegate.core.errors import CorruptCheckpoint, UnreadableInput
from tidegate.core.ids import CheckpointId
from tidegate.storage.locations import below, is_url, parent_and_name, resolve
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat

_BATCH = re.compile(r"batch-(\d+)")
_STREAM, _ADOPTED = "stream", "adopted"
_READ_AT_ONCE = 4 << 20


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file, and which job may delete it when."""

    path: str
    owner: str
    retained: int
    """How many checkpoints without it must complete first."""
    checksum: int | None = None
    """Of its bytes at the first read."""

    @property
    def relative(self) -> tuple[str, str, str, str]:
        """The parts of its path relative to the source's directory."""
        inner, name = parent_and_name(self.path)
        inner, batch = parent_and_name(inner)
        inner, run = parent_and_name(inner)
        return parent_and_name(inner)[1], run, batch, name


@dataclass(frozen=True, slots=True, repr=False)
class StagedRows:
    """A split: the unread rest of a file."""

    file: StagedFile
    rows: RowGroupSplit

    def __repr__(self) -> str:
        return f"row {self.rows.row} of row group {self.rows.group} of {self.file.path}"


@dataclass(frozen=True, slots=True, repr=False)
class ReadFile:
    """A split without rows: a file that was read, but that an older checkpoint may reference."""

    file: StagedFile
    completed: int = 0
    """How many checkpoints without it have completed."""

    def __repr__(self) -> str:
        return f"the end of {self.file.path}"


class Staging:
    """The files of one source of a job, as seen by the driver."""

    def __init__(self, directory: str) -> None:
        self.root = below(directory, _STREAM)
        self.run = uuid.uuid4().hex[:12]
        self._file_system, self._inner = resolve(self.root)

    def batch(self, number: int) -> str:
        return below(self.root, f"{self.run}/batch-{number}")

    def files(self, number: int) -> list[RowGroupSplit]:
        """The non-empty files of a batch; empty ones are deleted."""
        found = []
        for file in find_files(self.batch(number)):
            groups = open_parquet(file.path).metadata
            if groups.num_rows:
                found.append(RowGroupSplit(file.path, 0, groups.num_row_groups))
            else:
                _delete(file.path)
        return found

    def unread(self, number: int, paths: Sequence[str]) -> list[str]:
        """The files of a batch that no reader has finished."""
        directory = f"{self._inner}/{self.run}/batch-{number}"
        names = [parent_and_name(path)[1] for path in paths]
        marked = [f"{directory}/{_marker_name(name)}" for name in names]
        found = self._file_system.get_file_info([*(f"{directory}/{n}" for n in names), *marked])
        files, markers = found[: len(names)], found[len(names) :]
        # A reader that has deleted its file has deleted the marker, too.
        return [
            path
            for path, file, marker in zip(paths, files, markers, strict=True)
            if file.is_file and not marker.is_file
        ]

    def remove(self, number: int) -> None:
        """Delete a batch of this run."""
        self._delete(f"{self.run}/batch-{number}")

    def remove_run(self) -> None:
        self._delete(self.run)

    def remove_what_nobody_needs(self, last: Mapping[str, int]) -> dict[str, int]:
        """Delete runs and batches after the last batch that counts, and emptied directories.

        Args:
            last: the last batch that counts, for every run that does.

        Returns:
            The runs that still have files.
        """
        files = {run: dict[int, int]() for run in last}
        garbage: set[str] = set()
        for path in self._directories():
            run, _, name = path.partition("/")
            number = _BATCH.fullmatch(name)
            if run not in last:
                garbage.add(run)
            elif number is not None and int(number[1]) > last[run]:
                garbage.add(path)
            elif number is not None:
                left = self._files_in(path)
                files[run][int(number[1])] = left
                if not left:
                    garbage.add(path)
        for path in sorted(garbage):
            self._delete(path)
        return {run: last[run] for run, found in files.items() if any(found.values())}

    def _directories(self) -> list[str]:
        start = len(self._inner.rstrip("/")) + 1
        runs = [run for run in self._listed(self._inner) if run.type is fs.FileType.Directory]
        batches = [batch for run in runs for batch in self._listed(run.path)]
        return [info.path[start:] for info in (*runs, *batches)]

    def _files_in(self, path: str) -> int:
        names = [info.base_name for info in self._listed(f"{self._inner}/{path}")]
        return sum(name.endswith(".parquet") and name[0] not in "._" for name in names)

    def _listed(self, directory: str) -> list[fs.FileInfo]:
        selector = fs.FileSelector(directory, allow_not_found=True)
        return list(self._file_system.get_file_info(selector))

    def _delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._file_system.delete_dir(f"{self._inner}/{path}")


def for_spark(path: str) -> str:
    """Convert a path or URL of Arrow to one that Spark accepts."""
    if not is_url(path):
        return Path(path).absolute().as_uri()
    address = path.partition("?")[0]
    return address.replace("s3://", "s3a://", 1) if address.startswith("s3://") else address


class StagedReader(SequentialReader):
    """Reads staged files, marks them as read, and deletes them when they are no longer needed."""

    def __init__(self, context: ReaderContext) -> None:
        super().__init__(self._open)
        self._context = context
        self._run = uuid.uuid4().hex[:12]
        self._read: dict[str, ReadFile] = {}

    def add_splits(self, splits: Sequence[StagedRows | ReadFile]) -> None:
        for split in splits:
            if isinstance(split, StagedRows):
                file = _verified(self._at_hand(split.file))
                rows = replace(split.rows, path=file.path)
                super().add_splits([StagedRows(file, rows)])
            elif self._is_own(split.file):
                file = self._at_hand(split.file)
                self._read[file.path] = replace(split, file=file)

    def _is_own(self, file: StagedFile) -> bool:
        return file.owner == self._context.job_id

    def _at_hand(self, file: StagedFile) -> StagedFile:
        """Where the file is now: job directories can be moved, and savepoints deleted."""
        directory, origin = self._context.directory, self._context.origin
        if self._is_own(file) and directory is not None:
            return replace(file, path=below(directory, "/".join(file.relative)))
        if self._is_own(file) or origin is None:
            return file
        found = below(origin, "/".join(file.relative))
        if directory is None:
            return replace(file, path=found)
        _, run, batch, name = file.relative
        copy = below(directory, f"{_ADOPTED}/{self._run}/{run}-{batch}/{name}")
        _copy(found, copy)
        context = self._context
        return StagedFile(copy, context.job_id, context.retained_checkpoints, file.checksum)

    def files_of(self, splits: Sequence[StagedRows | ReadFile]) -> dict[str, str]:
        files = [split.file for split in splits if isinstance(split, StagedRows)]
        return {"/".join(file.relative): file.path for file in files}

    def snapshot(self) -> list[StagedRows | ReadFile]:
        return [*super().snapshot(), *self._read.values()]

    def notify_complete(
        self, checkpoint_id: CheckpointId, splits: Sequence[StagedRows | ReadFile]
    ) -> None:
        for each in splits:
            if not isinstance(each, ReadFile):
                continue
            file = each.file
            if file.path not in self._read:
                continue  # an earlier checkpoint has handled it
            completed = self._read[file.path].completed + 1
            if completed < file.retained:
                self._read[file.path] = ReadFile(file, completed)
                continue
            self._context.permit.require()
            del self._read[file.path]
            _delete(file.path)
            _delete(_marker(file.path))

    def _open(self, split: StagedRows) -> Cursor:
        return _StagedCursor(split, self._context.format, self)

    def came_to_the_end_of(self, file: StagedFile) -> None:
        if not self._is_own(file):
            return
        self._read[file.path] = ReadFile(file)
        file_system, inner = resolve(_marker(file.path))
        with file_system.open_output_stream(inner) as marker:
            marker.write(b"")


class _StagedCursor(Cursor):
    def __init__(self, split: StagedRows, format: ArrowFormat | None, reader: StagedReader) -> None:
        self._split = split
        self._reader = reader
        try:
            self._rows = ParquetFormat().cursor(split.rows, format)
        except UnreadableInput:
            raise _gone(split.file.path) from None

    def read(self, max_records: int) -> Batch | None:
        return self._rows.read(max_records)

    @property
    def is_done(self) -> bool:
        return self._rows.is_done

    def position(self) -> StagedRows:
        return replace(self._split, rows=self._rows.position())

    def pending_records(self) -> int | None:
        return self._rows.pending_records()

    def close(self) -> None:
        if self._rows.is_done:
            self._reader.came_to_the_end_of(self._split.file)
        self._rows.close()


def _copy(found: str, copy: str) -> None:
    target, path = resolve(copy)
    target.create_dir(path.rpartition("/")[0], recursive=True)
    with target.open_output_stream(path) as copying:
        for block in _blocks(found):
            copying.write(block)


def _verified(file: StagedFile) -> StagedFile:
    """The file with its checksum.

    Raises:
        CorruptCheckpoint: it has changed since the first read.
    """
    digest = xxh3_64()
    for block in _blocks(file.path):
        digest.update(block)
    found = digest.intdigest()
    if file.checksum not in (None, found):
        raise CorruptCheckpoint(file.path, f"the checksum {file.checksum:x}", f"{found:x}")
    return replace(file, checksum=found)


def _blocks(path: str) -> Iterator[bytes]:
    file_system, inner = resolve(path)
    try:
        source = file_system.open_input_stream(inner)
    except FileNotFoundError:
        raise _gone(path) from None
    with source:
        while block := source.read(_READ_AT_ONCE):
            yield block


def _gone(path: str) -> UnreadableInput:
    return UnreadableInput(
        path,
        "rows from Spark that a checkpoint references are missing",
        "do not change the job's checkpoint directory, or resume from a later checkpoint",
    )


def _marker(path: str) -> str:
    directory, name = parent_and_name(path)
    return below(directory, _marker_name(name))


def _marker_name(name: str) -> str:
    return f"_{name}.read"


def _delete(path: str) -> None:
    file_system, inner = resolve(path)
    with suppress(FileNotFoundError):
        file_system.delete_file(inner)
