"""State as DataFrames. The only module of this package that imports pyspark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.core.config import Settings
from tidegate.core.errors import TidegateError
from tidegate.core.modes import SavepointFormat
from tidegate.datastream.execution.spark_session import (
    active_session,
    make_session,
    prefer_this_python,
)
from tidegate.savepoint.building import ASSIGNED, OWNER, WRITTEN, BuildPlan, assigned, written
from tidegate.savepoint.planning import NewState, plan_of
from tidegate.savepoint.reader import read_entries
from tidegate.state.backend import StateMetadata
from tidegate.state.canonical.shape_choice import choose_shape
from tidegate.state.canonical.tables import KEY_GROUP, Entries, TableForm, table_of
from tidegate.state.keys.selection import KeyColumns
from tidegate.state.pointers import KeyedStateHandle, TableHandle
from tidegate.state.snapshot.reader import CheckpointLocation, StoredImage
from tidegate.state.snapshot.writer import FileTarget, SnapshotWriter, TableDirectory
from tidegate.storage.filesystem import open_store
from tidegate.types.shapes import Shape
from tidegate.types.spark_versions import arrow_schema_of, frame_of, partitioned_by_id

_BYTES_PER_TASK: Final = 32 << 20


def session_for(given: SparkSession | None) -> SparkSession:
    """The given session, the active one, or a new one."""
    spark = given or active_session() or make_session(Settings.of({}), 1)
    prefer_this_python(spark.sparkContext)
    return spark


def table_frame(
    spark: SparkSession,
    found: Checkpoint,
    handles: Sequence[KeyedStateHandle],
    metadata: StateMetadata,
    form: TableForm,
) -> DataFrame:
    """A keyed state as a DataFrame; each task reads a part of it."""
    location = found.location
    assert location is not None, "only what has files can be read"
    parts = [part for handle in handles for part in _parts(handle, metadata.name)]
    schema = spark_schema(form.schema)

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            wanted: list[Any] = batch.column(0).to_pylist()
            for number in wanted:
                for rows in _rows(parts[number], metadata, form, location):
                    yield rows.cast(schema)

    numbered = spark.range(0, len(parts), 1, max(len(parts), 1))
    return numbered.mapInArrow(read, from_arrow_schema(schema, prefer_timestamp_ntz=True))


def _parts(handle: KeyedStateHandle, state: str) -> list[KeyedStateHandle]:
    """Handles for parts of the state, one per task."""
    if handle.native_form is not None:
        return [handle]
    bare = replace(handle, chunks=(), tables=())
    parts = [replace(bare, tables=(table,)) for table in handle.tables if table.state == state]
    held: list[Any] = []
    size = 0
    for chunk in handle.chunks:
        if chunk.state == state:
            held.append(chunk)
            size += chunk.payload.size
            if size > _BYTES_PER_TASK:
                parts.append(replace(bare, chunks=tuple(held)))
                held, size = [], 0
    return [*parts, replace(bare, chunks=tuple(held))] if held else parts


def _rows(
    handle: KeyedStateHandle,
    metadata: StateMetadata,
    form: TableForm,
    location: CheckpointLocation,
) -> Iterator[pa.RecordBatch]:
    resolve = location.resolver()
    tables = list(StoredImage(handle, resolve).tables(metadata.name))
    if tables and all(table.form.is_like(form) for table in tables):
        for table in tables:
            yield from map(table.rows, range(len(table.handle.row_groups)))
        return
    for entries in read_entries(handle, metadata, resolve):
        rows = table_of(_plain(entries, form), form)
        assert rows is not None, "entries without columns fit every form"
        yield rows


def _plain(entries: Entries, form: TableForm) -> Entries:
    """The entries with keys in the form's representation."""
    if isinstance(form.key, Shape) and isinstance(entries.keys, KeyColumns):
        return replace(entries, keys=entries.keys.values())
    return entries


def elements_frame(
    spark: SparkSession, elements: Sequence[tuple[int, Any]], *, is_map: bool
) -> DataFrame:
    """The elements of an operator state; text if they have no common type."""
    columns: dict[str, pa.Array[Any]] = {
        "subtask": pa.array([subtask for subtask, _ in elements], pa.int32())
    }
    if is_map:
        columns["key"] = _column([key for _, (key, _) in elements])
        columns["value"] = _column([value for _, (_, value) in elements])
    else:
        columns["value"] = _column([value for _, value in elements])
    table = pa.table(columns)
    return frame_of(spark, table.cast(spark_schema(table.schema)))


def _column(values: list[Any]) -> pa.Array[Any]:
    return choose_shape(values).encode(values)


def build_tables(
    spark: SparkSession,
    state: NewState,
    form: TableForm | None,
    max_parallelism: int,
    target: FileTarget,
) -> list[TableHandle]:
    """Write a keyed state from a DataFrame; each task writes some key groups of it."""
    frame: DataFrame = state.dataframe
    parts = min(max_parallelism, max(spark.sparkContext.defaultParallelism, 1))
    plan = plan_of(state, form, arrow_schema_of(frame.schema), max_parallelism, parts)
    uid, url, directory = state.uid, target.store.url, target.directory

    def assign(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return assigned(plan, batches)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for owner, owned in _by_owner(batches):
            yield _write_part(plan, TableDirectory(uid, owner), owned, url, directory)

    entries = frame.mapInArrow(assign, from_arrow_schema(ASSIGNED))
    owned = partitioned_by_id(entries, parts, OWNER).sortWithinPartitions(OWNER, KEY_GROUP)
    results = owned.mapInArrow(write, from_arrow_schema(WRITTEN)).collect()
    tables: list[TableHandle] = []
    for (result,) in results:
        found = pickle.loads(result)
        if isinstance(found, TidegateError):
            raise found
        tables += found
    return tables


def _by_owner(
    batches: Iterator[pa.RecordBatch],
) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Group sorted rows by owner."""

    def pieces() -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in batches:
            owners = batch.column(OWNER).to_numpy()
            changes = [0, *(np.flatnonzero(np.diff(owners)) + 1), len(owners)]
            for start, end in pairwise(changes):
                if end > start:
                    yield int(owners[start]), batch.slice(start, end - start)

    for owner, owned in groupby(pieces(), key=itemgetter(0)):
        yield owner, (piece for _, piece in owned)


def _write_part(
    plan: BuildPlan,
    tables: TableDirectory,
    batches: Iterator[pa.RecordBatch],
    url: str,
    directory: str,
) -> pa.RecordBatch:
    result: list[TableHandle] | TidegateError
    target = FileTarget(
        open_store(url), directory, 0, shares=False, format=SavepointFormat.CANONICAL
    )
    writer = SnapshotWriter(target)
    try:
        table = writer.table_writer(plan.metadata, tables)
        written(plan, batches, table)
        result = table.close()
        writer.close()
    except BaseException as error:
        writer.discard()
        if not isinstance(error, TidegateError):
            raise
        result = error
    return pa.RecordBatch.from_arrays(
        [pa.array([pickle.dumps(result, 5)], pa.binary())], schema=WRITTEN
    )


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in types that Spark accepts from Python."""
    return pa.schema([pa.field(field.name, _spark_type(field.type)) for field in schema])


def _spark_type(kind: Any) -> pa.DataType:
    is_ = pa.types
    if is_.is_struct(kind):
        return pa.struct([pa.field(field.name, _spark_type(field.type)) for field in kind])
    if is_.is_map(kind):
        return pa.map_(_spark_type(kind.key_type), _spark_type(kind.item_type))
    if is_.is_list(kind):
        return pa.list_(_spark_type(kind.value_type))
    found: pa.DataType = _SPARK_TYPES.get(kind, kind)
    return found


_SPARK_TYPES: Final[dict[pa.DataType, pa.DataType]] = {
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.date64(): pa.date32(),
}
