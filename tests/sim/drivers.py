"""Drivers: processes with the real job master, which handles one event at a time."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.sim.clockwork import Event, Process
from tests.sim.cluster import SimulatedCluster
from tidegate.core.config import Settings
from tidegate.core.errors import TidegateError
from tidegate.driver.checkpoints.home import CheckpointHome
from tidegate.driver.checkpoints.lifecycle import JobCheckpoints
from tidegate.driver.checkpoints.snapshot_orders import SnapshotOrder
from tidegate.driver.job_master import DriverOutputs, JobMaster
from tidegate.transport import shipping

if TYPE_CHECKING:
    from tests.sim.world import World


class _Inbox(queue.SimpleQueue):  # type: ignore[type-arg]
    """Wakes the driver when something arrives."""

    wake: Callable[[], None] = staticmethod(lambda: None)

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(item)
        self.wake()


class DriverProcess(Process):
    """A driver with its job master, from its start to its end."""

    def __init__(self, world: World, width: int, number: int) -> None:
        super().__init__(world.sim, f"driver {number}")
        self.world, self.width = world, width
        self.cluster: SimulatedCluster
        self.master: JobMaster | None = None
        self.orders: list[tuple[str, SnapshotOrder]] = []
        self._alarm: Event | None = None
        self.later(self.sim.delay(0.1), "starts", lambda: self._begin(self._graph(), None))

    def _graph(self) -> Any:
        return self.world.plan.program.graph(self.width)

    def _begin(self, graph: Any, predecessor: JobMaster | None) -> None:
        world = self.world
        origin = world.origin
        values = {**world.plan.settings, "execution.state-recovery.path": origin}
        settings = Settings.of(values)
        home: CheckpointHome | None = None if predecessor is None else predecessor.checkpoints.home
        try:
            checkpoints = JobCheckpoints.open(graph, settings, self, home)
            if origin == "latest" and world.is_over_for(checkpoints.job_id):
                self.is_alive = False
                return
            self.cluster = SimulatedCluster(world, self)
            inbox = _Inbox()
            inbox.wake = self._wake  # type: ignore[method-assign]
            self._inbox = inbox
            master = JobMaster(
                shipping.pack(
                    checkpoints.job_id,
                    checkpoints.graph,
                    settings.as_mapping(),
                    to_other_processes=False,
                ),
                settings,
                checkpoints,
                self.cluster,
                self.cluster,
                self,
                DriverOutputs(console=lambda line: None, collect=lambda message: None),
                workers=self.workers,
                inbox=inbox,
            )
        except TidegateError as error:
            self._failed(error)
            return
        if predecessor is not None:
            master.succeed(predecessor)
        self.master = master
        world.checks.watch(master)
        self._life = master.live()
        self._turn_later(next(self._life))

    def _turn_later(self, seconds: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self.later(max(seconds, 0.001), "looks at the clock", self._turn)

    def _wake(self) -> None:
        if self.is_alive:
            self._turn_later(self.sim.delay(0.001))

    def _turn(self) -> None:
        event = None if self._inbox.empty() else self._inbox.get()
        assert self.master is not None
        self.world.seen(self.master, event)
        try:
            patience = self._life.send(event)
        except StopIteration:
            self._ended()
        else:
            self.world.checks.after_turn(self.master)
            self._turn_later(patience if self._inbox.empty() else self.sim.delay(0.001))

    def _ended(self) -> None:
        assert self.master is not None
        self._inbox.wake = lambda: None  # type: ignore[method-assign]
        self.world.checks.all_answered(self)
        failure = self.master.result.exception()
        successor = self.master.checkpoints.successor
        if failure is not None:
            self._failed(failure)
        elif successor is not None:
            self.width = successor.slots
            self.later(0.01, "goes on rescaled", lambda: self._begin(successor, self.master))
        else:
            self.world.checks.all_closed(self)
            self.is_alive = False
            self.world.finished(self)

    def _failed(self, failure: BaseException) -> None:
        self.sim.note(f"ends: {failure}")
        self.is_alive = False
        self.world.driver_failed(self, failure)

    def die(self) -> None:
        if self.is_alive:
            super().die()
            self.sim.note(f"{self.name} dies")
            if hasattr(self, "cluster") and self.cluster.pumped is not None:
                self.cluster.pumped.spark.stop()
            self.world.driver_gone(self)

    def order(self, kind: str, order: SnapshotOrder) -> None:
        if self.master is not None:
            self.orders.append((kind, order))
            self.master.order(order)
