"""Functions that take part in checkpoints, under Flink's names.

    class CountWithState(FlatMapFunction, CheckpointedFunction): ...

A function implements one of these in addition to the contract that processes records.

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
    """Gives a function access to its state before its first record."""

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
        """Get state handles; if `is_restored()`, take over their contents.

        Called once per subtask, before `open`. After a failure it is called on a new copy of the
        function, as it was when the job was submitted.
        """

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Update the states; the checkpoint contains what they hold afterwards.

        Called between two records, which wait for it: do nothing slow here.
        """


class CheckpointListener(ABC):
    """Notified of the outcome of checkpoints, for external effects that must wait for them."""

    @abstractmethod
    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint and all earlier ones are durable.

        A notification may be skipped or repeated: commit everything up to this checkpoint, and make
        commits idempotent.
        """

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint will never complete. The next one includes its contents."""
