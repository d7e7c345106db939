"""A sequence of numbers as a source."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.connectors.collection import RangeCursor, RangeSplit
from tidegate.connectors.source import ReaderContext, Source, SourceReader, SplitEnumerator
from tidegate.connectors.splits import KnownSplits, SequentialReader, even_ranges
from tidegate.core.errors import ConfigError
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat
from tidegate.types.typeinfo import TypeInformation, Types


class NumberSequenceSource(Source):
    """The integers from `start` to `end`, both included, with one range per reader."""

    def __init__(self, start: int, end: int) -> None:
        if end < start:
            raise ConfigError("end", end, f"give a number that is not below the start, {start}")
        self._start = start
        self._stop = end + 1

    def create_enumerator(self) -> SplitEnumerator:
        start, stop = self._start, self._stop
        return KnownSplits(
            lambda parallelism: [RangeSplit(*r) for r in even_ranges(start, stop, parallelism)]
        )

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return SequentialReader(lambda split: _NumberCursor(split, context.format))

    def produced_type(self) -> TypeInformation:
        return Types.LONG()


class _NumberCursor(RangeCursor):
    def __init__(self, split: RangeSplit, format: ArrowFormat | None) -> None:
        super().__init__(split)
        self._format = format

    def between(self, start: int, stop: int) -> Batch:
        if self._format is None:
            return Batch.of_records(list(range(start, stop)))
        numbers = pa.array(np.arange(start, stop, dtype=np.int64))
        columns = pa.RecordBatch.from_arrays([numbers], schema=self._format.schema)
        return Batch.of_columns(columns, self._format)
