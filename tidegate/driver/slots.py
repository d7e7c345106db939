"""The slots of one job: launches them, tracks their processes, reports missing ones."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from tidegate.core.clock import Clock
from tidegate.core.errors import ExternalError, TidegateError
from tidegate.core.ids import Address, SlotIndex
from tidegate.core.setting_groups import EngineSettings
from tidegate.driver.cluster import Cluster
from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.messages import (
    Accepted,
    DriverHeartbeat,
    DriverMessage,
    Refused,
    Register,
    Shutdown,
)
from tidegate.protocol.slot_pool import (
    CancelLaunch,
    Dismiss,
    Launch,
    PoolInstruction,
    SlotGone,
    SlotPool,
    SlotReady,
)
from tidegate.transport.versions import mismatch

_log = logging.getLogger("tidegate.slots")
_LOOK_FOR_ROOM_SECONDS = 1.0
_MOST_FAILED_STARTS = 3
"""How often a slot may end before it is ready until the job fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotProcess:
    """The process that serves a slot."""

    host: str
    pid: int
    since: float
    """Seconds since the epoch."""
    memory: int | None = None
    """Resident bytes at the last heartbeat."""


class Slots:
    """Carries out the instructions of `SlotPool`. Used by the job master's thread."""

    def __init__(
        self,
        number: int,
        package: bytes,
        engine: EngineSettings,
        cluster: Cluster,
        clock: Clock,
        *,
        on_gone: Callable[[SlotIndex, str], None],
        on_missing: Callable[[TidegateError], None],
        on_failure: Callable[[TidegateError], None],
    ) -> None:
        self.addresses: dict[SlotIndex, Address] = {}
        """The step server addresses of registered slots."""
        self._package = package
        self._cluster = cluster
        self._clock = clock
        self._on_gone = on_gone
        self._on_missing = on_missing
        self._on_failure = on_failure
        self._were_all_there = False
        self._lease = engine.heartbeat_timeout.total_seconds()
        self._patience = engine.slot_start_timeout.total_seconds()
        self.pool = SlotPool(number, lease=self._lease, now=clock.monotonic())
        self._processes: dict[SlotIndex, SlotProcess] = {}
        self._to_launch: deque[Launch] = deque()
        self._look_for_room_at = 0.0
        self._shortage: TidegateError | None = None
        self._is_stopped = False
        self._deadline: float | None = None
        """When the job stops waiting for missing slots."""

    def start(self) -> None:
        self._deadline = self._clock.monotonic() + self._patience
        self._carry_out(self.pool.start(self._clock.monotonic()))
        self._launch_what_can_be()

    def processes(self) -> dict[SlotIndex, SlotProcess]:
        """The processes that serve slots; thread-safe."""
        return self._processes.copy()

    def tell(self, slots: Iterable[SlotIndex], message: DriverMessage) -> None:
        """Send a message to those of the slots that are ready."""
        ready = self.pool.ready()
        for slot in slots:
            if slot in ready:
                self._cluster.send(ready[slot], message)

    def tick(self) -> None:
        """Handle expired leases, pending launches and missing slots."""
        if instructions := self.pool.tick(self._clock.monotonic()):
            self._carry_out(instructions)
        if self._to_launch:
            self._launch_what_can_be()
        if self._deadline is not None:
            self._look_for_missing(self._deadline)

    def _look_for_missing(self, deadline: float) -> None:
        missing = self.pool.missing()
        if not missing:
            self._were_all_there = True
            self._deadline = None
        elif self._clock.monotonic() >= deadline:
            names = ", ".join(f"slot {m.slot}: {m.reason.value}" for m in missing)
            waited = ExternalError(f"waited too long for resources ({names})")
            self._deadline = self._clock.monotonic() + self._patience
            self._miss(self._shortage or waited)

    def register(self, message: Register) -> None:
        incarnation = message.incarnation
        if (difference := mismatch(message.versions)) is not None:
            self._cluster.send(incarnation, Refused(difference))
            self._on_failure(
                ExternalError(f"slot {incarnation.slot} cannot serve this job: {difference}")
            )
            return
        self._carry_out(self.pool.registered(incarnation, self._clock.monotonic()))
        if self.pool.is_current(incarnation):
            self.addresses[incarnation.slot] = message.address
            self._processes[incarnation.slot] = SlotProcess(
                host=message.host, pid=message.process_id, since=self._clock.time()
            )
            self._cluster.send(incarnation, Accepted(self._package, self._lease))

    def beat(self, incarnation: Incarnation, number: int, memory: int | None) -> None:
        if self.pool.beat(incarnation, self._clock.monotonic()):
            known = self._processes[incarnation.slot]
            self._processes[incarnation.slot] = replace(known, memory=memory)
            self._cluster.send(incarnation, DriverHeartbeat(number))

    def line_ended(self, incarnation: Incarnation, *, is_certain: bool) -> None:
        self._carry_out(
            self.pool.line_ended(incarnation, self._clock.monotonic(), is_certain=is_certain)
        )

    def job_ended(self, slot: SlotIndex, reason: str) -> None:
        _log.debug("the Spark job of slot %s ended: %s", slot, reason)
        self._carry_out(self.pool.job_ended(slot, self._clock.monotonic()))
        for missing in self.pool.missing():
            if missing.slot == slot and missing.failed_starts >= _MOST_FAILED_STARTS:
                self._miss(ExternalError(f"slot {slot} cannot be started: {reason}"))

    def _miss(self, cause: TidegateError) -> None:
        """Fail the job if it never had all its slots: it cannot run here at all."""
        (self._on_missing if self._were_all_there else self._on_failure)(cause)

    def kill(self, slot: SlotIndex) -> None:
        """Kill the process of a slot whose user code does not return."""
        self._cluster.kill(slot)

    def stop_launching(self) -> None:
        """Launch no more slots: the job ends."""
        self._is_stopped = True

    def shut_down(self) -> None:
        self.pool.shut_down()
        self.tell(list(self.pool.ready()), Shutdown())

    def _launch_what_can_be(self) -> None:
        """Launch slots only if there is room for all of them and for steps."""
        if self._is_stopped or self._clock.monotonic() < self._look_for_room_at:
            return
        self._shortage = self._cluster.shortage()
        if self._shortage is not None:
            if self._look_for_room_at > 0:
                _log.info("waiting for resources: %s", self._shortage)
            self._look_for_room_at = self._clock.monotonic() + _LOOK_FOR_ROOM_SECONDS
            return
        while self._to_launch:
            order = self._to_launch.popleft()
            self._cluster.launch(order.slot, order.number)

    def _carry_out(self, instructions: Iterable[PoolInstruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Launch():
                    self._to_launch.append(instruction)
                case CancelLaunch(slot):
                    self._cluster.kill(slot)
                case Dismiss(incarnation, reason):
                    self._cluster.send(incarnation, Refused(reason))
                case SlotReady(incarnation):
                    _log.debug("%s is ready", incarnation)
                case SlotGone(incarnation, reason):
                    self.addresses.pop(incarnation.slot, None)
                    self._processes.pop(incarnation.slot, None)
                    self._deadline = self._clock.monotonic() + self._patience
                    self._on_gone(incarnation.slot, reason)
                case _:
                    assert_never(instruction)
