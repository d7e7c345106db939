"""Subtasks that are being closed, including those whose user code does not return."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tidegate.core.clock import Clock
from tidegate.core.ids import PipelineId, SlotIndex
from tidegate.driver.pipeline_driver import PipelineDriver
from tidegate.driver.slots import Slots
from tidegate.protocol.messages import Undeploy
from tidegate.protocol.region import RegionState

_log = logging.getLogger("tidegate.job")


class Closing:
    """The closing subtasks of a job; used by the job master's thread.

    Slots may take as long as they need while the job is healthy. When the job must end, their
    processes are killed after `patience` seconds.
    """

    def __init__(
        self,
        drivers: Mapping[PipelineId, PipelineDriver],
        slots: Slots,
        clock: Clock,
        patience: float,
    ) -> None:
        self._drivers = drivers
        self._slots = slots
        self._clock = clock
        self._patience = patience
        self._open: set[tuple[PipelineId, SlotIndex]] = set()
        self._deadline: float | None = None

    @property
    def is_done(self) -> bool:
        return not self._open

    def close(self, driver: PipelineDriver, *, hurry: bool) -> None:
        """Close the subtasks of a pipeline in all slots."""
        deployed = self._slots.pool.ready().keys() & driver.region.slots
        if driver.region.was_deployed:
            self._open.update((driver.pipeline.id, slot) for slot in deployed)
            self._slots.tell(deployed, Undeploy(driver.pipeline.id))
        if hurry:
            self._deadline = self._clock.monotonic() + self._patience

    def closed(self, pipeline: PipelineId, slot: SlotIndex) -> None:
        self._open.discard((pipeline, slot))
        self.settle()

    def slot_gone(self, slot: SlotIndex) -> None:
        """Count everything in a lost slot as closed."""
        for pipeline in [p for p, s in self._open if s == slot]:
            self.closed(pipeline, slot)

    @property
    def is_overdue(self) -> bool:
        return self._deadline is not None and self._clock.monotonic() >= self._deadline

    def give_up(self) -> None:
        """Kill the processes of slots that have not finished."""
        for slot in {slot for _, slot in self._open}:
            _log.warning("user code in slot %s did not return; its process is killed", slot)
            self._slots.kill(slot)
        self._deadline = None
        self._open.clear()
        self.settle()

    def settle(self) -> None:
        """Mark cancelling pipelines as cancelled once all their subtasks are closed."""
        for pipeline, driver in self._drivers.items():
            if driver.region.state is RegionState.CANCELLING and not any(
                closing == pipeline for closing, _ in self._open
            ):
                driver.region.canceled()
