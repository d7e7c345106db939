"""A log of records in the checkpoint storage: numbered segments, written once and atomically.

taskowned/<operator>/log/00000000000000000000
                         00000000000000000001   ◀── records, and where the source continues

segment = "TGLOG2" · xxh3 of the rest and its number (8 bytes, big endian) · pickled Segment

In "TGLOG1", the checksum does not cover the number.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_digest

from tidegate.core.errors import CorruptCheckpoint, StorageError
from tidegate.storage.filesystem import open_store
from tidegate.storage.locations import below, shown
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat

_MAGIC, _WITHOUT_NUMBER = b"TGLOG2", b"TGLOG1"
_CHECKSUM_BYTES: Final = 8
_NAME: Final = re.compile(r"(?:.*/)?log/(\d{20})")


@dataclass(frozen=True, slots=True)
class Segment:
    """Records that arrived together, and the state of their source after them."""

    columns: bytes | None
    """Records with a columnar type, as an Arrow stream."""
    records: list[Any]
    """All other records."""
    timestamps: bytes | None
    live: tuple[Any, ...]
    """The splits from which the source continues."""
    assigned: tuple[Any, ...]
    """All splits that its reader has ever received."""

    @classmethod
    def of(
        cls, batches: Sequence[Batch], live: tuple[Any, ...], assigned: tuple[Any, ...]
    ) -> Segment:
        times = Batch.joined_timestamps(batches)
        stamps = None if times is None else times.astype("<i8").tobytes()
        if not batches or batches[0].format is None:
            records = [record for batch in batches for record in batch.records]
            return cls(None, records, stamps, live, assigned)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batches[0].columns.schema) as writer:
            for batch in batches:
                writer.write_batch(batch.columns)
        return cls(sink.getvalue().to_pybytes(), [], stamps, live, assigned)

    def batches(self, format: ArrowFormat | None) -> Iterator[Batch]:
        """The records, as batches of a stream with this `format`."""
        stamps = None if self.timestamps is None else np.frombuffer(self.timestamps, "<i8")
        if self.columns is None:
            yield Batch(records=self.records, format=format, timestamps=stamps)
            return
        first = 0
        for columns in pa.ipc.open_stream(self.columns):
            stop = first + columns.num_rows
            own = None if stamps is None else stamps[first:stop]
            yield Batch(columns=columns, format=format, timestamps=own)
            first = stop


@dataclass(frozen=True, slots=True, repr=False)
class LogSplit:
    """How far the log was read, and where the source continues after it."""

    segment: int
    index: int
    """The index of the next record in the segment."""
    live: tuple[Any, ...] = ()
    as_of: int | None = None
    """The last segment when `live` was recorded; a later segment has newer splits."""
    assigned: tuple[Any, ...] = ()
    fresh: tuple[Any, ...] = ()
    """Splits that the reader has received but not begun, because it was still replaying its log."""

    def __repr__(self) -> str:
        return f"segment {self.segment}, record {self.index} of its log"


class DurableLog:
    """The log of one source. One process at a time appends to it."""

    def __init__(self, directory: str) -> None:
        self._store = open_store(directory)

    def numbers(self) -> list[int]:
        """The existing segments, in order."""
        found = (_NAME.fullmatch(path) for path in self._store.list("log"))
        return sorted(int(match[1]) for match in found if match is not None)

    def numbers_from(self, first: int, last: int | None) -> list[int]:
        """The segments from a number on, without a gap, at least up to `last`.

        Raises:
            CorruptCheckpoint: a segment is missing.
        """
        found = [number for number in self.numbers() if number >= first]
        end = max([first - 1, *found, *([] if last is None else [last])])
        missing = sorted(set(range(first, end + 1)).difference(found))
        if missing:
            raise CorruptCheckpoint(
                self.location_of(missing[0]),
                f"the segments {first} to {end} of a log of records",
                f"{len(missing)} of them missing",
            )
        return found

    def append(self, number: int, segment: Segment) -> None:
        """Make a segment durable.

        Raises:
            StorageError: the outcome is unknown, or another process has written it.
        """
        body = pickle.dumps(segment, protocol=5)
        data = _MAGIC + xxh3_64_digest(body, number) + body
        if not self._store.create_if_absent(path_of_segment(number), data):
            raise StorageError(
                self.location_of(number),
                "another attempt of the job has written it",
                "its records come first: the job resumes from there",
            )

    def read(self, number: int) -> Segment:
        """Read a segment.

        Raises:
            CorruptCheckpoint: it is damaged.
        """
        data = self._store.read(path_of_segment(number))
        head = len(_MAGIC) + _CHECKSUM_BYTES
        body = data[head:]
        heads = (_MAGIC + xxh3_64_digest(body, number), _WITHOUT_NUMBER + xxh3_64_digest(body))
        if data[:head] not in heads:
            raise CorruptCheckpoint(
                self.location_of(number),
                f"segment {number} with its checksum",
                f"{len(data)} other bytes",
            )
        segment = pickle.loads(body)
        assert isinstance(segment, Segment)
        return segment

    def delete(self, number: int) -> None:
        self._store.delete(path_of_segment(number))

    def location_of(self, number: int) -> str:
        """The location of a segment, for messages."""
        return shown(self.url(number))

    def url(self, number: int) -> str:
        return below(self._store.url, path_of_segment(number))


def path_of_segment(number: int) -> str:
    """The path of a segment in the directory of its source."""
    return f"log/{number:020d}"
