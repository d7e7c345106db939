"""How records become the bytes of files: text, CSV, JSON lines, Parquet."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, Any

import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import parquet as pq

from tidegate.stream.batch import Batch
from tidegate.types.row import Row

_ROWS_PER_GROUP = 1 << 17


class FileEncoding(ABC):
    """How records become the bytes of a file."""

    suffix = ""

    @abstractmethod
    def open(self, stream: IO[bytes]) -> FileEncoder:
        """Begin a file."""


class FileEncoder(ABC):
    """Writes the records of one file."""

    @abstractmethod
    def write(self, batch: Batch) -> None: ...

    def finish(self) -> None:
        """Write what a whole file needs at its end."""

    def discard(self) -> None:
        """The file is abandoned: release what is held, raise nothing."""


class Encoder(FileEncoding):
    """A line per record, as a function makes it of the record."""

    def __init__(self, to_text: Callable[[Any], str] = str, charset: str = "UTF-8") -> None:
        self._to_text = to_text
        self._charset = charset

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """`str()` of every record."""
        return Encoder(str, charset_name)

    def open(self, stream: IO[bytes]) -> FileEncoder:
        return _LineEncoder(stream, self._to_text, self._charset)


class JsonLinesEncoding(Encoder):
    """A JSON value per line; rows and records of classes are objects."""

    suffix = ".jsonl"

    def __init__(self) -> None:
        super().__init__(as_json)


class CsvEncoding(FileEncoding):
    """Comma-separated values; with a header the first line has the names of the fields."""

    suffix = ".csv"

    def __init__(self, *, header: bool = True, delimiter: str = ",") -> None:
        self._header = header
        self._delimiter = delimiter

    def open(self, stream: IO[bytes]) -> FileEncoder:
        return _CsvEncoder(stream, self._header, self._delimiter)


class ParquetEncoding(FileEncoding):
    """Parquet, for streams with a columnar type."""

    suffix = ".parquet"

    def __init__(self, schema: pa.Schema, convert: Callable[[Batch], pa.RecordBatch] | None = None):
        self.schema = schema
        self._convert = convert or (lambda batch: batch.columns)

    def open(self, stream: IO[bytes]) -> FileEncoder:
        return _ParquetEncoder(stream, self.schema, self._convert)


class _LineEncoder(FileEncoder):
    def __init__(self, stream: IO[bytes], to_text: Callable[[Any], str], charset: str) -> None:
        self._stream = stream
        self._to_text = to_text
        self._charset = charset

    def write(self, batch: Batch) -> None:
        lines = [self._to_text(record) for record in batch.records]
        self._stream.write(("\n".join(lines) + "\n").encode(self._charset))


class _CsvEncoder(FileEncoder):
    def __init__(self, stream: IO[bytes], header: bool, delimiter: str) -> None:
        self._stream = stream
        self._header = header
        self._delimiter = delimiter

    def write(self, batch: Batch) -> None:
        header, self._header = self._header, False
        format = batch.format
        if format is not None and not any(pa.types.is_nested(t) for t in format.schema.types):
            options = arrow_csv.WriteOptions(include_header=header, delimiter=self._delimiter)
            arrow_csv.write_csv(batch.columns, self._stream, options)
            return
        text = io.StringIO()
        rows = csv.writer(text, delimiter=self._delimiter, lineterminator="\n")
        names = field_names(batch.records[0]) if format is None else format.field_names
        if header and names:
            rows.writerow(names)
        rows.writerows(map(field_values, batch.records))
        self._stream.write(text.getvalue().encode())


class _ParquetEncoder(FileEncoder):
    def __init__(
        self, stream: IO[bytes], schema: pa.Schema, convert: Callable[[Batch], pa.RecordBatch]
    ) -> None:
        self._writer = pq.ParquetWriter(stream, schema)
        self._convert = convert
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def write(self, batch: Batch) -> None:
        self._waiting.append(self._convert(batch))
        self._rows += len(batch)
        if self._rows >= _ROWS_PER_GROUP:
            self._write_group()

    def _write_group(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._waiting))
        self._waiting.clear()
        self._rows = 0

    def finish(self) -> None:
        if self._waiting:
            self._write_group()
        self._writer.close()

    def discard(self) -> None:
        self._waiting.clear()
        with suppress(OSError, ValueError):  # it writes an end to the file, which may fail again
            self._writer.close()


def field_names(record: Any) -> tuple[str, ...]:
    """The names of a record's fields; empty where it has none."""
    if dataclasses.is_dataclass(record):
        return tuple(field.name for field in dataclasses.fields(record))
    return getattr(record, "_fields", None) or ()  # of a Row or a named tuple


def field_values(record: Any) -> Sequence[Any]:
    """The values of a record's fields; a record without fields is one value."""
    if dataclasses.is_dataclass(record):
        return [getattr(record, field.name) for field in dataclasses.fields(record)]
    if isinstance(record, Row):
        return list(record)
    return record if isinstance(record, tuple | list) else [record]


def as_json(record: Any) -> str:
    """A record as JSON: one with named fields is an object, dates and decimals are text."""
    return json.dumps(_plain(record), default=str, ensure_ascii=False)


def _plain(value: Any) -> Any:
    names = field_names(value)
    if names:
        return {name: _plain(item) for name, item in zip(names, field_values(value), strict=True)}
    if isinstance(value, Row | tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
