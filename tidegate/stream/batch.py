"""Records in order, as Arrow columns or as Python objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.types.arrow import ArrowFormat
from tidegate.types.privacy import never_change, private_copy

NO_TIMESTAMP: Final = -(2**63)
"""The timestamp of a record without one in a batch with timestamps, as in Flink."""
_MOST_BYTES: Final = 1 << 30
_PIECE: Final = 1 << 14
"""How many records fit into a CPU cache as Python objects."""


def timestamps_of(times: Sequence[int | None]) -> npt.NDArray[np.int64] | None:
    """The timestamps of a batch whose records may have some; None if none of them has."""
    missing = times.count(None)
    if missing == len(times):
        return None
    if missing:
        times = [NO_TIMESTAMP if time is None else time for time in times]
    return np.array(times, np.int64)


class Batch:
    """Consecutive records, converted to the other form at most once, and only on demand.

    `format` is None for records without a columnar type, which exist only as Python objects.
    Batches are immutable, but their records may be changed by the one consumer that owns them.
    """

    __slots__ = ("_columns", "_fields", "_records", "format", "is_inert", "timestamps")

    def __init__(
        self,
        *,
        columns: pa.RecordBatch | None = None,
        records: list[Any] | None = None,
        format: ArrowFormat | None = None,
        timestamps: npt.NDArray[np.int64] | None = None,
        is_inert: bool = False,
    ) -> None:
        self._columns = columns
        self._records = records
        self._fields: dict[int, list[Any]] = {}
        self.format = format
        self.timestamps = timestamps
        """Milliseconds since the epoch of every record, or NO_TIMESTAMP; None: no record has any.
        """
        self.is_inert = is_inert
        """Whether `records` and everything in them are of Python's built-in types, so that using
        them runs no user code."""

    @classmethod
    def of_records(cls, records: list[Any], format: ArrowFormat | None = None) -> Batch:
        return cls(records=records, format=format)

    @classmethod
    def of_columns(cls, columns: pa.RecordBatch, format: ArrowFormat) -> Batch:
        return cls(columns=columns, format=format)

    def __len__(self) -> int:
        if self._columns is not None:
            return int(self._columns.num_rows)
        assert self._records is not None
        return len(self._records)

    @property
    def records(self) -> list[Any]:
        """The records as Python objects."""
        if self._records is None:
            assert self._columns is not None and self.format is not None
            self._records = self.format.decode(self._columns, self._fields)
            self._fields = {}
            self.is_inert = self.format.plain_class is tuple
        return self._records

    def field(self, position: int) -> list[Any]:
        """The values of a column as they are in the records, which may be decoded next."""
        if position not in self._fields:
            assert self._columns is not None and self.format is not None
            self._fields[position] = self.format.decode_field(self._columns, position)
        return self._fields[position]

    def has_fields(self, positions: Sequence[int] | None) -> bool:
        """Whether `field` gives what `record[position]` would, without decoding the records."""
        if positions is None or self._records is not None or self.format is None:
            return False
        width = len(self.format.field_names)
        return self.format.plain_class is tuple and all(i < width for i in positions)

    @property
    def columns(self) -> pa.RecordBatch:
        """The records as columns; raises TypeMismatch if a record is not of the type."""
        if self._columns is None:
            assert self._records is not None and self.format is not None
            self._columns = self.format.encode(self._records)
        return self._columns

    @property
    def never_changes(self) -> bool:
        """Whether none of the records, which are Python objects already, is mutable."""
        assert self._records is not None
        plain_class = None if self.format is None else self.format.plain_class
        is_known = plain_class is not None and self.is_columnar
        return is_known or never_change(self._records, plain_class)

    def branched(self) -> Batch:
        """The same records for another consumer: neither sees changes of the other."""
        if self._records is None:
            # Records decoded from columns are cached for one consumer only.
            return Batch(columns=self._columns, format=self.format, timestamps=self.timestamps)
        if self.never_changes:
            return self
        copies = None if self.is_columnar else list(map(private_copy, self._records))
        return Batch(
            columns=self._columns,
            records=copies,
            format=self.format,
            timestamps=self.timestamps,
        )

    def owned(self, private: Callable[[Any, Any], Any]) -> Batch:
        """The same records, each made `private` if its creator may still refer to it."""
        if self._records is None or self.never_changes:
            return self
        owned = []
        for record in self._records:
            result = record
            owned.append(private(result, record))
        return Batch(records=owned, format=self.format, timestamps=self.timestamps)

    @property
    def is_columnar(self) -> bool:
        """Whether the columns exist already, so that using them costs nothing."""
        return self._columns is not None

    def stamped(self, timestamps: npt.NDArray[np.int64]) -> Batch:
        """The same records with other timestamps."""
        return Batch(
            columns=self._columns,
            records=self._records,
            format=self.format,
            timestamps=timestamps,
            is_inert=self.is_inert,
        )

    def slice(self, start: int, stop: int) -> Batch:
        """The records from `start` up to, not including, `stop`."""
        return Batch(
            columns=None if self._columns is None else self._columns.slice(start, stop - start),
            records=None if self._records is None else self._records[start:stop],
            format=self.format,
            timestamps=None if self.timestamps is None else self.timestamps[start:stop],
        )

    def pieces(self) -> Iterator[tuple[int, Batch]]:
        """The batch in pieces to be decoded one after the other, each with its first position."""
        if self._records is not None:
            yield 0, self
            return
        for start in range(0, len(self), _PIECE):
            yield start, self.slice(start, min(start + _PIECE, len(self)))

    def take(self, indices: npt.NDArray[np.intp]) -> Batch:
        """The records at `indices`, in that order; columns stay columns."""
        timestamps = None if self.timestamps is None else self.timestamps[indices]
        if self._columns is not None:
            # `RecordBatch.take` has a higher fixed cost.
            taken = pc.call_function("take", [self._columns, pa.array(indices)])
            return Batch(columns=taken, format=self.format, timestamps=timestamps)
        assert self._records is not None
        records = self._records
        return Batch(
            records=[records[i] for i in indices.tolist()],
            format=self.format,
            timestamps=timestamps,
        )

    @classmethod
    def joined(cls, batches: Iterable[Batch], most_bytes: int = _MOST_BYTES) -> list[Batch]:
        """The same records in few batches.

        Columns beyond `most_bytes` stay separate: a text column must be smaller than 2 GiB. So do
        batches of different formats, as in a union of rows whose fields have other names, and
        columns that are not encoded as their format says: dictionaries may not fit into one.
        """
        groups: list[list[Batch]] = []
        size = 0
        for batch in filter(len, batches):
            own = batch.columns.nbytes if batch.is_columnar else 0
            if groups and size + own <= most_bytes and groups[-1][-1]._can_precede(batch):
                groups[-1].append(batch)
                size += own
            else:
                groups.append([batch])
                size = own
        return [cls._joined(group) for group in groups]

    def _can_precede(self, other: Batch) -> bool:
        return self.format == other.format and self._is_as_declared and other._is_as_declared

    @property
    def _is_as_declared(self) -> bool:
        if self._columns is None or self.format is None:
            return True
        return bool(self._columns.schema.equals(self.format.schema))

    @staticmethod
    def joined_timestamps(batches: Sequence[Batch]) -> npt.NDArray[np.int64] | None:
        """The timestamps of consecutive batches."""
        if all(batch.timestamps is None for batch in batches):
            return None
        return np.concatenate(
            [
                np.full(len(batch), NO_TIMESTAMP) if batch.timestamps is None else batch.timestamps
                for batch in batches
            ]
        )

    @classmethod
    def _joined(cls, batches: list[Batch]) -> Batch:
        if len(batches) == 1:
            return batches[0]
        timestamps = cls.joined_timestamps(batches)
        format = batches[0].format
        if format is not None and all(b.is_columnar for b in batches):
            table = pa.Table.from_batches([b.columns for b in batches])
            (columns,) = table.combine_chunks().to_batches()
            return cls(columns=columns, format=format, timestamps=timestamps)
        records = [record for b in batches for record in b.records]
        is_inert = all(b.is_inert for b in batches)
        return cls(records=records, format=format, timestamps=timestamps, is_inert=is_inert)
