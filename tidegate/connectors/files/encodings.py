"""Encodings of files: text, CSV, JSON lines, Parquet."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import IO, Any

import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import parquet as pq

from tidegate.connectors.serialization import line_charset
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat
from tidegate.types.row import Row

_ROWS_PER_GROUP = 1 << 17


class FileEncoding(ABC):
    """Encodes records as the bytes of a file."""

    suffix = ""

    @abstractmethod
    def open(self, stream: IO[bytes]) -> FileEncoder:
        """Begin a file."""


class FileEncoder(ABC):
    """Writes the records of one file."""

    @abstractmethod
    def write(self, batch: Batch) -> None: ...

    def finish(self) -> None:
        """Write the end of the file."""

    def discard(self) -> None:
        """Abandon the file: release resources, raise nothing."""


class Encoder(FileEncoding):
    """A line per record, formatted by a function."""

    def __init__(self, to_text: Callable[[Any], str] = str, charset: str = "UTF-8") -> None:
        self._to_text = to_text
        self._charset = line_charset(charset)

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """`str()` of every record."""
        return Encoder(str, charset_name)

    def open(self, stream: IO[bytes]) -> FileEncoder:
        return _LineEncoder(stream, self._to_text, self._charset)


class JsonLinesEncoding(Encoder):
    """A JSON value per line; rows and objects become JSON objects."""

    suffix = ".jsonl"

    def __init__(self) -> None:
        super().__init__(as_json)


class CsvEncoding(FileEncoding):
    """Comma-separated values; with a header, the first line has the names of the fields."""

    suffix = ".csv"

    def __init__(
        self,
        *,
        header: bool = True,
        delimiter: str = ",",
        quote: str | None = '"',
        escape: str | None = None,
        null_value: str = "",
        line_end: str = "\n",
        names: Sequence[str] | None = None,
    ) -> None:
        """`names` of the fields; None: those of the records, or of their type."""
        self._header = header
        self._names = names
        self._lines = CsvLines(delimiter, quote, escape, null_value, line_end)

    def open(self, stream: IO[bytes]) -> FileEncoder:
        return _CsvEncoder(stream, self._header, self._names, self._lines)


@dataclasses.dataclass(frozen=True, slots=True)
class CsvLines:
    """How values are written in a line; special characters are quoted, or else escaped."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null_value: str = ""
    line_end: str = "\n"

    @property
    def is_plain(self) -> bool:
        """Whether Arrow can write such lines."""
        return (self.quote, self.escape, self.null_value, self.line_end) == ('"', None, "", "\n")

    def text(self, rows: Iterable[Sequence[Any]]) -> str:
        text = io.StringIO()
        writer = csv.writer(
            text,
            delimiter=self.delimiter,
            quotechar=self.quote,
            escapechar=self.escape,
            doublequote=self.escape is None,
            quoting=csv.QUOTE_NONE if self.quote is None else csv.QUOTE_MINIMAL,
            lineterminator=self.line_end,
        )
        writer.writerows(map(self._shown, rows))
        return text.getvalue()

    def _shown(self, row: Sequence[Any]) -> list[Any]:
        return [self.null_value if value is None else _as_text(value) for value in row]


class ParquetEncoding(FileEncoding):
    """Parquet, for streams with a columnar type."""

    suffix = ".parquet"

    def __init__(
        self, schema: pa.Schema, convert: Callable[[Batch], pa.RecordBatch] | None = None
    ) -> None:
        self.schema = schema
        self._convert = convert or (lambda batch: batch.columns)

    @staticmethod
    def of(format: ArrowFormat) -> ParquetEncoding:
        """For records of this type, even of streams that do not declare it."""
        return ParquetEncoding(format.schema, columns_as(format))

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
    def __init__(
        self, stream: IO[bytes], header: bool, names: Sequence[str] | None, lines: CsvLines
    ) -> None:
        self._stream = stream
        self._header = header
        self._names = names
        self._lines = lines

    def write(self, batch: Batch) -> None:
        header, self._header = self._header, False
        format, lines = batch.format, self._lines
        is_flat = format is not None and not any(map(pa.types.is_nested, format.schema.types))
        if is_flat and lines.is_plain and self._names is None:
            options = arrow_csv.WriteOptions(include_header=header, delimiter=lines.delimiter)
            arrow_csv.write_csv(_without_empty_lines(batch.columns), self._stream, options)
            return
        names = self._names
        if names is None:
            names = field_names(batch.records[0]) if format is None else format.field_names
        heads = [names] if header and names else []
        rows = chain(heads, map(field_values, batch.records))
        self._stream.write(lines.text(rows).encode())


def _without_empty_lines(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Arrow writes None as nothing, and readers skip an empty line; empty text is quoted."""
    if rows.num_columns != 1 or rows.column(0).null_count == 0:
        return rows
    values = rows.column(0)
    texts = values if pa.types.is_binary(values.type) else values.cast(pa.string())
    return pa.RecordBatch.from_arrays([texts.fill_null("")], names=rows.schema.names)


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
        with suppress(OSError, ValueError):  # closing writes to the file, which may fail again
            self._writer.close()


def columns_as(format: ArrowFormat) -> Callable[[Batch], pa.RecordBatch]:
    """A function that returns the columns of a batch in this format."""
    return functools.partial(_columns, format)


def _columns(format: ArrowFormat, batch: Batch) -> pa.RecordBatch:
    return batch.columns if batch.format == format else format.encode(batch.records)


def field_names(record: Any) -> tuple[str, ...]:
    """The names of a record's fields; empty if it has none."""
    if dataclasses.is_dataclass(record):
        return tuple(field.name for field in dataclasses.fields(record))
    return getattr(record, "_fields", None) or ()  # of a Row or a named tuple


def _as_text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return str(value).lower() if isinstance(value, bool) else value


def field_values(record: Any) -> Sequence[Any]:
    """The values of a record's fields; a record without fields is one value."""
    if dataclasses.is_dataclass(record):
        return [getattr(record, field.name) for field in dataclasses.fields(record)]
    if isinstance(record, Row):
        return list(record)
    return record if isinstance(record, tuple | list) else [record]


def as_json(record: Any) -> str:
    """A record as JSON: named fields become an object, dates and decimals become text."""
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
