"""Owns one job: all events go to one inbox and are handled by one thread."""

from __future__ import annotations

import logging
import queue
import random
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, assert_never

from tidegate.core.clock import Clock
from tidegate.core.config import Settings
from tidegate.core.errors import (
    CorruptCheckpoint,
    InternalError,
    JobCanceled,
    NotNow,
    TidegateError,
)
from tidegate.core.fault_points import FaultPoint, Victim, passing
from tidegate.core.ids import (
    Attempt,
    CheckpointId,
    EdgeId,
    JobId,
    PipelineId,
    SlotIndex,
)
from tidegate.core.workers import Threads, Workers
from tidegate.driver.checkpoints.lifecycle import CancelJob, Effect, JobCheckpoints
from tidegate.driver.checkpoints.snapshot_orders import SnapshotOrder
from tidegate.driver.checkpoints.store_thread import (
    CheckpointBegun,
    CheckpointEvent,
    PublicationSettled,
)
from tidegate.driver.chronicle import Chronicle
from tidegate.driver.closing import Closing
from tidegate.driver.cluster import Cluster, ClusterEvent, FromSlot, LineEnded, SlotJobEnded
from tidegate.driver.function_logs import log_again
from tidegate.driver.inspections import InspectionOrder, Inspections
from tidegate.driver.pipeline_driver import (
    EnumerationFailed,
    PipelineDriver,
    SourcesTriggered,
    StepBroke,
    StepEvent,
    StepThrough,
)
from tidegate.driver.poison_counts import PoisonCounts, warn_of_too_few_restarts
from tidegate.driver.progress import (
    Progress,
    VertexProgress,
    merged_accumulators,
    progress_of,
    traffic_of,
    vertex_progress,
)
from tidegate.driver.slots import LaunchTried, SlotProcess, Slots
from tidegate.driver.task_log import TaskLog
from tidegate.exchange.contract import Exchange
from tidegate.graph.exchanges import exchanges_of
from tidegate.protocol.checkpoints.instructions import (
    FailJob,
    Finish,
    GoBack,
    NotifyAborted,
    NotifyComplete,
    StopJob,
    TriggerCheckpoint,
)
from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.job_status import JobStatus, status_of
from tidegate.protocol.messages import (
    CheckpointAborted,
    CheckpointAcknowledged,
    CheckpointCompleted,
    CheckpointDeclined,
    CheckpointNotified,
    Collected,
    ConsoleLines,
    Deployed,
    DeployFailed,
    FunctionLog,
    Inspected,
    RecordsSkipped,
    Register,
    SlotHeartbeat,
    StateRead,
    Traffic,
    Undeployed,
    UserCounts,
    Wake,
)
from tidegate.protocol.region import Region, RegionFails, RegionState, RunStep
from tidegate.protocol.restart_strategy import (
    GiveUp,
    Restart,
    create_strategy,
    ends_the_job,
    regions_to_reset,
)
from tidegate.protocol.restore import check_in_flight
from tidegate.protocol.watermark_groups import WatermarkGroups

_log = logging.getLogger("tidegate.job")
_LONGEST_WAIT = 1.0
_ROOM_SECONDS = 0.02
"""Pause before checking again whether more may be delivered."""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The user cancels the job."""

    keeps_checkpoints: bool = False
    """Whether the last checkpoint is kept, whatever the settings say."""


Event = (
    ClusterEvent
    | LaunchTried
    | StepEvent
    | CheckpointEvent
    | SnapshotOrder
    | InspectionOrder
    | CancelRequested
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverOutputs:
    """Where the driver delivers what slots send to the user."""

    console: Callable[[str], None]
    collect: Callable[[Collected], None]
    has_room: Callable[[], bool] = lambda: True
    """Whether more may be delivered; steps wait for it."""
    drain: Callable[[], None] = lambda: None
    """Waits until everything printed is visible; called before the job has a result."""


class JobMaster:
    """Starts slots, deploys pipelines, steps them, and ends with a result."""

    def __init__(
        self,
        package: bytes,
        settings: Settings,
        checkpoints: JobCheckpoints,
        cluster: Cluster,
        exchange: Exchange,
        clock: Clock,
        outputs: DriverOutputs,
        *,
        workers: Workers | None = None,
        inbox: queue.SimpleQueue[Event] | None = None,
    ) -> None:
        graph = checkpoints.graph
        self.checkpoints = checkpoints
        self.result: Future[None] = Future()
        """Done when the job has ended and nothing of it is left running."""
        self.savepoint_directory = settings.checkpointing.savepoint_directory
        """The default directory for savepoints."""
        self.settings = settings
        self.chronicle = Chronicle(clock.time())
        self._graph = graph
        self._cluster = cluster
        self._exchange = exchange
        self._clock = clock
        self._outputs = outputs
        self._workers = workers or Threads()
        self._inbox = inbox or queue.SimpleQueue()
        self._slots = Slots(
            graph.slots,
            package,
            settings.engine,
            cluster,
            clock,
            self._workers,
            self._inbox.put,
            on_gone=self._slot_gone,
            on_missing=self._slots_missing,
            on_failure=self._fail,
        )
        self._inspections = Inspections(self._slots)
        groups = WatermarkGroups()
        self._drivers = {
            pipeline.id: PipelineDriver(
                pipeline,
                exchange,
                settings,
                self._inbox.put,
                checkpoints.for_enumerators,
                self._workers,
                groups,
            )
            for pipeline in graph.pipelines
        }
        self._regions = {id: driver.region for id, driver in self._drivers.items()}
        self._tasks = TaskLog(graph.vertices)
        self._restart = create_strategy(
            settings.restart,
            checkpointing=settings.checkpointing.interval is not None,
            randomness=random.Random(),
        )
        self._poison = PoisonCounts(settings.restart.poison_skip_after)
        warn_of_too_few_restarts(
            settings.restart, checkpointing=settings.checkpointing.interval is not None
        )
        self._failover = settings.restart.failover
        patience = settings.engine.cancellation_timeout.total_seconds()
        self._closing = Closing(self._drivers, self._slots, clock, patience)
        self._look_again_at: float | None = None
        self._next_restart: Restart | None = None
        self._failure: TidegateError | None = None
        self._is_canceled = False
        self._is_ending = False
        """Whether it has failed or is cancelled: everything is being closed."""
        self._is_successor = False
        self._thread = threading.Thread(target=self._run, name="tidegate-job", daemon=True)

    @property
    def job_id(self) -> JobId:
        return self.checkpoints.job_id

    def succeed(self, other: JobMaster) -> None:
        """Continue the job of another master, which has handed it over; call before `start`."""
        self._is_successor = True
        self.chronicle = other.chronicle
        before, after = other.checkpoints.graph, self.checkpoints.graph
        self.chronicle.rescaled(self._clock.time(), before, after)
        self.checkpoints.history = other.checkpoints.history

    def not_handed_over(self, cause: TidegateError) -> None:
        """Fail the job: no other master could take it over."""
        self._failure = cause
        self.chronicle.failed(self._clock.time(), cause)
        self.chronicle.is_now(self.status, self._clock.time())

    def start(self) -> None:
        self._thread.start()

    def cancel(self, *, keeps_checkpoints: bool = False) -> None:
        """Request the cancellation of the job; wait for it with `result`."""
        self._inbox.put(CancelRequested(keeps_checkpoints))

    def order(self, order: SnapshotOrder) -> Future[str]:
        """Request a checkpoint, a savepoint, or a stop with one; returns the order's answer."""
        self._inbox.put(order)
        if self.result.done():
            self._refuse(order)
        return order.answer

    def inspect(self, order: InspectionOrder) -> None:
        """Inspect a slot; thread-safe."""
        self._inbox.put(order)

    def join(self, timeout: float | None = None) -> None:
        self._thread.join(timeout)

    @property
    def status(self) -> JobStatus:
        """The status of the job; thread-safe."""
        if self._failure is not None:
            return JobStatus.FAILED if self.result.done() else JobStatus.FAILING
        if self._is_handed_over:
            return JobStatus.RESTARTING
        status = status_of(region.state for region in self._regions.values())
        if status.is_terminal and not self.result.done():
            return JobStatus.CANCELLING if self._is_canceled else JobStatus.RUNNING
        if status is JobStatus.CREATED and self._is_successor:
            return JobStatus.RESTARTING
        return status

    @property
    def _is_handed_over(self) -> bool:
        """Whether another master will continue the job from where it stops here."""
        return self.checkpoints.successor is not None and not self._is_canceled

    @property
    def has_started(self) -> bool:
        """Whether all pipelines have completed a step; thread-safe."""
        return all(map(self._has_run, self._regions.values()))

    def progress(self) -> Progress:
        """The progress of the job; thread-safe."""
        progress = progress_of(self._drivers.values(), self.checkpoints.history.latest_completed)
        restart = self._next_restart
        if restart is None or self.status is not JobStatus.RESTARTING:
            return progress
        seconds = max(0.0, restart.at - self._clock.monotonic())
        return replace(progress, restart=f"{restart} in {seconds:.0f} s")

    def accumulators(self) -> dict[str, Any]:
        """The values of accumulators, merged over all subtasks; thread-safe."""
        return merged_accumulators(self._drivers.values())

    def vertices(self) -> tuple[VertexProgress, ...]:
        """The progress of the vertices in the order of the graph; thread-safe."""
        return vertex_progress(self._drivers.values())

    def processes(self) -> dict[SlotIndex, SlotProcess]:
        """The processes that serve the slots; thread-safe."""
        return self._slots.processes()

    def traffic(self) -> dict[EdgeId, Traffic]:
        """What was sent along each edge since deployment; thread-safe."""
        return traffic_of(self._drivers.values())

    # --- the loop ---------------------------------------------------------------------------

    def _run(self) -> None:
        life = self.live()
        with suppress(StopIteration):
            patience = next(life)
            while True:
                try:
                    event = self._inbox.get(timeout=patience)
                except queue.Empty:
                    event = None
                patience = life.send(event)

    def live(self) -> Generator[float, Event | None, None]:
        """Yields how long to wait for the next event; takes it, or None after that time."""
        try:
            self.checkpoints.start(self._inbox.put, self._regions, self._workers)
            self._cluster.start(self._inbox.put)
            self._slots.start()
            while not self._is_over():
                event = yield self._patience()
                if event is not None:
                    self._handle(event)
                self._look_at_the_clock()
                self.chronicle.is_now(self.status, self._clock.time())
                self._note_tasks()
        except Exception as error:
            _log.exception("the job master failed")
            self._failure = self._failure or InternalError(f"{type(error).__name__}: {error}")
            self.chronicle.failed(self._clock.time(), self._failure)
        self._end()

    def _patience(self) -> float:
        wall, now = self._clock.time(), self._clock.monotonic()
        waits = [_LONGEST_WAIT]
        shortest = 0.0 if self._outputs.has_room() else _ROOM_SECONDS
        waits += [
            max(shortest, left)
            for driver in self._drivers.values()
            if driver.region.may_step
            and (left := driver.next_step.seconds_left(wall, now)) is not None
        ]
        times = [driver.deploy_at for driver in self._drivers.values() if driver.deploy_at > now]
        if self._look_again_at is not None and not self._is_ending:
            times.append(self._look_again_at)
        if (tick := self._slots.pool.next_tick()) is not None:
            times.append(tick)
        return max(0.0, min(waits + [at - now for at in times]))

    def _look_at_the_clock(self) -> None:
        self._slots.tick()
        self._deploy_what_can_be()
        if not self._is_ending:
            effects, self._look_again_at = self.checkpoints.look()
            self._apply(effects)
            self._start_due_steps()
        elif self._closing.is_overdue:
            self.checkpoints.hurry()
            self._closing.give_up()

    def _handle(self, event: Event) -> None:
        match event:
            case FromSlot(incarnation, message):
                if isinstance(message, Register):
                    self._slots.register(message)
                elif self._slots.pool.is_current(incarnation):
                    self._handle_slot(incarnation, message)
            case LineEnded(incarnation, is_certain):
                self._slots.line_ended(incarnation, is_certain=is_certain)
            case SlotJobEnded(slot, reason):
                self._slots.job_ended(slot, reason)
            case LaunchTried():
                self._slots.launch_tried(event)
            case StepThrough(pipeline, attempt):
                failures, action = self._drivers[pipeline].step_through(event, self._clock.time())
                for failure in failures:
                    self._poison.failed(attempt, failure)
                self._act(pipeline, action)
            case StepBroke(pipeline, attempt, step, reason):
                again = self._regions[pipeline].step_broke(attempt, step, reason)
                if again is not None:
                    _log.warning("step %s of pipeline %s failed: %s", step, pipeline, reason)
                self._act(pipeline, again)
            case EnumerationFailed(pipeline, attempt, error):
                self._enumeration_failed(pipeline, attempt, error)
            case SourcesTriggered(checkpoint_id, enumerators):
                self.checkpoints.coordinator.enumerated(checkpoint_id, enumerators)
            case CheckpointBegun() | PublicationSettled():
                self._apply(self.checkpoints.handle(event))
            case SnapshotOrder():
                self._ordered(event)
            case InspectionOrder():
                self._inspections.order(event)
            case CancelRequested(keeps_checkpoints):
                self.checkpoints.keep(keeps_checkpoints)
                self._cancel()
            case _:
                assert_never(event)

    def _handle_slot(self, incarnation: Incarnation, message: object) -> None:
        slot = incarnation.slot
        match message:
            case Deployed(pipeline, attempt, seeks):
                for seek in seeks:
                    _log.info("%s", seek)
                self._drivers[pipeline].deployed(slot, attempt)
            case StateRead(pipeline, attempt, size):
                self._drivers[pipeline].state_read(slot, attempt, size)
            case DeployFailed(pipeline, attempt, error):
                self._deploy_failed(pipeline, attempt, error)
            case CheckpointAcknowledged():
                self._apply(self.checkpoints.acknowledged(message))
            case CheckpointDeclined():
                self._apply(self.checkpoints.declined(message))
            case CheckpointNotified(pipeline, attempt, checkpoint_id, failure):
                if failure is not None:
                    self._act(pipeline, self._regions[pipeline].fail(attempt, failure))
                else:
                    self.checkpoints.coordinator.heard(pipeline, attempt, checkpoint_id, slot)
            case Undeployed(pipeline, failure):
                if failure is not None:
                    self._fail(failure)
                self._closing.closed(pipeline, slot)
            case Wake(pipeline):
                self._drivers[pipeline].next_step.wake()
            case ConsoleLines(lines):
                for line in lines:
                    self._outputs.console(line)
            case Collected():
                self._outputs.collect(message)
            case FunctionLog():
                log_again(message)
            case RecordsSkipped(counts, letters):
                self.chronicle.skipped(counts, letters)
            case Inspected():
                self._inspections.answered(message)
            case UserCounts(pipeline):
                self._drivers[pipeline].counted(slot, message)
            case SlotHeartbeat(number, memory):
                self._slots.beat(incarnation, number, memory)
            case _:
                raise InternalError(f"slot {slot} sent {message!r}")

    def _slot_gone(self, slot: SlotIndex, reason: str) -> None:
        self._inspections.slot_gone(slot)
        self._closing.slot_gone(slot)
        self._regions_failed(
            {
                pipeline: failure
                for pipeline, region in self._regions.items()
                if (failure := region.slot_gone(slot, reason)) is not None
            }
        )

    def _slots_missing(self, cause: TidegateError) -> None:
        """Slots cannot be restarted: the restart strategy decides whether to keep trying."""
        if self._is_ending:
            return
        decision = self._restart.failed(self._clock.monotonic())
        if isinstance(decision, GiveUp):
            self._fail(cause)
            return
        _log.warning("slots are missing, %s:\n%s", self._announced(decision), cause)
        waiting = tuple(
            id for id, region in self._regions.items() if region.state is RegionState.RESTARTING
        )
        self.chronicle.restarted(self._clock.time(), cause, waiting)
        for id in waiting:
            self._drivers[id].deploy_at = decision.at

    # --- pipelines --------------------------------------------------------------------------

    def _deploy_what_can_be(self) -> None:
        """Deploy the waiting pipelines that have all their slots."""
        now = self._clock.monotonic()
        waiting = [
            driver
            for driver in self._drivers.values()
            if driver.region.state in (RegionState.CREATED, RegionState.RESTARTING)
            and now >= driver.deploy_at
        ]
        if not waiting or not self.checkpoints.is_settled:
            return
        ready = self._slots.pool.ready().keys()
        try:
            for driver in waiting:
                if driver.region.slots <= ready:
                    self._deploy(driver)
        except TidegateError as error:
            self._fail(error)

    def _deploy(self, driver: PipelineDriver) -> None:
        """Deploy a pipeline to its slots, with the state to resume from.

        Raises:
            TidegateError: the checkpoint does not fit the job.
        """
        point = self.checkpoints.retained.restore_point
        if point is not None:
            check_in_flight(point.metadata, exchanges_of(self._graph))
        orders = driver.deploy(point, self.checkpoints.snapshot_settings, self._poison.orders())
        if point is not None:
            self.checkpoints.restored(point)
            self.chronicle.restored(point.checkpoint_id)
        for slot, order in orders.items():
            self._slots.tell([slot], order)

    def _deploy_failed(self, pipeline: PipelineId, attempt: Attempt, error: TidegateError) -> None:
        driver = self._drivers[pipeline]
        region = driver.region
        is_current = region.is_opening(attempt)
        restored_from = driver.restored_from
        if is_current and ends_the_job(error, is_opening=True, has_run=self._has_run(region)):
            self._fail(error, (pipeline,))
        elif not (
            isinstance(error, CorruptCheckpoint) and is_current and restored_from is not None
        ):
            self._act(pipeline, region.fail(attempt, error))
        elif (reason := self.checkpoints.give_up(restored_from, error)) is None:
            region.restart()
        else:
            # A restart would start fresh, or repeat what sinks have committed.
            self._fail(reason)

    def _enumeration_failed(
        self, pipeline: PipelineId, attempt: Attempt, error: TidegateError
    ) -> None:
        region = self._regions[pipeline]
        has_run = self._has_run(region)
        if region.is_current(attempt) and ends_the_job(
            error, is_opening=not has_run, has_run=has_run
        ):
            self._fail(error, (pipeline,))
        else:
            self._act(pipeline, region.fail(attempt, error))

    def _has_run(self, region: Region) -> bool:
        goes_on = self._is_successor or bool(self.checkpoints.home.retained)
        return region.has_run or goes_on

    def _start_due_steps(self) -> None:
        if not self._outputs.has_room():
            return
        wall, now = self._clock.time(), self._clock.monotonic()
        for driver in self._drivers.values():
            if driver.region.may_step and driver.next_step.seconds_left(wall, now) == 0.0:
                driver.start_step(driver.region.begin_step(), self._slots.addresses, now)

    def _act(self, pipeline: PipelineId, decision: object) -> None:
        match decision:
            case RunStep():
                now = self._clock.monotonic()
                self._drivers[pipeline].start_step(decision, self._slots.addresses, now)
            case RegionFails():
                self._regions_failed({pipeline: decision})

    def _regions_failed(self, failures: Mapping[PipelineId, RegionFails]) -> None:
        """Handle failures with one common cause: they count once for the restart strategy."""
        if not failures:
            return
        for pipeline, failure in failures.items():
            self._poison.failed(failure.attempt, failure.cause)
            if failure.abandoned is not None:
                self._drivers[pipeline].cancel_step()
        self._apply(self.checkpoints.region_failed())
        cause = next(iter(failures.values())).cause
        names = ", ".join(str(pipeline) for pipeline in failures)
        decision = self._restart.failed(self._clock.monotonic())
        if isinstance(decision, GiveUp):
            _log.info("pipeline %s failed, and the job with it: %s", names, decision.reason)
            self._fail(cause, tuple(failures))
            return
        again = self._poison.hint(cause)
        _log.warning(
            "pipeline %s failed, %s:\n%s%s", names, self._announced(decision), cause, again
        )
        self.chronicle.restarted(self._clock.time(), cause, tuple(failures))
        states = {id: region.state for id, region in self._regions.items()}
        for id in {
            each for failed in failures for each in regions_to_reset(self._failover, failed, states)
        }:
            self._reset(id)
            self._drivers[id].deploy_at = decision.at
        self._note_tasks()  # before they are deployed again, perhaps at once

    def _announced(self, restart: Restart) -> str:
        """Remember the pending restart, and describe it."""
        self._next_restart = restart
        return f"{restart} in {max(0.0, restart.at - self._clock.monotonic()):.1f} s"

    def _note_tasks(self) -> None:
        self._tasks.look(self._regions.values(), self.chronicle.failures)

    def _reset(self, pipeline: PipelineId) -> None:
        if self._regions[pipeline].restart() is not None:
            self._drivers[pipeline].cancel_step()

    def _go_back(self, pipelines: Iterable[PipelineId]) -> None:
        """Restore the pipelines of an aborted drain, without asking the restart strategy."""
        for pipeline in pipelines:
            if self._regions[pipeline].state is RegionState.RUNNING:
                _log.warning("the drain of pipeline %s was aborted, restarting", pipeline)
                self._reset(pipeline)
        self._apply(self.checkpoints.region_failed())

    # --- checkpoints ------------------------------------------------------------------------

    def _ordered(self, order: SnapshotOrder) -> None:
        if self.status is JobStatus.RUNNING and self.checkpoints.retained.stop_point is None:
            self.checkpoints.order(order)
        else:
            self._refuse(order)

    def _refuse(self, order: SnapshotOrder) -> None:
        status = self.status
        advice = "it is too late" if status.is_terminal else "ask again when it runs"
        with suppress(InvalidStateError):  # two threads may refuse it
            order.answer.set_exception(NotNow(order.what, status.name.lower(), advice))

    def _apply(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case TriggerCheckpoint(barrier, pipelines):
                    for pipeline in pipelines:
                        self._drivers[pipeline].next_step.trigger(barrier)
                case NotifyComplete(checkpoint):
                    self._tell_running(CheckpointCompleted, checkpoint.checkpoint_id)
                    passing(FaultPoint.COMMIT, Victim.DRIVER)
                case NotifyAborted(checkpoint_id):
                    for driver in self._drivers.values():
                        driver.next_step.abort(checkpoint_id)
                    self._tell_running(CheckpointAborted, checkpoint_id)
                case Finish(pipeline):
                    self._regions[pipeline].finish()
                    self._close_subtasks(self._drivers[pipeline])
                case GoBack(pipelines):
                    self._go_back(pipelines)
                case FailJob(cause):
                    self._regions_failed(
                        {
                            pipeline: failure
                            for pipeline, region in self._regions.items()
                            if region.state is RegionState.RUNNING
                            and (failure := region.fail(region.attempt, cause))
                        }
                    )
                case StopJob(cause):
                    self._fail(cause)
                case CancelJob():
                    self._cancel()
                case _:
                    assert_never(effect)

    def _tell_running(
        self,
        message: type[CheckpointCompleted] | type[CheckpointAborted],
        checkpoint_id: CheckpointId,
    ) -> None:
        for region in self._regions.values():
            if region.state is RegionState.RUNNING:
                notice = message(region.pipeline, region.attempt, checkpoint_id)
                self._slots.tell(region.slots, notice)

    # --- the end ----------------------------------------------------------------------------

    def _fail(self, cause: TidegateError, pipelines: tuple[PipelineId, ...] = ()) -> None:
        if not self._is_ending:
            self._failure = cause
            self.chronicle.failed(self._clock.time(), cause, pipelines)
            self._stop_everything()

    def _cancel(self) -> None:
        if not self._is_ending:
            self._is_canceled = True
            self._stop_everything()

    def _stop_everything(self) -> None:
        self._is_ending = True
        self.checkpoints.stop()
        self._slots.stop_launching()
        for driver in self._drivers.values():
            if driver.region.state is RegionState.FAILING:
                driver.region.give_up()
            elif driver.region.cancel() is not None:
                driver.cancel_step()
            self._close_subtasks(driver)
        self._closing.settle()

    def _close_subtasks(self, driver: PipelineDriver) -> None:
        self._closing.close(driver, hurry=self._is_ending)

    def _is_over(self) -> bool:
        return (
            all(region.state.is_terminal for region in self._regions.values())
            and self._closing.is_done
            and self.checkpoints.is_settled
        )

    def _end(self) -> None:
        try:
            self._release_everything()
        except Exception:
            # Callers that wait for the result get it, whatever state Spark is in.
            _log.exception("some resources of the job could not be released")
        self._outputs.drain()
        self.chronicle.is_now(self._final_status, self._clock.time())
        if self._failure is not None:
            self.result.set_exception(self._failure)
        elif self._is_canceled:
            self.result.set_exception(JobCanceled(self._graph.name))
        else:
            self.result.set_result(None)
        while not self._inbox.empty():
            if isinstance(order := self._inbox.get(), SnapshotOrder):
                self._refuse(order)

    def _release_everything(self) -> None:
        with ExitStack() as releases:  # the last one first, and all of them even if some fail
            releases.callback(self.checkpoints.close, self._final_status)
            releases.callback(self._cluster.close)
            for driver in self._drivers.values():
                releases.callback(driver.close)
            releases.callback(self._slots.shut_down)
            releases.callback(self._exchange.end_steps)

    @property
    def _final_status(self) -> JobStatus:
        if self._failure is not None:
            return JobStatus.FAILED
        if self._is_handed_over:
            return JobStatus.RESTARTING
        return JobStatus.CANCELED if self._is_canceled else JobStatus.FINISHED
