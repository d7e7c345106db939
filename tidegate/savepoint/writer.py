"""Creates savepoints: from an existing one with changed state, or from tables alone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tidegate.checkpoint.layout import METADATA
from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorRecord, encode
from tidegate.core.errors import ConfigError, StorageError, UnknownState
from tidegate.core.ids import CheckpointId, OperatorId, new_job_id
from tidegate.core.modes import SavepointFormat
from tidegate.graph.translate import operator_id_of
from tidegate.savepoint.carrying import Carrier
from tidegate.savepoint.planning import NewState, descriptor_of
from tidegate.state.backend import StateMetadata
from tidegate.state.descriptors import StateDescriptor
from tidegate.state.keys.key_groups import KeyGroupRange, check_max_parallelism
from tidegate.state.pointers import KeyedStateHandle, OperatorHandle, TableHandle, path_of
from tidegate.state.snapshot.writer import FileTarget, SnapshotWriter, TableDirectory
from tidegate.storage.filesystem import open_store
from tidegate.storage.locations import parent_and_name, shown
from tidegate.stream.elements import BarrierKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.savepoint.reader import StateReader

_INLINE: Final = 20 << 10


def state_writer(
    max_parallelism: int = 128, *, job_name: str = "", spark: SparkSession | None = None
) -> StateWriter:
    """A writer for a new, empty savepoint.

    Args:
        max_parallelism: that of the job that will start from it; it can never change.
        job_name: shown by commands.
        spark: the session that writes; by default the active one.
    """
    check_max_parallelism(max_parallelism, 1)
    return StateWriter(max_parallelism=max_parallelism, job_name=job_name, spark=spark)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateWriter:
    """The contents of a new savepoint. Methods return a changed copy; `write` writes it."""

    max_parallelism: int = 128
    """For operators that the edited savepoint lacks."""
    job_name: str = ""
    spark: Any = None
    base: StateReader | None = None
    new: tuple[NewState, ...] = ()
    dropped: tuple[tuple[str, str | None], ...] = ()

    def with_keyed_state(
        self,
        uid: str,
        state: str | StateDescriptor,
        dataframe: DataFrame,
        *,
        key: str | Sequence[str] = "key",
        value: str | None = None,
        kind: str | None = None,
        type_info: Any = None,
        key_type_info: Any = None,
    ) -> StateWriter:
        """Add a keyed state, or replace the one with this name.

        Args:
            uid: that of the operator.
            state: its descriptor, as the job declares it; or its name, if the edited savepoint has
                it, or `kind` and `type_info` define it.
            dataframe: one row for each key. A column `pickled`, as returned by `keyed_state`, takes
                precedence where it is not null.
            key: the column of the key; several columns form a tuple.
            value: the column of the value, by default "value": an array for a list, a map for a
                map. Null and empty values are no state.
            kind: value, list, map or reducing.
            type_info: that of the value, of the elements, or of the values of a map.
            key_type_info: that of the keys of a map.
        """
        descriptor = state if isinstance(state, StateDescriptor) else None
        name = state if isinstance(state, str) else state.name
        if descriptor is None and kind is not None:
            descriptor = descriptor_of(name, kind, type_info, key_type_info)
        if descriptor is not None:
            metadata = StateMetadata.of(descriptor)
        elif self.base is not None:
            metadata = self.base.state(uid, name)
        else:
            raise ConfigError("state", name, "pass its descriptor, or its kind and type")
        columns = key if isinstance(key, str) else tuple(key)
        added = NewState(uid, metadata, descriptor, dataframe, columns, value)
        kept = tuple(old for old in self.new if (old.uid, old.name) != (uid, name))
        return replace(self, new=(*kept, added))

    def without(self, uid: str, state: str | None = None) -> StateWriter:
        """Remove an operator with all its state, or one of its keyed states."""
        kept = tuple(n for n in self.new if n.uid != uid or state not in (None, n.name))
        if len(kept) == len(self.new):
            self._look_up(uid, state)
        return replace(self, new=kept, dropped=(*self.dropped, (uid, state)))

    def _look_up(self, uid: str, state: str | None) -> None:
        if self.base is None:
            raise UnknownState("the new savepoint", "operator with the uid", uid, ())
        if state is None:
            self.base.operator(uid)
        else:
            self.base.state(uid, state)

    def write(self, path: str | os.PathLike[str]) -> str:
        """Write the savepoint to a directory that does not exist yet; returns its path or URL.

        Raises:
            StorageError: the directory exists, or cannot be written.
            TypeMismatch, MissingField: a DataFrame does not fit its state.
            StateMisuse: several rows have the same key.
        """
        where = os.fspath(path)
        directory, name = parent_and_name(where)
        store = open_store(directory)
        if store.exists(name) or next(iter(store.list(name)), None) is not None:
            raise StorageError(shown(where), "it already exists", "specify a new path")
        target = FileTarget(store, name, _INLINE, shares=False, format=SavepointFormat.CANONICAL)
        try:
            metadata = self._written(target)
            self._remove_strays(target, metadata)
            if not store.create_if_absent(f"{name}/{METADATA}", encode(metadata)):
                raise StorageError(shown(where), "another process has written there", "try again")
        except BaseException:
            with suppress(StorageError):
                store.delete(name)
            raise
        return shown(where)

    def _written(self, target: FileTarget) -> CheckpointMetadata:
        writer = SnapshotWriter(target)
        records = {record.operator_id: record for record in self._carried(writer)}
        for uid in dict.fromkeys(state.uid for state in self.new):
            states = [state for state in self.new if state.uid == uid]
            old = records.get(self._id_of(uid)) or self._new_record(uid)
            records[old.operator_id] = self._with_states(old, states, target)
        writer.close()
        old_metadata = None if self.base is None else self.base.metadata
        now = time.time()
        return CheckpointMetadata(
            job_id=new_job_id() if old_metadata is None else old_metadata.job_id,
            job_name=self.job_name or (old_metadata.job_name if old_metadata else ""),
            checkpoint_id=CheckpointId(1) if old_metadata is None else old_metadata.checkpoint_id,
            kind=BarrierKind.SAVEPOINT,
            triggered_at=now,
            completed_at=now,
            operators=records,
        )

    def _id_of(self, uid: str) -> OperatorId:
        if self.base is not None:
            with suppress(UnknownState):
                return self.base.operator(uid).operator_id
        return operator_id_of(uid)

    def _carried(self, writer: SnapshotWriter) -> Iterator[OperatorRecord]:
        """What remains of the edited savepoint."""
        if self.base is None:
            return
        carrier = Carrier(self.base.resolve, writer)
        for record in self.base.metadata.operators.values():
            names = (record.uid, record.operator_id)
            if any(uid in names and state is None for uid, state in self.dropped):
                continue
            changed = {state for uid, state in self.dropped if uid in names and state is not None}
            replaced = {state.name for state in self.new if state.uid in names}
            label = record.uid or record.operator_id
            subtasks = {
                number: carrier.operator(handle, TableDirectory(label, number), changed | replaced)
                for number, handle in record.subtasks.items()
            }
            yield replace(record, subtasks=subtasks)

    def _new_record(self, uid: str) -> OperatorRecord:
        return OperatorRecord(
            operator_id=operator_id_of(uid),
            uid=uid,
            name=uid,
            parallelism=1,
            max_parallelism=self.max_parallelism,
            subtasks={},
        )

    def _with_states(
        self, record: OperatorRecord, states: Sequence[NewState], target: FileTarget
    ) -> OperatorRecord:
        """The record with new states, all stored by its first subtask."""
        from tidegate.savepoint.frames import build_tables, session_for

        spark = session_for(self.spark)
        tables: list[TableHandle] = []
        for state in states:
            form = None
            if self.base is not None:
                with suppress(UnknownState):
                    form = self.base.form(state.uid, state.name)
            tables += build_tables(spark, state, form, record.max_parallelism, target)
        handle = record.subtasks.get(0) or OperatorHandle(operator_id=record.operator_id)
        keyed = handle.keyed or KeyedStateHandle(
            metadata=(),
            max_parallelism=record.max_parallelism,
            key_groups=KeyGroupRange(0, record.max_parallelism),
        )
        keyed = replace(
            keyed,
            metadata=(*keyed.metadata, *(state.metadata for state in states)),
            key_groups=KeyGroupRange(0, record.max_parallelism),
            tables=(*keyed.tables, *tables),
        )
        return replace(record, subtasks={**record.subtasks, 0: replace(handle, keyed=keyed)})

    @staticmethod
    def _remove_strays(target: FileTarget, metadata: CheckpointMetadata) -> None:
        """Remove files of tasks that Spark ran twice: a reader of all files would find them."""
        known = {path_of(file, target.directory) for file in metadata.files}
        for path in list(target.store.list(target.directory)):
            if path not in known:
                target.store.delete(path)
