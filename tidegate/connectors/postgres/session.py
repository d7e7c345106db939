"""A connection to a PostgreSQL server that raises Tidegate's errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tidegate.core.errors import ConfigError, DatabaseFailed, TidegateError, UserError

try:
    import psycopg
    from psycopg import conninfo, sql
except ImportError as missing:
    raise ImportError(
        f"PostgreSQL needs psycopg ({missing}): pip install 'tidegate[postgres]'"
    ) from None

_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    # Notice within a minute that a server has vanished.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}


class Server:
    """Where to connect: a libpq connection string or URL."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        try:
            self._given = conninfo.conninfo_to_dict(dsn)
        except psycopg.Error as error:
            # The text may contain a password: show neither it nor libpq's message about it.
            raise ConfigError(
                "dsn",
                "…",
                f"it is not a connection string ({type(error).__name__}): give one like "
                "postgresql://user@host:5432/database",
            ) from None

    def __str__(self) -> str:
        given = self._given
        host = given.get("host") or given.get("hostaddr") or os.environ.get("PGHOST", "localhost")
        port = given.get("port") or os.environ.get("PGPORT", "5432")
        database = given.get("dbname") or os.environ.get("PGDATABASE") or given.get("user") or ""
        return f"PostgreSQL at {host}:{port}/{database}"

    def connect(self, application_name: str) -> Session:
        """Connect under an application name, which the server shows for its sessions."""
        settings = {
            **_DEFAULTS,
            **self._given,
            "application_name": application_name,
            "client_encoding": "UTF8",
        }
        with translated(self, "connecting"):
            return Session(self, psycopg.connect(autocommit=True, **settings))


class Session:
    """A connection in autocommit mode, unless a transaction is begun."""

    def __init__(self, server: Server, connection: psycopg.Connection[Any]) -> None:
        self.server = server
        self.connection = connection

    def execute(self, statement: str | sql.Composed, *, doing: str) -> str:
        """Run a statement; returns the server's status message."""
        with translated(self.server, doing):
            return self._run(statement).statusmessage or ""

    def query(
        self, statement: str, values: tuple[Any, ...] = (), *, doing: str
    ) -> list[tuple[Any, ...]]:
        with translated(self.server, doing):
            return self._run(statement, values).fetchall()

    def _run(
        self, statement: str | sql.Composed, values: tuple[Any, ...] = ()
    ) -> psycopg.Cursor[Any]:
        text = statement.encode() if isinstance(statement, str) else statement
        return self.connection.execute(text, values or None)

    def close(self) -> None:
        """Close the connection; the server rolls back a transaction that is not prepared."""
        self.connection.close()


@contextmanager
def translated(server: Server, doing: str) -> Iterator[None]:
    """Translate psycopg's errors within the block."""
    try:
        yield
    except psycopg.Error as error:
        raise failure(error, server, doing) from None


def failure(error: psycopg.Error, server: Server, doing: str) -> TidegateError:
    reason = " ".join(str(error).split())
    if isinstance(error, psycopg.errors.LockNotAvailable):
        reason += (
            "; another transaction holds the lock, maybe a prepared one that waits for its "
            "checkpoint: rows that share a unique key need the sink that upserts (keys=...)"
        )
    if isinstance(error, psycopg.ProgrammingError | psycopg.NotSupportedError):
        return UserError(f"{server} refused {doing}: {reason}")
    return DatabaseFailed(str(server), doing, reason)
