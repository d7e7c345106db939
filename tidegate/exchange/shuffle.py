"""Spark's shuffle as the channel between subtasks: one short Spark job per step.

    stage 0, task i ── asks slot i to run its sources
    shuffle         ── packets, keyed by target slot, as opaque bytes
    stage k, task j ── delivers them to slot j, which runs level k
    last stage      ── returns the slots' reports to the driver

A step task never fails because of Tidegate: an unreachable slot becomes a mark that travels on.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tidegate.core.ids import Address, JobId, Level, PipelineId, SlotIndex
from tidegate.exchange.cancellation import cancel_group
from tidegate.exchange.contract import Exchange, StepAnswer, StepBroken
from tidegate.exchange.step_task import StageTask, same_slot
from tidegate.graph.job_graph import Pipeline
from tidegate.protocol.messages import StepRequest, UnitOrder
from tidegate.transport.shipping import to_slot
from tidegate.transport.spark_errors import reason_of

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext


class ShuffleExchange(Exchange):
    """Runs steps as jobs of a SparkContext."""

    def __init__(self, context: SparkContext, job_id: JobId, secret: bytes) -> None:
        self._context = context
        self._secret = secret
        self._tag = f"tidegate-{job_id}"
        self._bases: dict[int, RDD[int]] = {}
        self._groups: dict[PipelineId, str] = {}
        """Of the last step. No step uses that of another: it may be canceled late."""

    def run_step(
        self,
        pipeline: Pipeline,
        request: StepRequest,
        slots: Mapping[SlotIndex, Address],
        answer: StepAnswer,
    ) -> None:
        """See `Exchange`."""
        context, width = self._context, pipeline.slots
        addresses = tuple(slots.get(SlotIndex(i)) for i in range(width))
        stages = _stages(pipeline, request, addresses, self._secret)
        group = f"{self._tag}-steps-{pipeline.id}-{secrets.token_hex(8)}"
        self._groups[pipeline.id] = group
        try:
            context.setJobGroup(group, "step", interruptOnCancel=True)
            context.addJobTag(self._tag)
            if width not in self._bases:
                self._bases[width] = context.parallelize(range(width), width)
            moving: RDD[Any] = self._bases[width].mapPartitionsWithIndex(stages[0])
            for stage in stages[1:]:
                moving = moving.partitionBy(width, same_slot).mapPartitionsWithIndex(stage)
            outcomes = [pickle.loads(outcome) for outcome in moving.collect()]
            if len(stages) > 1:
                moving.cleanShuffleDependencies(False)
        except (Py4JError, PySparkException) as failure:
            raise StepBroken(reason_of(failure)) from failure
        answer(outcomes)

    def cancel_step(self, pipeline: Pipeline) -> None:
        if (group := self._groups.get(pipeline.id)) is not None:
            cancel_group(self._context, group)

    def end_steps(self) -> None:
        """Nothing outlives a step."""


def _stages(
    pipeline: Pipeline, request: StepRequest, addresses: tuple[Address | None, ...], secret: bytes
) -> list[StageTask]:
    """One stage per level; a pipeline with one slot exchanges nothing and needs only one."""
    groups = (
        [tuple(range(pipeline.levels))]
        if pipeline.slots == 1
        else [(level,) for level in range(pipeline.levels)]
    )
    return [
        StageTask(
            orders=tuple(unit_order(request, Level(level)) for level in levels),
            addresses=addresses,
            secret=secret,
            is_last=levels == groups[-1],
        )
        for levels in groups
    ]


def unit_order(request: StepRequest, level: Level) -> bytes:
    """The order for the units of one level; level 0 carries the request for the sources."""
    order = UnitOrder(
        pipeline=request.pipeline,
        attempt=request.attempt,
        step=request.step,
        level=level,
        request=request if level == 0 else None,
    )
    if level == 0 and request.assignments:
        return to_slot(order)
    return pickle.dumps(order, protocol=5)  # only splits can be of the user's classes
