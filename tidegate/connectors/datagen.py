"""Generated records as a source, at a given rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from tidegate.connectors.collection import RangeCursor, RangeSplit
from tidegate.connectors.source import (
    Boundedness,
    InputStatus,
    Poll,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from tidegate.connectors.splits import Cursor, KnownSplits, SequentialReader, even_ranges
from tidegate.core.clock import Clock
from tidegate.core.errors import ConfigError, TypeMismatch
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat
from tidegate.types.typeinfo import TypeInformation

_UNBOUNDED = 2**63 - 1
_COLUMNAR_TURN = 1 << 20
"""Records per turn, so that whole batches are consecutive."""


@dataclass(frozen=True, slots=True)
class TurnsSplit(RangeSplit):
    """The records of one of several interleaved readers, from its own `start`."""

    turn: int = 1
    """The number of consecutive indices that belong to the reader in each round."""
    reader: int = 0
    readers: int = 1

    def index(self, record: int) -> int:
        """The global index of a record, from the reader's own count."""
        turns, place = divmod(record, self.turn)
        return (turns * self.readers + self.reader) * self.turn + place


def _interleaved(turn: int, readers: int) -> list[TurnsSplit]:
    stop = _UNBOUNDED // (turn * readers) * turn
    return [TurnsSplit(0, stop, 1 / readers, turn, reader, readers) for reader in range(readers)]


class DataGeneratorSource(Source):
    """Records that a function generates from their index.

    `generator` is called with an index and returns its record. With `columnar`, it is called with a
    first index and a number of records, and returns that many as a `pyarrow.RecordBatch`, which
    costs no Python object per record. The same index must give the same record: after a failure it
    is requested again.

    `rate` is in records per second over all readers; records that the job could not take in time
    are made up for. Without `count` the source never ends, and its readers take turns: record by
    record, or a million records at a time if it is columnar.
    """

    def __init__(
        self,
        generator: Callable[[int], Any] | Callable[[int, int], pa.RecordBatch],
        *,
        type_info: TypeInformation | None = None,
        count: int | None = None,
        rate: float | None = None,
        columnar: bool = False,
    ) -> None:
        if count is not None and count < 0:
            raise ConfigError("count", count, "give the number of records, or None for no end")
        if rate is not None and not rate > 0:
            raise ConfigError("rate", rate, "give records per second, above zero, or None")
        if columnar and type_info is None:
            raise ConfigError("type_info", None, "a columnar generator needs the records' type")
        self._generator = generator
        self._type = type_info
        self._count = count
        self._rate = rate
        self._columnar = columnar
        self.boundedness = (
            Boundedness.CONTINUOUS_UNBOUNDED if count is None else Boundedness.BOUNDED
        )

    def create_enumerator(self) -> SplitEnumerator:
        count = self._count
        if count is None:
            turn = _COLUMNAR_TURN if self._columnar else 1
            return KnownSplits(partial(_interleaved, turn))
        return KnownSplits(
            lambda parallelism: [
                RangeSplit(start, stop, share=1 / parallelism)
                for start, stop in even_ranges(0, count, parallelism)
            ]
        )

    def create_reader(self, context: ReaderContext) -> SourceReader:
        generator, format = self._generator, context.format

        def open_cursor(split: RangeSplit) -> Cursor:
            if not self._columnar:
                return _RecordCursor(generator, split, format)
            assert format is not None
            return _ColumnCursor(generator, split, format)

        if self._rate is None:
            return SequentialReader(open_cursor)
        return RateLimitedReader(open_cursor, self._rate, context.clock)

    def produced_type(self) -> TypeInformation | None:
        return self._type


class _GeneratorCursor(RangeCursor):
    def __init__(
        self, generator: Callable[..., Any], split: RangeSplit, format: ArrowFormat | None
    ) -> None:
        super().__init__(split)
        self._generator = generator
        self._format = format

    def pending_records(self) -> None:
        """None: records are generated on demand."""


class _RecordCursor(_GeneratorCursor):
    def between(self, start: int, stop: int) -> Batch:
        records: list[Any] = []
        try:
            records.extend(map(self._generator, self._indices(start, stop)))
        except Exception:
            if not records:
                raise
        if not records:
            index = self._indices(start, stop)[0]
            raise RuntimeError(f"the generator raised StopIteration for index {index}")
        return Batch.of_records(records, self._format)

    def _indices(self, start: int, stop: int) -> range:
        split = self._split
        if not isinstance(split, TurnsSplit):
            return range(start, stop)
        return range(split.index(start), split.index(stop), split.readers)


class _ColumnCursor(_GeneratorCursor):
    _format: ArrowFormat

    def between(self, start: int, stop: int) -> Batch:
        split = self._split
        if isinstance(split, TurnsSplit):
            count = min(stop - start, split.turn - start % split.turn)
            start = split.index(start)
        else:
            count = stop - start
        columns = self._generator(start, count)
        if not isinstance(columns, pa.RecordBatch) or columns.num_rows != count:
            raise TypeMismatch(
                str(self._format.type_info),
                columns,
                f"the generator must return a RecordBatch of {count} rows, starting at {start}",
            )
        return Batch.of_columns(self._format.conform(columns), self._format)


class RateLimitedReader(SequentialReader):
    """Returns as many records as are due since the first poll."""

    def __init__(self, open_cursor: Callable[[Any], Cursor], rate: float, clock: Clock) -> None:
        super().__init__(open_cursor)
        self._rate = rate
        self._clock = clock
        self._share = 0.0
        self._began: float | None = None
        self._returned = 0

    def add_splits(self, splits: Sequence[Any]) -> None:
        super().add_splits(splits)
        self._share += sum(split.share for split in splits)
        self._began, self._returned = None, 0

    def poll(self, max_records: int) -> Poll:
        if not self.has_splits:
            return super().poll(max_records)
        due = self._due()
        if due <= 0:
            return Poll(None, InputStatus.NOTHING_AVAILABLE)
        poll = super().poll(min(max_records, due))
        if poll.batch is None:
            return poll
        self._returned += len(poll.batch)
        if poll.status is InputStatus.MORE_AVAILABLE and len(poll.batch) >= due:
            return Poll(poll.batch, InputStatus.NOTHING_AVAILABLE)
        return poll

    def is_available(self) -> bool:
        return self._due() > 0 if self.has_splits else super().is_available()

    def available_in(self) -> float:
        if not self.has_splits:
            return super().available_in()
        seconds = (self._returned + 1) / (self._rate * self._share) - self._elapsed()
        return self._clock.sleep_for(max(seconds, 0.0))

    def _due(self) -> int:
        """How many records are due but not yet returned by `poll`."""
        return math.floor(self._rate * self._share * self._elapsed()) - self._returned

    def _elapsed(self) -> float:
        now = self._clock.monotonic()
        if self._began is None:
            self._began = now
        return now - self._began
