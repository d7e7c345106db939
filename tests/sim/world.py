"""One job, its drivers and its faults, from a seed."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pandas  # noqa: F401  (Arrow would import it in the middle of a schedule, and it draws)

from tests.sim import files, kafka_clients, postgres
from tests.sim.bank import Bank
from tests.sim.checks import USER_FAILURE, Checks, savepoints_of
from tests.sim.clockwork import Killed, Simulation, Wrong, current, here
from tests.sim.cluster import CLOSING_SECONDS, SlotProcess
from tests.sim.drivers import DriverProcess
from tests.sim.kafka import Kafka
from tests.sim.plans import LEASE_SECONDS, OF_MACHINES, RARE, SAVEPOINTS, Fault, Plan
from tests.sim.pumped.threads import QUEUE, THREADING, SimulatedThread, sleep
from tests.sim.storage import Bucket
from tests.sim.tasks import EXECUTORS
from tests.sim.tides import Attempts
from tidegate.checkpoint.layout import METADATA
from tidegate.checkpoint.metadata import CheckpointMetadata, decode
from tidegate.core import fault_points
from tidegate.core.errors import (
    ExternalError,
    JobCanceled,
    JobStopped,
    NoCheckpoint,
    UserFunctionError,
)
from tidegate.core.ids import Address
from tidegate.core.modes import SavepointFormat
from tidegate.driver import job_master
from tidegate.driver.checkpoints.snapshot_orders import SnapshotOrder
from tidegate.driver.job_master import JobMaster
from tidegate.exchange import cancellation, choice, step_task
from tidegate.exchange.pipelined import admission, cargo, exchange
from tidegate.slot import outbox, restored_state, slot_host, step_server
from tidegate.slot.pump_lines import _LinesOfJob
from tidegate.storage import filesystem
from tidegate.stream.elements import BarrierKind, SavepointTarget

BANKS: dict[str, type[Bank]] = {
    "files": files.Files,
    "kafka": Kafka,
    "postgres": postgres.Postgres,
}
"""Behind the sinks, those that are not plain ones."""
QUIET_SECONDS = 400.0
"""How long a job may take to end after the last fault."""
_CALLS = {
    "bank": (None, "begin", "write", "prepare", "commit", "abort"),
    "storage": (None, "create", "put", "read", "delete", "list", "exists"),
}
"""What fails, if not everything does."""
_TROUBLES = {
    "storage fails": "storage",
    "storage is slow": "slowness",
    "the bank fails": "bank",
    "steps break": "steps",
    "pumps lag": "lag",
    "no room for pumps": "room",
}
"""Faults that last for a while."""


@dataclass
class Troubles:
    """The current faults of the surroundings."""

    until: dict[str, float] = field(default_factory=dict)
    odds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, str | None] = field(default_factory=dict)
    armed: list[list[Any]] = field(default_factory=list)
    """Faults that wait for their moment, and how often it passes first."""
    user_fails: int = 0
    flips: int = 0


class World:
    """The simulation of one plan. After `run`, all invariants have held."""

    def __init__(self, plan: Plan, *, traces: bool = False) -> None:
        self.plan = plan
        self.sim = Simulation(plan.seed, traces=traces)
        self.bucket = Bucket(self)
        bank = BANKS.get(plan.program.sink, Bank)
        self.banks = [bank(number) for number in range(len(plan.program.streams))]
        self.slots: list[SlotProcess] = []
        self.drivers: list[DriverProcess] = []
        self.is_finished = False
        self.tells_of_loss = False
        """Whether the job has said that a server has ended what was prepared: it cannot go on."""
        self.width = plan.width
        self.origin = "latest"
        self.checks = Checks(self)
        self.tides = Attempts()
        self.carried: dict[Any, list[Any]] = {}
        """What units have sent over endless jobs."""
        self.coverage: Counter[tuple[str, str, str]] = Counter()
        self._troubles = Troubles()
        self.drained: list[list[int]] | None = None
        """Where the streams of each pipeline have ended, if the job was drained."""
        self._resumed: CheckpointMetadata | None = None
        self._last_fault = "none"
        self._is_quiet = False

    @property
    def twins(self) -> float:
        return 0.0 if self._is_quiet else self.plan.twins

    @property
    def breaks(self) -> float:
        return self._odds("steps")

    @property
    def lag(self) -> float:
        return self._odds("lag")

    @property
    def has_no_room(self) -> bool:
        return self.sim.chance(self._odds("room"))

    # --- the run --------------------------------------------------------------------------------

    def run(self) -> None:
        with self._patched():
            for fault in self.plan.faults:
                self.sim.later(fault.at, f"--- {fault}", lambda f=fault: self._arm(f))
            self._start_driver(0.0)
            horizon = max([fault.at for fault in self.plan.faults], default=0.0) + 12.0
            self.sim.later(horizon, "--- quiet from now on", self._be_quiet)
            self.sim.run_while(lambda: not self.is_finished and not self.tells_of_loss)
            if self.tells_of_loss:
                return
            self.checks.results()
            self._end_of_slots()
            self._resume_from_savepoint()

    def close(self) -> None:
        """Nobody waits any more."""
        for process in [*self.slots, *self.drivers]:
            process.is_alive = False
            for thread in list(process.threads):
                thread.kill()

    @contextmanager
    def _patched(self) -> Iterator[None]:
        unpacked: dict[bytes, Any] = {}

        def unpack(package: bytes, directory: Any) -> Any:
            if package not in unpacked:
                unpacked[package] = original(package, directory)
            return unpacked[package]

        original = slot_host.unpack
        chance = SimpleNamespace(Random=lambda: random.Random(self.sim.rnd.random()))
        with ExitStack() as stack:
            stack.enter_context(current(self))
            stack.enter_context(self.sim.in_place_of_the_machine())
            stack.callback(self.close)
            for place, name, played in (
                (filesystem, "LocalStore", self.bucket.open),
                (slot_host, "unpack", unpack),
                (slot_host, "_memory", lambda: None),
                *files.PATCHES,
                (outbox, "PACKET_BYTES", self.plan.packet_bytes),
                (restored_state, "_REPORTED_BYTES", 64),
                (step_task, "_settle_in", lambda: None),
                (cargo, "_ENOUGH_BYTES", self.plan.packet_bytes),
                (exchange, "dial", self._dial),
                (exchange, "threading", THREADING),
                (exchange, "queue", QUEUE),
                (exchange, "InheritableThread", SimulatedThread),
                (admission, "time", SimpleNamespace(monotonic=self.sim.monotonic, sleep=sleep)),
                (choice, "threading", THREADING),
                (cancellation, "threading", THREADING),
                (step_server, "queue", QUEUE),
                (_LinesOfJob, "serve_pump", self.checks.served(_LinesOfJob.serve_pump)),
                (job_master, "random", chance),
                (fault_points, "_orders", SimpleNamespace(claim=self._passes)),
                (time, "sleep", here(kafka_clients.sleep, time.sleep)),
                *kafka_clients.PATCHES,
                *postgres.PATCHES,
            ):
                stack.enter_context(patch.object(place, name, played))
            yield

    def _dial(self, address: Address, secret: bytes) -> Any:
        return self.slots[address.port].dialed(self.sim.current)

    def _be_quiet(self) -> None:
        self._is_quiet = True
        self._last_fault = "none"
        self._troubles = Troubles()
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

    def _end_of_slots(self) -> None:
        """All slots end with the job, at the latest with their lease and what they close.

        A driver that still waits for its slots does not know that another one has run its job.
        """
        limit = self.sim.later(QUIET_SECONDS, "--- too late", self._too_late)
        self.sim.run_while(lambda: any(driver.is_alive for driver in self.drivers))
        limit.cancel()
        seconds = 4 * LEASE_SECONDS + CLOSING_SECONDS
        until = self.sim.now + seconds
        left = [slot for slot in self.slots if slot.is_alive]
        self.sim.later(seconds, "--- the end", lambda: None)
        self.sim.run_while(lambda: self.sim.now < until and any(s.is_alive for s in left))
        for slot in left:
            if slot.is_alive and slot.has_been_accepted:
                raise Wrong(f"{slot.name} does not end with its job")

    def _resume_from_savepoint(self) -> None:
        """Start another job from a savepoint of this one."""
        found = savepoints_of(self)
        if not found:
            return
        self.origin, self._resumed = found[-1]
        self.drained = None
        for bank in self.banks:
            bank.visible.clear()
        if not self._is_quiet:
            self._be_quiet()
        self.is_finished = False
        self._start_driver(0.1)
        self.sim.run_while(lambda: not self.is_finished)
        self.checks.resumed(self._resumed)

    def is_troubled(self, what: str) -> bool:
        """Whether faults of these kinds are planned."""
        return any(fault.kind.startswith(what) for fault in self.plan.faults)

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
        """Its slots notice, and another driver is started."""
        for slot in self.slots:
            if slot.is_alive and slot.cluster.driver is driver:
                slot.driver_is_gone()
        self._go_on_after(driver)

    def _go_on_after(self, driver: DriverProcess) -> None:
        self._take_stops(driver)
        if driver.master is not None:
            self.width = driver.width
        if self.sim.chance(0.3):
            self.width = 1 + self.sim.rnd.randrange(3)
        self._start_driver(0.1 + self.sim.delay(0.5))

    def _take_stops(self, driver: DriverProcess) -> str | None:
        """The savepoint with which this driver has stopped its job: the next one starts there."""
        if driver.master is None:
            return None
        checkpoints = driver.master.checkpoints
        if any(path.startswith(f"{checkpoints.home.directory}/") for path in self.checks.published):
            self.origin = "latest"
        stop = checkpoints.retained.stop_point
        if stop is None or stop.url is None or SAVEPOINTS not in stop.url:
            return None
        self._go_on_from(stop.url)
        return stop.url

    def _go_on_from(self, savepoint: str) -> None:
        """The next driver starts there.

        The inputs of a drained job have ended, also for those who resume it: nothing more is read,
        even if its driver dies before it has ended the job.
        """
        self.origin = savepoint
        orders = [order for driver in self.drivers for _, order in driver.orders]
        targets = [order.request.savepoint for order in orders if order.request.drains]
        if any(each is not None and savepoint.endswith(f"/{each.name}") for each in targets):
            where = f"{savepoint}/{METADATA}"
            metadata = decode(self.bucket.blobs[where], where)
            pipelines = range(len(self.banks))
            self.drained = [self.checks.positions_in(metadata, number) for number in pipelines]

    def is_over_for(self, job_id: str) -> bool:
        """Whether a driver starts so late that the job is over and removed: it is another run."""
        before = [each.master.checkpoints.home for each in self.drivers if each.master is not None]
        return (
            bool(before)
            and all(home.job_id != job_id for home in before)
            and not any(p.startswith(f"{h.directory}/") for h in before for p in self.bucket.blobs)
        )

    @property
    def is_one_job(self) -> bool:
        """Not if it has started from a savepoint, or was canceled before its first checkpoint."""
        masters = [driver.master for driver in self.drivers if driver.master is not None]
        return self.origin == "latest" and len({each.job_id for each in masters}) == 1

    @property
    def _may_have_rival(self) -> bool:
        """A job started from a savepoint is a new one: nothing protects it from a rival."""
        return self.origin == "latest"

    def driver_failed(self, driver: DriverProcess, failure: BaseException) -> None:
        if isinstance(failure, JobStopped):
            # The one that stops the job may not be through with it.
            is_over = not any(each.is_alive for each in self.drivers)
            if is_over and not failure.args[1]:
                self.is_finished = True
                return
            if is_over:
                self._go_on_from(failure.args[1])
        elif self.is_troubled("a byte") and isinstance(failure, NoCheckpoint):
            pass  # it names the file, and the next one to read it may find it as it was
        elif self.origin != "latest" and USER_FAILURE in str(failure):
            pass  # what a new job cannot even begin is not repeated
        elif not isinstance(failure, ExternalError | UserFunctionError | JobCanceled):
            raise Wrong(f"{driver.name} failed: {failure!r}") from failure
        self._go_on_after(driver)

    def finished(self, driver: DriverProcess) -> None:
        """The job has ended; after a stop, it continues from its savepoint."""
        if self._resumed is not None:
            self.is_finished = True
            return
        if self._take_stops(driver) is None or self.drained is not None:
            self.is_finished = True
            return
        self.width = 1 + self.sim.rnd.randrange(3)
        self._start_driver(0.1)

    # --- what befalls them ----------------------------------------------------------------------

    def _arm(self, fault: Fault) -> None:
        if self._is_quiet:
            return
        if fault.moment:
            self._troubles.armed.append([fault, max(0, fault.which % 4 - 1)])
        else:
            self._befall(fault, None)

    def moment(self, name: str) -> None:
        """The running process has reached this point."""
        if not self._troubles.armed:
            return
        for waiting in list(self._troubles.armed):
            fault, spared = waiting
            if fault.moment != name:
                continue
            waiting[1] -= 1
            if spared == 0:
                self._troubles.armed.remove(waiting)
                self._strike(fault)
                if name in RARE:
                    break  # the others strike later in this state

    def _strike(self, fault: Fault) -> None:
        process = self.sim.current
        victim = process if isinstance(process, SlotProcess) else None
        self.sim.note(f"--- {fault}")
        at_once = fault.which % 10 < 7
        is_victim = (fault.kind == "kill a slot" and victim is not None) or (
            fault.kind == "kill the driver" and isinstance(process, DriverProcess)
        )
        if process is not None and at_once and is_victim:
            self._last_fault = fault.kind
            process.die_now()
        if at_once and fault.kind in OF_MACHINES and victim is not None:
            self._befall(fault, victim)
            victim.die_now()
        if at_once and not fault.kind.startswith(("kill", "start", "give", *OF_MACHINES)):
            self._befall(fault, victim)
            return
        delay = 0.0 if at_once else self.sim.delay(0.02)
        self.sim.later(delay, f"--- {fault.kind}", lambda: self._befall(fault, victim))

    def _befall(self, fault: Fault, victim: SlotProcess | None) -> None:
        if self._is_quiet:
            return
        self._last_fault = fault.kind
        sim, which, amount = self.sim, fault.which, fault.amount
        alive = [slot for slot in self.slots if slot.is_alive and hasattr(slot, "host")]
        slot = alive[which % len(alive)] if alive else None
        if victim is not None and victim in alive:
            slot = victim
        driver = self.driver
        match fault.kind:
            case "kill a slot" if slot:
                slot.die()
            case "put a slot to sleep" if slot and which % 4:
                self._doze(slot, which, amount)
            case "put a slot to sleep" if slot:
                slot.asleep_until = sim.now + amount * 3 * LEASE_SECONDS
                if which % 8 == 0:
                    slot.line_breaks(is_noticed=False)
            case "pause a slot" if slot:
                slot.asleep_until = sim.now + (0.1 + amount) * 0.8 * LEASE_SECONDS
            case "cut a line" | "reset a line" if slot:
                slot.line_breaks(is_noticed=fault.kind == "reset a line")
            case "start a slot twice" if slot:
                slot.cluster.start_again(slot.incarnation.slot)
            case "give a slot up" if slot:
                slot.cluster.give_up(slot.incarnation.slot)
            case "lose an executor" | "a machine crashes" if slot:
                executor = which % EXECUTORS if victim is None else victim.executor
                if fault.kind == "a machine crashes":
                    for bank in self.banks:
                        bank.crash(slot.cluster.on_executor(executor))
                slot.cluster.lose_executor(executor)
            case "kill the driver" if driver:
                driver.die()
            case "put the driver to sleep" if driver:
                driver.asleep_until = sim.now + amount * 20
            case "start a rival" if driver and driver.master and self._may_have_rival:
                if which % 2:
                    driver.asleep_until = sim.now + amount * 10
                self._new_driver()
            case "kill a pump" | "start a pump twice" if driver:
                self._disturb_pump(driver, fault)
            case kind if kind in _TROUBLES:
                what = _TROUBLES[kind]
                self._troubles.until[what] = sim.now + 0.2 + 4 * amount
                self._troubles.odds[what] = 0.9 if fault.moment else (0.05, 0.3, 0.9)[which % 3]
                calls = _CALLS.get(what, (None,))
                call = None if fault.moment else calls[which // 3 % len(calls)]
                self._troubles.calls[what] = call
            case "a server restarts":
                for bank in self.banks:
                    bank.restart(2 * amount)
            case "a transaction times out":
                self.banks[which % len(self.banks)].time_out(which)
            case "a byte is flipped":
                self._troubles.flips += 1
            case "user code fails":
                self._troubles.user_fails += 1
            case "a clock jumps" if driver and which % 4 == 0:
                driver.wall_error += 4 * amount - 2
            case "a clock jumps" if slot:
                slot.wall_error += 4 * amount - 2
            case "cancel" if driver and driver.master:
                self.moment("the job is canceled")
                driver.master.cancel(keeps_checkpoints=True)
            case "savepoint" if self.drained is not None:
                pass  # nothing would follow it
            case "checkpoint" | "savepoint" | "stop" | "drain" | "rescale" if driver:
                self._order(driver, fault)

    def _doze(self, slot: SlotProcess, which: int, amount: float) -> None:
        """Let it sleep when it next checks its permission; meanwhile, Spark may replace it."""
        slot.dozes = (0.1 + amount) * LEASE_SECONDS * (1 if which % 3 else 3)
        slot.dozes_before_acting = which % 4 != 1
        cluster, index = slot.cluster, slot.incarnation.slot

        def replace() -> None:
            match which // 4 % 4:
                case 0:
                    cluster.start_again(index)
                case 1:
                    cluster.give_up(index)
                case 2:
                    slot.line_breaks(is_noticed=True)
                    self.sim.later(0.1, "is replaced", lambda: cluster.start_again(index))

        slot.on_doze = lambda: (self.sim.later(self.sim.delay(), "is left", replace), None)[-1]

    def _disturb_pump(self, driver: DriverProcess, fault: Fault) -> None:
        jobs = (
            []
            if driver.master is None or driver.cluster.pumped is None
            else (driver.cluster.pumped.spark.jobs)
        )
        pumps = [pump for job in jobs[-2:] if not job.is_over for pump in job.pumps.values()]
        if pumps:
            pump = pumps[fault.which % len(pumps)]
            if fault.kind == "kill a pump":
                pump.die()
            else:
                pump.job.start_pump(pump.level, pump.slot)

    def _order(self, driver: DriverProcess, fault: Fault) -> None:
        target = SavepointTarget(
            SAVEPOINTS,
            f"savepoint-{self.sim.number}-{len(driver.orders)}",
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
        if self._troubles.armed:
            self.moment(f"{victim.value} {point.value}")
        return False

    def damaged(self, data: bytes) -> bytes:
        """Data of a checkpoint as it is read, possibly damaged."""
        if not self._troubles.flips or not data:
            return data
        self._troubles.flips -= 1
        self.sim.note("    a byte is flipped")
        place = self.sim.rnd.randrange(len(data))
        return (
            data[:place] + bytes([data[place] ^ 1 << self.sim.rnd.randrange(8)]) + data[place + 1 :]
        )

    def turns_a_page(self, names: int) -> bool:
        """Whether a listing comes in two parts, and others act between them."""
        if names < 2 or self.sim.current is None or self._is_quiet:
            return False
        is_torn = self.sim.chance(0.2 if len(self.drivers) > 1 else self._odds("slowness") / 2)
        if is_torn:
            self.sim.note("    the listing goes on")
            self.sim.meanwhile(self.sim.delay(0.1))
        return is_torn

    def user_code(self, pipeline: int) -> None:
        if self._troubles.user_fails and self.sim.chance(0.3):
            self._troubles.user_fails -= 1
            raise ValueError(USER_FAILURE)

    def outside(
        self, where: str, what: str, kind: str, failure: Exception, *, acts: bool = False
    ) -> _Call:
        """A call that leaves the process; it may fail, with or without effect."""
        return _Call(self, where, what, kind, failure, acts)

    def leaves(self, where: str, what: str, kind: str, failure: Exception, acts: bool) -> bool:
        """Called before it takes effect. Whether it fails afterwards."""
        sim, process = self.sim, self.sim.current
        if process is None:
            return False
        if process.is_dying or not process.is_alive:
            raise Killed
        if sim.trace is not None:
            sim.note(f"    {what} {where}")
        if acts and isinstance(process, SlotProcess):
            self.checks.acts(process, f"{what} {where}")
        fails = self._troubles.calls.get(kind) in (None, what) and sim.chance(self._odds(kind))
        if kind == "storage" and sim.chance(self._odds("slowness")):
            sim.meanwhile(sim.delay(0.5))
        elif kind == "storage" and self._has_several_drivers and sim.chance(0.1):
            sim.meanwhile(sim.delay(0.1))
        is_late = fails and sim.chance(0.5)
        if fails and not is_late:
            raise failure
        return fails

    @property
    def _has_several_drivers(self) -> bool:
        """Others act between two calls to the storage, as long as there are faults."""
        return len(self.drivers) > 1 and not self._is_quiet

    def lost(self, process: SlotProcess) -> None:
        for bank in self.banks:
            bank.lost(process)

    # --- coverage -------------------------------------------------------------------------------

    def seen(self, master: JobMaster, event: Any) -> None:
        regions = list(master._regions.values())
        state = regions[0].state.name
        pending = master.checkpoints.coordinator
        state += " publishing" if pending.is_publishing else " pending" if pending._pending else ""
        name = type(getattr(event, "message", event)).__name__
        self.coverage[state, name, self._last_fault] += 1
        if state in RARE:
            self.moment(state)


class _Call:
    """A context manager: what happens in it is the effect of the call."""

    def __init__(self, world: World, *call: Any) -> None:
        self._world, self._call = world, call
        self._fails = False

    def __enter__(self) -> None:
        self._fails = self._world.leaves(*self._call)

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if self._fails and error is None:
            raise self._call[3]
