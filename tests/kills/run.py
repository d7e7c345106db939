"""Runs one case from start to end."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import psutil

from tests.kills import cases
from tests.kills.cases import Fault
from tests.kills.job import (
    EXACT,
    FAILED,
    HUNG,
    LEASE_SECONDS,
    PATIENCE,
    WRONG,
    DrivenJob,
    Hung,
    JobEnded,
    Kill,
    Outcome,
)
from tests.kills.programs import expected, found
from tidegate.core.fault_points import FaultPoint, Order, Victim

_POINT_SECONDS = 20.0


class Run(DrivenJob):
    def play(self) -> Outcome:
        self._orders = self._ground.place.orders
        self._zombies: list[int] = []
        self._order_number = self._case.number * 1000
        outcome = self.outcome
        try:
            self._begin(None)
            self._suffer()
            self._finish()
            self._compare()
        except Hung as reason:
            outcome.outcome = HUNG
            outcome.notes.append(str(reason))
            self._dump()
        except JobEnded as reason:
            outcome.outcome = FAILED
            outcome.notes.append(str(reason))
        finally:
            Order.withdraw(self._orders)
            if self._driver.is_alive:
                self._driver.kill()
        left = self._gone()
        left += self._ground.leave(keep=outcome.outcome != EXACT)
        if left and outcome.outcome == EXACT:
            outcome.outcome = WRONG
        outcome.notes += left
        outcome.seconds = time.monotonic() - self._started
        return outcome

    # Faults

    def _suffer(self) -> None:
        faults = self._case.faults
        for index, fault in enumerate(faults):
            self._ground.let((index + 1) / (len(faults) + 1))
            if fault.wait or index == 0:
                self._await_checkpoint()
            if self._is_over:
                return
            time.sleep(fault.delay)
            self._catch_up()
            if self._is_over:
                return
            started = time.monotonic()
            self._note(fault.name)
            if not self._carry_out(fault):
                self._note("not carried out")
                continue
            if fault.is_kill:
                self.outcome.kills.append(Kill(fault.name, time.monotonic() - started))
            else:
                self.outcome.actions.append(fault.name)

    def _carry_out(self, fault: Fault) -> bool:
        match fault.kind:
            case cases.SLOT:
                return self._kill_slot(fault)
            case cases.AT_POINT:
                return self._kill_at_point(fault)
            case cases.DRIVER:
                self._driver.kill()
                self._resume()
            case cases.SPARK:
                self._driver.kill()
                self._stage.kill()
                self._resume()
            case cases.EXECUTOR:
                return self._kill_slot(fault, executor=True)
            case cases.PUMP:
                return self._kill_pump(fault)
            case cases.PAUSE:
                return self._pause_slot(fault)
            case cases.RIVAL:
                self._take_over()
            case cases.BROKER:
                self._servers.kill_broker()
            case cases.DATABASE:
                self._servers.kill_database()
            case cases.DISK:
                if not self._ground.has_disk:
                    return False
                self._ground.fill_disk(fault.chance)
            case cases.RESCALE:
                self._parallelism = 1 + round(2 * fault.chance)
                return self._ask("rescale", parallelism=self._parallelism)
            case cases.SAVEPOINT:
                return self._ask("trigger_savepoint", format=_format(fault))
            case cases.RESTART:
                return self._restart(fault)
        return True

    def _slot(self, fault: Fault) -> tuple[int, int] | None:
        """The process of a slot and of its executor."""
        files = sorted(self._ground.place.slots.glob("slot-*"))
        alive = []
        for file in files:
            worker, java = map(int, file.read_text().split())
            if psutil.pid_exists(worker) and worker not in self._zombies:
                alive.append((worker, java))
        return alive[int(fault.chance * len(alive))] if alive else None

    def _kill_slot(self, fault: Fault, executor: bool = False) -> bool:
        slot = self._slot(fault)
        if slot is None:
            return False
        try:
            os.kill(slot[executor], signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def _kill_pump(self, fault: Fault) -> bool:
        """Let the driver ask Spark for it: a pump has no process of its own."""
        if not self._ask(cases.PUMP, chance=fault.chance):
            return False
        deadline = time.monotonic() + _POINT_SECONDS
        while self._answer is None and time.monotonic() < deadline:
            if self._hear(0.1) == "gone":
                return False
        return self._answer == ("done", "True")

    def _kill_at_point(self, fault: Fault) -> bool:
        assert fault.order is not None
        point, victim, spared = fault.order
        self._order_number += 1
        is_restore = point is FaultPoint.RESTORE
        order = Order(self._order_number, point, victim, 0 if is_restore else spared)
        order.give(self._orders)
        if is_restore and not self._kill_slot(fault):
            order.withdraw(self._orders)
            return False
        deadline = time.monotonic() + _POINT_SECONDS
        while not order.is_carried_out(self._orders):
            heard = self._hear(0.02)
            if heard in ("gone", "failed") and not order.is_carried_out(self._orders):
                self._driver.join()
                self._resume()
            if self._is_over or time.monotonic() > deadline:
                order.withdraw(self._orders)
                return False
        if victim is Victim.DRIVER:
            self._driver.join()
            self._resume()
        return True

    def _pause_slot(self, fault: Fault) -> bool:
        slot = self._slot(fault)
        if slot is None:
            return False
        try:
            os.kill(slot[0], signal.SIGSTOP)
        except ProcessLookupError:
            return False
        self._zombies.append(slot[0])
        try:
            time.sleep(LEASE_SECONDS + 0.5)
            self._catch_up()
            self._await_checkpoint()
        finally:
            if psutil.pid_exists(slot[0]):
                os.kill(slot[0], signal.SIGCONT)
        return True

    def _take_over(self) -> None:
        """Another driver takes over the job while this one sleeps; then this one wakes up."""
        before = self._driver
        before.signal(signal.SIGSTOP)
        self._resume(**{"tidegate.recovery.take-over": True})
        try:
            self._await_checkpoint()
        finally:
            before.signal(signal.SIGCONT)
        deadline = time.monotonic() + PATIENCE
        while before.is_alive and self._driver.is_alive and time.monotonic() < deadline:
            self._hear(0.2)
            with suppress(EOFError, OSError):
                while before.line.poll():
                    before.line.recv()
        if before.is_alive and self._driver.is_alive:
            before.kill()
            raise Hung("a driver whose job was taken over does not end")
        if before.is_alive:
            self._driver = before  # it had not claimed the job yet when it fell asleep

    def _restart(self, fault: Fault) -> bool:
        """Stop with a savepoint, and start another job from it; sometimes a slot dies meanwhile."""
        self._is_stopping = True
        try:
            return self._stop_and_begin(fault)
        finally:
            self._is_stopping = False

    def _stop_and_begin(self, fault: Fault) -> bool:
        if not self._ask("stop_with_savepoint", format=_format(fault)):
            return False
        if fault.chance > 0.7:
            time.sleep(fault.delay / 4)
            if self._kill_slot(fault):
                self.outcome.kills.append(Kill("slot during stop", 0.0))
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            match self._hear(1.0):
                case "refused":
                    return False
                case "gone" | "ended" | "failed" as heard:
                    self._driver.join()
                    path = self._path_of_savepoint()
                    if path is None and heard == "ended":
                        self._is_over = True  # it had come to its end before
                    elif path is None:
                        self._resume()
                    else:
                        self._begin(path)
                    return path is not None
        raise Hung(f"a stop has no end for {PATIENCE} s")

    def _path_of_savepoint(self) -> str | None:
        """Where the job has stopped, according to itself."""
        while self._hear(0) not in (None, "gone"):
            pass
        if self._answer is not None:
            what, text = self._answer
            return text if what == "done" else None
        told = "".join(self.outcome.notes[-1:])
        named = re.search(re.escape(str(self._ground.savepoints)) + r"/[\w-]+", told)
        return named[0] if named else None

    # The end

    def _finish(self) -> None:
        self._ground.open()
        while not self._is_over:
            self._await_checkpoint()
        self._driver.join()

    def _compare(self) -> None:
        self._note("compares")
        wanted = expected(self._case.program)
        got: Counter[Any] = found(self._case.program, self._ground.place)
        lost, doubled = wanted - got, got - wanted
        outcome = self.outcome
        outcome.lost = lost.total()
        outcome.doubled = doubled.total() if self._case.exactly else 0
        if outcome.lost or outcome.doubled:
            outcome.outcome = WRONG
            outcome.notes += [f"lost {each}" for each in list(lost)[:3]]
            outcome.notes += [f"doubled {each}" for each in list(doubled)[:3]]

    def _dump(self) -> None:
        """Make the processes of a hung job dump their stacks."""
        self._driver.signal(signal.SIGUSR1)
        for file in self._ground.place.slots.glob("slot-*"):
            worker = int(file.read_text().split()[0])
            if psutil.pid_exists(worker):
                os.kill(worker, signal.SIGUSR1)
        time.sleep(1)

    def _gone(self) -> list[str]:
        """Slots of the last driver that have not ended with it."""
        slots = [
            int(file.read_text().split()[0]) for file in self._ground.place.slots.glob("slot-*")
        ]
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            left = [pid for pid in (*slots, *self._zombies) if _is_running(pid)]
            if not left:
                return []
            time.sleep(0.05)
        return [f"process {pid} is left behind" for pid in left]


def _is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _format(fault: Fault) -> Any:
    from tidegate.core.modes import SavepointFormat

    return SavepointFormat.NATIVE if fault.chance * 10 % 1 < 0.5 else SavepointFormat.CANONICAL
