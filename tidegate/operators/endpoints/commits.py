"""What a sink has prepared at barriers and commits when the checkpoints are durable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tidegate.connectors.sink import Committer, WriterContext
from tidegate.core.ids import CheckpointId
from tidegate.state.descriptors import ListStateDescriptor

_STATE = "_committables"


class _Pending(NamedTuple):
    """A committable, the checkpoint it waits for, and the subtask that prepared it."""

    checkpoint_id: CheckpointId
    subtask: int
    committable: Any


class Commits:
    """The committables of one subtask, kept in operator state until they are committed.

    On a restore, every subtask receives those of all: anything else that is found prepared in the
    external system was left by a lost attempt.
    """

    def __init__(self, committer: Committer, context: WriterContext) -> None:
        self._state = context.operator_state.get_union_list_state(ListStateDescriptor(_STATE))
        self._committer = committer
        self._permit = context.permit
        self._subtask = context.subtask
        self._parallelism = context.parallelism
        self._pending: list[_Pending] = []

    def recover(self) -> list[Any]:
        """Commit the restored committables, whose checkpoint is durable, before the first record.

        Returns:
            Those of all subtasks; this one has committed its share.
        """
        restored: list[_Pending] = list(self._state.get())
        own = [p for p in restored if p.subtask % self._parallelism == self._subtask]
        self._commit([p.committable for p in own])
        self._state.clear()
        return [p.committable for p in restored]

    def prepared(self, checkpoint_id: CheckpointId, committables: Sequence[Any]) -> None:
        """Add the committables of a barrier; its checkpoint includes those still waiting."""
        self._pending += [_Pending(checkpoint_id, self._subtask, each) for each in committables]
        self._state.update(self._pending)

    def complete(self, checkpoint_id: CheckpointId) -> None:
        """Commit everything up to this durable checkpoint."""
        due = [p for p in self._pending if p.checkpoint_id <= checkpoint_id]
        self._commit([p.committable for p in due])
        self._pending = self._pending[len(due) :]
        self._state.update(self._pending)

    def at_once(self, committables: Sequence[Any]) -> None:
        """Commit immediately, without checkpoints or after the last one."""
        self._commit([*(p.committable for p in self._pending), *committables])
        self._pending = []

    def close(self) -> None:
        self._committer.close()

    def _commit(self, committables: list[Any]) -> None:
        if committables:
            self._permit.require()
            self._committer.commit(committables)
