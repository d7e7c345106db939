"""Files of lines, split into byte ranges and read in blocks of whole lines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO

import numpy as np
import numpy.typing as npt

from tidegate.connectors.files.file_system import (
    FoundFile,
    is_compressed,
    lines_before,
    open_file,
    read_fully,
)
from tidegate.connectors.splits import Cursor
from tidegate.core.errors import UnreadableInput
from tidegate.stream.batch import Batch

_BLOCK = 1 << 20
_SMALLEST_SPLIT = 1 << 20
_LARGEST_SPLIT = 64 << 20


@dataclass(frozen=True, slots=True)
class LineSplit:
    """The lines of a file whose first byte is in [start, stop)."""

    path: str
    start: int
    stop: int | None
    """None: the end of the file, because the length of a compressed file is unknown."""
    position: int | None = None
    """Where the next line begins; None before the first line."""


def line_splits(files: Sequence[FoundFile], parallelism: int) -> list[LineSplit]:
    """Cut large files into byte ranges, so that all readers have something to read."""
    share = -(-sum(file.size for file in files) // parallelism)
    size = min(max(share, _SMALLEST_SPLIT), _LARGEST_SPLIT)
    splits = []
    for file in files:
        if is_compressed(file.path):
            splits.append(LineSplit(file.path, 0, None))
        else:
            starts = range(0, file.size, size)
            splits += [
                LineSplit(file.path, start, min(start + size, file.size)) for start in starts
            ]
    return splits


class LineBlocks:
    """The lines of a split, in blocks that end with a line."""

    def __init__(self, file: IO[bytes], split: LineSplit) -> None:
        self._file = file
        self._path = split.path
        self._stop = split.stop
        self._rest = b""
        if split.position is not None:
            self.offset = split.position
            file.seek(self.offset)
        elif split.start == 0:
            self.offset = 0
        else:
            # A line that begins before the range belongs to the previous range.
            file.seek(split.start - 1)
            self.offset = split.start - 1
            self.offset += len(self._through_next_line_end(b""))

    def next_block(self) -> bytes:
        """The next lines, including the last line end; empty when there are no more."""
        stop = self._stop
        left = _BLOCK if stop is None else min(_BLOCK, stop - self.offset)
        if left <= 0:
            return b""
        if len(self._rest) < left:
            self._rest += read_fully(self._file, left - len(self._rest))
            if stop is not None and len(self._rest) < left:
                raise UnreadableInput(
                    self._path,
                    f"it reached byte {stop} when the job found it, and now ends before",
                    "keep files as they are until the job has read them",
                )
        block, self._rest = self._rest[:left], self._rest[left:]
        end = block.rfind(b"\n") + 1
        if end == 0:
            block = self._through_next_line_end(block)
        else:
            block, self._rest = block[:end], block[end:] + self._rest
        self.offset += len(block)
        return block

    def _through_next_line_end(self, block: bytes) -> bytes:
        """Extend `block` up to and including the next line end."""
        parts = [block]
        while True:
            if not self._rest:
                self._rest = read_fully(self._file, _BLOCK // 16)
                if not self._rest:
                    return b"".join(parts)
            end = self._rest.find(b"\n") + 1 or len(self._rest)
            parts.append(self._rest[:end])
            self._rest = self._rest[end:]
            if parts[-1].endswith(b"\n"):
                return b"".join(parts)


class UnreadableLines(Exception):
    """Raised by a parser for lines that it cannot read."""

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem, advice)
        self.problem = problem
        self.advice = advice


class LineParser(ABC):
    """Converts whole lines of one file to records."""

    @abstractmethod
    def parse(self, lines: bytes) -> Batch:
        """The records of the lines, in order; at most one per line.

        Raises:
            UnreadableLines: one of the lines cannot be read.
        """


class LineCursor(Cursor):
    """Reads the lines of a split until one cannot be parsed."""

    def __init__(self, split: LineSplit, parser: LineParser, header_lines: int = 0) -> None:
        self._split = split
        self._parser = parser
        self._file = open_file(split.path)
        self._blocks = LineBlocks(self._file, split)
        self._begin_block(b"")
        self._exhausted = False
        if header_lines and split.start == 0 and split.position is None:
            self._next_block()
            self._taken = min(header_lines, len(self._ends))

    def _begin_block(self, block: bytes) -> None:
        self._block = block
        self._ends = line_ends(block)
        self._taken = 0

    def _next_block(self) -> None:
        self._begin_block(self._blocks.next_block())
        self._exhausted = not self._block

    def read(self, max_records: int) -> Batch | None:
        while True:
            if self._taken >= len(self._ends):
                self._next_block()
                if self._exhausted:
                    return None
            batch = self._parse(max_records)
            if len(batch):
                return batch

    def _parse(self, max_lines: int) -> Batch:
        upto = min(self._taken + max_lines, len(self._ends))
        try:
            batch = self._parser.parse(self._lines(self._taken, upto))
        except UnreadableLines as problem:
            upto, readable = self._longest_readable(upto)
            if readable is None:
                failure = self._failure(problem)
                position = f"{self._split.path}, byte {self._offset()}"
                self.undecodable(position, self._lines(self._taken, self._taken + 1), failure)
                self._taken += 1
                return Batch.of_records([])
            batch = readable
        self._taken = upto
        return batch

    def _longest_readable(self, unreadable: int) -> tuple[int, Batch | None]:
        """Bisect for the lines before the first one that cannot be parsed."""
        good, batch = self._taken, None
        while unreadable - good > 1:
            middle = (good + unreadable) // 2
            try:
                batch = self._parser.parse(self._lines(self._taken, middle))
                good = middle
            except UnreadableLines:
                unreadable = middle
        return good, batch

    def _failure(self, first: UnreadableLines) -> UnreadableInput:
        try:
            self._parser.parse(self._lines(self._taken, self._taken + 1))
        except UnreadableLines as alone:
            first = alone
        line = lines_before(self._split.path, self._offset()) + 1
        return UnreadableInput(f"{self._split.path}, line {line}", first.problem, first.advice)

    def _lines(self, start: int, stop: int) -> bytes:
        begin = int(self._ends[start - 1]) if start else 0
        return self._block[begin : int(self._ends[stop - 1])]

    def _offset(self) -> int:
        """The offset of the next line to return."""
        begin = self._blocks.offset - len(self._block)
        return begin + (int(self._ends[self._taken - 1]) if self._taken else 0)

    @property
    def is_done(self) -> bool:
        return self._exhausted

    def position(self) -> LineSplit:
        return replace(self._split, position=self._offset())

    def close(self) -> None:
        self._file.close()


def line_ends(block: bytes) -> npt.NDArray[np.int64]:
    """The end offset of each line; the last line may lack its line feed."""
    ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == 10) + 1
    if block and not block.endswith(b"\n"):
        ends = np.append(ends, len(block))
    return ends.astype(np.int64, copy=False)


def split_lines(lines: str) -> Iterator[str]:
    """The lines, stripped, without empty ones."""
    return filter(None, map(str.strip, lines.split("\n")))
