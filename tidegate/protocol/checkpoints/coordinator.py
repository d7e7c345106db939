"""The coordinator of a job's checkpoints: facts in, instructions out; no threads, no I/O.

    look ──▶ TriggerCheckpoint ── acknowledged ──▶ Publish ── published ─▶ NotifyComplete, Discard …
      │         │                                  └── not published ──┐
      │         └── declined · expired · region failed ─▶ NotifyAborted, Abandon (, GoBack, FailJob)
      └──▶ Finish, once a pipeline has ended and all its slots know of a checkpoint that records it

Times named `now` are readings of one monotonic clock; times named `wall` are seconds since the
epoch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.core.checkpoint_settings import CheckpointSettings
from tidegate.core.errors import CheckpointFailed, ExternalError, StorageError, TidegateError
from tidegate.core.ids import Attempt, CheckpointId, PipelineId, SlotIndex, VertexId
from tidegate.core.modes import CheckpointingMode
from tidegate.protocol.assembly import CheckpointedJob
from tidegate.protocol.checkpoints.instructions import (
    Abandon,
    Discard,
    Dispose,
    FailJob,
    Finish,
    GoBack,
    Instruction,
    NotifyAborted,
    NotifyComplete,
    Publish,
    StopJob,
    TriggerCheckpoint,
)
from tidegate.protocol.checkpoints.pending import (
    AbortReason,
    AckResult,
    PendingCheckpoint,
    PendingState,
)
from tidegate.protocol.checkpoints.policy import CheckpointSchedule, FailureTolerance, Wait
from tidegate.protocol.checkpoints.retained import RetainedCheckpoints
from tidegate.protocol.messages import CheckpointAcknowledged, CheckpointDeclined
from tidegate.protocol.plan import CheckpointPlan, plan_checkpoint
from tidegate.protocol.region import Region, RegionState
from tidegate.state.pointers import SubtaskSnapshot
from tidegate.storage.locations import shown
from tidegate.stream.elements import Barrier, BarrierKind, SavepointTarget, SnapshotRequest

_FIRST_ID = CheckpointId(1)
_REMEMBERED_ABORTS = 1000
"""Aborted checkpoints whose late acknowledgements are still recognised."""
_FINAL_RETRY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class _End:
    """The end of an attempt of a pipeline, and the slots that may not know its checkpoint yet."""

    attempt: Attempt
    saved_by: CheckpointId
    unaware: set[SlotIndex]
    deadline: float


class CheckpointCoordinator:
    """Decides on every checkpoint of one job, and on the end of its pipelines."""

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
        self._timeout = settings.timeout.total_seconds()
        self._job = job
        self._schedule = CheckpointSchedule(settings, now=now)
        self._tolerance = FailureTolerance(settings.tolerable_failures)
        self.retained = retained or RetainedCheckpoints(settings.num_retained)
        self._next_id = next_id
        self._pending: dict[CheckpointId, PendingCheckpoint] = {}
        self._aborted: dict[CheckpointId, SavepointTarget | None] = {}
        self._ends: dict[PipelineId, _End] = {}
        self._final_not_before = 0.0
        self._saves_ends = settings.is_enabled and settings.after_tasks_finish
        """Whether checkpoints continue after subtasks have ended, with a final one at the end."""
        self._is_unaligned = settings.unaligned and settings.mode is CheckpointingMode.EXACTLY_ONCE

    @property
    def is_idle(self) -> bool:
        """Whether no checkpoint is pending or requested."""
        return not self._under_way and not self._schedule.queue

    @property
    def _under_way(self) -> int:
        """How many are pending; a savepoint that waits for the next checkpoint does not count."""
        return sum(not pending.awaits_next for pending in self._pending.values())

    @property
    def is_publishing(self) -> bool:
        """Whether the outcome of a publication is still unknown; until then nothing is restored."""
        return any(each.state is PendingState.PUBLISHING for each in self._pending.values())

    def request(self, request: SnapshotRequest) -> bool:
        """Request a checkpoint now; False if too many requests wait."""
        return self._schedule.submit(request)

    def look(
        self, now: float, wall: float, regions: Mapping[PipelineId, Region]
    ) -> tuple[list[Instruction], float | None]:
        """Trigger what is due, abort what is late, finish what has ended.

        Returns:
            What to do, and when to call again if nothing else happens.
        """
        for pending in self._pending.values():
            if now >= pending.deadline:
                return self._late(pending, now), now
        if ended := self._ended(now, regions):
            return ended, now
        instructions: list[Instruction] = []
        due = [pending.deadline for pending in self._pending.values()]
        while self._can_start(regions):
            request = self._schedule.decide(now, under_way=self._under_way)
            if isinstance(request, Wait):
                due += [] if request.until is None else [request.until]
                break
            plan = plan_checkpoint(self._job.graph.vertices, regions)
            instructions.append(self._start(request, plan, now, wall))
            due.append(now + self._timeout)
        return instructions, min(due, default=None)

    def _late(self, pending: PendingCheckpoint, now: float) -> list[Instruction]:
        wrote = pending.abort(AbortReason.EXPIRED)
        if wrote is not None:
            reason = f"it took longer than its timeout of {self._timeout:g} s"
            return self._aborted_by(pending, wrote, now, reason)
        # While the outcome is unknown, no other checkpoint can start and no region can be restored.
        target = pending.barrier.savepoint
        directory = self._job.directory if target is None else target.directory
        hung = StorageError(
            shown(directory or "the memory of the driver"),
            f"it has not confirmed for {self._timeout:g} s that checkpoint "
            f"{pending.checkpoint_id} is written",
            "start the job again when the storage responds",
        )
        return [StopJob(hung)]

    def _ended(self, now: float, regions: Mapping[PipelineId, Region]) -> list[Instruction]:
        """Finish the pipelines that are done; request the final checkpoint for the others."""
        finished: list[Instruction] = []
        for pipeline, region in regions.items():
            if region.state is not RegionState.RUNNING:
                continue
            stop = self.retained.stop_point
            if stop is not None:
                # Restored from it, the pipeline has committed what the savepoint held when it
                # opened.
                self._note_end(region, stop.checkpoint_id, frozenset(), math.inf)
            if self._is_ending(region):
                end = self._ends[pipeline]
                if end.unaware and now >= end.deadline:
                    return [FailJob(_hung(end, self._timeout))]
                is_done = not end.unaware
            elif region.all_ended and self._saves_ends:
                self._request_final(now)
                continue
            else:
                is_done = region.all_ended and not self._is_stopping()
            if is_done and region.step_in_flight is None and not self._is_awaited(pipeline):
                finished.append(Finish(pipeline))
        return finished

    def _can_start(self, regions: Mapping[PipelineId, Region]) -> bool:
        """Whether every pipeline is running or finished, and at least one is running."""
        is_any_running = False
        for region in regions.values():
            if region.some_ended and not self._settings.after_tasks_finish:
                return False
            if region.state is RegionState.FINISHED:
                continue
            if region.state is not RegionState.RUNNING or self._is_ending(region):
                return False
            if region.all_ended and self._saves_ends and self._under_way:
                return False  # the pending checkpoint may record its end
            is_any_running = True
        return is_any_running and not self._is_stopping()

    def _is_stopping(self) -> bool:
        """Whether the savepoint that ends the job is pending: nothing may follow it."""
        return any(each.barrier.kind is BarrierKind.STOP for each in self._pending.values())

    def _is_ending(self, region: Region) -> bool:
        end = self._ends.get(region.pipeline)
        return end is not None and region.is_current(end.attempt)

    def _note_end(
        self, region: Region, saved_by: CheckpointId, unaware: frozenset[SlotIndex], deadline: float
    ) -> None:
        """Record the end of a pipeline, unless an earlier checkpoint has recorded it."""
        if not self._is_ending(region):
            self._ends[region.pipeline] = _End(region.attempt, saved_by, set(unaware), deadline)

    def _is_awaited(self, pipeline: PipelineId) -> bool:
        """Whether a checkpoint waits for a subtask of this pipeline."""
        vertices = self._job.graph.vertices
        return any(
            vertices[subtask.vertex].pipeline == pipeline
            for pending in self._pending.values()
            for subtask in pending.missing
        )

    def _request_final(self, now: float) -> None:
        """Request the checkpoint that records the end of a pipeline."""
        if self.is_idle and now >= self._final_not_before:
            self._final_not_before = now + _FINAL_RETRY_SECONDS
            self.request(SnapshotRequest())

    def heard(
        self, pipeline: PipelineId, attempt: Attempt, checkpoint_id: CheckpointId, slot: SlotIndex
    ) -> None:
        """Note that a slot knows of a complete checkpoint, and so of all before it."""
        end = self._ends.get(pipeline)
        if end is not None and end.attempt == attempt and checkpoint_id >= end.saved_by:
            end.unaware.discard(slot)

    def begun(self, checkpoint_id: CheckpointId) -> bool:
        """The store is ready for a checkpoint. False if it was aborted: send no barrier."""
        pending = self._pending.get(checkpoint_id)
        if pending is None:
            return False
        pending.is_sent = True
        return True

    def not_begun(
        self, checkpoint_id: CheckpointId, error: TidegateError, now: float
    ) -> list[Instruction]:
        """The store cannot begin a checkpoint."""
        pending = self._pending.get(checkpoint_id)
        wrote = None if pending is None else pending.abort(AbortReason.STORAGE)
        if pending is None or wrote is None:
            return []
        return self._aborted_by(pending, wrote, now, str(error), error)

    def enumerated(self, checkpoint_id: CheckpointId, states: Mapping[VertexId, bytes]) -> None:
        """Add the enumerators' states, taken when their sources got the barrier."""
        pending = self._pending.get(checkpoint_id)
        if pending is not None:
            pending.enumerated(states)

    def acknowledged(self, ack: CheckpointAcknowledged, wall: float) -> list[Instruction]:
        """Handle the acknowledgement of a subtask."""
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
        """Publish the checkpoint if nothing is missing."""
        if not pending.is_ready:
            return []
        pending.deadline += self._timeout
        return [Publish(pending.begin_publication(self._job, wall), pending.barrier)]

    def declined(self, message: CheckpointDeclined, now: float) -> list[Instruction]:
        """Abort a checkpoint because a subtask cannot take part."""
        pending = self._pending.get(message.checkpoint_id)
        if pending is None or pending.plan.awaited.get(message.subtask) != message.attempt:
            return []
        wrote = pending.abort(AbortReason.SKIPPED if message.is_skipped else AbortReason.DECLINED)
        if wrote is None:
            return []
        vertex = self._job.graph.vertices[message.subtask.vertex]
        who = f"{vertex.name} ({message.subtask.subtask + 1}/{vertex.parallelism})"
        return self._aborted_by(pending, wrote, now, f"{who}: {message.error}", message.error)

    def published(
        self, checkpoint: Checkpoint, now: float, regions: Mapping[PipelineId, Region]
    ) -> list[Instruction]:
        """Handle a checkpoint that became durable."""
        number = checkpoint.checkpoint_id
        published = self._pending.pop(number)
        published.published()
        self._schedule.ended(now)
        self._tolerance.succeeded(number)
        barrier = published.barrier
        # The job may return to a state before a savepoint, so sinks wait for a checkpoint to
        # commit.
        is_savepoint = barrier.kind is BarrierKind.SAVEPOINT
        instructions: list[Instruction] = [] if is_savepoint else [NotifyComplete(checkpoint)]
        for region in regions.values():
            if region.state is RegionState.RUNNING and self._has_saved(region, checkpoint, barrier):
                self._note_end(region, number, region.slots, now + self._timeout)
        for pending in list(self._pending.values()):
            if pending.checkpoint_id > number or is_savepoint:
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

    def _has_saved(self, region: Region, checkpoint: Checkpoint, barrier: Barrier) -> bool:
        """Whether the checkpoint records that the pipeline has ended."""
        if barrier.kind is not BarrierKind.CHECKPOINT:
            return barrier.kind is BarrierKind.STOP
        if checkpoint.checkpoint_id + 1 < self._next_id:
            return False  # it does not commit what its sinks have prepared for a later one
        operators = checkpoint.metadata.operators
        return region.all_ended and all(
            len(operators[vertex.chain[0].operator_id].finished) == vertex.parallelism
            for vertex in self._job.graph.vertices
            if vertex.pipeline == region.pipeline
        )

    def not_published(
        self, checkpoint_id: CheckpointId, error: TidegateError, now: float
    ) -> list[Instruction]:
        """Abort a checkpoint that is certain not to be durable."""
        pending = self._pending[checkpoint_id]
        return self._aborted_by(pending, pending.not_published(), now, str(error), error)

    def withdraw_requests(self) -> tuple[SnapshotRequest, ...]:
        """Drop all requests that have not started, and return them."""
        return self._schedule.withdraw_all()

    def region_failed(self, now: float) -> list[Instruction]:
        """A region lost its state: abort all checkpoints that are not being published."""
        self._final_not_before = 0.0
        return self._abort_all(AbortReason.REGION_FAILED, now)

    def stop(self, now: float) -> list[Instruction]:
        """Take no more checkpoints: the job ends."""
        self._schedule.pause_periodic()
        self._schedule.withdraw_all()
        return self._abort_all(AbortReason.STOPPING, now)

    def _start(
        self, request: SnapshotRequest, plan: CheckpointPlan, now: float, wall: float
    ) -> TriggerCheckpoint:
        number = self._next_id
        self._next_id = CheckpointId(number + 1)
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
        self._pending[number] = PendingCheckpoint(barrier, plan, deadline=now + self._timeout)
        if request.awaits_next:
            self.request(SnapshotRequest())
        return TriggerCheckpoint(barrier, plan.triggered, len(plan.awaited))

    def _mode_of(self, request: SnapshotRequest) -> CheckpointingMode:
        """Savepoints align in every mode, because they outlive the job."""
        is_checkpoint = request.kind is BarrierKind.CHECKPOINT
        return self._settings.mode if is_checkpoint else CheckpointingMode.EXACTLY_ONCE

    def _abort_all(self, reason: AbortReason, now: float) -> list[Instruction]:
        instructions: list[Instruction] = []
        for pending in list(self._pending.values()):
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
            start = "its start" if self.retained.latest is None else "its last checkpoint"
            reason = f"{reason}; the job resumes from {start}, because some inputs have ended"
        instructions: list[Instruction] = [
            NotifyAborted(number, reason),
            Abandon(number, wrote, is_whole=True, savepoint=pending.barrier.savepoint),
        ]
        if goes_back:
            instructions.append(GoBack(pending.plan.triggered))
        assert pending.abort_reason is not None
        # A failed savepoint is reported to its requester; it is no failure of the job.
        counts = pending.abort_reason.counts and pending.barrier.kind is BarrierKind.CHECKPOINT
        if counts and self._tolerance.failed(number):
            failed = CheckpointFailed(number, reason, self._settings.tolerable_failures)
            failed.__cause__ = error
            instructions.append(FailJob(failed))
        return instructions


def _hung(end: _End, seconds: float) -> ExternalError:
    names = ", ".join(f"slot {slot}" for slot in sorted(end.unaware))
    return ExternalError(
        f"{names}: functions and sinks have not completed within {seconds:g} s the work due after "
        f"checkpoint {end.saved_by}, such as commits"
    )
