"""A source that reads as far as a file allows."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.connectors.source import (
    Boundedness,
    InputStatus,
    Poll,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from tidegate.connectors.splits import KnownSplits
from tidegate.stream.batch import Batch


@dataclass(frozen=True, slots=True)
class Stretch:
    """The records (number, position) of a split, from a position."""

    number: int
    position: int = 0


class Numbers(Source):
    """`splits` splits of `total` records each; the file says how many may be read."""

    boundedness = Boundedness.CONTINUOUS_UNBOUNDED

    def __init__(self, file: Path, splits: int, total: int) -> None:
        self.file, self.splits, self.total = file, splits, total

    def create_enumerator(self) -> SplitEnumerator:
        count = self.splits
        return KnownSplits(lambda parallelism: [Stretch(number) for number in range(count)])

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _Reader(self)


class _Reader(SourceReader):
    def __init__(self, source: Numbers) -> None:
        self._source = source
        self._splits: dict[int, Stretch] = {}
        self._no_more = False

    reads_all_at_once = True

    def add_splits(self, splits: Sequence[Stretch]) -> None:
        self._splits.update((split.number, split) for split in splits)

    def split_key(self, split: Stretch) -> int:
        return split.number

    def no_more_splits(self) -> None:
        self._no_more = True

    def poll(self, max_records: int) -> Poll:
        released = read_number(self._source.file)
        total = self._source.total
        ended = tuple(n for n, split in self._splits.items() if split.position >= total)
        for number in ended:
            del self._splits[number]
        for number, split in list(self._splits.items()):
            stop = min(released, total, split.position + max_records)
            if stop <= split.position:
                continue
            # The next poll is for the next split.
            del self._splits[number]
            self._splits[number] = replace(split, position=stop)
            records = [(number, position) for position in range(split.position, stop)]
            return Poll(Batch.of_records(records), InputStatus.MORE_AVAILABLE, number, ended)
        is_over = self._no_more and not self._splits
        status = InputStatus.END_OF_INPUT if is_over else InputStatus.NOTHING_AVAILABLE
        return Poll(None, status, None, ended)

    def is_available(self) -> bool:
        released = read_number(self._source.file)
        return (self._no_more and not self._splits) or any(
            split.position < released or split.position >= self._source.total
            for split in self._splits.values()
        )

    def snapshot(self) -> list[Stretch]:
        return list(self._splits.values())


def read_number(file: Path) -> int:
    try:
        return int(json.loads(file.read_text()))
    except FileNotFoundError:
        return 0


def write_number(file: Path, number: int) -> None:
    """Write atomically, so that readers never see a partial number."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    fresh.write_text(str(number))
    fresh.replace(file)
