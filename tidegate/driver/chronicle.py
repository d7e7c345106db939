"""The history of a job: when it entered which state, and what failed.

Written by the job master's thread. Returned values never change, so any thread may read them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tidegate.core.errors import SlotLost, TidegateError, UserFunctionError
from tidegate.core.ids import CheckpointId, OperatorId, PipelineId, SlotIndex, VertexId
from tidegate.core.poison import DeadLetter
from tidegate.graph.job_graph import JobGraph
from tidegate.protocol.job_status import JobStatus

_MOST_FAILURES = 16
"""The same number as Flink."""
_MOST_LETTERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRecord:
    """One failure of a part of the job."""

    at: float
    """Seconds since the epoch."""
    cause: TidegateError
    pipelines: tuple[PipelineId, ...]
    """The pipelines that failed; none if the job failed as a whole."""
    is_final: bool
    """Whether the job failed for good; otherwise it was restarted."""
    recovered_at: float | None = None
    """When the job ran again; None: not yet."""
    restored_from: CheckpointId | None = None
    """The checkpoint it resumed from; None: it started fresh, or has not recovered yet."""

    @property
    def slot(self) -> SlotIndex | None:
        """The slot in which it happened, if known."""
        if isinstance(self.cause, SlotLost):
            return SlotIndex(self.cause.args[0])
        if isinstance(self.cause, UserFunctionError):
            number = str(self.cause.args[2]).strip("()").partition("/")[0]
            return SlotIndex(int(number) - 1) if number.isdigit() else None
        return None


@dataclass(frozen=True, slots=True)
class RescaledVertex:
    """How many subtasks a vertex had, and has."""

    id: OperatorId
    """Of its head."""
    name: str
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescaling:
    """A change of the parallelism."""

    id: str
    began_at: float
    """When the job was handed over, after its last checkpoint."""
    ended_at: float | None = None
    """When it ran again; None: it does not yet."""
    vertices: tuple[RescaledVertex, ...]


class Chronicle:
    """The history of one job, across all its masters."""

    def __init__(self, now: float) -> None:
        self.started_at = now
        self.ended_at: float | None = None
        self.restarts = 0
        self.failures: tuple[FailureRecord, ...] = ()
        """The last failures, newest first."""
        self.is_truncated = False
        """Whether there were more."""
        self.rescalings: tuple[Rescaling, ...] = ()
        """The last ones, newest first."""
        self.skipped_records: dict[VertexId, int] = {}
        """By vertex, since the job started."""
        self.dead_letters: tuple[DeadLetter, ...] = ()
        """The last skipped records, newest first."""
        self._restored_from: CheckpointId | None = None
        self._entered: dict[JobStatus, float] = {JobStatus.CREATED: now}
        self._status = JobStatus.CREATED

    def entered(self) -> dict[JobStatus, float]:
        """When the job last entered each state."""
        return self._entered.copy()

    def is_now(self, status: JobStatus, now: float) -> None:
        """Record the current status of the job; repetitions are ignored."""
        if status is self._status:
            return
        self._status = status
        self._entered[status] = now
        if status is JobStatus.RUNNING:
            self._recovered(now)
        self.ended_at = now if status.is_terminal else None

    def restored(self, checkpoint_id: CheckpointId) -> None:
        """The job, or part of it, is restored from a checkpoint."""
        self._restored_from = checkpoint_id

    def rescaled(self, now: float, before: JobGraph, after: JobGraph) -> None:
        """The job continues with another parallelism."""
        earlier = {vertex.chain[0].operator_id: vertex.parallelism for vertex in before.vertices}
        vertices = tuple(
            RescaledVertex(id, vertex.name, earlier.get(id, 0), vertex.parallelism)
            for vertex in after.vertices
            for id in [vertex.chain[0].operator_id]
        )
        rescaling = Rescaling(id=secrets.token_hex(16), began_at=now, vertices=vertices)
        self.rescalings = (rescaling, *self.rescalings)[:_MOST_FAILURES]

    def skipped(self, counts: Mapping[VertexId, int], letters: Iterable[DeadLetter]) -> None:
        """Count skipped records; `letters` are examples."""
        known = self.skipped_records
        self.skipped_records = known | {id: known.get(id, 0) + n for id, n in counts.items()}
        self.dead_letters = (*reversed(list(letters)), *self.dead_letters)[:_MOST_LETTERS]

    def _recovered(self, now: float) -> None:
        """Mark earlier failures as recovered, and a change of the parallelism as complete."""
        self.failures = tuple(
            failure
            if failure.is_final or failure.recovered_at is not None
            else replace(failure, recovered_at=now, restored_from=self._restored_from)
            for failure in self.failures
        )
        self.rescalings = tuple(
            replace(each, ended_at=now) if each.ended_at is None else each
            for each in self.rescalings
        )

    def restarted(
        self, now: float, cause: TidegateError, pipelines: tuple[PipelineId, ...]
    ) -> None:
        self.restarts += 1
        self._failed(FailureRecord(at=now, cause=cause, pipelines=pipelines, is_final=False))
        # Pipelines may be deployed again before anybody asks for the status.
        self.is_now(JobStatus.RESTARTING, now)

    def failed(
        self, now: float, cause: TidegateError, pipelines: tuple[PipelineId, ...] = ()
    ) -> None:
        """The job failed for good."""
        self._failed(FailureRecord(at=now, cause=cause, pipelines=pipelines, is_final=True))

    def _failed(self, record: FailureRecord) -> None:
        self.is_truncated = self.is_truncated or len(self.failures) == _MOST_FAILURES
        self.failures = (record, *self.failures)[:_MOST_FAILURES]
