"""What pipelines hear of checkpoints, and which of them have ended with one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.core.clock import Clock
from tidegate.core.errors import ExternalError
from tidegate.core.ids import Attempt, CheckpointId, PipelineId, SlotIndex
from tidegate.driver.checkpoints import Effect, JobCheckpoints
from tidegate.driver.pipeline_driver import PipelineDriver
from tidegate.driver.slots import Slots
from tidegate.graph.job_graph import Pipeline
from tidegate.protocol.coordinator import FailJob, NotifyComplete, Trigger
from tidegate.protocol.messages import CheckpointAborted, CheckpointCompleted
from tidegate.protocol.pipeline_ends import PipelineEnds
from tidegate.protocol.plan import PipelineFacts, PipelineProgress
from tidegate.protocol.region import Region, RegionState
from tidegate.stream.elements import BarrierKind


class CheckpointNotices:
    """Between the checkpoints of a job and its pipelines; used by the job master's thread."""

    def __init__(
        self,
        drivers: Mapping[PipelineId, PipelineDriver],
        slots: Slots,
        checkpoints: JobCheckpoints,
        clock: Clock,
    ) -> None:
        self._drivers = drivers
        self._slots = slots
        self._checkpoints = checkpoints
        self._clock = clock
        self._ends = PipelineEnds()

    def look(self) -> tuple[list[Effect], float | None]:
        """Start what is due, if the pipelines are in a state for it; and when to look again."""
        if (overdue := self._ends.overdue(self._clock.monotonic())) is not None:
            return [FailJob(_hung(*overdue, self._checkpoints.patience))], None
        has_ended = any(driver.has_ended for driver in self._drivers.values())
        if has_ended and not self._checkpoints.include_ended_subtasks:
            return [], None
        if self._checkpoints.outlives_subtasks and any(
            d.is_finished and d.pipeline.id not in self._ends for d in self._running()
        ):
            self._checkpoints.request_final()
        return self._checkpoints.look(
            {
                id: _facts(driver.region, is_ending=id in self._ends)
                for id, driver in self._drivers.items()
            }
        )

    def trigger(self, trigger: Trigger) -> None:
        for pipeline in trigger.pipelines:
            self._drivers[pipeline].next_step.trigger(trigger.barrier)

    def completed(self, notice: NotifyComplete) -> None:
        number, kind = notice.checkpoint.checkpoint_id, notice.barrier.kind
        if kind is BarrierKind.SAVEPOINT:
            # The job may go back behind it: what sinks have prepared waits for a checkpoint.
            return
        for driver in self._running():
            is_stopped = kind is BarrierKind.STOP
            if is_stopped or (
                driver.is_finished and _has_ended(driver.pipeline, notice.checkpoint)
            ):
                deadline = self._clock.monotonic() + self._checkpoints.patience
                self._ends.add(driver.pipeline.id, number, driver.region.slots, deadline)
            self._tell(driver, CheckpointCompleted, number)

    def aborted(self, checkpoint_id: CheckpointId) -> None:
        for driver in self._running():
            driver.next_step.abort(checkpoint_id)
            self._tell(driver, CheckpointAborted, checkpoint_id)

    def heard(
        self,
        pipeline: PipelineId,
        attempt: Attempt,
        checkpoint_id: CheckpointId,
        slot: SlotIndex,
    ) -> None:
        """A slot knows that a checkpoint is complete."""
        if self._drivers[pipeline].region.is_current(attempt):
            self._ends.heard(pipeline, checkpoint_id, slot)

    def deployed(self, driver: PipelineDriver) -> None:
        """A slot opened its subtasks, perhaps of a job that had ended with a savepoint."""
        stop = self._checkpoints.stop_point
        if stop is not None and driver.region.state is RegionState.RUNNING:
            # What the savepoint held to be committed was committed by opening: nothing is left.
            driver.next_step.due = None
            self._ends.add(driver.pipeline.id, stop.checkpoint_id, (), math.inf)

    def restarted(self, pipeline: PipelineId) -> None:
        """It has not ended after all."""
        self._ends.remove(pipeline)

    def stop(self) -> None:
        """The job is to end, whatever its pipelines have come to."""
        self._ends.clear()

    def take_ended(self) -> list[PipelineDriver]:
        """Pipelines that have nothing more to do, each returned once."""
        ended: list[PipelineDriver] = []
        if not self._checkpoints.outlives_subtasks and not self._checkpoints.is_stopping:
            ended += [
                driver
                for driver in self._running()
                if driver.is_finished
                and driver.region.step_in_flight is None
                and driver.pipeline.id not in self._ends
            ]
        for pipeline in self._ends.known_to_all():
            driver = self._drivers[pipeline]
            if driver.region.step_in_flight is None and not self._checkpoints.awaits(pipeline):
                self._ends.remove(pipeline)
                ended.append(driver)
        return ended

    def _running(self) -> list[PipelineDriver]:
        return [d for d in self._drivers.values() if d.region.state is RegionState.RUNNING]

    def _tell(
        self,
        driver: PipelineDriver,
        message: type[CheckpointCompleted] | type[CheckpointAborted],
        checkpoint_id: CheckpointId,
    ) -> None:
        region = driver.region
        self._slots.tell(region.slots, message(region.pipeline, region.attempt, checkpoint_id))


def _hung(checkpoint_id: CheckpointId, slots: Iterable[SlotIndex], seconds: float) -> ExternalError:
    names = ", ".join(f"slot {slot}" for slot in sorted(slots))
    return ExternalError(
        f"{names}: functions and sinks have not done within {seconds:g} s what is due when "
        f"checkpoint {checkpoint_id} is complete, such as a commit"
    )


def _has_ended(pipeline: Pipeline, checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint says so of all subtasks."""
    operators = checkpoint.metadata.operators
    return all(
        len(operators[vertex.chain[0].operator_id].finished) == vertex.parallelism
        for vertex in pipeline.vertices
    )


def _facts(region: Region, *, is_ending: bool) -> PipelineFacts:
    match region.state:
        case RegionState.RUNNING if not is_ending:
            progress = PipelineProgress.RUNNING
        case RegionState.FINISHED:
            progress = PipelineProgress.FINISHED
        case _:
            progress = PipelineProgress.UNAVAILABLE
    return PipelineFacts(progress, region.attempt)
