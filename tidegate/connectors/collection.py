"""A list of records as a source."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tidegate.connectors.source import ReaderContext, Source, SourceReader, SplitEnumerator
from tidegate.connectors.splits import Cursor, KnownSplits, SequentialReader, even_ranges
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat
from tidegate.types.typeinfo import TypeInformation


@dataclass(frozen=True, slots=True)
class RangeSplit:
    """Records or numbers from `start` up to, not including, `stop`; `start` moves forward."""

    start: int
    stop: int
    share: float = 1.0
    """This split's share of a rate limit."""


class CollectionSource(Source):
    """The records of a collection, with one range per reader.

    Typed records are converted to columns here, so that a record of the wrong type is found before
    the job starts.
    """

    def __init__(
        self,
        records: Iterable[Any],
        type_info: TypeInformation | None = None,
        format: ArrowFormat | None = None,
    ) -> None:
        self._type = type_info
        self._batch = Batch.of_records(list(records), format)
        if format is not None:
            self._batch = Batch.of_columns(self._batch.columns, format)

    def __len__(self) -> int:
        return len(self._batch)

    def create_enumerator(self) -> SplitEnumerator:
        count = len(self._batch)
        return KnownSplits(
            lambda parallelism: [RangeSplit(*r) for r in even_ranges(0, count, parallelism)]
        )

    def create_reader(self, context: ReaderContext) -> SourceReader:
        batch = self._batch
        return SequentialReader(lambda split: BatchCursor(batch, split))

    def produced_type(self) -> TypeInformation | None:
        return self._type


class RangeCursor(Cursor):
    """Reads a range forward; subclasses supply the records."""

    def __init__(self, split: RangeSplit) -> None:
        self._split = split
        self._next = split.start

    def read(self, max_records: int) -> Batch | None:
        start, stop = self._next, min(self._next + max_records, self._split.stop)
        if stop == start:
            return None
        batch = self.between(start, stop)
        self._next += len(batch)
        return batch

    @abstractmethod
    def between(self, start: int, stop: int) -> Batch:
        """The records of this range, at least one."""

    @property
    def is_done(self) -> bool:
        return self._next >= self._split.stop

    def position(self) -> RangeSplit:
        return replace(self._split, start=self._next)

    def pending_records(self) -> int | None:
        return self._split.stop - self._next


class BatchCursor(RangeCursor):
    """Reads a range of a batch."""

    def __init__(self, batch: Batch, split: RangeSplit) -> None:
        super().__init__(split)
        self._batch = batch

    def between(self, start: int, stop: int) -> Batch:
        return self._batch.slice(start, stop)
