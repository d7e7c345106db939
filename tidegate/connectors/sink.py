"""The contract of sinks: a writer per subtask, and a committer for results in two phases.

records   write(batch) …
barrier   flush(), prepare_commit() ──▶ committables, which become part of the checkpoint
later     the checkpoint is durable ──▶ commit(committables)
restore   commit(committables of the checkpoint), before the first record
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.connectors.guarantee import Delivery, DeliveryGuarantee
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.ids import CheckpointId
from tidegate.core.permit import Permit
from tidegate.state.operator_state import OperatorStateStore
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat


@dataclass(frozen=True, slots=True)
class WriterContext:
    """Identity of the writer, and what it may use."""

    subtask: int
    parallelism: int
    operator_name: str
    console: Callable[[str], None]
    """Prints a line on the job's console."""
    deliver: Callable[[str, Batch], None] | None = None
    """Sends a batch to the collector with this name in the driver."""
    job_id: str = ""
    """Stays the same when the job restarts."""
    attempt: int = 1
    """How often the sink's region was deployed."""
    clock: Clock = field(default_factory=SystemClock)
    is_checkpointed: bool = False
    """Whether checkpoints are enabled; otherwise, everything is committed at the end of the
    input."""
    operator_state: OperatorStateStore = field(default_factory=OperatorStateStore)
    """State of the writer, already restored. A barrier stores it after `SinkWriter.snapshot`."""
    recovered: Sequence[Any] = ()
    """For sinks with a committer: the committables of the restored checkpoint, of *all* subtasks.
    Anything else found prepared in the external system belongs to a lost attempt."""
    operator_id: str = ""
    """The id of the operator: unique in the job, and stable across restarts."""
    format: ArrowFormat | None = None
    """The format of the stream; None for pickled Python objects."""
    permit: Permit = Permit()
    """Ask it right before every external commit, abort, fencing or deletion: in `open` and `close`
    of writers, and in committers that commit one by one."""


class SinkWriter(ABC):
    """Writes in one subtask. All methods are called by one thread.

    barrier   flush(), snapshot(id)     prepare: a successor can commit what was written since
                                        the last barrier
    later     notify_complete(id)       commit
    """

    def open(self) -> None:
        """Called once, before all other methods."""

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Take the records, in order. They need not be visible before the next `flush`.

        A UserError with `suspects` means that the records before them were written. The record at
        fault can then be skipped as a poison record.
        """

    def flush(self, end_of_input: bool = False) -> None:
        """Deliver everything written so far. Called at a barrier and at the end of the input."""

    def snapshot(self, checkpoint_id: CheckpointId) -> None:
        """Store in the operator state what a successor needs. Called right after `flush`."""

    def notify_complete(self, checkpoint_id: CheckpointId) -> None:
        """The checkpoint, and every earlier one, is durable. May be repeated."""

    def notify_aborted(self, checkpoint_id: CheckpointId) -> None:
        """The checkpoint will never complete; its records belong to the next complete one."""

    def close(self) -> None:
        """Release all resources, even if `open` has raised. Unflushed records may be lost."""


class Sink(ABC):
    """A sink as a program declares it. It is pickled and sent to the slots."""

    @abstractmethod
    def create_writer(self, context: WriterContext) -> SinkWriter:
        """Create a writer, in a slot."""

    def delivery(self) -> Delivery:
        """How often a record arrives if it reaches the sink exactly once."""
        return Delivery(DeliveryGuarantee.AT_LEAST_ONCE, "repeats results after a failure")


class CommittingWriter(SinkWriter):
    """A writer whose results become visible by a commit, which any process can do."""

    @abstractmethod
    def prepare_commit(self) -> Sequence[Any]:
        """Everything since the last call, durable but not visible, as picklable committables.

        Called at a barrier, right after `flush`; without checkpoints, at the end of the input. If
        the subtask fails, committables without a completed checkpoint are never committed: the next
        writer of the subtask removes them, except `WriterContext.recovered`.
        """


class Committer(ABC):
    """Makes visible what writers have prepared. All methods are called by one thread."""

    @abstractmethod
    def commit(self, committables: Sequence[Any]) -> None:
        """Commit all of them. May be repeated after a failure, so twice must equal once."""

    def close(self) -> None:
        """Release all resources."""


class SupportsCommitter(Sink):
    """A sink whose results become visible in two phases."""

    def delivery(self) -> Delivery:
        why = "commits with the checkpoint"
        return Delivery(DeliveryGuarantee.EXACTLY_ONCE, why, commits=True)

    @abstractmethod
    def create_writer(self, context: WriterContext) -> CommittingWriter:
        """Create a writer, in a slot."""

    @abstractmethod
    def create_committer(self, context: WriterContext) -> Committer:
        """Create a committer, in a slot."""
