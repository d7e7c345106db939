"""Functions that take part in checkpoints, under Flink's names.

    class CountWithState(FlatMapFunction, CheckpointedFunction): ...

A function has one of these contracts beside the one that processes records.

    start     initialize_state(context), open(runtime_context), records ...
    barrier   snapshot_state(context)                  between two records
    later     notify_checkpoint_complete(id)           or notify_checkpoint_aborted(id)
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from tidegate.operators.runtime_context import KeyedStateStore
from tidegate.state.operator_state import OperatorStateStore
from tidegate.stream.elements import Barrier

__all__ = [
    "CheckpointListener",
    "CheckpointedFunction",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "OperatorStateStore",
]


class FunctionInitializationContext:
    """Where a function finds its state before its first record."""

    def __init__(self, operator_state: OperatorStateStore, keyed_state: KeyedStateStore) -> None:
        self._operator_state = operator_state
        self._keyed_state = keyed_state

    def is_restored(self) -> bool:
        """Whether the job resumes from a checkpoint or savepoint."""
        return self._operator_state.is_restored

    def get_operator_state_store(self) -> OperatorStateStore:
        """State of this subtask, whatever the key: lists, union lists and broadcast maps."""
        return self._operator_state

    def get_keyed_state_store(self) -> KeyedStateStore:
        """State by key. Raises an error on a stream without keys."""
        return self._keyed_state


class FunctionSnapshotContext:
    """The checkpoint that is being taken."""

    def __init__(self, barrier: Barrier) -> None:
        self._barrier = barrier

    def get_checkpoint_id(self) -> int:
        """The id of the checkpoint."""
        return self._barrier.checkpoint_id

    def get_checkpoint_timestamp(self) -> int:
        """When the checkpoint was triggered, in milliseconds since the epoch."""
        return int(self._barrier.triggered_at * 1000)


class CheckpointedFunction(ABC):
    """A function with operator state: its attributes become state at every checkpoint."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Get handles, and take over what they hold where `is_restored()`.

        Called once in the life of a subtask, before `open`; after a failure in a new copy of the
        function, as it was when the job was submitted.
        """

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Put into the states what must survive; what they hold then is in the checkpoint.

        Called between two records, which wait for it: leave what is slow to others.
        """


class CheckpointListener(ABC):
    """Is notified of the outcome of checkpoints, for external effects that must wait for them."""

    @abstractmethod
    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint, and so each one before it, is durable.

        Not every checkpoint is announced, and one may be announced twice: commit all that is not
        later than it, and let twice equal once.
        """

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint will never complete. The next one includes its contents."""
