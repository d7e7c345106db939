"""Spark's shuffle as the channel between subtasks: one short Spark job a step.

    stage 0, task i ── asks slot i to run its sources
    shuffle         ── packets, keyed by target slot, as opaque bytes
    stage k, task j ── delivers them to slot j, which runs level k
    last stage      ── returns the slots' reports to the driver

A step task never fails for a reason of ours: a slot out of reach is a mark that travels on.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tidegate.core.errors import LineClosed, NotAuthorized
from tidegate.core.ids import JobId, Level, SlotIndex
from tidegate.graph.job_graph import Pipeline
from tidegate.runtime.exchange.packet import FailureMark
from tidegate.runtime.exchange.unit_protocol import (
    Cargo,
    Frame,
    UnitOrder,
    UnitRefused,
    receive_answer,
    send_unit,
    target_of,
)
from tidegate.runtime.jobmanager.cluster import StepBroken
from tidegate.runtime.messages import SlotOutOfReach, StepOutcome, StepRequest
from tidegate.runtime.shipping import to_slot
from tidegate.runtime.spark_errors import reason_of
from tidegate.runtime.wire import Address, Connection, dial

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

Shipment = tuple[int, Cargo]
"""Cargo with the slot it goes to: what the shuffle moves."""

_connections: dict[Address, Connection] = {}
"""Lines of this Python worker to slots: workers are reused, so a step need not dial."""


class ShuffleExchange:
    """Runs steps as jobs of a SparkContext."""

    def __init__(self, context: SparkContext, job_id: JobId, secret: bytes) -> None:
        self._context = context
        self._secret = secret
        self._tag = f"tidegate-{job_id}"
        self._bases: dict[int, RDD[int]] = {}

    def run_step(
        self, pipeline: Pipeline, request: StepRequest, slots: Mapping[SlotIndex, Address]
    ) -> Sequence[StepOutcome]:
        """See `tidegate.runtime.jobmanager.cluster.Exchange`."""
        context, width = self._context, pipeline.slots
        addresses = tuple(slots.get(SlotIndex(i)) for i in range(width))
        stages = _stages(pipeline, request, addresses, self._secret)
        try:
            context.setJobGroup(self._group(pipeline), "step", interruptOnCancel=True)
            context.addJobTag(self._tag)
            if width not in self._bases:
                self._bases[width] = context.parallelize(range(width), width)
            moving: RDD[Any] = self._bases[width].mapPartitionsWithIndex(stages[0])
            for stage in stages[1:]:
                moving = moving.partitionBy(width, _same).mapPartitionsWithIndex(stage)
            outcomes = [pickle.loads(outcome) for outcome in moving.collect()]
            if len(stages) > 1:
                moving.cleanShuffleDependencies(False)
        except (Py4JError, PySparkException) as failure:
            raise StepBroken(reason_of(failure)) from failure
        return outcomes

    def cancel_step(self, pipeline: Pipeline) -> None:
        self._context.cancelJobGroup(self._group(pipeline))

    def _group(self, pipeline: Pipeline) -> str:
        return f"{self._tag}-steps-{pipeline.id}"


def _stages(
    pipeline: Pipeline, request: StepRequest, addresses: tuple[Address | None, ...], secret: bytes
) -> list[StageTask]:
    """One stage per level; a pipeline of one slot has nothing to exchange and needs just one."""
    groups = (
        [tuple(range(pipeline.levels))]
        if pipeline.slots == 1
        else [(level,) for level in range(pipeline.levels)]
    )
    return [
        StageTask(
            orders=tuple(
                to_slot(UnitOrder(pipeline.id, Level(level), request)) for level in levels
            ),
            addresses=addresses,
            secret=secret,
            is_last=levels == groups[-1],
        )
        for levels in groups
    ]


@dataclass(frozen=True, slots=True)
class StageTask:
    """The function of one stage. Step tasks hold no state and never look into packets."""

    orders: tuple[bytes, ...]
    """The units to run, one after the other, in the slot of the partition."""
    addresses: tuple[Address | None, ...]
    secret: bytes
    is_last: bool

    def __call__(self, slot: int, shipments: Iterable[object]) -> Iterator[object]:
        cargo = [item[1] for item in shipments if isinstance(item, tuple)]
        for order in self.orders:
            is_last_order = order is self.orders[-1]
            for frame, payload in self._run_unit(slot, order, cargo):
                if frame is Frame.REPORT:
                    if self.is_last and is_last_order:
                        yield bytes(payload)
                elif frame is Frame.PACKET:
                    yield target_of(payload), (frame, payload)
                elif not self.is_last:
                    for target in range(len(self.addresses)):
                        yield target, (frame, payload)
            cargo = []

    def _run_unit(self, slot: int, order: bytes, cargo: Iterable[Cargo]) -> Iterator[Cargo]:
        address = self.addresses[slot]
        try:
            if address is None:
                raise LineClosed("it is not registered")
            connection = _connections.pop(address, None) or dial(address, self.secret)
            send_unit(connection, order, cargo)
            yield from receive_answer(connection)
            # Only a line at rest may be used again: a task that is stopped halfway loses its own.
            _connections[address] = connection
        except (LineClosed, NotAuthorized, UnitRefused) as failure:
            missing = SlotOutOfReach(SlotIndex(slot), str(failure))
            mark = FailureMark(missing.slot, missing.as_error())
            yield Frame.MARK, pickle.dumps(mark)
            yield Frame.REPORT, pickle.dumps(missing)


def _same(slot: int) -> int:
    return slot
