"""PostgreSQL as a sink: with transactions, upserts, or plain inserts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Self

from tidegate.connectors.guarantee import Delivery, DeliveryGuarantee
from tidegate.connectors.postgres.session import Server
from tidegate.connectors.postgres.transactions import PostgresCommitter, TransactionWriter
from tidegate.connectors.postgres.writers import InsertWriter, PostgresWriter, Target, UpsertWriter
from tidegate.connectors.sink import Committer, SupportsCommitter, WriterContext
from tidegate.core.durations import DurationLike, as_timedelta
from tidegate.core.errors import ConfigError
from tidegate.core.fluent import FluentBuilder

_APPLICATION = "tidegate"


class PostgresSink(SupportsCommitter):
    """Writes records as rows of an existing table.

    - With `keys`, a row replaces the one with the same keys, so repeating it changes nothing.
    - Without keys, exactly once: rows appear when their checkpoint is complete. The server must
      allow prepared transactions.
    - Without keys, at least once: rows are added immediately, and again after a failure.

    Args:
        dsn: a connection string or URL of libpq; libpq takes missing parts from its environment
            (`PGPASSWORD`, `PGSERVICE`, a password file).
        table: its name, with or without a schema, as in a statement.
        columns: the columns for the fields of the records, in order. Default: columns with the
            names of the fields; for tuples, the columns of the table in order.
        keys: the columns of a primary key or unique index; they must not be null.
        delivery_guarantee: for a sink without keys.
        batch_size: the maximum number of rows sent at once; at the end of a step, all are sent.
        lock_timeout: how long to wait for rows that other transactions have locked.
    """

    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        keys: Sequence[str] = (),
        delivery_guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE,
        batch_size: int = 10_000,
        lock_timeout: DurationLike = timedelta(minutes=1),
    ) -> None:
        for name, value in (("columns", columns), ("keys", keys)):
            if isinstance(value, str):
                raise ConfigError(name, value, f'give a list of names, like ["{value}"]')
        if batch_size < 1:
            raise ConfigError("batch_size", batch_size, "give a number of rows above zero")
        self._dsn = dsn
        self._table = table
        self._columns = None if columns is None else tuple(columns)
        self._keys = tuple(keys)
        self._guarantee = delivery_guarantee
        self._batch_size = batch_size
        self._lock_timeout = as_timedelta(lock_timeout)
        self._server = str(Server(dsn))

    @staticmethod
    def builder() -> PostgresSinkBuilder:
        return PostgresSinkBuilder()

    def delivery(self) -> Delivery:
        if self._keys:
            keys = ", ".join(self._keys)
            return Delivery(
                DeliveryGuarantee.EXACTLY_ONCE, f"upserts by {keys}: repetition changes nothing"
            )
        if self._is_transactional:
            why = "commits prepared transactions with the checkpoint"
            return Delivery(DeliveryGuarantee.EXACTLY_ONCE, why, commits=True)
        return Delivery(self._guarantee, "inserts rows again after a failure")

    def create_writer(self, context: WriterContext) -> PostgresWriter:
        target = Target(
            server=Server(self._dsn),
            table=self._table,
            columns=self._columns,
            keys=self._keys,
            batch_size=self._batch_size,
            lock_timeout=self._lock_timeout,
        )
        if self._keys:
            return UpsertWriter(target, context, _APPLICATION)
        if self._is_transactional:
            return TransactionWriter(target, context)
        return InsertWriter(target, context, _APPLICATION)

    def create_committer(self, context: WriterContext) -> Committer:
        return PostgresCommitter(Server(self._dsn), context.permit)

    @property
    def _is_transactional(self) -> bool:
        return not self._keys and self._guarantee is DeliveryGuarantee.EXACTLY_ONCE

    def __repr__(self) -> str:
        return f"<PostgresSink {self._table} of {self._server}>"


class PostgresSinkBuilder(FluentBuilder):
    """Settings of a PostgresSink, one by one."""

    def set_dsn(self, dsn: str) -> Self:
        return self._with(dsn=dsn)

    def set_table(self, table: str) -> Self:
        return self._with(table=table)

    def set_columns(self, *columns: str) -> Self:
        return self._with(columns=columns)

    def set_keys(self, *keys: str) -> Self:
        return self._with(keys=keys)

    def set_delivery_guarantee(self, guarantee: DeliveryGuarantee) -> Self:
        return self._with(delivery_guarantee=guarantee)

    def set_batch_size(self, rows: int) -> Self:
        return self._with(batch_size=rows)

    def set_lock_timeout(self, timeout: DurationLike) -> Self:
        return self._with(lock_timeout=timeout)

    def build(self) -> PostgresSink:
        for name in ("dsn", "table"):
            if name not in self._chosen:
                raise ConfigError(name, None, f"call set_{name}() before build()")
        return PostgresSink(**self._chosen)
