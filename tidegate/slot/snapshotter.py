"""Writes the frozen state of subtasks while records flow, and acknowledges it."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from xxhash import xxh3_64

from tidegate.checkpoint.layout import TASK_OWNED, directory_of
from tidegate.checkpoint.statistics import SubtaskStatistics
from tidegate.core.errors import InternalError, SnapshotWriteAborted, TidegateError
from tidegate.core.fault_points import FaultPoint, Victim, passing
from tidegate.core.ids import Attempt, CheckpointId, OperatorId, SubtaskId
from tidegate.core.permit import Permit
from tidegate.core.workers import Workers
from tidegate.operators.base import NeededFiles
from tidegate.protocol.messages import (
    CheckpointAcknowledged,
    CheckpointDeclined,
    SlotMessage,
    SnapshotSettings,
)
from tidegate.protocol.packet import Channel
from tidegate.state.backend import FrozenState
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.operator_state import FrozenOperatorState
from tidegate.state.pointers import (
    ChannelHandle,
    FileScope,
    FileSegment,
    KeyedStateHandle,
    OperatorHandle,
    SubtaskSnapshot,
    TimeHandle,
)
from tidegate.state.snapshot.writer import (
    FileTarget,
    MemoryTarget,
    SnapshotWriter,
    TableDirectory,
)
from tidegate.storage.filesystem import open_store
from tidegate.storage.locations import parent_and_name
from tidegate.stream.elements import Barrier

_PATIENCE_WITH_STORAGE = 2.0
_Shared = Mapping[str, FileSegment]
"""Database files that are already stored, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenOperator:
    """The state of one operator at a barrier."""

    operator_id: OperatorId
    uid: str | None = None
    keyed: FrozenState | None
    states: tuple[FrozenOperatorState, ...]
    source_splits: tuple[bytes, ...]
    files: NeededFiles | None = None
    time: TimeHandle | None = None

    def release(self) -> None:
        """Release the state: it is no longer needed."""
        if self.keyed is not None:
            self.keyed.release()
        if self.files is not None:
            self.files.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenSubtask:
    """The state of a subtask at a barrier, with statistics in seconds."""

    id: SubtaskId
    key_groups: KeyGroupRange
    barrier: Barrier
    operators: tuple[FrozenOperator, ...]
    ended_inputs: frozenset[int]
    is_finished: bool
    start_delay: float
    alignment: float
    alignment_bytes: int
    sync: float
    in_flight: tuple[tuple[Channel, bytes], ...] = ()
    """Elements that arrived before the barrier on slower channels, encoded."""

    def release(self) -> None:
        """Release the state: it is no longer needed."""
        for operator in self.operators:
            operator.release()


class Snapshotter:
    """Writes the state of an attempt of a pipeline, on its own worker."""

    def __init__(
        self,
        attempt: Attempt,
        settings: SnapshotSettings,
        send: Callable[[SlotMessage], None],
        permit: Permit,
        workers: Workers,
    ) -> None:
        self._permit = permit
        self._attempt = attempt
        self._settings = settings
        self._send = send
        self._store = None if settings.directory is None else open_store(settings.directory)
        self._aborted: set[CheckpointId] = set()
        self._stored: dict[CheckpointId, dict[tuple[SubtaskId, OperatorId], _Shared]] = {}
        self._is_closed = False
        self._worker = workers.start("tidegate-snapshots")

    def write(self, frozen: FrozenSubtask) -> None:
        """Write the state after everything posted before, then acknowledge it."""
        self._worker.post(partial(self._take, frozen))

    def decline(
        self,
        subtask: SubtaskId,
        checkpoint_id: CheckpointId,
        error: Exception,
        *,
        is_skipped: bool = False,
    ) -> None:
        """The subtask declines the checkpoint; `is_skipped`: because of a newer barrier."""
        if not isinstance(error, TidegateError):
            error = InternalError(f"{type(error).__name__}: {error}")
        self._send(
            CheckpointDeclined(
                checkpoint_id=checkpoint_id,
                subtask=subtask,
                attempt=self._attempt,
                error=error,
                is_skipped=is_skipped,
            )
        )

    def abort(self, checkpoint_id: CheckpointId) -> None:
        """Abandon what is not yet written for this checkpoint."""
        self._aborted.add(checkpoint_id)

    def complete(self, checkpoint_id: CheckpointId) -> None:
        """From now on, snapshots build on this checkpoint or a later one."""
        self._aborted = {number for number in self._aborted if number > checkpoint_id}
        for number in [number for number in self._stored.copy() if number < checkpoint_id]:
            self._stored.pop(number, None)

    def close(self) -> None:
        """Stop writing, and abandon the current write.

        Does not wait for a storage that hangs: whatever it still writes belongs to an old attempt.
        """
        self._is_closed = True
        self._worker.stop(_PATIENCE_WITH_STORAGE)

    def _take(self, frozen: FrozenSubtask) -> None:
        try:
            self._write(frozen)
        finally:
            frozen.release()

    def _write(self, frozen: FrozenSubtask) -> None:
        number = frozen.barrier.checkpoint_id

        def is_canceled() -> bool:
            return self._is_closed or number in self._aborted or not self._permit.is_valid()

        if is_canceled():
            return
        started = time.monotonic()
        try:
            target = self._target(frozen.barrier)
        except Exception as error:
            self.decline(frozen.id, number, error)
            return
        writer = SnapshotWriter(
            target, is_canceled, transfer_threads=self._settings.transfer_threads
        )
        try:
            base = self._stored.get(frozen.barrier.base or CheckpointId(0), {})
            handles = [
                _write_operator(writer, operator, frozen, base) for operator in frozen.operators
            ]
            if frozen.in_flight:
                handles[0] = replace(
                    handles[0], in_flight=_write_channels(writer, frozen.in_flight)
                )
            passing(FaultPoint.SNAPSHOT, Victim.SLOT)
            writer.close()
        except SnapshotWriteAborted:
            writer.discard()
            return
        except Exception as error:
            writer.discard()
            self.decline(frozen.id, number, error)
            return
        snapshot = SubtaskSnapshot(operators=tuple(handles), ended_inputs=frozen.ended_inputs)
        for handle in handles:
            if handle.keyed is not None and frozen.barrier.savepoint is None:
                self.remember(number, frozen.id, handle.operator_id, handle.keyed)
        self._send(
            CheckpointAcknowledged(
                checkpoint_id=number,
                subtask=frozen.id,
                attempt=self._attempt,
                snapshot=snapshot,
                is_finished=frozen.is_finished,
                statistics=SubtaskStatistics(
                    start_delay=frozen.start_delay,
                    alignment=frozen.alignment,
                    alignment_bytes=frozen.alignment_bytes,
                    sync=frozen.sync,
                    asynchronous=time.monotonic() - started,
                    size=snapshot.size,
                    incremental_size=writer.bytes_written,
                ),
            )
        )
        passing(FaultPoint.ACKNOWLEDGED, Victim.SLOT)

    def _target(self, barrier: Barrier) -> FileTarget | MemoryTarget:
        threshold = self._settings.inline_threshold
        if barrier.savepoint is not None:
            store = open_store(barrier.savepoint.directory)
            return FileTarget(
                store,
                barrier.savepoint.name,
                threshold,
                shares=False,
                format=barrier.savepoint.format,
            )
        if self._store is None:
            return MemoryTarget(self._settings.limit)
        return FileTarget(self._store, directory_of(barrier.checkpoint_id), threshold)

    def remember(
        self,
        number: CheckpointId,
        subtask: SubtaskId,
        operator_id: OperatorId,
        handle: KeyedStateHandle,
    ) -> None:
        """Remember the stored files of an operator's database, for incremental snapshots."""
        if handle.native_form is not None:
            self._stored.setdefault(number, {})[(subtask, operator_id)] = _shared_files(handle)


def _write_operator(
    writer: SnapshotWriter,
    operator: FrozenOperator,
    subtask: FrozenSubtask,
    base: Mapping[tuple[SubtaskId, OperatorId], _Shared],
) -> OperatorHandle:
    id = operator.operator_id
    keyed: KeyedStateHandle | None = None
    if operator.keyed is not None:
        reusable = base.get((subtask.id, id), {})
        directory = TableDirectory(operator.uid or id, subtask.id.subtask)
        keyed = writer.write_keyed(operator.keyed, subtask.key_groups, reusable, directory)
    states = None
    if operator.states:
        states = writer.write(pickle.dumps(operator.states, protocol=5))
    owned: tuple[FileSegment, ...] = ()
    if operator.files is not None:
        owned = copy_owned(writer, f"{TASK_OWNED}/{id}", operator.files.urls)
    return OperatorHandle(
        operator_id=id,
        keyed=keyed,
        operator=states,
        operator_states=tuple(state.facts for state in operator.states),
        source_splits=operator.source_splits,
        owned=owned,
        time=operator.time,
    )


def _write_channels(
    writer: SnapshotWriter, elements: Iterable[tuple[Channel, bytes]]
) -> tuple[ChannelHandle, ...]:
    channels: dict[Channel, list[bytes]] = {}
    for channel, element in elements:
        channels.setdefault(channel, []).append(element)
    return tuple(
        ChannelHandle(channel.edge, channel.source, writer.write(b"".join(parts)))
        for channel, parts in channels.items()
    )


def _shared_files(handle: KeyedStateHandle) -> _Shared:
    return {
        file.name: file.content
        for file in handle.native_files
        if isinstance(file.content, FileSegment) and file.content.file.scope is FileScope.SHARED
    }


_BLOCK: Final = 4 << 20


def copy_owned(
    writer: SnapshotWriter, directory: str, files: Mapping[str, str]
) -> tuple[FileSegment, ...]:
    """Copy files, given as paths or URLs, to these paths in a directory next to the metadata."""
    return tuple(_copy(writer, url, f"{directory}/{path}") for path, url in files.items())


def _copy(writer: SnapshotWriter, url: str, path: str) -> FileSegment:
    directory, name = parent_and_name(url)
    store = open_store(directory)
    checksum = xxh3_64()
    size = store.size(name)

    def blocks() -> Iterator[bytes]:
        for offset in range(0, size, _BLOCK):
            block = store.read(name, offset, min(_BLOCK, size - offset))
            checksum.update(block)
            yield block

    file = writer.write_file(blocks(), path)
    return FileSegment(file, 0, size, checksum.intdigest())
