"""The common part of all table writers, and those whose rows are visible at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import sql

from tidegate.connectors.postgres.copying import Copying, refusal
from tidegate.connectors.postgres.session import Server, Session, failure
from tidegate.connectors.postgres.table import (
    Column,
    TargetTable,
    check_keys,
    look_up,
    written_columns,
)
from tidegate.connectors.sink import CommittingWriter, WriterContext
from tidegate.stream.batch import Batch

_SET = """
WITH given AS (SELECT %s::text AS name, %s::text AS value)
SELECT set_config(name, value, false) FROM given JOIN pg_settings USING (name)
"""
"""Sets an option if the server knows it: older ones do not know all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table to write to, and how."""

    server: Server
    table: str
    columns: tuple[str, ...] | None
    keys: tuple[str, ...]
    batch_size: int
    lock_timeout: timedelta


class PostgresWriter(CommittingWriter):
    """Collects records for a COPY.

    After a failure, a writer accepts nothing: its writes were rolled back, so its next checkpoint
    would have a gap.
    """

    _session: Session | None = None
    _failure: Exception | None = None

    def __init__(self, target: Target, context: WriterContext, application_name: str) -> None:
        self._target = target
        self._context = context
        self._application_name = application_name
        self._waiting: list[Batch] = []
        self._rows = 0

    def open(self) -> None:
        target, context = self._target, self._context
        session = self._session = target.server.connect(self._application_name)
        self._prepare_session(session)
        table = look_up(session, target.table)
        columns = written_columns(table, context.format, target.columns)
        self._copying = self._copying_to(session, table, columns)

    def _prepare_session(self, session: Session) -> None:
        """Limit our own waits, but let the server wait for us without limit."""
        timeout = f"{int(self._target.lock_timeout / timedelta(milliseconds=1))}ms"
        settings = {
            "lock_timeout": timeout,
            "idle_in_transaction_session_timeout": "0",
            "idle_session_timeout": "0",
        }
        for setting in settings.items():
            session.query(_SET, setting, doing="connecting")

    def _copying_to(
        self, session: Session, table: TargetTable, columns: Sequence[Column]
    ) -> Copying:
        return Copying(
            session,
            table,
            columns,
            self._context.format,
            by_name=self._target.columns is None,
        )

    def write(self, batch: Batch) -> None:
        with self._unless_failed():
            self._waiting.append(batch)
            self._rows += len(batch)
            if self._rows >= self._target.batch_size:
                self._send()

    def flush(self, end_of_input: bool = False) -> None:
        with self._unless_failed():
            self._send()

    def prepare_commit(self) -> Sequence[Any]:
        with self._unless_failed():
            return self._prepared()

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def _send(self) -> None:
        if self._rows:
            batches = Batch.joined(self._waiting)
            self._waiting.clear()
            self._rows = 0
            assert self._session is not None
            for batch in batches:
                self._arrived(self._session, batch)

    @abstractmethod
    def _arrived(self, session: Session, batch: Batch) -> None:
        """Send the records to the server."""

    def _prepared(self) -> Sequence[Any]:
        return ()

    @contextmanager
    def _unless_failed(self) -> Iterator[None]:
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except Exception as error:
            self._failure = error
            raise


class InsertWriter(PostgresWriter):
    """Adds rows, visible after each batch."""

    def _arrived(self, session: Session, batch: Batch) -> None:
        self._copying.copy(batch)


class UpsertWriter(PostgresWriter):
    """Adds rows, or updates those with the same key; the last row of a key in a batch counts."""

    _BATCH = sql.Identifier("pg_temp", "tidegate_batch")
    _POSITION = sql.Identifier("tidegate_position")

    def _copying_to(
        self, session: Session, table: TargetTable, columns: Sequence[Column]
    ) -> Copying:
        keys = self._target.keys
        check_keys(table, columns, keys)
        self._table = table
        names = [column.name for column in columns]
        doing = "making a temporary table"
        session.execute(
            sql.SQL(
                "CREATE TEMPORARY TABLE tidegate_batch ON COMMIT DELETE ROWS AS "
                "SELECT {} FROM {} WITH NO DATA"
            ).format(_listed(names), table.identifier),
            doing=doing,
        )
        session.execute(
            sql.SQL("ALTER TABLE {} ADD COLUMN {} bigint GENERATED ALWAYS AS IDENTITY").format(
                self._BATCH, self._POSITION
            ),
            doing=doing,
        )
        self._upsert = self._statement(table, names, keys)
        return Copying(
            session,
            table,
            columns,
            self._context.format,
            by_name=self._target.columns is None,
            into=self._BATCH,
        )

    def _statement(
        self, table: TargetTable, names: Sequence[str], keys: Sequence[str]
    ) -> sql.Composed:
        others = [name for name in names if name not in keys]
        updates = sql.SQL(", ").join(
            sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others
        )
        action = sql.SQL("UPDATE SET {}").format(updates) if others else sql.SQL("NOTHING")
        # Lock rows in the order of their keys, so that two subtasks cannot deadlock.
        return sql.SQL(
            "INSERT INTO {table} ({names}) SELECT DISTINCT ON ({keys}) {names} FROM {batch} "
            "ORDER BY {keys}, {position} DESC ON CONFLICT ({keys}) DO {action}"
        ).format(
            table=table.identifier,
            names=_listed(names),
            keys=_listed(keys),
            batch=self._BATCH,
            position=self._POSITION,
            action=action,
        )

    def _arrived(self, session: Session, batch: Batch) -> None:
        doing = f"writing to {self._table}"
        session.execute("BEGIN", doing=doing)
        self._copying.copy(batch)
        try:
            session.connection.execute(self._upsert)
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            row = error.diag.message_detail or "(unknown)"
            raise refusal(self._table, error, row, error.diag.column_name) from None
        except psycopg.Error as error:
            raise failure(error, session.server, doing) from None
        session.execute("COMMIT", doing=doing)


def _listed(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))
