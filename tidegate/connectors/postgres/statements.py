"""Runs a statement with placeholders for every record, like PyFlink's JdbcSink."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self
from urllib.parse import parse_qsl, quote, urlencode

import psycopg

from tidegate.connectors.files.encodings import field_values
from tidegate.connectors.guarantee import Delivery, DeliveryGuarantee
from tidegate.connectors.postgres.session import Server, Session, failure
from tidegate.connectors.sink import Sink, SinkWriter, WriterContext
from tidegate.core.errors import ConfigError, DatabaseFailed, RowRefused, shorten
from tidegate.core.fluent import FluentBuilder
from tidegate.stream.batch import Batch
from tidegate.types.typeinfo import CompositeTypeInfo, TypeInformation

_URL = re.compile(
    r"jdbc:postgresql:(?://(?P<hosts>[^/?]*)/)?(?P<database>[^?]*)(?:\?(?P<more>.*))?"
)
_TOKENS = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$
    | (?P<escaped>\?\?) | (?P<placeholder>\?)""",
    re.VERBOSE | re.DOTALL,
)
_TABLE = re.compile(r"\b(?:into|update|delete\s+from)\s+([\w.\"]+)", re.IGNORECASE)
_NOT_OURS = frozenset({"reWriteBatchedInserts", "ApplicationName", "prepareThreshold"})
"""Options that only matter to the JDBC driver."""


@dataclass(frozen=True, slots=True)
class JdbcConnectionOptions:
    """Where to connect, in the form of PostgreSQL's JDBC driver."""

    url: str = ""
    user_name: str | None = None
    password: str | None = None

    def dsn(self) -> str:
        """The connection string for libpq."""
        found = _URL.fullmatch(self.url)
        if found is None:
            raise ConfigError(
                "url",
                self.url.partition("?")[0],
                "only PostgreSQL is supported: use jdbc:postgresql://host:5432/database",
            )
        given = dict(parse_qsl(found["more"] or ""))
        settings = {key: value for key, value in given.items() if key not in _NOT_OURS}
        schema = settings.pop("currentSchema", None)
        if schema is not None:
            settings["options"] = f"-csearch_path={schema}"
        if settings.pop("ssl", "false") == "true":
            settings.setdefault("sslmode", "verify-full")
        identity = {"user": self.user_name, "password": self.password}
        settings |= {key: value for key, value in identity.items() if value is not None}
        query = urlencode(settings, quote_via=quote)
        return f"postgresql://{found['hosts'] or ''}/{found['database']}?{query}"

    def __repr__(self) -> str:
        return f"JdbcConnectionOptions({self.url.partition('?')[0]!r})"

    class JdbcConnectionOptionsBuilder(FluentBuilder):
        """Builds the options."""

        def with_url(self, url: str) -> Self:
            return self._with(url=url)

        def with_driver_name(self, driver_name: str) -> Self:
            """Accepted for compatibility: the URL defines the driver."""
            return self

        def with_user_name(self, user_name: str) -> Self:
            return self._with(user_name=user_name)

        def with_password(self, password: str) -> Self:
            return self._with(password=password)

        def build(self) -> JdbcConnectionOptions:
            return JdbcConnectionOptions(**self._chosen)


@dataclass(frozen=True, slots=True)
class JdbcExecutionOptions:
    """How many records are sent at once, and how often a batch is retried.

    Everything is sent at the end of a step, so no interval is needed. As in Flink, a batch size of
    zero or less is no limit.
    """

    batch_size: int = 5000
    max_retries: int = 3

    @staticmethod
    def defaults() -> JdbcExecutionOptions:
        return JdbcExecutionOptions()

    @staticmethod
    def builder() -> JdbcExecutionOptions:
        return JdbcExecutionOptions()

    def with_batch_size(self, size: int) -> JdbcExecutionOptions:
        return replace(self, batch_size=size)

    def with_batch_interval_ms(self, interval_ms: int) -> Self:
        """Accepted for compatibility."""
        return self

    def with_max_retries(self, max_retries: int) -> JdbcExecutionOptions:
        return replace(self, max_retries=max_retries)

    def build(self) -> JdbcExecutionOptions:
        return self


class StatementSink(Sink):
    """Runs a statement for every record; its fields replace the question marks."""

    def __init__(
        self, statement: str, fields: int | None, dsn: str, options: JdbcExecutionOptions
    ) -> None:
        self._given = statement
        self._statement, parameters = numbered(statement)
        if fields is not None and fields != parameters:
            raise ConfigError(
                "sql", statement, f"it has {parameters} placeholder(s) for {fields} field(s)"
            )
        self._dsn = dsn
        self._options = options
        str(Server(dsn))

    def delivery(self) -> Delivery:
        return Delivery(
            DeliveryGuarantee.AT_LEAST_ONCE,
            "runs its statement again for repeated records after a failure",
        )

    def create_writer(self, context: WriterContext) -> SinkWriter:
        found = _TABLE.search(self._given)
        table = found[1] if found else "of the statement"
        return _StatementWriter(Server(self._dsn), self._statement, table, self._options)


class JdbcSink:
    """PyFlink's name for a sink that runs a statement for every record."""

    @staticmethod
    def sink(
        sql: str,
        type_info: TypeInformation,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_execution_options: JdbcExecutionOptions | None = None,
    ) -> StatementSink:
        fields = len(type_info.get_field_names()) if isinstance(type_info, CompositeTypeInfo) else 1
        options = jdbc_execution_options or JdbcExecutionOptions.defaults()
        return StatementSink(sql, fields, jdbc_connection_options.dsn(), options)


def numbered(statement: str) -> tuple[bytes, int]:
    """The statement with psycopg's placeholders instead of question marks, and their number."""
    parameters = 0

    def token(found: re.Match[str]) -> str:
        nonlocal parameters
        if found["placeholder"]:
            parameters += 1
            return "%s"
        return "?" if found["escaped"] else found[0]

    return _TOKENS.sub(token, statement.replace("%", "%%")).encode(), parameters


class _StatementWriter(SinkWriter):
    def __init__(
        self, server: Server, statement: bytes, table: str, options: JdbcExecutionOptions
    ) -> None:
        self._server = server
        self._statement = statement
        self._table = table
        self._options = options
        self._session: Session | None = None
        self._waiting: list[Sequence[Any]] = []

    def open(self) -> None:
        self._session = self._server.connect("tidegate")

    def write(self, batch: Batch) -> None:
        self._waiting += map(field_values, batch.records)
        size = self._options.batch_size
        while 0 < size <= len(self._waiting):
            self._send(self._waiting[:size])
            del self._waiting[:size]

    def flush(self, end_of_input: bool = False) -> None:
        if self._waiting:
            self._send(self._waiting)
            self._waiting.clear()

    def _send(self, rows: Sequence[Sequence[Any]]) -> None:
        retries = self._options.max_retries
        while True:
            try:
                self._run(rows)
            except DatabaseFailed:
                if retries <= 0:
                    raise
                retries -= 1
                self.close()
            else:
                return

    def _run(self, rows: Sequence[Sequence[Any]]) -> None:
        session = self._session or self._server.connect("tidegate")
        self._session = session
        try:
            with session.connection.transaction(), session.connection.cursor() as cursor:
                cursor.executemany(self._statement, rows)
        except (psycopg.DataError, psycopg.IntegrityError):
            self._raise_for_the_first_refused(session, rows)
            raise
        except psycopg.Error as error:
            raise failure(error, self._server, "running its statement") from None

    def _raise_for_the_first_refused(self, session: Session, rows: Sequence[Sequence[Any]]) -> None:
        """Find the refused record, which the server does not name, by trying each of them."""
        with session.connection.transaction(force_rollback=True):
            for row in rows:
                try:
                    session.connection.execute(self._statement, row)
                except (psycopg.DataError, psycopg.IntegrityError) as error:
                    reason = "; ".join(
                        filter(None, (error.diag.message_primary, error.diag.message_detail))
                    )
                    column = error.diag.column_name
                    shown = shorten(tuple(row))
                    raise RowRefused(self._table, column, shown, reason) from None

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
