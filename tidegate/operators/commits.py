"""What a sink has prepared at barriers and commits when their checkpoints are durable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.connectors.sink import Committer
from tidegate.core.ids import CheckpointId
from tidegate.state.descriptors import ListStateDescriptor
from tidegate.state.operator_state import OperatorStateStore

_STATE = "_committables"


class Commits:
    """The committables of one subtask, which are operator state until they are committed."""

    def __init__(self, state: OperatorStateStore, committer: Committer) -> None:
        self._state = state.get_list_state(ListStateDescriptor(_STATE))
        self._committer = committer
        self._pending: list[tuple[CheckpointId, Any]] = []

    def recover(self) -> None:
        """The checkpoint restored is durable: commit what it holds, before the first record."""
        self._commit([committable for _, committable in self._state.get()])
        self._state.clear()

    def prepared(self, checkpoint_id: CheckpointId, committables: Sequence[Any]) -> None:
        """A barrier is here; its checkpoint also holds what waits for earlier ones."""
        self._pending += [(checkpoint_id, committable) for committable in committables]
        self._state.update(self._pending)

    def complete(self, checkpoint_id: CheckpointId) -> None:
        """A checkpoint, and so each one before it, is durable."""
        self._commit([c for number, c in self._pending if number <= checkpoint_id])
        self._pending = [(number, c) for number, c in self._pending if number > checkpoint_id]
        self._state.update(self._pending)

    def at_once(self, committables: Sequence[Any]) -> None:
        """There are no checkpoints to wait for."""
        self._commit(list(committables))

    def close(self) -> None:
        self._committer.close()

    def _commit(self, committables: list[Any]) -> None:
        if committables:
            self._committer.commit(committables)
