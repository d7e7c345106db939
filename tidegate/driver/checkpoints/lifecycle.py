"""The checkpoints of one job in the driver: the coordinator with its clock, store and history.

All methods are called by the job master's thread. Slow work runs on the store thread, one task at a
time, and is reported as events.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.checkpoint.layout import TASK_OWNED
from tidegate.checkpoint.statistics import CheckpointHistory, RestoreRecord
from tidegate.connectors.guarantee import DeliveryGuarantee
from tidegate.connectors.source import EnumeratorContext
from tidegate.core.checkpoint_settings import CheckpointSettings
from tidegate.core.clock import Clock
from tidegate.core.config import Settings
from tidegate.core.errors import DirectoryTaken, RepeatsCommitted, TidegateError
from tidegate.core.fault_points import FaultPoint, Victim, passing
from tidegate.core.ids import CheckpointId, PipelineId
from tidegate.core.modes import (
    ExternalizedCheckpointRetention,
    RestoreMode,
    RuntimeExecutionMode,
)
from tidegate.core.workers import Workers
from tidegate.driver.checkpoints.home import CheckpointHome, open_home, take_over
from tidegate.driver.checkpoints.snapshot_orders import SnapshotOrder, SnapshotOrders
from tidegate.driver.checkpoints.store_thread import (
    CheckpointBegun,
    CheckpointEvent,
    PublicationSettled,
    StoreThread,
)
from tidegate.graph.guarantees import end_to_end
from tidegate.graph.job_graph import JobGraph
from tidegate.protocol.assembly import CheckpointedJob
from tidegate.protocol.checkpoints.coordinator import CheckpointCoordinator
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
from tidegate.protocol.checkpoints.restore_orders import with_restored_max_parallelism
from tidegate.protocol.checkpoints.retained import RetainedCheckpoints
from tidegate.protocol.job_status import JobStatus
from tidegate.protocol.messages import (
    CheckpointAcknowledged,
    CheckpointDeclined,
    SnapshotSettings,
)
from tidegate.protocol.region import Region
from tidegate.protocol.restore import check_all_claimed
from tidegate.storage.locations import below
from tidegate.stream.elements import BarrierKind

_log = logging.getLogger("tidegate.checkpoint")


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Cancel the job: the savepoint that precedes the cancellation is complete."""


Effect = (
    CancelJob
    | TriggerCheckpoint
    | NotifyComplete
    | NotifyAborted
    | GoBack
    | Finish
    | FailJob
    | StopJob
)
"""What the job master carries out; everything else is done here."""


class JobCheckpoints:
    """Takes, keeps and restores the checkpoints of one job."""

    def __init__(
        self,
        home: CheckpointHome,
        graph: JobGraph,
        settings: CheckpointSettings,
        clock: Clock,
        transfer_threads: int = 1,
    ) -> None:
        self._transfer_threads = transfer_threads
        self.history = CheckpointHistory()
        self.home = home
        """The location of the checkpoints, for the master that takes over the job."""
        self.job_id = home.job_id
        self.retained = RetainedCheckpoints(
            settings.num_retained,
            home.retained,
            home.origins,
            claims=settings.restore_mode is RestoreMode.CLAIM,
        )
        point = self.retained.restore_point
        self.graph = (
            graph if point is None else with_restored_max_parallelism(graph, point.metadata)
        )
        """The job as it runs: with the number of key groups of its restored state."""
        self._settings = settings
        self._clock = clock
        self.coordinator = CheckpointCoordinator(
            self._settings,
            CheckpointedJob(home.job_id, self.graph, home.directory),
            now=clock.monotonic(),
            retained=self.retained,
            next_id=home.next_id,
        )
        self._orders = SnapshotOrders()
        self.successor: JobGraph | None = None
        """The plan under which the next master resumes, once the checkpoint for it is complete."""
        self._regions: Mapping[PipelineId, Region] = {}
        self._store = StoreThread(home.store, settings.timeout.total_seconds())
        self._is_hurried = False
        self._keeps = False
        guarantees = end_to_end(graph, settings)
        self._commits = settings.is_enabled and any(each.commits for each in guarantees)
        self._committing = tuple(
            each.sink
            for each in guarantees
            if each.commits and each.guarantee is DeliveryGuarantee.EXACTLY_ONCE
        )
        """Sinks that would repeat results if the job returned to a point before their commit."""
        for damaged in home.damaged:
            refusal = self._go_back_past(damaged.checkpoint_id, damaged.path, damaged.error)
            if refusal is not None:
                raise refusal
        if point is not None and not self._settings.restore_partially:
            known = {chained.operator_id for v in graph.vertices for chained in v.chain}
            check_all_claimed(point.metadata, known, point.path)

    @classmethod
    def open(
        cls,
        graph: JobGraph,
        settings: Settings,
        clock: Clock,
        predecessor: CheckpointHome | None = None,
    ) -> JobCheckpoints:
        """Find or create the job's checkpoint directory: its predecessor's, if it takes over.

        Raises:
            StorageError: the directory cannot be used.
            CorruptCheckpoint, UnsupportedFormat, StateNotClaimed: the job cannot resume from its
                checkpoint.
        """
        checkpointing = settings.checkpointing
        if settings.pipeline.runtime_mode is RuntimeExecutionMode.BATCH:
            # A batch job has one result, at its end: after a failure it starts fresh.
            checkpointing = replace(checkpointing, interval=None)
        if predecessor is None:
            home = open_home(graph.name, checkpointing)
        else:
            home = take_over(predecessor, graph.name)
        threads = settings.state.rocksdb_transfer_threads
        try:
            return cls(home, graph, checkpointing, clock, threads)
        except TidegateError:
            home.store.remove_if_empty()
            raise

    @property
    def snapshot_settings(self) -> SnapshotSettings:
        """Where and how subtasks write their state."""
        return SnapshotSettings(
            directory=self.home.directory,
            ownership=self.home.store.ownership,
            inline_threshold=self._settings.inline_threshold.get_bytes(),
            limit=self._settings.max_state_in_memory.get_bytes(),
            transfer_threads=self._transfer_threads,
            is_regular=self._settings.is_enabled,
        )

    @property
    def for_enumerators(self) -> EnumeratorContext:
        """What the job guarantees to the enumerators of its sources."""
        directory = self.home.directory
        return EnumeratorContext(
            job_id=self.job_id,
            is_checkpointed=self._settings.is_enabled,
            retained_checkpoints=self._settings.num_retained,
            directory=None if directory is None else below(directory, TASK_OWNED),
        )

    def start(
        self,
        post: Callable[[CheckpointEvent], None],
        regions: Mapping[PipelineId, Region],
        workers: Workers,
    ) -> None:
        """Begin to take checkpoints of these pipelines; events are posted."""
        self._regions = regions
        self._store.start(post, workers)
        for surplus in self.retained.trim():
            # Its driver died after it had published the next one.
            self._store.carry_out(Discard(surplus.checkpoint_id))

    # --- from trigger to completion -------------------------------------------------------------

    def look(self) -> tuple[list[Effect], float | None]:
        """Start, abort or finish what is due; also returns when to call again."""
        instructions, again = self.coordinator.look(
            self._clock.monotonic(), self._clock.time(), self._regions
        )
        return self._carry_out(instructions), again

    def order(self, order: SnapshotOrder) -> None:
        """Take a checkpoint or savepoint soon; the order is answered when it is complete."""
        request = order.request
        if self._commits and request.kind is BarrierKind.SAVEPOINT and not order.cancels:
            request = replace(request, awaits_next=True)
        if self.coordinator.request(request):
            self._orders.add(order)
        else:
            order.refuse("too many requests are waiting")

    def _refuse_orders(self, reason: str) -> None:
        """Refuse the orders that have not begun."""
        for request in self.coordinator.withdraw_requests():
            self._orders.refuse(request.name, reason)

    def acknowledged(self, message: CheckpointAcknowledged) -> list[Effect]:
        passing(FaultPoint.SNAPSHOT, Victim.DRIVER)
        wall = self._clock.time()
        self.history.acknowledged(
            message.checkpoint_id,
            message.subtask,
            replace(message.statistics, acknowledged_at=wall),
        )
        return self._carry_out(self.coordinator.acknowledged(message, wall))

    def declined(self, message: CheckpointDeclined) -> list[Effect]:
        return self._carry_out(self.coordinator.declined(message, self._clock.monotonic()))

    def handle(self, event: CheckpointEvent) -> list[Effect]:
        """Handle the outcome of slow work."""
        match event:
            case CheckpointBegun(trigger, None):
                passing(FaultPoint.BARRIER, Victim.DRIVER)
                is_wanted = self.coordinator.begun(trigger.barrier.checkpoint_id)
                return [trigger] if is_wanted else []
            case CheckpointBegun(trigger, error):
                assert error is not None
                number, now = trigger.barrier.checkpoint_id, self._clock.monotonic()
                instructions = self.coordinator.not_begun(number, error, now)
                return self._not_stored(error, instructions)
            case PublicationSettled():
                return self._publication_settled(event)

    def _publication_settled(self, event: PublicationSettled) -> list[Effect]:
        now = self._clock.monotonic()
        number = event.checkpoint.checkpoint_id
        if event.error is not None:
            instructions = self.coordinator.not_published(number, event.error, now)
            return self._not_stored(event.error, instructions)
        passing(FaultPoint.PRE_COMMITTED, Victim.DRIVER)
        order = self._orders.taken(number)
        if order is not None and order.successor is not None:
            self.successor = order.successor
        path = event.checkpoint.path
        record = self.history.completed(number, self._clock.time(), path)
        if record is not None and record.duration is not None:
            _log.info(
                "Completed checkpoint %d for job %s (%d bytes, checkpointDuration=%d ms, "
                "finalizationTime=%d ms).",
                number,
                self.job_id,
                record.size,
                1000 * record.duration,
                1000 * event.seconds,
            )
        effects = self._carry_out(self.coordinator.published(event.checkpoint, now, self._regions))
        if order is not None:
            order.answer.set_result(path)
            effects += [CancelJob()] if order.cancels else []
        return effects

    def _not_stored(
        self, error: TidegateError, instructions: Iterable[Instruction]
    ) -> list[Effect]:
        effects = self._carry_out(instructions)
        return [StopJob(error)] if isinstance(error, DirectoryTaken) else effects

    def region_failed(self) -> list[Effect]:
        """Abort all pending checkpoints: a region lost its state."""
        self._refuse_orders("part of the job restarted first; ask again when it runs")
        return self._carry_out(self.coordinator.region_failed(self._clock.monotonic()))

    # --- recovery -------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Whether the latest checkpoint is known, or waiting for it is pointless."""
        return self._is_hurried or not self.coordinator.is_publishing

    def restored(self, point: Checkpoint) -> None:
        """Record that a region is being deployed from this checkpoint."""
        passing(FaultPoint.RESTORE, Victim.DRIVER)
        metadata = point.metadata
        _log.info(
            "Restoring job %s from Checkpoint %d @ %d for %s located at %s.",
            self.job_id,
            metadata.checkpoint_id,
            1000 * metadata.triggered_at,
            metadata.job_id,
            point.path,
        )
        self.history.restored(
            RestoreRecord(
                checkpoint_id=metadata.checkpoint_id,
                kind=metadata.kind,
                restored_at=self._clock.time(),
                path=point.path,
            )
        )

    def give_up(self, checkpoint_id: CheckpointId, error: TidegateError) -> TidegateError | None:
        """Drop an unreadable checkpoint; returns why the job must not use an earlier one, if so."""
        tried = self.retained.restore_point
        if tried is None or tried.checkpoint_id != checkpoint_id:
            # Another region has already reported it.
            return error if tried is None else None
        self.retained.drop(checkpoint_id)
        return self._go_back_past(checkpoint_id, tried.path, error)

    def _go_back_past(
        self, checkpoint_id: CheckpointId, path: str, error: TidegateError
    ) -> TidegateError | None:
        """Record an unreadable checkpoint; returns why the job must not use an earlier one."""
        older = self.retained.restore_point
        if older is None:
            return error
        if self._committing and not self._settings.skip_damaged:
            return RepeatsCommitted(path, str(error), older.path, self._committing)
        number = older.checkpoint_id
        _log.error(
            "checkpoint %d cannot be restored, resuming from %d: %s", checkpoint_id, number, error
        )
        if self._committing:
            sinks = ", ".join(map(repr, self._committing))
            _log.warning(
                "results that %s committed since checkpoint %d are repeated", sinks, number
            )
        return None

    # --- the end --------------------------------------------------------------------------------

    def stop(self) -> None:
        """Take no more checkpoints: the job ends."""
        self._refuse_orders("the job ends")
        self._carry_out(self.coordinator.stop(self._clock.monotonic()))

    def hurry(self) -> None:
        """The job must end: a publication without a known outcome counts as failed."""
        self._is_hurried = True
        self._store.hurry()

    def close(self, status: JobStatus) -> None:
        """Keep or delete the checkpoints, as configured for a job that ends with this status."""
        reason = "the job has ended" if status.is_terminal else "the job restarts; ask again then"
        self._orders.refuse_all(reason)
        self._carry_out(self.coordinator.stop(self._clock.monotonic()))
        if self._settings.is_enabled and status.is_terminal and not self._is_kept(status):
            self._store.remove(each.checkpoint_id for each in self.retained.own)
        self._store.close()

    def keep(self, is_kept: bool) -> None:
        """Whether a cancelled job keeps its last checkpoint, whatever the settings say."""
        self._keeps = is_kept

    def _is_kept(self, status: JobStatus) -> bool:
        retention = self._settings.retention
        if status is JobStatus.CANCELED and self._keeps:
            return True
        if status is JobStatus.CANCELED:
            return retention is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
        if status is JobStatus.FAILED:
            if self.home.retained and self.history.latest_completed is None:
                return True  # all of them are of an earlier run, from which the next may resume
            return retention is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        return False

    # --- instructions ---------------------------------------------------------------------------

    def _carry_out(self, instructions: Iterable[Instruction]) -> list[Effect]:
        effects: list[Effect] = []
        for instruction in instructions:
            match instruction:
                case TriggerCheckpoint(barrier, _, awaited):
                    self._orders.begun(barrier.request.name, barrier.checkpoint_id)
                    _log.info(
                        "Triggering checkpoint %d (type=%s) @ %d for job %s.",
                        barrier.checkpoint_id,
                        barrier.kind.name,
                        1000 * barrier.triggered_at,
                        self.job_id,
                    )
                    self.history.triggered(barrier, awaited)
                    self._store.carry_out(instruction)
                case Publish():
                    passing(FaultPoint.ACKNOWLEDGED, Victim.DRIVER)
                    self._store.carry_out(instruction)
                case Discard(number):
                    self.history.discarded(number)
                    self._store.carry_out(instruction)
                case Dispose() | Abandon():
                    self._store.carry_out(instruction)
                case NotifyAborted(number, reason):
                    _log.info(
                        "Checkpoint %d of job %s was aborted: %s", number, self.job_id, reason
                    )
                    self.history.failed(number, self._clock.time(), reason)
                    self._orders.not_taken(number, reason)
                    effects.append(instruction)
                case StopJob():
                    self.hurry()
                    effects.append(instruction)
                case NotifyComplete() | GoBack() | Finish() | FailJob():
                    effects.append(instruction)
        return effects
