"""PyFlink's JDBC sink, for PostgreSQL. Needs the extra `postgres`."""

from tidegate.connectors.postgres.statements import (
    JdbcConnectionOptions,
    JdbcExecutionOptions,
    JdbcSink,
)

__all__ = ["JdbcConnectionOptions", "JdbcExecutionOptions", "JdbcSink"]
