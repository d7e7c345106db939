"""Files of whole batches with timestamps, for streams that later jobs read again.

file = (length of the segment (8 bytes, big endian) · pickled segment)*
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

from tidegate.connectors.durable.log import Segment
from tidegate.connectors.files.encodings import FileEncoder, FileEncoding
from tidegate.connectors.files.file_system import FoundFile, open_file, read_fully
from tidegate.connectors.files.formats import FileFormat
from tidegate.connectors.splits import Cursor
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat

_LENGTH_BYTES = 8


class BatchEncoding(FileEncoding):
    """One segment per batch."""

    def open(self, stream: IO[bytes]) -> FileEncoder:
        return _BatchEncoder(stream)


class _BatchEncoder(FileEncoder):
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write(self, batch: Batch) -> None:
        body = pickle.dumps(Segment.of([batch], (), ()), protocol=5)
        self._stream.write(len(body).to_bytes(_LENGTH_BYTES) + body)


@dataclass(frozen=True, slots=True)
class KeptSplit:
    """A file from the segment at `offset`, without the first `skipped` records of that segment."""

    path: str
    offset: int = 0
    skipped: int = 0


class BatchFormat(FileFormat):
    """Reads what `BatchEncoding` wrote, a file per split."""

    def splits(self, files: Sequence[FoundFile], parallelism: int) -> Sequence[KeptSplit]:
        return [KeptSplit(file.path) for file in files]

    def cursor(self, split: KeptSplit, format: ArrowFormat | None) -> Cursor:
        return _KeptCursor(split, format)


class _KeptCursor(Cursor):
    def __init__(self, split: KeptSplit, format: ArrowFormat | None) -> None:
        self._split = split
        self._format = format
        self._file = open_file(split.path)
        self._file.seek(split.offset)
        self._batch: Batch | None = None
        self._end = split.offset
        """The end of the current segment."""
        self._is_done = False

    def read(self, max_records: int) -> Batch | None:
        if self._batch is None and not self._next_segment():
            return None
        batch, first = self._batch, self._split.skipped
        assert batch is not None
        stop = min(first + max_records, len(batch))
        self._split = replace(self._split, skipped=stop)
        if stop == len(batch):
            self._split, self._batch = KeptSplit(self._split.path, self._end), None
        return batch.slice(first, stop)

    def _next_segment(self) -> bool:
        length = int.from_bytes(read_fully(self._file, _LENGTH_BYTES))
        if not length:
            self._is_done = True
            return False
        segment = pickle.loads(read_fully(self._file, length))
        (self._batch,) = segment.batches(self._format)
        self._end += _LENGTH_BYTES + length
        return True

    @property
    def is_done(self) -> bool:
        return self._is_done

    def position(self) -> Any:
        return self._split

    def close(self) -> None:
        self._file.close()
