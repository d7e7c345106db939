"""The description of the target table, and which of its columns are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from psycopg import sql

from tidegate.connectors.postgres.column_types import fits
from tidegate.connectors.postgres.session import Session
from tidegate.core.errors import TableMismatch
from tidegate.types.arrow import ArrowFormat
from tidegate.types.typeinfo import TupleTypeInfo

_COLUMNS = """
SELECT a.attname,
       format_type(a.atttypid, a.atttypmod),
       coalesce(base.typname, t.typname),
       element.typname,
       a.attnotnull AND NOT a.atthasdef AND a.attidentity = '',
       a.attgenerated <> ''
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_type base ON t.typtype = 'd' AND base.oid = t.typbasetype
LEFT JOIN pg_type element
    ON t.typcategory = 'A' AND element.oid = coalesce(nullif(base.typelem, 0), t.typelem)
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_TABLE = """
SELECT c.oid, n.nspname, c.relname
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s)
"""
_UNIQUE_KEYS = """
SELECT array_agg(a.attname::text),
       array_agg(a.attname::text ORDER BY a.attnum) FILTER (
           WHERE NOT (a.attnotnull OR t.typnotnull)
           AND to_jsonb(i) -> 'indnullsnotdistinct' IS DISTINCT FROM 'true')
FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
JOIN pg_type t ON t.oid = a.atttypid
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
GROUP BY i.indexrelid, i.indnkeyatts
HAVING count(*) = i.indnkeyatts
"""
"""Through JSON, because `indnullsnotdistinct` is unknown before PostgreSQL 15."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    """As in CREATE TABLE."""
    base: str
    """The name of the type; for a domain, of its base type."""
    element: str | None
    """The element type of an array."""
    is_required: bool
    """Whether a row must have a value: NULL is refused, and there is no default."""
    is_generated: bool

    def __str__(self) -> str:
        return f"{self.name} {self.type}{' not null' if self.is_required else ''}"


class UniqueKey(NamedTuple):
    """The columns of a primary key or unique index."""

    columns: frozenset[str]
    unmatched: tuple[str, ...]
    """Those that may be null, which the index never considers equal."""


@dataclass(frozen=True, slots=True)
class TargetTable:
    schema: str
    name: str
    columns: tuple[Column, ...]
    unique_keys: tuple[UniqueKey, ...]

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    def writable(self) -> list[Column]:
        return [column for column in self.columns if not column.is_generated]

    def mismatch(self, problem: str, wanted: Sequence[str] = ()) -> TableMismatch:
        return TableMismatch(str(self), problem, tuple(map(str, self.columns)), tuple(wanted))


def look_up(session: Session, name: str) -> TargetTable:
    """Find a table by name, like a statement would."""
    doing = f"looking at table {name}"
    found = session.query(_TABLE, (name,), doing=doing)
    if not found:
        (path,) = session.query("SHOW search_path", doing=doing)
        raise TableMismatch(
            name,
            f"{session.server} has no such table (search path: {path[0]}): create it, or "
            "qualify it with its schema",
            (),
            (),
        )
    ((oid, schema, relation),) = found
    columns = tuple(Column(*row) for row in session.query(_COLUMNS, (oid,), doing=doing))
    unique = tuple(
        UniqueKey(frozenset(names), tuple(unmatched or ()))
        for names, unmatched in session.query(_UNIQUE_KEYS, (oid,), doing=doing)
    )
    return TargetTable(schema, relation, columns, unique)


def written_columns(
    table: TargetTable, format: ArrowFormat | None, names: Sequence[str] | None
) -> list[Column]:
    """The columns for the fields of a stream, in the order of the fields.

    Given columns take the fields in order. Otherwise, fields go to the columns of the same name, or
    to the columns in order if they have no names.
    """
    fields = _fields(format)
    wanted = [_shown(format, i) for i in range(len(fields))] if format is not None else []
    if names is None and format is not None and not _is_nameless(format):
        names = fields
    chosen = table.writable() if names is None else [_column(table, n, wanted) for n in names]
    if format is not None and len(chosen) != len(fields):
        raise table.mismatch(
            f"the stream has {len(fields)} field(s) for {len(chosen)} column(s): specify the "
            "columns for the fields, in order",
            wanted,
        )
    missing = [c.name for c in table.columns if c.is_required and c not in chosen]
    if missing:
        raise table.mismatch(
            f"the stream has no value for {', '.join(missing)}, which must not be null: write it, "
            "or give the column a default",
            wanted or [column.name for column in chosen],
        )
    if format is not None:
        _check_types(table, chosen, format, wanted)
    return chosen


def check_keys(table: TargetTable, columns: Sequence[Column], keys: Sequence[str]) -> None:
    """Check that the table has a unique index on these keys that finds every row again."""
    names = [column.name for column in columns]
    absent = [key for key in keys if key not in names]
    if absent:
        raise table.mismatch(f"the key {', '.join(absent)} is not among the written columns", names)
    unmatched = [key.unmatched for key in table.unique_keys if key.columns == frozenset(keys)]
    listed = ", ".join(keys)
    if not unmatched:
        raise table.mismatch(
            f"there is no primary key or unique index on ({listed}) to find rows by: "
            f"CREATE UNIQUE INDEX ON {table} ({listed})"
        )
    if all(unmatched):
        changes = ", ".join(f"ALTER {column} SET NOT NULL" for column in unmatched[0])
        raise table.mismatch(
            f"a row whose {' or '.join(unmatched[0])} is null would be added again after a "
            f"failure: ALTER TABLE {table} {changes}; or, from PostgreSQL 15 on, "
            f"CREATE UNIQUE INDEX ON {table} ({listed}) NULLS NOT DISTINCT"
        )


def _fields(format: ArrowFormat | None) -> tuple[str, ...]:
    return () if format is None else tuple(format.field_names)


def _shown(format: ArrowFormat, position: int) -> str:
    field = format.schema.field(position)
    return f"{field.name} {field.type}"


def _is_nameless(format: ArrowFormat) -> bool:
    """Whether the field names are generated: f0, f1 and so on."""
    made_up = tuple(f"f{i}" for i in range(len(format.field_names)))
    is_tuple = isinstance(format.type_info, TupleTypeInfo)
    return format.is_scalar or is_tuple or tuple(format.field_names) == made_up


def _column(table: TargetTable, name: str, wanted: Sequence[str]) -> Column:
    for column in table.columns:
        if column.name == name:
            if column.is_generated:
                raise table.mismatch(f"column {name} is computed by the server", wanted)
            return column
    raise table.mismatch(f"there is no column {name}", wanted or [name])


def _check_types(
    table: TargetTable, columns: Sequence[Column], format: ArrowFormat, wanted: Sequence[str]
) -> None:
    types: list[pa.DataType] = list(format.schema.types)
    wrong = [
        f"{column.name} is {column.type}, which does not accept {arrow_type}"
        for column, arrow_type in zip(columns, types, strict=True)
        if not fits(arrow_type, column.base, column.element)
    ]
    if wrong:
        raise table.mismatch("; ".join(wrong), wanted)
