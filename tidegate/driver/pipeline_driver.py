"""Runs the steps of one pipeline, one at a time, on its own worker."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.connectors.source import EnumeratorContext
from tidegate.core.config import Settings
from tidegate.core.errors import TidegateError, UserError
from tidegate.core.ids import (
    Address,
    Attempt,
    CheckpointId,
    PipelineId,
    SlotIndex,
    StepNumber,
    VertexId,
)
from tidegate.core.poison import PoisonOrders
from tidegate.core.workers import Threads, Workers
from tidegate.driver.checkpoints.restoring import Restoring
from tidegate.driver.split_enumerator import SplitAssigner
from tidegate.exchange.contract import Exchange, StepBroken
from tidegate.graph.job_graph import Pipeline
from tidegate.protocol.checkpoints.restore_orders import (
    ended_sources,
    restore_orders,
    restored_enumerators,
)
from tidegate.protocol.messages import (
    Deploy,
    SlotReport,
    SnapshotSettings,
    StepOutcome,
    StepRequest,
    UserCounts,
)
from tidegate.protocol.pacing import NextStep, SliceSize, room_of
from tidegate.protocol.packet import FailureMark, SlotOutOfReach
from tidegate.protocol.region import Region, RegionFails, RunStep, StepDone
from tidegate.protocol.watermark_groups import WatermarkGroups
from tidegate.stream.elements import Barrier

_log = logging.getLogger("tidegate.job")
_DISCOVERY_SECONDS = 1.0
_MOST_POSITIONS = 100
"""How many checkpoints have a known position: many more than are ever retained."""


@dataclass(frozen=True, slots=True)
class StepThrough:
    """All slots reported, or were marked as unreachable."""

    pipeline: PipelineId
    attempt: Attempt
    step: StepNumber
    outcomes: Sequence[StepOutcome]
    seconds: float


@dataclass(frozen=True, slots=True)
class StepBroke:
    """The exchange itself failed."""

    pipeline: PipelineId
    attempt: Attempt
    step: StepNumber
    reason: str


@dataclass(frozen=True, slots=True)
class EnumerationFailed:
    """A source could not list its splits."""

    pipeline: PipelineId
    attempt: Attempt
    error: TidegateError


@dataclass(frozen=True, slots=True)
class SourcesTriggered:
    """A step request carries a barrier; holds the enumerators' states at that point."""

    checkpoint_id: CheckpointId
    enumerators: Mapping[VertexId, bytes]


StepEvent = StepThrough | StepBroke | EnumerationFailed | SourcesTriggered


class PipelineDriver:
    """A region with everything needed to step it; used by the job master's thread."""

    def __init__(
        self,
        pipeline: Pipeline,
        exchange: Exchange,
        settings: Settings,
        post: Callable[[StepEvent], None],
        job: EnumeratorContext | None = None,
        workers: Workers | None = None,
        groups: WatermarkGroups | None = None,
    ) -> None:
        self.pipeline = pipeline
        self._groups = groups or WatermarkGroups()
        self._job = job
        self.region = Region(
            pipeline.id,
            (SlotIndex(i) for i in range(pipeline.slots)),
            max_step_tries=settings.engine.step_attempts,
        )
        self.next_step = NextStep(settings.engine.latency_target.total_seconds())
        self.deploy_at = 0.0
        """Earliest time of the next deployment, by the monotonic clock."""
        self.reports: dict[SlotIndex, SlotReport] = {}
        self.counts: dict[SlotIndex, UserCounts] = {}
        """The counts of functions in this attempt."""
        self.step_seconds: float | None = None
        self.restored_from: CheckpointId | None = None
        """The checkpoint that the current attempt resumed from."""
        self.restoring: Restoring | None = None
        self._position = ReadPosition()
        self._exchange = exchange
        self._engine = settings.engine
        self._slice_bytes = settings.engine.max_slice_bytes.get_bytes()
        self._post = post
        self._assigner: SplitAssigner | None = None
        self._request: StepRequest | None = None
        self._slice = self._fresh_slice()
        self._worker = (workers or Threads()).start(f"tidegate-steps-{pipeline.id}")

    def deploy(
        self, point: Checkpoint | None, snapshots: SnapshotSettings, poison: PoisonOrders | None
    ) -> dict[SlotIndex, Deploy]:
        """Begin a new attempt, from a checkpoint if given; returns the messages for its slots.

        Raises:
            TidegateError: the checkpoint does not fit the pipeline.
        """
        orders = {} if point is None else restore_orders(self.pipeline, point)
        enumerators = {} if point is None else restored_enumerators(self.pipeline, point)
        self.restored_from = None if point is None else point.checkpoint_id
        self.restoring = None
        if self.restored_from is not None:
            sizes = {slot: order.size for slot, order in orders.items()}
            self.restoring = Restoring(self.restored_from, sizes)
        self._position.restarted(self.restored_from, self.records_in)
        self.reports.clear()
        self.counts.clear()
        self._close_assigner()
        self._assigner = SplitAssigner(
            self.pipeline, enumerators, self._job, ended_sources(self.pipeline, orders)
        )
        attempt = self.region.deploy()
        return {
            slot: Deploy(self.pipeline.id, attempt, snapshots, orders.get(slot), poison)
            for slot in sorted(self.region.slots)
        }

    def deployed(self, slot: SlotIndex, attempt: Attempt) -> None:
        """A slot opened its subtasks; after the last one, the first step is due."""
        if self.restoring is not None and self.region.is_current(attempt):
            self.restoring.opened(slot)
        if not self.region.deployed(slot, attempt):
            return
        self._slice = self._fresh_slice()
        self._request = None
        self.next_step.deployed()

    def counted(self, slot: SlotIndex, counts: UserCounts) -> None:
        """Store the counts of a slot's functions."""
        if self.region.is_current(counts.attempt):
            self.counts[slot] = counts

    def state_read(self, slot: SlotIndex, attempt: Attempt, size: int) -> None:
        """Count bytes that a slot has read to restore its subtasks."""
        if self.restoring is not None and self.region.is_current(attempt):
            self.restoring.read(slot, size)

    @property
    def records_in(self) -> int:
        """Records read by the sources since deployment; thread-safe."""
        sources = [vertex.id for vertex in self.pipeline.sources]
        return sum(
            report.records_in.get(id, 0) for report in list(self.reports.values()) for id in sources
        )

    @property
    def records_to_repeat(self) -> int:
        """Records to read until the sources have caught up with an earlier attempt."""
        return self._position.to_repeat(self.records_in)

    def start_step(self, order: RunStep, slots: Mapping[SlotIndex, Address], now: float) -> None:
        """Run or retry a step; its end is posted."""
        barriers = self.next_step.begin(order, now)
        for barrier in barriers:
            self._position.triggered(barrier.checkpoint_id, self.records_in)
        assert self._assigner is not None
        # Enumerators, whose code may block, are asked for splits, and for their state at a barrier.
        asks_nobody = order.tries == 1 and not barriers and not self._assigner.may_find_more
        if asks_nobody and self._exchange.try_step(
            self.pipeline,
            self._request_for(order, self._assigner, barriers),
            slots,
            partial(self._ended, order, time.monotonic()),
        ):
            return
        self._worker.post(partial(self._run, order, dict(slots), self._assigner, barriers))

    def cancel_step(self) -> None:
        self._exchange.cancel_step(self.pipeline)

    def step_through(
        self, event: StepThrough, now: float
    ) -> tuple[list[TidegateError], StepDone | RegionFails | None]:
        """Process a completed step; returns its failures, and what follows."""
        failures: list[TidegateError] = []
        if not self.region.runs(event.attempt, event.step):
            return failures, None
        marks: dict[SlotIndex, FailureMark] = {}
        for outcome in event.outcomes:
            if isinstance(outcome, SlotOutOfReach):
                marks[outcome.slot] = FailureMark(outcome.slot, outcome.as_error())
                continue
            self.reports[outcome.slot] = outcome
            failures += [failure.error for failure in outcome.failures]
            marks.update((mark.slot, mark) for mark in outcome.marks)
        failures += [mark.cause for mark in marks.values() if isinstance(mark.cause, TidegateError)]
        self._groups.reported(self.pipeline.id, self.reports.values())
        slices = [
            source.records for report in self.reports.values() for source in report.sources.values()
        ]
        busy = [report.busy_seconds for report in self.reports.values()]
        self._slice.observe(event.seconds, max(busy, default=0.0), max(slices, default=0))
        self.step_seconds = event.seconds
        assert self._assigner is not None
        self.next_step.through(
            self.reports.values(),
            now=now,
            discovery_seconds=_DISCOVERY_SECONDS if self._assigner.may_find_more else None,
        )
        finished = [report.finished for report in self.reports.values()]
        subtasks = sum(vertex.parallelism for vertex in self.pipeline.vertices)
        return failures, self.region.step_through(
            event.attempt,
            event.step,
            failures,
            some_ended=any(finished),
            all_ended=sum(map(len, finished)) == subtasks,
            is_ready=self._assigner.is_ready,
        )

    def close(self) -> None:
        """Close the enumerators, without waiting forever for one that does not return."""
        self._close_assigner()
        self._worker.stop(self._engine.cancellation_timeout.total_seconds())

    def _run(
        self,
        order: RunStep,
        slots: dict[SlotIndex, Address],
        assigner: SplitAssigner,
        barriers: tuple[Barrier, ...],
    ) -> None:
        try:
            request = self._request_for(order, assigner, barriers)
        except Exception as error:
            failure = (
                error
                if isinstance(error, TidegateError)
                else UserError(
                    f"a source could not list its splits: {type(error).__name__}: {error}"
                )
            )
            self._post(EnumerationFailed(self.pipeline.id, order.attempt, failure))
            return
        ended = partial(self._ended, order, time.monotonic())
        try:
            self._exchange.run_step(self.pipeline, request, slots, ended)
        except Exception as error:
            ended(error)

    def _ended(
        self, order: RunStep, started: float, answer: Sequence[StepOutcome] | Exception
    ) -> None:
        place = self.pipeline.id, order.attempt, order.step
        if isinstance(answer, StepBroken):
            self._post(StepBroke(*place, str(answer)))
        elif isinstance(answer, Exception):
            self._post(StepBroke(*place, f"{type(answer).__name__}: {answer}"))
        else:
            self._post(StepThrough(*place, answer, time.monotonic() - started))

    def _request_for(
        self, order: RunStep, assigner: SplitAssigner, barriers: tuple[Barrier, ...]
    ) -> StepRequest:
        """Build the request of a step; a retry repeats it, as its splits are already assigned."""
        request = self._request
        if request is None or order.tries == 1:
            records, room = self._slice.records, room_of(list(self.reports.values()))
            request = StepRequest(
                pipeline=self.pipeline.id,
                attempt=order.attempt,
                step=order.step,
                slice_records=records if room is None else min(records, room),
                slice_bytes=self._slice_bytes,
                barriers=barriers,
                assignments=assigner.assign(),
                group_watermarks=self._groups.lowest(),
            )
            for barrier in barriers:
                self._post(SourcesTriggered(barrier.checkpoint_id, assigner.snapshot()))
            self._request = request
        return request

    def _fresh_slice(self) -> SliceSize:
        return SliceSize(self._engine.step_target.total_seconds(), self._engine.max_slice_records)

    def _close_assigner(self) -> None:
        if self._assigner is not None:
            self._worker.post(self._assigner.close)
            self._assigner = None


class ReadPosition:
    """How far the sources of a pipeline have read, across its attempts.

    Positions count from the start of the first attempt; `read` counts from the start of the current
    one.
    """

    def __init__(self) -> None:
        self._base = 0
        self._furthest = 0
        self._at: dict[CheckpointId, int] = {}

    def triggered(self, checkpoint_id: CheckpointId, read: int) -> None:
        """Record the position of a checkpoint."""
        self._at[checkpoint_id] = self._base + read
        for oldest in sorted(self._at)[:-_MOST_POSITIONS]:
            del self._at[oldest]

    def restarted(self, checkpoint_id: CheckpointId | None, read: int) -> None:
        """Start a new attempt from a checkpoint, after one that has read `read` records."""
        self._furthest = max(self._furthest, self._base + read)
        self._base = 0 if checkpoint_id is None else self._at.get(checkpoint_id, 0)

    def to_repeat(self, read: int) -> int:
        """Records to read until the current attempt has caught up with an earlier one."""
        return max(0, self._furthest - self._base - read)
