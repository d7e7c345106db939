"""Writes records to a table with COPY: columns as CSV from Arrow, Python objects row by row."""

from __future__ import annotations

import io
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.types.json import Json
from pyarrow import csv

from tidegate.connectors.files.encodings import as_json, field_names, field_values
from tidegate.connectors.postgres.column_types import DOCUMENTS, as_text
from tidegate.connectors.postgres.session import Session, failure
from tidegate.connectors.postgres.table import Column, TargetTable
from tidegate.core.errors import RowRefused, shorten
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat

_CSV = csv.WriteOptions(include_header=False)
_LINE = re.compile(r"^COPY .*?, line (\d+)(?:, column (.+?)(?::|$))?", re.MULTILINE)


class Copying:
    """Writes batches to the given columns of a table, one COPY for each."""

    def __init__(
        self,
        session: Session,
        table: TargetTable,
        columns: Sequence[Column],
        format: ArrowFormat | None,
        *,
        by_name: bool,
        into: sql.Identifier | None = None,
    ) -> None:
        self._session = session
        self._table = table
        self._format = format
        self._rows: _RowFormat
        if format is not None:
            self._rows = _ColumnsAsCsv(columns)
        else:
            self._rows = _ObjectsAsText(table, columns, by_name=by_name)
        self._statement = sql.SQL("COPY {} ({}) FROM STDIN ({}, ENCODING 'UTF8')").format(
            into or table.identifier,
            sql.SQL(", ").join(sql.Identifier(column.name) for column in columns),
            sql.SQL(self._rows.options),
        )

    def copy(self, batch: Batch) -> None:
        """Write the records in the open transaction, or in one of their own.

        Raises:
            RowRefused: a record cannot be converted, or the server refuses it.
        """
        if self._format is not None and batch.format != self._format:
            batch = Batch.of_records(batch.records, self._format)
        try:
            cursor = self._session.connection.cursor()
            with cursor.copy(self._statement) as copy:
                self._rows.send(batch, copy)
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            raise self._refusal(batch, error) from None
        except psycopg.Error as error:
            raise failure(error, self._session.server, f"writing to {self._table}") from None

    def _refusal(self, batch: Batch, error: psycopg.Error) -> RowRefused:
        found = _LINE.search(error.diag.context or "")
        column = error.diag.column_name
        row = "(unknown)"
        if found is not None:
            position = min(self._rows.position_of(int(found[1]), batch), len(batch) - 1)
            row = shorten(batch.records[position])
            column = column or found[2]
        return refusal(self._table, error, row, column)


def refusal(table: TargetTable, error: psycopg.Error, row: str, column: str | None) -> RowRefused:
    parts = (error.diag.message_primary or str(error), error.diag.message_detail)
    return RowRefused(str(table), column, row, "; ".join(filter(None, parts)))


class _RowFormat(ABC):
    """How records are sent in a COPY."""

    options: str

    @abstractmethod
    def send(self, batch: Batch, copy: psycopg.Copy) -> None: ...

    @abstractmethod
    def position_of(self, line: int, batch: Batch) -> int:
        """The record that the server counts as this line, from 1."""


class _ColumnsAsCsv(_RowFormat):
    # Arrow quotes all text and no null; PostgreSQL takes only unquoted empty values for null.
    options = "FORMAT csv"

    def __init__(self, columns: Sequence[Column]) -> None:
        self._is_document = [column.base in DOCUMENTS for column in columns]

    def send(self, batch: Batch, copy: psycopg.Copy) -> None:
        copy.write(self._encoded(batch))

    def _encoded(self, batch: Batch) -> bytes:
        columns = [
            _documents(batch, i)
            if is_document and pa.types.is_nested(column.type)
            else as_text(column)
            for i, (column, is_document) in enumerate(
                zip(batch.columns.columns, self._is_document, strict=True)
            )
        ]
        names = [str(i) for i in range(len(columns))]
        buffer = io.BytesIO()
        csv.write_csv(pa.RecordBatch.from_arrays(columns, names), buffer, _CSV)
        return buffer.getvalue()

    def position_of(self, line: int, batch: Batch) -> int:
        """Line breaks within quotes count, too; in the first row, those that are CR."""
        lines = 0
        for position in range(len(batch)):
            text = self._encoded(batch.slice(position, position + 1))
            lines += text.count(b"\n") if position else 1 + text.count(b"\r")
            if lines >= line:
                return position
        return len(batch) - 1


def _documents(batch: Batch, position: int) -> pa.Array[Any]:
    values = (field_values(record)[position] for record in batch.records)
    return pa.array([None if value is None else as_json(value) for value in values], pa.string())


class _ObjectsAsText(_RowFormat):
    options = "FORMAT text"

    def __init__(self, table: TargetTable, columns: Sequence[Column], *, by_name: bool) -> None:
        self._table = table
        self._names = [column.name for column in columns]
        self._by_name = by_name
        self._documents = [i for i, c in enumerate(columns) if c.base in DOCUMENTS]

    def send(self, batch: Batch, copy: psycopg.Copy) -> None:
        for record in batch.records:
            row = self._row(record)
            try:
                copy.write_row(row)
            except (psycopg.ProgrammingError, psycopg.DataError) as error:
                raise RowRefused(str(self._table), None, shorten(record), str(error)) from None

    def _row(self, record: Any) -> list[Any]:
        values = self._values(record)
        for i in self._documents:
            if not isinstance(values[i], str | None):
                values[i] = Json(values[i], dumps=as_json)
        return values

    def _values(self, record: Any) -> list[Any]:
        found: dict[str, Any]
        if isinstance(record, dict):
            found = record
        elif self._by_name and (names := field_names(record)):
            found = dict(zip(names, field_values(record), strict=True))
        else:
            values = list(field_values(record))
            if len(values) == len(self._names):
                return values
            reason = f"it has {len(values)} field(s) for the columns {', '.join(self._names)}"
            raise RowRefused(str(self._table), None, shorten(record), reason)
        missing = next((name for name in self._names if name not in found), None)
        if missing is not None:
            reason = f"the record has {', '.join(map(str, found)) or 'no fields'}"
            raise RowRefused(str(self._table), missing, shorten(record), reason)
        return [found[name] for name in self._names]

    def position_of(self, line: int, batch: Batch) -> int:
        return line - 1
