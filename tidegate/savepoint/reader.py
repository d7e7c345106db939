"""Opens savepoints and checkpoints and reads their state."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.checkpoint.locate import open_checkpoint
from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorRecord
from tidegate.core.errors import CorruptCheckpoint, UnknownState
from tidegate.operators.windows.windows import Window, window_of
from tidegate.savepoint.summaries import OperatorSummary, SourcePosition, summary_of
from tidegate.state.backend import StateMetadata
from tidegate.state.canonical.tables import (
    Entries,
    TableForm,
    choose_form,
    entries_of,
    entries_of_table,
)
from tidegate.state.keys.selection import KeyColumns
from tidegate.state.keys.window_keys import WindowKey, is_window_key, key_of_window
from tidegate.state.operator_state import FrozenOperatorState
from tidegate.state.pointers import KeyedStateHandle
from tidegate.state.snapshot.reader import FileResolver, StoredImage, read_segment
from tidegate.types.record_shapes import ANY
from tidegate.types.shapes import Shape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.savepoint.writer import StateWriter


class KeyAndWindow(NamedTuple):
    """The owner of window state."""

    key: Any
    window: Window

    @classmethod
    def of(cls, key: WindowKey) -> KeyAndWindow:
        return cls(key_of_window(key), window_of(key))


def state_reader(path: str | os.PathLike[str], spark: SparkSession | None = None) -> StateReader:
    """Open the savepoint or checkpoint at a path or URL.

    Args:
        path: of a savepoint, of a `chk-<n>`, or of a job's directory, which stands for its latest
            checkpoint.
        spark: the session that reads; by default the active one, or a new one.

    Raises:
        NoCheckpoint: there is none.
        CorruptCheckpoint: it is damaged.
        UnsupportedFormat: a newer Tidegate wrote it.
    """
    return StateReader(open_checkpoint(os.fspath(path)), spark)


class StateReader:
    """The state in a savepoint or checkpoint, of any backend and format.

    Operators are identified by their uid, or by their id if they have none.
    """

    def __init__(self, found: Checkpoint, spark: SparkSession | None = None) -> None:
        self.found = found
        self.resolve = found.resolver()
        self._spark = spark

    @property
    def path(self) -> str:
        """The location of the savepoint or checkpoint."""
        return self.found.path

    @property
    def metadata(self) -> CheckpointMetadata:
        """The metadata: job, times, and pointers to state."""
        return self.found.metadata

    def operators(self) -> list[OperatorSummary]:
        """All operators with their states; reads no keyed state."""
        return [
            summary_of(record, [state for _, state in self._operator_states(record)])
            for record in self.metadata.operators.values()
        ]

    def keyed_state(self, uid: str, name: str) -> DataFrame:
        """A keyed state, or timers, as a DataFrame; Spark's tasks read it.

        Its columns are those of a table in the canonical format: `key_group`, `key`, `value` and
        `pickled`, or those of an aggregation. Window state also has `window_start` and
        `window_end`, in milliseconds since the epoch.
        """
        from tidegate.savepoint.frames import session_for, table_frame

        handles, metadata = self._keyed(uid, name)
        form = self.form(uid, name)
        return table_frame(session_for(self._spark), self.found, handles, metadata, form)

    def entries(self, uid: str, name: str) -> Iterator[tuple[Any, Any]]:
        """The entries as (key, value), read in this process; values of aggregations are dicts.

        For window state, the key is (key, window).
        """
        for key, value in self.stored_entries(uid, name):
            yield (KeyAndWindow.of(key) if is_window_key(key) else key), value

    def stored_entries(self, uid: str, name: str) -> Iterator[tuple[Any, Any]]:
        """Like `entries`, with keys in their stored form."""
        handles, metadata = self._keyed(uid, name)
        for handle in handles:
            for part in read_entries(handle, metadata, self.resolve):
                yield from pairs_of(part)

    def operator_state(self, uid: str, name: str) -> DataFrame:
        """An operator state as a DataFrame: `subtask`, `value`, and `key` for broadcast state."""
        from tidegate.savepoint.frames import elements_frame, session_for

        found = self.elements(uid, name)
        is_map = self._operator_state(uid, name).declaration.startswith("broadcast ")
        return elements_frame(session_for(self._spark), found, is_map=is_map)

    def elements(self, uid: str, name: str) -> list[tuple[int, Any]]:
        """The elements as (subtask, element); for broadcast state, (subtask, (key, value))."""
        self._operator_state(uid, name)
        return [
            (subtask, pickle.loads(element))
            for subtask, state in self._operator_states(self.operator(uid))
            if state.name == name
            for element in state.elements
        ]

    def source_positions(self) -> list[SourcePosition]:
        """The positions of all source readers."""
        return [
            SourcePosition(record.uid or record.operator_id, record.name, subtask, _loaded(split))
            for record in self.metadata.operators.values()
            for subtask, handle in sorted(record.subtasks.items())
            for split in handle.source_splits
        ]

    def edit(self) -> StateWriter:
        """A writer for a new savepoint that starts as a copy of this one."""
        from tidegate.savepoint.writer import StateWriter

        return StateWriter(base=self, spark=self._spark)

    def operator(self, uid: str) -> OperatorRecord:
        """The metadata of an operator; raises UnknownState."""
        records = self.metadata.operators.values()
        for record in records:
            if uid in (record.uid, record.operator_id):
                return record
        known = tuple(repr(record.uid or record.operator_id) for record in records)
        raise UnknownState(self.path, "operator with the uid", uid, known)

    def state(self, uid: str, name: str) -> StateMetadata:
        """The metadata of a keyed state; raises UnknownState."""
        return self._keyed(uid, name)[1]

    def form(self, uid: str, name: str) -> TableForm:
        """The columns of a keyed state; text where parts of it have different types."""
        handles, metadata = self._keyed(uid, name)
        forms: list[TableForm] = []
        for handle in handles:
            tables = list(StoredImage(handle, self.resolve).tables(name))
            forms += [table.form for table in tables]
            # A database must be fetched to inspect it, so only one of them is.
            if not tables and not (forms and handle.native_form):
                first = next(read_entries(handle, metadata, self.resolve), None)
                if first is not None:
                    forms.append(choose_form(metadata, [first]))
        if not forms:
            return TableForm(metadata, ANY, False, ANY)
        if all(form.is_like(forms[0]) for form in forms):
            return forms[0]
        return _general(forms)

    def _keyed(self, uid: str, name: str) -> tuple[list[KeyedStateHandle], StateMetadata]:
        record = self.operator(uid)
        handles = [h.keyed for _, h in sorted(record.subtasks.items()) if h.keyed is not None]
        known = {state.name: state for handle in handles for state in handle.metadata}
        if name not in known:
            where = f"operator {record.uid or record.operator_id!r} of {self.path}"
            raise UnknownState(where, "keyed state", name, tuple(map(repr, known)))
        return handles, known[name]

    def _operator_states(self, record: OperatorRecord) -> list[tuple[int, FrozenOperatorState]]:
        found = []
        for subtask, handle in sorted(record.subtasks.items()):
            if handle.operator is not None:
                stored = read_segment(handle.operator, self.resolve)
                found += [(subtask, state) for state in pickle.loads(stored)]
        return found

    def _operator_state(self, uid: str, name: str) -> FrozenOperatorState:
        record = self.operator(uid)
        known = {state.name: state for _, state in self._operator_states(record)}
        if name not in known:
            where = f"operator {record.uid or record.operator_id!r} of {self.path}"
            raise UnknownState(where, "operator state", name, tuple(map(repr, known)))
        return known[name]


def read_entries(
    handle: KeyedStateHandle, metadata: StateMetadata, resolve: FileResolver
) -> Iterator[Entries]:
    """The entries of one state of a subtask, part by part."""
    for table in StoredImage(handle, resolve).tables(metadata.name):
        for number, row_group in enumerate(table.handle.row_groups):
            yield entries_of_table(table.rows(number), table.form, row_group.groups)
    chunks = tuple(chunk for chunk in handle.chunks if chunk.state == metadata.name)
    for chunk in StoredImage(replace(handle, chunks=chunks, tables=()), resolve).chunks():
        if chunk.state == metadata.name:
            yield entries_of(chunk, metadata.form)


def pairs_of(entries: Entries) -> Iterator[tuple[Any, Any]]:
    """The keys and values of entries, in Python."""
    keys = entries.keys.values() if isinstance(entries.keys, KeyColumns) else entries.keys
    values = entries.values if isinstance(entries.values, list) else entries.values.to_pylist()
    return zip(keys, values, strict=True)


def _general(forms: list[TableForm]) -> TableForm:
    """A form for the entries of several forms, with text where they differ."""
    first = forms[0]
    if not isinstance(first.value, Shape):
        expected = f"state {first.metadata.name!r} with the columns {first.value.names}"
        raise CorruptCheckpoint(first.metadata.name, expected, "other columns, too")
    same_keys = all(form.key == first.key and form.is_tuple == first.is_tuple for form in forms)
    same_values = all(form.value == first.value for form in forms)
    same_windows = all(form.window == first.window for form in forms)
    return TableForm(
        first.metadata,
        first.key if same_keys else ANY,
        first.is_tuple and same_keys,
        first.value if same_values else ANY,
        first.window if same_windows else (ANY,),
    )


def _loaded(split: bytes) -> Any:
    try:
        return pickle.loads(split)
    except Exception as failure:
        return f"<{len(split)} bytes that cannot be loaded here: {failure}>"
