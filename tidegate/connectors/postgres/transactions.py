"""Rows that appear with their checkpoint: PREPARE TRANSACTION, then COMMIT PREPARED.

    records   BEGIN, COPY …
    barrier   PREPARE TRANSACTION 'tidegate:<job>:<operator>:<subtask>:<unique>'
    later     the checkpoint is durable ──▶ COMMIT PREPARED, on another connection
    restore   COMMIT PREPARED those of the checkpoint, ROLLBACK PREPARED all others

A prepared transaction outlives its connection and the server; it is committed by its name.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

import psycopg
from psycopg import sql

from tidegate.connectors.postgres.session import Server, Session, failure
from tidegate.connectors.postgres.writers import PostgresWriter, Target
from tidegate.connectors.sink import Committer, WriterContext
from tidegate.core.errors import DatabaseFailed, InternalError, TransactionLost, UnsuitableServer
from tidegate.core.permit import Permit
from tidegate.stream.batch import Batch

_LONGEST_OPERATOR = 80
"""The name of a transaction must be shorter than 200 bytes."""
_PATIENCE_SECONDS = 30.0
_PAUSE_SECONDS = 0.05
_COMMITTING = "committing"


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A transaction that waits for its commit; the server knows its fate by its number."""

    name: str
    number: int


class TransactionNames:
    """The names of a sink's transactions and sessions."""

    def __init__(self, job_id: str, operator_id: str) -> None:
        operator = quote(operator_id, safe=" ()")
        digest = hashlib.sha256(f"{job_id}:{operator_id}".encode()).hexdigest()[:20]
        if len(operator) > _LONGEST_OPERATOR:
            operator = digest
        self.prefix = f"tidegate:{job_id}:{operator}:"
        self._sessions = f"tidegate/{digest}/"

    def transaction(self, subtask: int, unique: str) -> str:
        return f"{self.prefix}{subtask}:{unique}"

    def subtask_of(self, transaction: str) -> int:
        return int(transaction.removeprefix(self.prefix).partition(":")[0])

    def writing_session(self, subtask: int) -> str:
        return f"{self._sessions}{subtask}"

    def subtask_of_session(self, name: str) -> int | None:
        number = name.removeprefix(self._sessions)
        return int(number) if number != name and number.isdigit() else None

    def is_for(self, subtask: int, context: WriterContext) -> bool:
        """Whether a subtask is responsible for the leftovers of another, at any parallelism."""
        return subtask % context.parallelism == context.subtask


class TransactionWriter(PostgresWriter):
    """Writes in a transaction, which a barrier prepares."""

    def __init__(self, target: Target, context: WriterContext) -> None:
        self._names = TransactionNames(context.job_id, context.operator_id)
        super().__init__(target, context, self._names.writing_session(context.subtask))
        self._unique = secrets.token_hex(4)
        self._count = 0
        self._number: int | None = None
        """The number of the open transaction."""

    def open(self) -> None:
        super().open()
        assert self._session is not None
        _require_prepared_transactions(self._session, self._context.parallelism)
        _end_older_sessions(self._session, self._names, self._context)
        _roll_back_orphans(self._session, self._names, self._context)

    def _arrived(self, session: Session, batch: Batch) -> None:
        if self._number is None:
            session.execute("BEGIN", doing="beginning a transaction")
            ((self._number,),) = session.query("SELECT txid_current()", doing="numbering it")
        self._copying.copy(batch)

    def _prepared(self) -> Sequence[PreparedTransaction]:
        self._send()
        if self._number is None:
            return ()
        session = self._session
        assert session is not None
        self._count += 1
        unique = f"{self._unique}-{self._count}"
        name = self._names.transaction(self._context.subtask, unique)
        statement = _with_name("PREPARE TRANSACTION {}", name)
        done = session.execute(statement, doing="preparing a transaction")
        if done != "PREPARE TRANSACTION":  # the server rolls back a failed transaction silently
            raise InternalError(f"transaction {name} was not prepared: the server said {done}")
        prepared = PreparedTransaction(name, self._number)
        self._number = None
        return (prepared,)


class PostgresCommitter(Committer):
    """Commits by name, on a connection opened for the first commit."""

    def __init__(self, server: Server, permit: Permit) -> None:
        self._server = server
        self._permit = permit
        self._session: Session | None = None

    def commit(self, committables: Sequence[PreparedTransaction]) -> None:
        is_fresh = self._session is None
        try:
            self._commit_all(committables)
        except DatabaseFailed:
            self.close()
            if is_fresh:
                raise
            # The connection was idle, and the server may have restarted meanwhile.
            self._commit_all(committables)

    def _commit_all(self, transactions: Sequence[PreparedTransaction]) -> None:
        if self._session is None:
            self._session = self._server.connect("tidegate/committer")
        for transaction in transactions:
            _commit(self._session, transaction, self._permit)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def _commit(session: Session, transaction: PreparedTransaction, permit: Permit) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        permit.require()
        try:
            session.connection.execute(_with_name("COMMIT PREPARED {}", transaction.name))
        except psycopg.errors.UndefinedObject:
            _require_committed(session, transaction)
        except psycopg.errors.ObjectNotInPrerequisiteState as busy:
            # Another process is committing it.
            if time.monotonic() > deadline:
                raise failure(busy, session.server, _COMMITTING) from None
            time.sleep(_PAUSE_SECONDS)
            continue
        except psycopg.Error as error:
            raise failure(error, session.server, _COMMITTING) from None
        return


def _require_committed(session: Session, transaction: PreparedTransaction) -> None:
    """Check a missing transaction: raise unless it was committed, or its outcome is unknowable."""
    try:
        ((fate,),) = session.connection.execute(
            "SELECT txid_status(%s)", (transaction.number,)
        ).fetchall()
    except psycopg.errors.InvalidParameterValue:
        fate = "in the future"
    except psycopg.Error as error:
        raise failure(error, session.server, _COMMITTING) from None
    if fate == "aborted":
        found = "it was rolled back"
        raise TransactionLost(str(session.server), transaction.name, found)
    if fate not in ("committed", None):
        found = "the server does not know it: it may be another server, or restored from a backup"
        raise TransactionLost(str(session.server), transaction.name, found)


def _require_prepared_transactions(session: Session, parallelism: int) -> None:
    ((value,),) = session.query("SHOW max_prepared_transactions", doing="looking at its settings")
    if int(value) < parallelism:
        raise UnsuitableServer(
            str(session.server),
            "max_prepared_transactions",
            value,
            f"exactly-once delivery needs a prepared transaction for each of the {parallelism} "
            f"subtask(s), and as many again while they are committed: set it to at least "
            f"{2 * parallelism} in postgresql.conf and restart the server; or set keys to upsert "
            "by, or use DeliveryGuarantee.AT_LEAST_ONCE",
        )


def _end_older_sessions(session: Session, names: TransactionNames, context: WriterContext) -> None:
    """End sessions of lost attempts: they hold locks, and might still prepare a transaction."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        found = session.query(
            "SELECT pid, application_name FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()",
            doing="looking for sessions of lost attempts",
        )
        older = [
            pid
            for pid, name in found
            if (subtask := names.subtask_of_session(name or "")) is not None
            and names.is_for(subtask, context)
        ]
        if not older:
            return
        if time.monotonic() > deadline:
            raise DatabaseFailed(
                str(session.server), "ending sessions of lost attempts", f"{older} do not end"
            )
        for pid in older:
            context.permit.require()
            session.query(
                "SELECT pg_terminate_backend(%s)", (pid,), doing="ending a session of ours"
            )
        time.sleep(_PAUSE_SECONDS)


def _roll_back_orphans(session: Session, names: TransactionNames, context: WriterContext) -> None:
    awaited = {transaction.name for transaction in context.recovered}
    found = session.query(
        "SELECT gid FROM pg_prepared_xacts "
        "WHERE database = current_database() AND left(gid, %s) = %s",
        (len(names.prefix), names.prefix),
        doing="looking for transactions of lost attempts",
    )
    for (name,) in found:
        if name not in awaited and names.is_for(names.subtask_of(name), context):
            context.permit.require()
            try:
                session.connection.execute(_with_name("ROLLBACK PREPARED {}", name))
            except psycopg.errors.UndefinedObject:
                pass
            except psycopg.Error as error:
                raise failure(error, session.server, "rolling back a lost attempt") from None


def _with_name(statement: str, name: str) -> sql.Composed:
    return sql.SQL(statement).format(sql.Literal(name))
