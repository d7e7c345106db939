"""The slots of one job: launches them, tracks their processes, reports missing ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

from tidegate.core.clock import Clock
from tidegate.core.errors import ExternalError, InternalError, TidegateError
from tidegate.core.ids import Address, SlotIndex
from tidegate.core.setting_groups import EngineSettings
from tidegate.core.workers import Workers
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
_FAREWELL_SECONDS = 3.0
"""How long the end of a job waits for a launch that is under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotProcess:
    """The process that serves a slot."""

    host: str
    pid: int
    since: float
    """Seconds since the epoch."""
    memory: int | None = None
    """Resident bytes at the last heartbeat."""


@dataclass(frozen=True, slots=True)
class LaunchTried:
    """The cluster has launched slots, or has no room for them."""

    orders: Sequence[Launch]
    error: ExternalError | InternalError | None = None
    """The shortage, after which nothing was launched, or an unexpected failure."""


class Slots:
    """Carries out the instructions of `SlotPool`. Used by the job master's thread.

    Slots are launched on a worker, because Spark may not answer. Meanwhile, the others get answers
    to their heartbeats.
    """

    def __init__(
        self,
        number: int,
        package: bytes,
        engine: EngineSettings,
        cluster: Cluster,
        clock: Clock,
        workers: Workers,
        post: Callable[[LaunchTried], None],
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
        self._worker = workers.start("tidegate-launches")
        self._post = post
        self._to_launch: list[Launch] = []
        self._is_launching = False
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
        self.stop_launching()
        self.pool.shut_down()
        self.tell(list(self.pool.ready()), Shutdown())
        self._worker.stop(_FAREWELL_SECONDS)

    def _launch_what_can_be(self) -> None:
        """Launch slots only if there is room for all of them and for steps."""
        is_early = self._clock.monotonic() < self._look_for_room_at
        if self._is_stopped or self._is_launching or is_early:
            return
        self._is_launching = True
        self._worker.post(partial(self._launch, tuple(self._to_launch)))
        self._to_launch.clear()

    def _launch(self, orders: Sequence[Launch]) -> None:
        """Runs on the worker, and waits for Spark."""
        error: ExternalError | InternalError | None
        try:
            error = self._cluster.shortage()
            for order in orders if error is None else ():
                if not self._is_stopped:
                    self._cluster.launch(order.slot, order.number)
        except Exception as failure:
            _log.exception("slots could not be launched")
            error = InternalError(f"{type(failure).__name__}: {failure}")
        self._post(LaunchTried(orders, error))

    def launch_tried(self, event: LaunchTried) -> None:
        self._is_launching = False
        self._shortage = None
        match event.error:
            case InternalError():
                self._on_failure(event.error)
            case ExternalError():
                if self._look_for_room_at > 0:
                    _log.info("waiting for resources: %s", event.error)
                self._shortage = event.error
                self._look_for_room_at = self._clock.monotonic() + _LOOK_FOR_ROOM_SECONDS
                self._to_launch += event.orders
            case None:
                pass
            case _:
                assert_never(event.error)

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
