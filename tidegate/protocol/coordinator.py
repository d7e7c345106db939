"""The coordinator of a job's checkpoints: facts in, instructions out; no threads, no I/O.

    look ──▶ Trigger ── acknowledged by all ──▶ Publish ── published ──▶ NotifyComplete, Discard …
                │                                  └── not published ──┐
                └── declined · expired · region failed ─▶ NotifyAborted, Abandon (, GoBack, FailJob)

Times named `now` are readings of one monotonic clock, those named `wall` are seconds since the
epoch, for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.core.checkpoint_settings import CheckpointSettings
from tidegate.core.errors import CheckpointFailed, TidegateError
from tidegate.core.ids import CheckpointId, PipelineId, VertexId
from tidegate.core.modes import CheckpointingMode
from tidegate.protocol.assembly import CheckpointedJob
from tidegate.protocol.messages import CheckpointAcknowledged, CheckpointDeclined
from tidegate.protocol.pending import AbortReason, AckResult, PendingCheckpoint, PendingState
from tidegate.protocol.plan import (
    CheckpointPlan,
    NotNow,
    PipelineFacts,
    VertexFacts,
    plan_checkpoint,
)
from tidegate.protocol.policy import (
    CheckpointSchedule,
    FailureTolerance,
    Start,
    Wait,
)
from tidegate.protocol.retained import RetainedCheckpoints
from tidegate.state.snapshot import SubtaskSnapshot
from tidegate.stream.elements import Barrier, BarrierKind, SavepointTarget, SnapshotRequest

_FIRST_ID = CheckpointId(1)
_REMEMBERED_ABORTS = 1000
"""Aborted checkpoints whose late acknowledgements are still recognised."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """Send this barrier down the sources of these pipelines."""

    barrier: Barrier
    pipelines: frozenset[PipelineId]
    awaited: int
    """How many subtasks have to acknowledge."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Everything is written: make the checkpoint durable, then report what came of it."""

    checkpoint: Checkpoint
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class NotifyComplete:
    """Tell everybody that the checkpoint is durable."""

    checkpoint: Checkpoint
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class NotifyAborted:
    """Tell everybody that the checkpoint will never complete."""

    checkpoint_id: CheckpointId
    reason: str


@dataclass(frozen=True, slots=True)
class Discard:
    """A completed checkpoint of the job is no longer needed."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class Dispose:
    """What the job was started from, and has claimed, is no longer needed."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Abandon:
    """What these snapshots name will never be used: delete it."""

    checkpoint_id: CheckpointId
    snapshots: tuple[SubtaskSnapshot, ...]
    is_whole: bool
    """The checkpoint is aborted: all that is its own goes, also what nobody acknowledged."""
    savepoint: SavepointTarget | None = None
    """Where it was written, if not where checkpoints are."""


@dataclass(frozen=True, slots=True)
class GoBack:
    """A drain is aborted: what it ended in these pipelines runs on only from a checkpoint."""

    pipelines: frozenset[PipelineId]


@dataclass(frozen=True, slots=True)
class FailJob:
    """More checkpoints failed in a row than are tolerated."""

    cause: TidegateError


Instruction = (
    Trigger
    | Publish
    | NotifyComplete
    | NotifyAborted
    | Discard
    | Dispose
    | Abandon
    | GoBack
    | FailJob
)


class CheckpointCoordinator:
    """Decides what happens to every checkpoint of one job."""

    def __init__(
        self,
        settings: CheckpointSettings,
        job: CheckpointedJob,
        *,
        now: float,
        retained: RetainedCheckpoints | None = None,
        next_id: CheckpointId = _FIRST_ID,
    ) -> None:
        self._settings = settings
        self._job = job
        self._vertices = tuple(
            VertexFacts(v.id, v.pipeline, v.parallelism, v.source is not None)
            for v in job.graph.vertices
        )
        self._schedule = CheckpointSchedule(settings, now=now)
        self._tolerance = FailureTolerance(settings.tolerable_failures)
        self.retained = retained or RetainedCheckpoints(settings.num_retained)
        self._next_id = next_id
        self._pending: dict[CheckpointId, PendingCheckpoint] = {}
        self._aborted: dict[CheckpointId, SavepointTarget | None] = {}
        self._requested = 0
        self._is_unaligned = settings.unaligned and settings.mode is CheckpointingMode.EXACTLY_ONCE

    @property
    def is_idle(self) -> bool:
        """Whether no checkpoint is under way or asked for."""
        return not self._pending and not self._requested

    @property
    def is_publishing(self) -> bool:
        """Whether it is open if some checkpoint is durable: until then none can be restored."""
        return any(each.state is PendingState.PUBLISHING for each in self._pending.values())

    @property
    def pending(self) -> tuple[PendingCheckpoint, ...]:
        return tuple(self._pending.values())

    @property
    def _is_stopping(self) -> bool:
        """Whether the job waits for the savepoint that it ends with: nothing is behind it."""
        return any(each.barrier.kind is BarrierKind.STOP for each in self._pending.values())

    def request(self, request: SnapshotRequest) -> bool:
        """Somebody wants a checkpoint now; False if too many wait already."""
        accepted = self._schedule.submit(request)
        self._requested += accepted
        return accepted

    def look(
        self, now: float, wall: float, pipelines: Mapping[PipelineId, PipelineFacts]
    ) -> tuple[list[Instruction], float | None]:
        """Start what is due, give up what is late; and when to look again, if nothing happens."""
        instructions: list[Instruction] = []
        for pending in self.pending:
            wrote = pending.expire(now)
            if wrote is not None:
                seconds = self._settings.timeout.total_seconds()
                instructions += self._aborted_by(
                    pending, wrote, now, f"it took longer than its timeout of {seconds:g} s"
                )
        plan = plan_checkpoint(self._vertices, pipelines)
        wait: float | None = None
        while not isinstance(plan, NotNow) and not self._is_stopping:
            under_way = sum(not pending.awaits_next for pending in self._pending.values())
            decision = self._schedule.decide(now, under_way=under_way)
            if isinstance(decision, Wait):
                wait = decision.until
                break
            instructions.append(self._start(decision, plan, now, wall))
        due = [pending.deadline for pending in self._pending.values()]
        if wait is not None:
            due.append(wait)
        return instructions, min(due, default=None)

    def begun(self, checkpoint_id: CheckpointId) -> bool:
        """The store is ready for a checkpoint; False: it was aborted, so send no barrier."""
        pending = self._pending.get(checkpoint_id)
        if pending is None:
            return False
        pending.is_sent = True
        return True

    def not_begun(
        self, checkpoint_id: CheckpointId, error: TidegateError, now: float
    ) -> list[Instruction]:
        """The store is not ready for a checkpoint that was to be triggered."""
        pending = self._pending.get(checkpoint_id)
        wrote = None if pending is None else pending.abort(AbortReason.STORAGE)
        if pending is None or wrote is None:
            return []
        return self._aborted_by(pending, wrote, now, str(error), error)

    def enumerated(self, checkpoint_id: CheckpointId, states: Mapping[VertexId, bytes]) -> None:
        """The sources of a pipeline were told of the checkpoint; what their enumerators knew."""
        pending = self._pending.get(checkpoint_id)
        if pending is not None:
            pending.enumerated(states)

    def acknowledged(self, ack: CheckpointAcknowledged, wall: float) -> list[Instruction]:
        """A subtask has written its part."""
        pending = self._pending.get(ack.checkpoint_id)
        if pending is None:
            known = ack.checkpoint_id in self._aborted
            if not known:
                return []
            target = self._aborted[ack.checkpoint_id]
            return [Abandon(ack.checkpoint_id, (ack.snapshot,), is_whole=True, savepoint=target)]
        if pending.acknowledge(ack) is AckResult.UNKNOWN_SUBTASK:
            target = pending.barrier.savepoint
            return [Abandon(ack.checkpoint_id, (ack.snapshot,), is_whole=False, savepoint=target)]
        return self._publication_of(pending, wall)

    def _publication_of(self, pending: PendingCheckpoint, wall: float) -> list[Instruction]:
        """What follows if nothing is missing any more."""
        if not pending.is_ready:
            return []
        return [Publish(pending.begin_publication(self._job, wall), pending.barrier)]

    def declined(self, message: CheckpointDeclined, now: float) -> list[Instruction]:
        """A subtask cannot take part."""
        pending = self._pending.get(message.checkpoint_id)
        if pending is None or pending.plan.awaited.get(message.subtask) != message.attempt:
            return []
        wrote = pending.abort(AbortReason.SKIPPED if message.is_skipped else AbortReason.DECLINED)
        if wrote is None:
            return []
        vertex = self._job.graph.vertices[message.subtask.vertex]
        who = f"{vertex.name} ({message.subtask.subtask + 1}/{vertex.parallelism})"
        return self._aborted_by(pending, wrote, now, f"{who}: {message.error}", message.error)

    def published(self, checkpoint: Checkpoint, now: float) -> list[Instruction]:
        """The checkpoint is durable."""
        number = checkpoint.checkpoint_id
        published = self._pending.pop(number)
        published.published()
        self._schedule.ended(now)
        self._tolerance.succeeded(number)
        barrier = published.barrier
        instructions: list[Instruction] = [NotifyComplete(checkpoint, barrier)]
        for pending in self.pending:
            if pending.checkpoint_id > number or barrier.kind is BarrierKind.SAVEPOINT:
                continue
            if pending.barrier.kind is BarrierKind.SAVEPOINT:
                pending.awaits_next = False
                instructions += self._publication_of(pending, checkpoint.metadata.completed_at)
            else:
                wrote = pending.abort(AbortReason.SUBSUMED)
                if wrote is not None:
                    reason = f"checkpoint {number} completed before it"
                    instructions += self._aborted_by(pending, wrote, now, reason)
        ends_the_job = barrier.kind is BarrierKind.STOP
        replaced = self.retained.add(checkpoint, ends_the_job=ends_the_job)
        instructions += [Discard(each.checkpoint_id) for each in self.retained.trim()]
        return [*instructions, *map(Dispose, replaced)]

    def not_published(
        self, checkpoint_id: CheckpointId, error: TidegateError, now: float
    ) -> list[Instruction]:
        """It is certain that the checkpoint is not durable."""
        pending = self._pending[checkpoint_id]
        return self._aborted_by(pending, pending.not_published(), now, str(error), error)

    def withdraw_requests(self) -> tuple[SnapshotRequest, ...]:
        """Those who still wait for their checkpoint to begin, and now wait no longer."""
        self._requested = 0
        return self._schedule.withdraw_all()

    def region_failed(self, now: float) -> list[Instruction]:
        """Some region lost its state: what is not yet being published can never complete."""
        return self._abort_all(AbortReason.REGION_FAILED, now)

    def stop(self, now: float) -> list[Instruction]:
        """The job ends: take no checkpoint any more."""
        self._schedule.pause_periodic()
        self._schedule.withdraw_all()
        self._requested = 0
        return self._abort_all(AbortReason.STOPPING, now)

    def _start(
        self,
        start: Start,
        plan: CheckpointPlan,
        now: float,
        wall: float,
    ) -> Trigger:
        if not start.periodic:
            self._requested -= 1
        number = self._next_id
        self._next_id = CheckpointId(number + 1)
        request = start.request
        is_incremental = self._settings.incremental and request.savepoint is None
        base = self.retained.latest if is_incremental else None
        barrier = Barrier(
            number,
            wall,
            request,
            self._mode_of(request),
            None if base is None else base.checkpoint_id,
            is_unaligned=self._is_unaligned and request.kind is BarrierKind.CHECKPOINT,
        )
        deadline = now + self._settings.timeout.total_seconds()
        self._pending[number] = PendingCheckpoint(barrier, plan, deadline=deadline)
        if request.awaits_next:
            self.request(SnapshotRequest())
        return Trigger(barrier, self._triggered_by(plan), len(plan.awaited))

    def _triggered_by(self, plan: CheckpointPlan) -> frozenset[PipelineId]:
        sources = {subtask.vertex for subtask in plan.triggered}
        return frozenset(v.pipeline for v in self._vertices if v.vertex in sources)

    def _mode_of(self, request: SnapshotRequest) -> CheckpointingMode:
        """Savepoints align in every mode: they are kept, and carried elsewhere."""
        is_checkpoint = request.kind is BarrierKind.CHECKPOINT
        return self._settings.mode if is_checkpoint else CheckpointingMode.EXACTLY_ONCE

    def _abort_all(self, reason: AbortReason, now: float) -> list[Instruction]:
        instructions: list[Instruction] = []
        for pending in self.pending:
            wrote = pending.abort(reason)
            if wrote is not None:
                instructions += self._aborted_by(pending, wrote, now, reason.text)
        return instructions

    def _aborted_by(
        self,
        pending: PendingCheckpoint,
        wrote: tuple[SubtaskSnapshot, ...],
        now: float,
        reason: str,
        error: TidegateError | None = None,
    ) -> list[Instruction]:
        number = pending.checkpoint_id
        del self._pending[number]
        self._aborted[number] = pending.barrier.savepoint
        if len(self._aborted) > _REMEMBERED_ABORTS:
            del self._aborted[min(self._aborted)]
        self._schedule.ended(now)
        goes_back = pending.barrier.drains and pending.is_sent
        if goes_back:
            place = "its start" if self.retained.latest is None else "its last checkpoint"
            reason = f"{reason}; the job resumes from {place}, because some inputs have ended"
        instructions: list[Instruction] = [
            NotifyAborted(number, reason),
            Abandon(number, wrote, is_whole=True, savepoint=pending.barrier.savepoint),
        ]
        if goes_back:
            instructions.append(GoBack(self._triggered_by(pending.plan)))
        assert pending.abort_reason is not None
        # Whoever asked for it gets the error; it is no failure of the job.
        counts = pending.abort_reason.counts and pending.barrier.kind is BarrierKind.CHECKPOINT
        if counts and self._tolerance.failed(number):
            failed = CheckpointFailed(number, reason, self._settings.tolerable_failures)
            failed.__cause__ = error
            instructions.append(FailJob(failed))
        return instructions
