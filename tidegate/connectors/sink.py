"""What a sink is: one writer per subtask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

from tidegate.core.ids import CheckpointId
from tidegate.state.operator_state import OperatorStateStore
from tidegate.stream.batch import Batch


@dataclass(frozen=True, slots=True)
class WriterContext:
    """Who the writer is, and what it may use."""

    subtask: int
    parallelism: int
    operator_name: str
    console: Callable[[str], None]
    """Prints a line where the user of the job sees it."""
    deliver: Callable[[str, Batch], None] | None = None
    """Hands a batch to the collector of this name in the driver."""
    operator_state: OperatorStateStore = field(default_factory=OperatorStateStore)
    """What the writer remembers over failures, restored already. At a barrier it is stored as it
    is when `SinkWriter.snapshot` returns."""


class SinkWriter(ABC):
    """Writes in one subtask. All methods are called by one thread.

    barrier   flush(), snapshot(id)     prepare: what was written since the last barrier can
                                        be committed by whoever restores the state
    later     notify_complete(id)       commit
    """

    def open(self) -> None:
        """Called once before anything else."""

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Take the records, in order. They need not be visible before the next `flush`."""

    def flush(self, end_of_input: bool = False) -> None:
        """Make everything written so far arrive: a barrier, or the end, is here."""

    def snapshot(self, checkpoint_id: CheckpointId) -> None:
        """Put into the operator state what a successor needs; right after `flush`."""

    def notify_complete(self, checkpoint_id: CheckpointId) -> None:
        """The checkpoint, and so each one before it, is durable. May be repeated."""

    def notify_aborted(self, checkpoint_id: CheckpointId) -> None:
        """The checkpoint will never complete; its records belong to the next one that does."""

    def close(self) -> None:
        """Release everything, also after an `open` that raised; what is not flushed may be lost."""


class Sink(ABC):
    """A sink as the user names it in a program. Travels pickled."""

    @abstractmethod
    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A new writer, in a slot."""
