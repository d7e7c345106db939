"""One job, its drivers and all that befalls them, from a seed; and what must hold throughout."""

from __future__ import annotations

import pickle
import queue
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tests.sim import clockwork
from tests.sim.clockwork import Event, Killed, Process, Simulation, Wrong
from tests.sim.cluster import HEARTBEAT_SECONDS, LEASE_SECONDS, SimulatedCluster, SlotProcess
from tests.sim.programs import Bank, Program
from tests.sim.storage import Bucket
from tidegate.checkpoint.layout import METADATA
from tidegate.checkpoint.metadata import CheckpointMetadata, decode
from tidegate.core import fault_points
from tidegate.core.clock import SystemClock
from tidegate.core.config import Settings
from tidegate.core.errors import (
    ExternalError,
    JobCanceled,
    JobStopped,
    NotNow,
    SavepointFailed,
    TidegateError,
    UserFunctionError,
)
from tidegate.core.modes import SavepointFormat
from tidegate.driver import job_master
from tidegate.driver.checkpoints.home import CheckpointHome
from tidegate.driver.checkpoints.lifecycle import JobCheckpoints
from tidegate.driver.checkpoints.snapshot_orders import SnapshotOrder
from tidegate.driver.job_master import DriverOutputs, JobMaster
from tidegate.exchange import step_task
from tidegate.slot import slot_host
from tidegate.state.pointers import path_of
from tidegate.storage import filesystem
from tidegate.stream.elements import BarrierKind, SavepointTarget
from tidegate.transport import shipping

CHECKPOINTS = "/simulated/checkpoints"
SAVEPOINTS = "/simulated/savepoints"
QUIET_SECONDS = 400.0
"""How long a job may take to end when nothing befalls it any more."""


@dataclass(frozen=True)
class Fault:
    """Something that befalls the job, or that its user asks for."""

    at: float
    kind: str
    which: int = 0
    amount: float = 0.0

    def __str__(self) -> str:
        return f"{self.at:.2f} s: {self.kind} ({self.which}, {self.amount:.2f})"


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before the first event."""

    seed: object
    program: Program
    width: int
    settings: dict[str, Any]
    faults: tuple[Fault, ...]
    twins: float
    mode: str

    @classmethod
    def draw(cls, seed: object, among: Sequence[str] = ()) -> Plan:
        """From a seed; `among` says which kinds of faults there are, if not all."""
        rnd = random.Random(f"{seed}/plan")
        pipelines = rnd.choice([1, 1, 2])
        length = rnd.choice([5, 10, 15])
        program = Program(
            streams=tuple(
                tuple(rnd.randint(1, length) for _ in range(rnd.randint(1, 4)))
                for _ in range(pipelines)
            ),
            sink=rnd.choice(["function", "committer"]),
            rate=rnd.choice([2.0, 4.0, 10.0]),
            keys=rnd.choice([1, 3, 10]),
            discovers=rnd.random() < 0.3,
        )
        mode = "AT_LEAST_ONCE" if rnd.random() < 0.1 else "EXACTLY_ONCE"
        unaligned = mode == "EXACTLY_ONCE" and rnd.random() < 0.3
        settings = {
            "execution.checkpointing.interval": f"{rnd.choice([300, 700, 2000])} ms",
            "execution.checkpointing.mode": mode,
            "execution.checkpointing.timeout": f"{rnd.choice([1, 5, 30])} s",
            "execution.checkpointing.min-pause": f"{rnd.choice([0, 0, 300])} ms",
            "execution.checkpointing.max-concurrent-checkpoints": (
                1 if unaligned else rnd.choice([1, 1, 3])
            ),
            "execution.checkpointing.tolerable-failed-checkpoints": rnd.choice([0, 3, 10**6]),
            "execution.checkpointing.num-retained": rnd.choice([1, 1, 3]),
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "execution.checkpointing.unaligned.enabled": unaligned,
            "execution.checkpointing.dir": CHECKPOINTS,
            "execution.checkpointing.data-inline-threshold": rnd.choice(["0 b", "20 kb"]),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": 10**6,
            "restart-strategy.fixed-delay.delay": f"{rnd.choice([1, 500])} ms",
            "jobmanager.execution.failover-strategy": rnd.choice(["full", "region"]),
            "tidegate.step.max-records": rnd.choice([1, 3, 10]),
            "tidegate.step.attempts": 3,
            "heartbeat.interval": f"{HEARTBEAT_SECONDS} s",
            "heartbeat.timeout": f"{LEASE_SECONDS} s",
            "task.cancellation.timeout": "20 s",
        }
        horizon = length / program.rate + 3
        count = rnd.choice([1, 2, 3, 4, 6])
        faults = sorted(
            (_draw_fault(rnd, rnd.uniform(0.0, horizon), among) for _ in range(count)),
            key=lambda fault: fault.at,
        )
        return cls(
            seed,
            program,
            rnd.randint(1, 3),
            settings,
            tuple(faults),
            rnd.choice([0.0, 0.0, 0.1, 0.3]),
            mode,
        )


KINDS = {
    "kill a slot": 3,
    "put a slot to sleep": 3,
    "cut a line": 2,
    "reset a line": 2,
    "start a slot twice": 1,
    "give a slot up": 1,
    "kill the driver": 2,
    "put the driver to sleep": 1,
    "start a rival": 2,
    "kill at a call": 3,
    "kill at a point": 3,
    "storage fails": 3,
    "storage is slow": 2,
    "the bank fails": 2,
    "steps break": 2,
    "user code fails": 2,
    "a clock jumps": 1,
    "checkpoint": 2,
    "savepoint": 2,
    "stop": 2,
    "drain": 1,
    "rescale": 3,
}


def _draw_fault(rnd: random.Random, at: float, among: Sequence[str]) -> Fault:
    kinds = among or list(KINDS)
    [kind] = rnd.choices(kinds, [KINDS[kind] for kind in kinds])
    return Fault(at, kind, rnd.randrange(100), rnd.random())


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
        values = {**world.plan.settings, "execution.state-recovery.path": world.origin}
        settings = Settings.of(values)
        home: CheckpointHome | None = None if predecessor is None else predecessor.checkpoints.home
        clock = SystemClock()
        try:
            checkpoints = JobCheckpoints.open(graph, settings, clock, home)
            self.cluster = SimulatedCluster(world, self)
            inbox = _Inbox()
            inbox.wake = self._wake  # type: ignore[method-assign]
            self._inbox = inbox
            master = JobMaster(
                shipping.pack(checkpoints.job_id, checkpoints.graph, settings.as_mapping()),
                settings,
                checkpoints,
                self.cluster,
                self.cluster,
                clock,
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
        self.world.seen(self, event)
        try:
            patience = self._life.send(event)
        except StopIteration:
            self._ended()
        else:
            self._turn_later(patience if self._inbox.empty() else self.sim.delay(0.001))

    def _ended(self) -> None:
        assert self.master is not None
        failure = self.master.result.exception()
        successor = self.master.checkpoints.successor
        if failure is not None:
            self._failed(failure)
        elif successor is not None:
            self.width = successor.slots
            self.later(0.01, "goes on rescaled", lambda: self._begin(successor, self.master))
        else:
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
            self.world.driver_gone(self)

    def order(self, kind: str, order: SnapshotOrder) -> None:
        if self.master is not None:
            self.orders.append((kind, order))
            self.master.order(order)


@dataclass
class Troubles:
    """What is wrong with the surroundings at the moment."""

    until: dict[str, float] = field(default_factory=dict)
    odds: dict[str, float] = field(default_factory=dict)
    calls_to_live: int | None = None
    point: tuple[str, str] | None = None


class World:
    """The simulation of one plan. After `run`, everything that must hold has held."""

    def __init__(self, plan: Plan, *, traces: bool = False) -> None:
        self.plan = plan
        self.sim = Simulation(plan.seed, traces=traces)
        self.bucket = Bucket(self)
        self.banks = [Bank(number) for number in range(len(plan.program.streams))]
        self.slots: list[SlotProcess] = []
        self.drivers: list[DriverProcess] = []
        self.is_finished = self.is_drained = False
        self.width = plan.width
        self.origin = "latest"
        self.coverage: Counter[tuple[str, str, str]] = Counter()
        self._troubles = Troubles()
        self._published: dict[str, tuple[CheckpointMetadata, frozenset[str]]] = {}
        self._positions: list[list[int]] = [[0] * len(each) for each in plan.program.streams]
        self._counted: set[tuple[int, int]] = set()
        self._user_fails = 0
        self._acted: dict[tuple[int, int], int] = {}
        self._last_fault = "none"
        self._is_quiet = False

    @property
    def twins(self) -> float:
        return 0.0 if self._is_quiet else self.plan.twins

    @property
    def breaks(self) -> float:
        return self._odds("steps")

    # --- the run --------------------------------------------------------------------------------

    def run(self) -> None:
        with self._patched():
            for fault in self.plan.faults:
                self.sim.later(fault.at, f"--- {fault}", lambda f=fault: self._befall(f))
            self._start_driver(0.0)
            horizon = max([fault.at for fault in self.plan.faults], default=0.0) + 12.0
            self.sim.later(horizon, "--- quiet from now on", self._be_quiet)
            self.sim.run_while(lambda: not self.is_finished)
            self._check_results()

    @contextmanager
    def _patched(self) -> Iterator[None]:
        unpacked: dict[bytes, Any] = {}

        def unpack(package: bytes, directory: Any) -> Any:
            if package not in unpacked:
                unpacked[package] = original(package, directory)
            return unpacked[package]

        original = slot_host.unpack
        modules = shipping._Modules("/", (), "", b"")
        chance = SimpleNamespace(Random=lambda: random.Random(self.sim.rnd.random()))
        before, clockwork.SIMULATION = clockwork.SIMULATION, self
        try:
            with ExitStack() as stack:
                stack.enter_context(self.sim.in_place_of_the_machine())
                for place, name, played in (
                    (filesystem, "LocalStore", self.bucket.open),
                    (slot_host, "unpack", unpack),
                    (shipping, "_local_modules", lambda: modules),
                    (shipping._Modules, "install", lambda self, directory: None),
                    (step_task, "_settle_in", lambda: None),
                    (job_master, "random", chance),
                    (fault_points, "_orders", SimpleNamespace(claim=self._passes)),
                ):
                    stack.enter_context(patch.object(place, name, played))
                yield
        finally:
            clockwork.SIMULATION = before

    def _be_quiet(self) -> None:
        self._is_quiet = True
        self._last_fault = "none"
        self._troubles = Troubles()
        self._user_fails = 0
        for process in [*self.slots, *self.drivers]:
            process.asleep_until = min(process.asleep_until, self.sim.now)
        for slot in self.slots:
            slot.dozes = 0.0
        self.sim.later(QUIET_SECONDS, "--- too late", self._too_late)

    def _too_late(self) -> None:
        states = [
            [f"{p}: {region.state.name}" for p, region in driver.master._regions.items()]
            for driver in self.drivers
            if driver.is_alive and driver.master is not None
        ]
        raise Wrong(f"the job does not end: {states or 'there is no driver'}")

    # --- drivers --------------------------------------------------------------------------------

    @property
    def driver(self) -> DriverProcess | None:
        """The latest one, if it lives."""
        latest = self.drivers[-1] if self.drivers else None
        return latest if latest is not None and latest.is_alive else None

    def _start_driver(self, seconds: float) -> None:
        def start() -> None:
            if self.driver is None and not self.is_finished:
                self._new_driver()

        self.sim.later(seconds, "a driver is started", start)

    def _new_driver(self) -> None:
        self.drivers.append(DriverProcess(self, self.width, len(self.drivers)))

    def driver_gone(self, driver: DriverProcess) -> None:
        """Its slots notice; somebody starts another one."""
        for slot in self.slots:
            if slot.is_alive and slot.cluster.driver is driver:
                slot.driver_is_gone()
        self._go_on_after(driver)

    def _go_on_after(self, driver: DriverProcess) -> None:
        self._take_stops(driver)
        if driver.master is not None and driver.width != self.width:
            self.width = driver.width
        self._start_driver(0.1 + self.sim.delay(0.5))

    def _take_stops(self, driver: DriverProcess) -> str | None:
        """The savepoint with which this driver has ended its job: the next one begins there."""
        if driver.master is None:
            return None
        checkpoints = driver.master.checkpoints
        if any(path.startswith(f"{checkpoints.home.directory}/") for path in self._published):
            self.origin = "latest"
        stop = checkpoints.retained.stop_point
        if stop is None or stop.url is None or SAVEPOINTS not in stop.url:
            return None
        self.origin = stop.url
        return stop.url

    @property
    def _may_have_rival(self) -> bool:
        """A job that is started from a savepoint is another one: nothing keeps it from harm."""
        return self.origin == "latest"

    def driver_failed(self, driver: DriverProcess, failure: BaseException) -> None:
        if isinstance(failure, JobStopped):
            # The one that stops the job may not be through with it.
            is_over = not any(each.is_alive for each in self.drivers)
            if is_over and not failure.args[1]:
                self.is_finished = True
                return
            if is_over:
                self.origin = failure.args[1]
        elif not isinstance(failure, ExternalError | UserFunctionError | JobCanceled):
            raise Wrong(f"{driver.name} failed: {failure!r}") from failure
        self._go_on_after(driver)

    def finished(self, driver: DriverProcess) -> None:
        """The job has ended; if by a stop, it goes on from its savepoint."""
        drains = {k for k, order in driver.orders if order.answer.done() and _answered(order)}
        url = self._take_stops(driver)
        if url is None or "drain" in drains:
            self.is_finished, self.is_drained = True, url is not None
            if url is not None:
                [self._drained] = [m for path, (m, _) in self._published.items() if url in path]
            return
        self.width = 1 + self.sim.rnd.randrange(3)
        self._start_driver(0.1)

    # --- what befalls them ----------------------------------------------------------------------

    def _befall(self, fault: Fault) -> None:
        if self._is_quiet:
            return
        self._last_fault = fault.kind
        sim, which, amount = self.sim, fault.which, fault.amount
        alive = [slot for slot in self.slots if slot.is_alive and hasattr(slot, "host")]
        slot = alive[which % len(alive)] if alive else None
        driver = self.driver
        match fault.kind:
            case "kill a slot" if slot:
                slot.die()
            case "put a slot to sleep" if slot and which % 2:
                slot.dozes = (1 + amount) * 1.5 * LEASE_SECONDS
            case "put a slot to sleep" if slot:
                slot.asleep_until = sim.now + amount * 3 * LEASE_SECONDS
            case "cut a line" | "reset a line" if slot:
                slot.line_breaks(is_noticed=fault.kind == "reset a line")
            case "start a slot twice" if slot:
                slot.cluster.start_again(slot.incarnation.slot)
            case "give a slot up" if slot:
                slot.cluster.give_up(slot.incarnation.slot)
            case "kill the driver" if driver:
                driver.die()
            case "put the driver to sleep" if driver:
                driver.asleep_until = sim.now + amount * 20
            case "start a rival" if driver and driver.master and self._may_have_rival:
                if which % 2:
                    driver.asleep_until = sim.now + amount * 10
                self._new_driver()
            case "kill at a call":
                self._troubles.calls_to_live = which
            case "kill at a point":
                points = list(fault_points.FaultPoint)
                victims = list(fault_points.Victim)
                self._troubles.point = (
                    points[which % len(points)].name,
                    victims[which // 10 % 2].name,
                )
            case "storage fails" | "storage is slow" | "the bank fails" | "steps break":
                names = {"storage fails": "storage", "the bank fails": "bank"}
                what = names.get(fault.kind, "steps" if "steps" in fault.kind else "slowness")
                self._troubles.until[what] = sim.now + 1 + 4 * amount
                self._troubles.odds[what] = (0.05, 0.3, 0.9)[which % 3]
            case "user code fails":
                self._user_fails += 1
            case "a clock jumps" if slot:
                slot.wall_error += 4 * amount - 2
            case "checkpoint" | "savepoint" | "stop" | "drain" | "rescale" if driver:
                self._order(driver, fault)

    def _order(self, driver: DriverProcess, fault: Fault) -> None:
        target = SavepointTarget(
            SAVEPOINTS,
            f"savepoint-{self.sim.number}",
            (SavepointFormat.NATIVE, SavepointFormat.CANONICAL)[fault.which % 2],
        )
        match fault.kind:
            case "checkpoint":
                order = SnapshotOrder.of(BarrierKind.CHECKPOINT)
            case "savepoint":
                order = SnapshotOrder.of(BarrierKind.SAVEPOINT, target)
            case "rescale":
                graph = self.plan.program.graph(1 + fault.which % 3)
                order = SnapshotOrder.of(BarrierKind.STOP, successor=graph)
            case _:
                order = SnapshotOrder.of(BarrierKind.STOP, target, drains=fault.kind == "drain")
        driver.order(fault.kind, order)

    def _odds(self, what: str) -> float:
        is_now = self._troubles.until.get(what, 0.0) > self.sim.now
        return self._troubles.odds[what] if is_now else 0.0

    def _passes(self, point: fault_points.FaultPoint, victim: fault_points.Victim) -> bool:
        self.sim.happened[f"{victim.value} passes: {point.value}"] += 1
        if self._troubles.point == (point.name, victim.name) and self.sim.chance(0.5):
            self._troubles.point = None
            raise Killed
        return False

    def user_code(self, pipeline: int, value: Any) -> None:
        if self._user_fails and self.sim.chance(0.3):
            self._user_fails -= 1
            raise ValueError("the user's code fails")

    @contextmanager
    def outside(
        self, what: str, kind: str, failure: Exception, *, acts: bool = False
    ) -> Iterator[None]:
        """A call that leaves the process; it may fail, or kill, with its effect or without."""
        sim, process = self.sim, self.sim.current
        if process is None:
            yield
            return
        if not process.is_alive:
            raise Killed
        if sim.trace is not None:
            sim.note(f"    {what}")
        if acts and isinstance(process, SlotProcess):
            self._check_alone(process, what)
        fails, dies = sim.chance(self._odds(kind)), self._is_last_call()
        if kind == "storage" and sim.chance(self._odds("slowness")):
            sim.meanwhile(sim.delay(0.5))
        elif kind == "storage" and len(self.drivers) > 1 and sim.chance(0.1):
            sim.meanwhile(sim.delay(0.1))
        is_late = (fails or dies) and sim.chance(0.5)
        if dies and not is_late:
            raise Killed
        if fails and not is_late:
            raise failure
        yield
        if dies:
            raise Killed
        if fails:
            raise failure

    def _is_last_call(self) -> bool:
        calls = self._troubles.calls_to_live
        if calls is None:
            return False
        self._troubles.calls_to_live = calls - 1 if calls else None
        return calls == 0

    def lost(self, process: SlotProcess) -> None:
        for bank in self.banks:
            bank.lost(process)

    # --- what must hold -------------------------------------------------------------------------

    def _check_alone(self, process: SlotProcess, what: str) -> None:
        place = id(process.cluster), process.incarnation.slot
        newest = self._acted.get(place, -1)
        if process.number < newest:
            raise Wrong(f"{process.name} does {what!r} although {newest} serves its slot")
        self._acted[place] = process.number

    def stored(self, what: str, where: str, outcome: Any) -> None:
        if what == "create" and outcome and where.endswith(f"/{METADATA}"):
            self._publish(where)
        elif what == "delete":
            for path in [path for path in self._published if path not in self.bucket.blobs]:
                del self._published[path]
            self._check_files()

    def _publish(self, where: str) -> None:
        metadata = decode(self.bucket.blobs[where], where)
        directory, _, name = where.removesuffix(f"/{METADATA}").rpartition("/")
        files = frozenset(f"{directory}/{path_of(file, name)}" for file in metadata.files)
        self._published[where] = metadata, files
        self._check_files()
        for number, positions in enumerate(self._positions):
            for stream, position in enumerate(self.positions_in(metadata, number)):
                positions[stream] = max(positions[stream], position)

    def positions_in(self, metadata: CheckpointMetadata, pipeline: int) -> list[int]:
        """Up to where each stream is read; a reader says nothing of those that it has read."""
        positions = list(self.plan.program.streams[pipeline])
        for record in metadata.operators.values():
            if record.uid == f"source {pipeline}":
                for handle in record.subtasks.values():
                    for split in map(pickle.loads, handle.source_splits):
                        positions[split.stream] = split.position
        return positions

    def _check_files(self) -> None:
        for where, (_, files) in self._published.items():
            for path in files:
                if path not in self.bucket.blobs:
                    raise Wrong(f"{where} lacks {path}")

    def commits(self, bank: Bank, transaction: str, records: Sequence[Any]) -> None:
        """No commit without its checkpoint, nothing twice."""
        positions = self._positions[bank.pipeline]
        seen = Counter(records)
        if self.plan.mode != "EXACTLY_ONCE":
            return
        for record in records:
            if record[0] != "timer" and record[1] >= positions[record[0]]:
                raise Wrong(f"{transaction} is committed with {record} without a checkpoint")
            if seen[record] > 1 or bank.visible[record]:
                raise Wrong(f"{transaction} repeats {record}")

    def _check_results(self) -> None:
        for number, bank in enumerate(self.banks):
            records = Counter(r[:2] for r in bank.visible.elements() if r[0] != "timer")
            expected = self.plan.program.expected(number)
            if self.is_drained:
                read = {stream for stream, _ in records}
                limits = self.positions_in(self._drained, number)
                limits = [limit if s in read else 0 for s, limit in enumerate(limits)]
                expected = self.plan.program.expected(number, limits)
            if self.plan.mode == "EXACTLY_ONCE":
                _same(f"pipeline {number}", records, expected)
            else:
                _same(f"pipeline {number}", Counter(set(records)), expected)
            if number == 0 and self.plan.mode == "EXACTLY_ONCE":
                self._check_counts(bank, expected)
            rivals = {"start a rival", "put the driver to sleep"}
            has_rivals = any(fault.kind in rivals for fault in self.plan.faults)
            if self.plan.program.sink == "committer" and bank.prepared and not has_rivals:
                raise Wrong(f"nobody settles {sorted(bank.prepared)}")
        left = [path for path in self.bucket.blobs if path.startswith(CHECKPOINTS)]
        # What is written late, or could not be deleted, goes at the next start.
        troubled = any(fault.kind == "storage fails" for fault in self.plan.faults)
        if left and self.origin == "latest" and len(self.drivers) == 1 and not troubled:
            raise Wrong(f"files are left: {left}")

    def _check_counts(self, bank: Bank, expected: Counter[Any]) -> None:
        key_of = self.plan.program.key_of
        by_key = Counter(key_of(record) for record in expected.elements())
        counts = Counter(r[2:] for r in bank.visible if r[0] != "timer")
        whole = Counter((key, n + 1) for key, size in by_key.items() for n in range(size))
        _same("the numbers by key", counts, whole)
        timers = Counter(r[1:] for r in bank.visible if r[0] == "timer")
        sets_timer = self.plan.program.sets_timer
        set_ = Counter(key_of(record) for record in expected.elements() if sets_timer(record))
        due = Counter((key, n + 1) for key, size in set_.items() for n in range(size))
        if self.is_drained:
            due &= timers
        _same("the timers", timers, due)

    # --- coverage -------------------------------------------------------------------------------

    def seen(self, driver: DriverProcess, event: Any) -> None:
        master = driver.master
        assert master is not None
        regions = list(master._regions.values())
        state = regions[0].state.name
        pending = master.checkpoints.coordinator
        state += " publishing" if pending.is_publishing else " pending" if pending._pending else ""
        name = type(getattr(event, "message", event)).__name__
        self.coverage[state, name, self._last_fault] += 1


def _same(what: str, found: Counter[Any], expected: Counter[Any]) -> None:
    if found != expected:
        more, fewer = found - expected, expected - found
        raise Wrong(f"{what}: too many {sorted(more)[:5]}, missing {sorted(fewer)[:5]}")


def _answered(order: SnapshotOrder) -> bool:
    return not isinstance(order.answer.exception(), SavepointFailed | NotNow)
