"""What the subtasks of a slot take over from a checkpoint, read when it is asked for."""

from __future__ import annotations

import pickle
from functools import cached_property
from typing import Any, NoReturn

from tidegate.checkpoint.restore import OperatorRestore, SubtaskRestore
from tidegate.core.errors import InternalError
from tidegate.core.ids import CheckpointId, EdgeId, OperatorId, SubtaskIndex, VertexId
from tidegate.operators.base import OperatorSnapshot
from tidegate.runtime.exchange.packet import Channel
from tidegate.runtime.messages import RestoreOrder
from tidegate.state.operator_state import FrozenOperatorState
from tidegate.state.redistribution import redistribute
from tidegate.state.snapshot import StoredFile
from tidegate.state.snapshot_reader import FileResolver, StoredImage, read_segment

_NOTHING = SubtaskRestore()
_NO_STATE = OperatorRestore()


class RestoredState:
    """A restore order of one slot, with access to the files it names."""

    def __init__(self, order: RestoreOrder) -> None:
        self._order = order

    @property
    def checkpoint_id(self) -> CheckpointId:
        return self._order.checkpoint_id

    def subtask(self, vertex: VertexId) -> SubtaskRestore:
        return self._order.subtasks.get(vertex, _NOTHING)

    def operator_states(
        self, vertex: VertexId, operator: OperatorId, subtask: SubtaskIndex, parallelism: int
    ) -> list[FrozenOperatorState]:
        """The operator states of one subtask, dealt out anew."""
        stored = self._operator(vertex, operator).operator
        if not stored:
            return []
        old = [
            () if segment is None else pickle.loads(read_segment(segment, self._resolve))
            for segment in stored
        ]
        return redistribute(old, parallelism)[subtask]

    def snapshots(self, vertex: VertexId) -> dict[OperatorId, list[OperatorSnapshot]]:
        """What the operators of a subtask restore, the keyed state still to be read."""
        return {
            operator_id: [
                *(OperatorSnapshot(keyed=StoredImage(k, self._resolve)) for k in found.keyed),
                OperatorSnapshot(source_splits=self.splits(vertex, operator_id)),
            ]
            for operator_id, found in self.subtask(vertex).operators.items()
        }

    def splits(self, vertex: VertexId, operator: OperatorId) -> tuple[Any, ...]:
        return tuple(map(pickle.loads, self._operator(vertex, operator).source_splits))

    def in_flight(self, vertex: VertexId) -> list[tuple[Channel, bytes]]:
        """Encoded elements that a subtask takes in before anything else."""
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
        return _no_files if location is None else location.resolver()


def _no_files(file: StoredFile) -> NoReturn:
    raise InternalError(f"a checkpoint in the driver's memory names the file {file}")
