"""What a sink is: one writer per subtask, and a committer where results are not visible at once.

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
    """Prints a line on the console of the job."""
    deliver: Callable[[str, Batch], None] | None = None
    """Hands a batch to the collector of this name in the driver."""
    job_id: str = ""
    """Stays the same when the job restarts."""
    attempt: int = 1
    """Number of deployments of the sink's region."""
    clock: Clock = field(default_factory=SystemClock)
    is_checkpointed: bool = False
    """Whether checkpoints are taken; otherwise everything is committed at the end of the input."""
    operator_state: OperatorStateStore = field(default_factory=OperatorStateStore)
    """What the writer remembers over failures, restored already. At a barrier it is stored as it
    is when `SinkWriter.snapshot` returns."""
    recovered: Sequence[Any] = ()
    """For sinks with a committer: what the restored checkpoint holds to be committed, of *all*
    subtasks. What is found prepared outside and is not among it belongs to a lost attempt."""
    operator_id: str = ""
    """The id of the operator: unique in the job, and stable when it restarts."""
    format: ArrowFormat | None = None
    """How the records of the stream travel; None for pickled Python objects."""
    permit: Permit = Permit()
    """To be asked right before each thing outside that is committed, aborted, fenced or deleted:
    by writers when they open and close, by committers that commit one by one."""


class SinkWriter(ABC):
    """Writes in one subtask. All methods are called by one thread.

    barrier   flush(), snapshot(id)     prepare: what was written since the last barrier can
                                        be committed by whoever restores the state
    later     notify_complete(id)       commit
    """

    def open(self) -> None:
        """Called once, before all other methods."""

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Take the records, in order. They need not be visible before the next `flush`.

        A UserError whose `suspects` names one record, or several, says that it was written up to
        them and no further: then the record at fault can be skipped as a poison record.
        """

    def flush(self, end_of_input: bool = False) -> None:
        """Deliver everything written so far. Called at a barrier and at the end of the input."""

    def snapshot(self, checkpoint_id: CheckpointId) -> None:
        """Store in the operator state what a successor needs. Called right after `flush`."""

    def notify_complete(self, checkpoint_id: CheckpointId) -> None:
        """The checkpoint, and so each one before it, is durable. May be repeated."""

    def notify_aborted(self, checkpoint_id: CheckpointId) -> None:
        """The checkpoint will never complete; its records belong to the next one that does."""

    def close(self) -> None:
        """Release everything, even if `open` has raised. Unflushed records may be lost."""


class Sink(ABC):
    """A sink as a program declares it. It is pickled on its way to the slots."""

    @abstractmethod
    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A new writer, in a slot."""

    def delivery(self) -> Delivery:
        """How often a record arrives if it reaches the sink exactly once."""
        return Delivery(DeliveryGuarantee.AT_LEAST_ONCE, "repeats results after a failure")


class CommittingWriter(SinkWriter):
    """A writer whose results become visible by a commit, which any process can do."""

    @abstractmethod
    def prepare_commit(self) -> Sequence[Any]:
        """Everything since the last call, durable but not visible, as picklable committables.

        Called at a barrier, right after `flush`; without checkpoints at the end of the input.
        What is not in a completed checkpoint when the subtask fails is never committed: a writer
        that opens for the same subtask removes it, sparing `WriterContext.recovered`.
        """


class Committer(ABC):
    """Makes visible what writers prepared. All methods are called by one thread."""

    @abstractmethod
    def commit(self, committables: Sequence[Any]) -> None:
        """Commit all of them. May be repeated after a failure: twice must equal once."""

    def close(self) -> None:
        """Release everything."""


class SupportsCommitter(Sink):
    """A sink whose results become visible in two phases."""

    def delivery(self) -> Delivery:
        why = "commits with the checkpoint"
        return Delivery(DeliveryGuarantee.EXACTLY_ONCE, why, commits=True)

    @abstractmethod
    def create_writer(self, context: WriterContext) -> CommittingWriter:
        """A new writer, in a slot."""

    @abstractmethod
    def create_committer(self, context: WriterContext) -> Committer:
        """A new committer, in a slot."""
