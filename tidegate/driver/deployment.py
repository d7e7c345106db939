"""Sends pipelines to their slots, each with what it goes on from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.core.clock import Clock
from tidegate.core.ids import PipelineId
from tidegate.driver.checkpoints import JobCheckpoints
from tidegate.driver.pipeline_driver import PipelineDriver
from tidegate.driver.poison_counts import PoisonCounts
from tidegate.driver.slots import Slots
from tidegate.graph.exchanges import exchanges_of
from tidegate.protocol.messages import Deploy
from tidegate.protocol.region import RegionState
from tidegate.protocol.restore import check_in_flight
from tidegate.protocol.restore_orders import restore_orders, restored_enumerators


class Deployment:
    """Of all pipelines of a job; used by the job master's thread."""

    def __init__(
        self,
        drivers: Mapping[PipelineId, PipelineDriver],
        slots: Slots,
        checkpoints: JobCheckpoints,
        poison: PoisonCounts,
        clock: Clock,
    ) -> None:
        self._drivers = drivers
        self._slots = slots
        self._checkpoints = checkpoints
        self._poison = poison
        self._clock = clock
        self._not_before: dict[PipelineId, float] = {}

    @property
    def times(self) -> Iterable[float]:
        """When pipelines may be deployed that wait for it, by the monotonic clock."""
        return self._not_before.values()

    def postpone(self, pipeline: PipelineId, until: float) -> None:
        self._not_before[pipeline] = until

    def deploy_what_can_be(self) -> None:
        """Those that wait and have all their slots.

        Raises:
            TidegateError: the checkpoint does not fit the job.
        """
        ready = self._slots.ready().keys()
        for pipeline, driver in self._drivers.items():
            region = driver.region
            waits = region.state is RegionState.CREATED or (
                region.state is RegionState.RESTARTING
                and self._clock.monotonic() >= self._not_before.get(pipeline, 0.0)
            )
            if waits and region.slots <= ready:
                self._not_before.pop(pipeline, None)
                self._deploy(driver)

    def _deploy(self, driver: PipelineDriver) -> None:
        point = self._checkpoints.restore_point()
        if point is not None:
            check_in_flight(point.metadata, exchanges_of(self._checkpoints.graph))
        orders = {} if point is None else restore_orders(driver.pipeline, point)
        if point is not None:
            self._checkpoints.restored(point)
        order = driver.deploy(
            None if point is None else point.metadata.checkpoint_id,
            {} if point is None else restored_enumerators(driver.pipeline, point),
            {slot: order.size for slot, order in orders.items()},
        )
        for slot in sorted(order.slots):
            message = Deploy(
                driver.pipeline.id,
                order.attempt,
                self._checkpoints.place,
                orders.get(slot),
                self._poison.orders(),
            )
            self._slots.tell([slot], message)
