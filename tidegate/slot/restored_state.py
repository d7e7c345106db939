"""The state that the subtasks of a slot restore from a checkpoint, read on demand."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, NoReturn

from tidegate.core.errors import InternalError
from tidegate.core.ids import CheckpointId, EdgeId, OperatorId, SubtaskIndex, VertexId
from tidegate.operators.base import OperatorSnapshot
from tidegate.protocol.messages import RestoreOrder
from tidegate.protocol.packet import Channel
from tidegate.protocol.restore import OperatorRestore, SubtaskRestore
from tidegate.state.operator_state import FrozenOperatorState
from tidegate.state.pointers import StoredFile, TimeHandle
from tidegate.state.redistribution import put_together
from tidegate.state.snapshot.reader import FileResolver, StoredImage, read_blocks, read_segment
from tidegate.storage.blob_store import BlobStore, BlobWriter

_NOTHING = SubtaskRestore()
_NO_STATE = OperatorRestore()
_REPORTED_BYTES = 1 << 20


class RestoredState:
    """A restore order of one slot, with access to its files."""

    def __init__(
        self, order: RestoreOrder, report: Callable[[int], None] = lambda size: None
    ) -> None:
        self._order = order
        self._report = report
        """Called from time to time with the number of bytes read since the last call."""
        self._unreported = 0
        self._lock = threading.Lock()

    @property
    def checkpoint_id(self) -> CheckpointId:
        return self._order.checkpoint_id

    def subtask(self, vertex: VertexId) -> SubtaskRestore:
        return self._order.subtasks.get(vertex, _NOTHING)

    def operator_states(self, vertex: VertexId, operator: OperatorId) -> list[FrozenOperatorState]:
        found = self._operator(vertex, operator)
        return put_together(
            found.parts,
            lambda owner: pickle.loads(read_segment(found.operator[owner], self._resolve)),
        )

    def snapshots(self, vertex: VertexId) -> dict[OperatorId, list[OperatorSnapshot]]:
        """The state that the operators of a subtask restore; keyed state is read lazily."""
        return {
            operator_id: [
                *(OperatorSnapshot(keyed=StoredImage(k, self._resolve)) for k in found.keyed),
                OperatorSnapshot(
                    source_splits=self.splits(vertex, operator_id),
                    generator=_generator(found.time),
                ),
            ]
            for operator_id, found in self.subtask(vertex).operators.items()
        }

    def verify_owned(self, vertex: VertexId) -> None:
        """Raise CorruptCheckpoint if a file that splits depend on has changed."""
        for operator in self.subtask(vertex).operators.values():
            for segment in operator.owned:
                for _ in read_blocks(segment, self._resolve):
                    pass

    def splits(self, vertex: VertexId, operator: OperatorId) -> tuple[Any, ...]:
        return tuple(map(pickle.loads, self._operator(vertex, operator).source_splits))

    def in_flight(self, vertex: VertexId) -> list[tuple[Channel, bytes]]:
        """Encoded elements that a subtask processes before anything else."""
        return [
            (
                Channel(EdgeId(handle.edge), SubtaskIndex(handle.source)),
                read_segment(handle.content, self._resolve),
            )
            for handle in self.subtask(vertex).in_flight
        ]

    def _operator(self, vertex: VertexId, operator: OperatorId) -> OperatorRestore:
        return self.subtask(vertex).operators.get(operator, _NO_STATE)

    @cached_property
    def _resolve(self) -> FileResolver:
        location = self._order.location
        if location is None:
            return _no_files
        find = location.resolver()

        def resolve(file: StoredFile) -> tuple[BlobStore, str]:
            store, path = find(file)
            return CountedReads(store, self._read), path

        return resolve

    def _read(self, size: int) -> None:
        """Called by the threads that read."""
        with self._lock:
            self._unreported += size
            if self._unreported < _REPORTED_BYTES:
                return
            size, self._unreported = self._unreported, 0
        self._report(size)


def _no_files(file: StoredFile) -> NoReturn:
    raise InternalError(f"a checkpoint in the driver's memory references the file {file}")


def _generator(time: TimeHandle) -> Any:
    return None if time.generator is None else pickle.loads(time.generator)


class CountedReads(BlobStore):
    """A store that calls `count` with the number of bytes of every read."""

    def __init__(self, store: BlobStore, count: Callable[[int], None]) -> None:
        self.url = store.url
        self._store = store
        self._count = count

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        data = self._store.read(path, offset, size)
        self._count(len(data))
        return data

    def writer(self, path: str) -> AbstractContextManager[BlobWriter]:
        return self._store.writer(path)

    def put(self, path: str, data: bytes) -> None:
        self._store.put(path, data)

    def create_if_absent(self, path: str, data: bytes) -> bool:
        return self._store.create_if_absent(path, data)

    def exists(self, path: str) -> bool:
        return self._store.exists(path)

    def size(self, path: str) -> int:
        return self._store.size(path)

    def list(self, path: str = "") -> Iterator[str]:
        return self._store.list(path)

    def delete(self, path: str) -> None:
        self._store.delete(path)
