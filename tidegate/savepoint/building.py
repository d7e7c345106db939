"""The Spark tasks that build a keyed state from rows: assign key groups, write tables.

    rows of a DataFrame → `assigned` → shuffle by key group → `written` → handles of tables

Errors are returned as rows, so that the user sees them rather than Spark's.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegate.core.errors import StateMisuse, TidegateError, TypeMismatch, shorten
from tidegate.savepoint.python_values import Reading
from tidegate.state.backend import StateChunk, StateMetadata
from tidegate.state.canonical.files import TableWriter
from tidegate.state.canonical.tables import KEY, KEY_GROUP, TIMERS, TableForm, chunk_of_table
from tidegate.state.chunks import chunk_of
from tidegate.state.keys.hash_columns import Hashes
from tidegate.state.keys.key_groups import key_groups_of, subtasks_of
from tidegate.state.keys.key_order import Runs, runs_of
from tidegate.state.keys.key_rows import KEYS_PER_PART, pickled_keys
from tidegate.state.keys.selection import KeyColumns
from tidegate.state.keys.window_keys import hash_keys, window_key
from tidegate.types.exact_cast import cast_exactly

Entry = tuple[Any, Any]
"""Key and value; for columnar state, the parts of the key and the other columns."""
OWNER: Final = "owner"
ENTRY: Final = "entry"
_ASSIGNED: dict[str, pa.DataType] = {
    OWNER: pa.int32(),
    KEY_GROUP: pa.int32(),
    ENTRY: pa.binary(),
}
ASSIGNED: Final = pa.schema(_ASSIGNED)
WRITTEN: Final = pa.schema([("result", pa.binary())])
"""A pickled list of handles, or an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """How rows become entries of a state."""

    metadata: StateMetadata
    kind: str
    max_parallelism: int
    parts: int
    """The number of writing tasks."""
    key_columns: tuple[str, ...]
    is_tuple: bool
    """Whether the key is a tuple of the columns, possibly of only one."""
    keys: tuple[Reading, ...] = ()
    """By column."""
    window_columns: tuple[str, ...] = ()
    """The columns of the window, for window state."""
    value_column: str = ""
    values: Reading = Reading()
    pickled_column: str | None = None
    """If not null, it contains (key, value), which takes precedence."""
    is_timed: bool = False
    """Whether values expire, and so have a time."""
    columnar: pa.Schema | None = None
    """The schema of the tables of columnar state."""


def assigned(plan: BuildPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each row as an entry, with its key group and the task that writes it."""
    read = _pairs if plan.columnar is None else _rows
    for batch in batches:
        if not batch.num_rows:
            continue
        try:
            hashes, entries = read(plan, batch)
            groups = key_groups_of(hashes, plan.max_parallelism)
            stored = [pickle.dumps(entry, 5) for entry in entries]
        except TidegateError as error:
            groups, stored = np.zeros(1, np.uint16), [pickle.dumps(error, 5)]
        owners = subtasks_of(groups, plan.parts, plan.max_parallelism)
        columns: list[pa.Array[Any]] = [
            pa.array(owners, pa.int32()),
            pa.array(groups.astype(np.int32)),
            pa.array(stored, pa.binary()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=ASSIGNED)


def _pairs(plan: BuildPlan, batch: pa.RecordBatch) -> tuple[Hashes, list[Entry]]:
    parts = [
        reading.values(batch.column(name))
        for name, reading in zip(plan.key_columns, plan.keys, strict=True)
    ]
    keys = list(zip(*parts, strict=True)) if plan.is_tuple else parts[0]
    if plan.window_columns:
        columns = [batch.column(name).to_pylist() for name in plan.window_columns]
        keys = [window_key(*parts) for parts in zip(keys, *columns, strict=True)]
    values = plan.values.values(batch.column(plan.value_column))
    if plan.is_timed:
        now = int(time.time() * 1000)
        values = [_timed(value, plan.kind, now) for value in values]
    if plan.pickled_column is not None:
        for position, exact in enumerate(batch.column(plan.pickled_column).to_pylist()):
            if exact is not None:
                keys[position], values[position] = pickle.loads(exact)
    is_collection = plan.kind in ("list", "map")
    entries = [
        (key, value)
        for key, value in zip(keys, values, strict=True)
        if value is not None and (value or not is_collection)
    ]
    return hash_keys([key for key, _ in entries]), entries


def _timed(value: Any, kind: str, now: int) -> Any:
    if value is None:
        return None
    if kind == "list":
        return [(element, now) for element in value]
    if kind == "map":
        return {key: (element, now) for key, element in value.items()}
    return value, now


def _rows(plan: BuildPlan, batch: pa.RecordBatch) -> tuple[Hashes, list[Entry]]:
    """The parts of keys, and the rest of the rows, as stored in the tables."""
    assert plan.columnar is not None
    form = TableForm.of(plan.columnar)
    names = [name for name in plan.columnar.names if name not in (KEY, KEY_GROUP)]
    key = _cast(batch.column(plan.key_columns[0]), plan.columnar.field(KEY).type)
    keys = form.decoded_keys(key)
    assert isinstance(keys, KeyColumns), "columnar states have such"
    parts = key.flatten() if form.is_tuple and isinstance(key, pa.StructArray) else [key]
    rest = [_cast(batch.column(name), plan.columnar.field(name).type) for name in names]
    pairs = zip(_in_python(parts), _in_python(rest), strict=True)
    return keys.hashes(), list(pairs)


def _cast(column: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    try:
        return cast_exactly(column, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as failure:
        raise TypeMismatch(str(kind), f"<a column of {column.type}>", str(failure)) from None


def _in_python(columns: Sequence[pa.Array[Any]]) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def written(plan: BuildPlan, batches: Iterable[pa.RecordBatch], writer: TableWriter) -> None:
    """Write the entries of batches, which are ordered by key group."""
    seen: set[Any] = set()
    last = -1
    for batch in batches:
        groups = batch.column(KEY_GROUP).to_numpy().astype(np.uint16)
        stored: list[Any] = batch.column(ENTRY).to_pylist()
        entries = [pickle.loads(entry) for entry in stored]
        for group, entry in zip(groups.tolist(), entries, strict=True):
            if isinstance(entry, TidegateError):
                raise entry
            if group != last:
                seen, last = set(), group
            unique = entry if plan.kind == TIMERS else entry[0]
            if unique in seen:
                raise StateMisuse(
                    f"the key {shorten(entry[0])} occurs in several rows for the state "
                    f"{plan.metadata.name!r}: provide one row for each key"
                )
            seen.add(unique)
        for start in range(0, len(entries), KEYS_PER_PART):
            stop = start + KEYS_PER_PART
            writer.add(_chunk(plan, runs_of(groups[start:stop]), entries[start:stop]))


def _chunk(plan: BuildPlan, groups: Runs, entries: list[Entry]) -> StateChunk:
    keys, values = [key for key, _ in entries], [value for _, value in entries]
    if plan.columnar is None:
        return chunk_of(plan.metadata.name, groups, pickled_keys(keys), values)
    kind = plan.columnar.field(KEY).type
    if TableForm.of(plan.columnar).is_tuple:
        names = [field.name for field in kind]
        key = pa.array([dict(zip(names, key, strict=True)) for key in keys], kind)
    else:
        key = pa.array([key for (key,) in keys], kind)
    rest = [
        pa.array(column, plan.columnar.field(position).type)
        for position, column in enumerate(zip(*values, strict=True), 2)
    ]
    numbers = pa.array(np.zeros(len(keys), np.int32))
    rows = pa.RecordBatch.from_arrays([numbers, key, *rest], schema=plan.columnar)
    return chunk_of_table(rows, TableForm.of(plan.columnar), groups)
