"""Files as a source: existing files, or new ones as they appear."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

from tidegate.connectors.files.file_system import FileVersion, FoundFile, find_files
from tidegate.connectors.files.formats import FileFormat
from tidegate.connectors.source import (
    Boundedness,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from tidegate.connectors.splits import Cursor, KnownSplits, SequentialReader, deal
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import ConfigError, UnreadableInput
from tidegate.core.fluent import FluentBuilder
from tidegate.types.typeinfo import TypeInformation


class FileSource(Source):
    """The records of files and of all files below directories.

    With `watch_every`, the directories are listed repeatedly. A file is read once, when it is first
    seen, so move complete files there. Names that begin with "." or "_" are ignored.
    """

    def __init__(
        self, paths: str | Sequence[str], format: FileFormat, watch_every: timedelta | None = None
    ) -> None:
        self._paths = [paths] if isinstance(paths, str) else [str(path) for path in paths]
        if not self._paths:
            raise ConfigError("paths", paths, "give at least one file or directory")
        if watch_every is not None and watch_every <= timedelta(0):
            raise ConfigError("watch_every", watch_every, "give a duration above zero")
        self._format = format
        self._watch_every = watch_every
        if watch_every is not None:
            self.boundedness = Boundedness.CONTINUOUS_UNBOUNDED

    @staticmethod
    def for_record_stream_format(stream_format: FileFormat, *paths: str) -> FileSourceBuilder:
        """Create a source for files that are read record by record."""
        return FileSourceBuilder(paths=paths, format=stream_format)

    @staticmethod
    def for_bulk_file_format(bulk_format: FileFormat, *paths: str) -> FileSourceBuilder:
        """Create a source for files that are decoded as a whole, such as Parquet."""
        return FileSourceBuilder(paths=paths, format=bulk_format)

    def create_enumerator(self) -> SplitEnumerator:
        paths, format = self._paths, self._format
        if self._watch_every is not None:
            return WatchedFiles(paths, format, self._watch_every)
        return KnownSplits(lambda parallelism: format.splits(files_below(paths), parallelism))

    def create_reader(self, context: ReaderContext) -> SourceReader:
        def open_cursor(split: Any) -> Cursor:
            cursor = self._format.cursor(split, context.format)
            cursor.undecodable = context.undecodable
            return cursor

        return FileReader(open_cursor)

    def produced_type(self) -> TypeInformation | None:
        declared = self._format.produced_type([])
        if declared is not None:
            return declared
        return self._format.produced_type([file.path for file in files_below(self._paths)])


@dataclass(frozen=True, slots=True)
class StartedSplit:
    """A split with a position, which is valid only in this version of its file."""

    split: Any
    version: FileVersion

    def __repr__(self) -> str:
        return repr(self.split)


class FileReader(SequentialReader):
    """Reads files one after the other; refuses to continue in a file that was replaced."""

    _version: FileVersion | None = None
    """Of the current file; None: unknown."""

    def __init__(self, open_cursor: Callable[[Any], Cursor]) -> None:
        super().__init__(self._open, _key_of)
        self._open_split = open_cursor

    def _open(self, split: Any) -> Cursor:
        path = getattr(_unwrapped(split), "path", None)
        if path is None:
            self._version = None
        elif isinstance(split, StartedSplit):
            split.version.require(path)
            self._version = split.version
        else:
            self._version = _version_of(path)
        return self._open_split(_unwrapped(split))

    def snapshot(self) -> list[Any]:
        splits = super().snapshot()
        if self._cursor is not None and self._version is not None:
            splits[0] = StartedSplit(splits[0], self._version)
        return splits


def _version_of(path: str) -> FileVersion | None:
    try:
        return FileVersion.of(path)
    except ValueError:  # a stream, perhaps over HTTP, that can only be read from its beginning
        return None


def _unwrapped(split: Any) -> Any:
    return split.split if isinstance(split, StartedSplit) else split


def _key_of(split: Any) -> tuple[str, Any] | None:
    """Identifies a part of a file, independent of the position in it."""
    split = _unwrapped(split)
    path = getattr(split, "path", None)
    return None if path is None else (path, getattr(split, "stop", None))


class FileSourceBuilder(FluentBuilder):
    """Settings of a FileSource, under PyFlink's names."""

    def monitor_continuously(self, discovery_interval: Any) -> Self:
        """Look for new files at this interval: a timedelta, or PyFlink's Duration."""
        if not isinstance(discovery_interval, timedelta):
            discovery_interval = timedelta(milliseconds=discovery_interval.to_millis())
        return self._with(watch_every=discovery_interval)

    def process_static_file_set(self) -> Self:
        """Read the existing files, then end; the default."""
        return self._with(watch_every=None)

    def build(self) -> FileSource:
        """Build the source."""
        return FileSource(**self._chosen)


def files_below(paths: Sequence[str]) -> list[FoundFile]:
    """All files of the paths, each once, even if paths overlap."""
    found = [file for path in paths for file in find_files(path)]
    return list({file.path: file for file in found}.values())


class WatchedFiles(SplitEnumerator):
    """Files below directories, as they appear. Remembers every path it has seen."""

    def __init__(
        self,
        paths: Sequence[str],
        format: FileFormat,
        interval: timedelta,
        clock: Clock | None = None,
    ) -> None:
        self._paths = paths
        self._format = format
        self._interval = interval.total_seconds()
        self._clock = clock or SystemClock()
        self._seen: set[str] = set()
        self._waiting: list[Any] = []
        self._look_at: float | None = None
        self._dealt = 0

    def open(self) -> None:
        for path in self._paths:
            find_files(path)

    def next_splits(self, parallelism: int) -> dict[int, list[Any]]:
        now = self._clock.monotonic()
        if self._look_at is None or now >= self._look_at:
            self._look_at = now + self._interval
            self._look(parallelism)
        waiting, self._waiting = self._waiting, []
        hands = deal(waiting, parallelism)
        turned = {(reader + self._dealt) % parallelism: hand for reader, hand in hands.items()}
        self._dealt += len(waiting)
        return turned

    def _look(self, parallelism: int) -> None:
        new = [file for file in self._present() if file.path not in self._seen]
        self._waiting += self._format.splits(new, parallelism)
        self._seen.update(file.path for file in new)

    def _present(self) -> list[FoundFile]:
        try:
            return files_below(self._paths)
        except UnreadableInput:
            return []  # the directory is being replaced: try again later

    def is_exhausted(self) -> bool:
        return False

    def add_back(self, splits: Sequence[Any]) -> None:
        self._waiting.extend(splits)

    def snapshot(self) -> Any:
        return sorted(self._seen), list(self._waiting)

    def restore(self, state: Any) -> None:
        if state is not None:
            seen, waiting = state
            self._seen, self._waiting = set(seen), list(waiting)
