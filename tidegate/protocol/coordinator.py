"""The coordinator of a job's checkpoints: facts in, instructions out; no threads, no I/O.

    look ──▶ Trigger ── acknowledged by all ──▶ Publish ── published ──▶ NotifyComplete, Discard …
                │                                  └── not published ──┐
                └── declined · expired · region failed ──▶ NotifyAborted, Abandon (, FailJob)

Times named `now` are readings of one monotonic clock, those named `wall` are seconds since the
epoch, for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidegate.core.checkpoint_settings import CheckpointSettings
from tidegate.core.errors import CheckpointFailed, TidegateError
from tidegate.core.ids import Attempt, CheckpointId, PipelineId, SubtaskId, VertexId
from tidegate.core.modes import CheckpointingMode
from tidegate.protocol.completed import (
    Acknowledgement,
    CompletedCheckpoint,
    RetainedCheckpoints,
)
from tidegate.protocol.pending import AbortReason, AckResult, PendingCheckpoint, PendingState
from tidegate.protocol.plan import (
    CheckpointPlan,
    NotNow,
    PipelineFacts,
    VertexFacts,
    plan_checkpoint,
)
from tidegate.protocol.policy import (
    CheckpointRequest,
    CheckpointSchedule,
    FailureTolerance,
    Start,
    Wait,
)
from tidegate.stream.elements import Barrier, BarrierKind, SavepointTarget

H = TypeVar("H")
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
    request: str = ""
    """Who asked for it; empty: nobody, it was due."""


@dataclass(frozen=True, slots=True)
class Publish(Generic[H]):
    """Everything is written: make the checkpoint durable, then report what came of it."""

    completed: CompletedCheckpoint[H]


@dataclass(frozen=True, slots=True)
class NotifyComplete(Generic[H]):
    """Tell everybody that the checkpoint is durable."""

    completed: CompletedCheckpoint[H]


@dataclass(frozen=True, slots=True)
class NotifyAborted:
    """Tell everybody that the checkpoint will never complete."""

    checkpoint_id: CheckpointId
    reason: str


@dataclass(frozen=True, slots=True)
class Discard:
    """A completed checkpoint is no longer needed."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class Abandon(Generic[H]):
    """What these snapshots name will never be used: delete it."""

    checkpoint_id: CheckpointId
    snapshots: tuple[H, ...]
    is_whole: bool
    """The checkpoint is aborted: all that is its own goes, also what nobody acknowledged."""
    savepoint: SavepointTarget | None = None
    """Where it was written, if not where checkpoints are."""


@dataclass(frozen=True, slots=True)
class FailJob:
    """More checkpoints failed in a row than are tolerated."""

    cause: TidegateError


Instruction = (
    Trigger | Publish[H] | NotifyComplete[H] | NotifyAborted | Discard | Abandon[H] | FailJob
)


class CheckpointCoordinator(Generic[H]):
    """Decides what happens to every checkpoint of one job."""

    def __init__(
        self,
        settings: CheckpointSettings,
        vertices: Iterable[VertexFacts],
        *,
        now: float,
        retained: Iterable[CompletedCheckpoint[H]] = (),
        next_id: CheckpointId = _FIRST_ID,
    ) -> None:
        self._settings = settings
        self._vertices = tuple(vertices)
        self._schedule = CheckpointSchedule(settings, now=now)
        self._tolerance = FailureTolerance(settings.tolerable_failures)
        self._retained: RetainedCheckpoints[H] = RetainedCheckpoints(settings.num_retained)
        for completed in retained:
            self._retained.add(completed)
        self._next_id = next_id
        self._pending: dict[CheckpointId, PendingCheckpoint[H]] = {}
        self._aborted: dict[CheckpointId, SavepointTarget | None] = {}
        self._requested = 0
        self._is_unaligned = settings.unaligned and settings.mode is CheckpointingMode.EXACTLY_ONCE

    @property
    def latest(self) -> CompletedCheckpoint[H] | None:
        """Where a recovery begins."""
        return self._retained.latest

    @property
    def kept(self) -> tuple[CompletedCheckpoint[H], ...]:
        """The completed checkpoints that the job keeps, oldest first."""
        return self._retained.kept

    @property
    def is_idle(self) -> bool:
        """Whether no checkpoint is under way or asked for."""
        return not self._pending and not self._requested

    @property
    def is_publishing(self) -> bool:
        """Whether it is open if some checkpoint is durable: until then none can be restored."""
        return any(each.state is PendingState.PUBLISHING for each in self._pending.values())

    @property
    def pending(self) -> tuple[PendingCheckpoint[H], ...]:
        return tuple(self._pending.values())

    @property
    def _is_stopping(self) -> bool:
        """Whether the job waits for the savepoint that it ends with: nothing is behind it."""
        return any(each.kind is BarrierKind.STOP for each in self._pending.values())

    def request(self, request: CheckpointRequest) -> bool:
        """Somebody wants a checkpoint now; False if too many wait already."""
        accepted = self._schedule.submit(request)
        self._requested += accepted
        return accepted

    def look(
        self, now: float, wall: float, pipelines: Mapping[PipelineId, PipelineFacts]
    ) -> tuple[list[Instruction[H]], float | None]:
        """Start what is due, give up what is late; and when to look again, if nothing happens."""
        instructions: list[Instruction[H]] = []
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
            decision = self._schedule.decide(now, under_way=len(self._pending))
            if isinstance(decision, Wait):
                wait = decision.until
                break
            instructions.append(self._start(decision, plan, now, wall))
        due = [pending.deadline for pending in self._pending.values()]
        if wait is not None:
            due.append(wait)
        return instructions, min(due, default=None)

    def not_begun(
        self, checkpoint_id: CheckpointId, error: TidegateError, now: float
    ) -> list[Instruction[H]]:
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

    def acknowledged(self, ack: Acknowledgement[H], wall: float) -> list[Instruction[H]]:
        """A subtask has written its part."""
        pending = self._pending.get(ack.checkpoint_id)
        if pending is None:
            known = ack.checkpoint_id in self._aborted
            if not known:
                return []
            target = self._aborted[ack.checkpoint_id]
            return [Abandon(ack.checkpoint_id, (ack.snapshot,), is_whole=True, savepoint=target)]
        if pending.acknowledge(ack) is AckResult.UNKNOWN_SUBTASK:
            target = pending.savepoint
            return [Abandon(ack.checkpoint_id, (ack.snapshot,), is_whole=False, savepoint=target)]
        if pending.is_ready:
            return [Publish(pending.begin_publication(wall))]
        return []

    def declined(
        self,
        checkpoint_id: CheckpointId,
        subtask: SubtaskId,
        attempt: Attempt,
        error: TidegateError,
        now: float,
        *,
        skipped: bool = False,
        who: str = "",
    ) -> list[Instruction[H]]:
        """A subtask, `who` in words, cannot take part; `skipped`: a newer barrier overtook it."""
        pending = self._pending.get(checkpoint_id)
        if pending is None or pending.plan.awaited.get(subtask) != attempt:
            return []
        wrote = pending.abort(AbortReason.SKIPPED if skipped else AbortReason.DECLINED)
        if wrote is None:
            return []
        return self._aborted_by(
            pending, wrote, now, f"{who}: {error}" if who else str(error), error
        )

    def published(self, completed: CompletedCheckpoint[H], now: float) -> list[Instruction[H]]:
        """The checkpoint is durable."""
        number = completed.checkpoint_id
        self._pending.pop(number).published()
        self._schedule.ended(now)
        self._tolerance.succeeded(number)
        instructions: list[Instruction[H]] = [NotifyComplete(completed)]
        for pending in self.pending:
            if pending.checkpoint_id < number and completed.is_recovery_point:
                wrote = pending.abort(AbortReason.SUBSUMED)
                if wrote is not None:
                    reason = f"checkpoint {number} completed before it"
                    instructions += self._aborted_by(pending, wrote, now, reason)
        surplus = self._retained.add(completed)
        return [*instructions, *(Discard(each.checkpoint_id) for each in surplus)]

    def not_published(
        self, checkpoint_id: CheckpointId, error: TidegateError, now: float
    ) -> list[Instruction[H]]:
        """It is certain that the checkpoint is not durable."""
        pending = self._pending[checkpoint_id]
        return self._aborted_by(pending, pending.not_published(), now, str(error), error)

    def withdraw_requests(self) -> tuple[CheckpointRequest, ...]:
        """Those who still wait for their checkpoint to begin, and now wait no longer."""
        self._requested = 0
        return self._schedule.withdraw_all()

    def region_failed(self, now: float) -> list[Instruction[H]]:
        """Some region lost its state: what is not yet being published can never complete."""
        return self._abort_all(AbortReason.REGION_FAILED, now)

    def stop(self, now: float) -> list[Instruction[H]]:
        """The job ends: take no checkpoint any more."""
        self._schedule.pause_periodic()
        self._schedule.withdraw_all()
        self._requested = 0
        return self._abort_all(AbortReason.STOPPING, now)

    def drop(self, checkpoint_id: CheckpointId) -> None:
        """A completed checkpoint turned out to be unreadable: never go back to it."""
        self._retained.drop(checkpoint_id)

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
        self._pending[number] = PendingCheckpoint(
            number,
            plan,
            kind=start.request.kind,
            savepoint=start.request.savepoint,
            triggered_at=wall,
            deadline=now + self._settings.timeout.total_seconds(),
        )
        is_incremental = self._settings.incremental and start.request.savepoint is None
        base = self.latest if is_incremental else None
        barrier = Barrier(
            number,
            wall,
            start.request.kind,
            self._mode_of(start.request),
            None if base is None else base.checkpoint_id,
            is_unaligned=self._is_unaligned and start.request.kind is BarrierKind.CHECKPOINT,
            savepoint=start.request.savepoint,
            drains=start.request.drains,
        )
        sources = {subtask.vertex for subtask in plan.triggered}
        triggered = {v.pipeline for v in self._vertices if v.vertex in sources}
        return Trigger(barrier, frozenset(triggered), len(plan.awaited), start.request.name)

    def _mode_of(self, request: CheckpointRequest) -> CheckpointingMode:
        """Savepoints align in every mode: they are kept, and carried elsewhere."""
        is_checkpoint = request.kind is BarrierKind.CHECKPOINT
        return self._settings.mode if is_checkpoint else CheckpointingMode.EXACTLY_ONCE

    def _abort_all(self, reason: AbortReason, now: float) -> list[Instruction[H]]:
        instructions: list[Instruction[H]] = []
        for pending in self.pending:
            wrote = pending.abort(reason)
            if wrote is not None:
                instructions += self._aborted_by(pending, wrote, now, reason.text)
        return instructions

    def _aborted_by(
        self,
        pending: PendingCheckpoint[H],
        wrote: tuple[H, ...],
        now: float,
        reason: str,
        error: TidegateError | None = None,
    ) -> list[Instruction[H]]:
        number = pending.checkpoint_id
        del self._pending[number]
        self._aborted[number] = pending.savepoint
        if len(self._aborted) > _REMEMBERED_ABORTS:
            del self._aborted[min(self._aborted)]
        self._schedule.ended(now)
        instructions: list[Instruction[H]] = [
            NotifyAborted(number, reason),
            Abandon(number, wrote, is_whole=True, savepoint=pending.savepoint),
        ]
        assert pending.abort_reason is not None
        # A savepoint that fails is told to who asked for it, and is no failure of the job.
        counts = pending.abort_reason.counts and pending.savepoint is None
        if counts and self._tolerance.failed(number):
            failed = CheckpointFailed(number, reason, self._settings.tolerable_failures)
            failed.__cause__ = error
            instructions.append(FailJob(failed))
        return instructions
