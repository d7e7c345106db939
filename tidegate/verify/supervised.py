"""A run of the user's program that is killed on order, and restarted when its driver died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.core.errors import ExternalError
from tidegate.core.fault_points import DIRECTORY_VARIABLE, Order, Victim

_POLL_SECONDS = 0.05
_TAIL_LINES = 30
_SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that is killed after seconds does not benefit from optimizing."""


@dataclass(frozen=True, slots=True)
class ProgramCommand:
    """How the program is started and restarted."""

    job: Path
    arguments: tuple[str, ...]
    settings: tuple[tuple[str, str], ...] = ()

    def argv(self, more: Sequence[tuple[str, str]] = ()) -> list[str]:
        options = [
            text for key, value in (*self.settings, *more) for text in ("-D", f"{key}={value}")
        ]
        return [sys.executable, "-m", "tidegate", "run", *options, str(self.job), *self.arguments]


class SupervisedRun:
    """One run from start to end, across all its drivers."""

    def __init__(self, command: ProgramCommand, directory: Path, patience_seconds: float) -> None:
        self._command = command
        self._directory = directory
        self._patience = patience_seconds
        self._orders = directory / "orders"
        self._orders.mkdir(parents=True)
        self._log = directory / "program.log"
        self._process = self._start()

    def to_its_end(self, orders: Iterator[Order], killed: Callable[[Order], None]) -> None:
        """Give all orders in sequence, then wait for the end of the program.

        Raises:
            ExternalError: the program failed by itself, or hangs.
        """
        try:
            self._supervise(orders, killed)
        finally:
            Order.withdraw(self._orders)
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()

    def _supervise(self, orders: Iterator[Order], killed: Callable[[Order], None]) -> None:
        order = self._next(orders)
        moved_at = time.monotonic()
        while True:
            code = self._process.poll()
            if order is not None and order.is_carried_out(self._orders):
                if order.victim is Victim.DRIVER:
                    self._process.wait()
                    self._process = self._start()
                    code = None
                killed(order)
                order = self._next(orders)
                moved_at = time.monotonic()
            if code == 0:
                return
            if code is not None:
                raise ExternalError(f"{self._end(code)}; the end of {self._log}:\n{self._tail()}")
            if time.monotonic() > moved_at + self._patience:
                waits = "" if order is None else f" (to be killed {order.point.value})"
                raise ExternalError(
                    f"the program neither ended nor reached the expected point{waits} within "
                    f"{self._patience:.0f} s; the end of {self._log}:\n{self._tail()}"
                )
            time.sleep(_POLL_SECONDS)

    def _next(self, orders: Iterator[Order]) -> Order | None:
        order = next(orders, None)
        if order is not None:
            order.give(self._orders)
        return order

    def _start(self) -> subprocess.Popen[bytes]:
        own = [
            ("execution.checkpointing.dir", str(self._directory / "checkpoints")),
            ("execution.state-recovery.path", "latest"),
        ]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._command.argv(own),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        options = f"{_SHORT_LIVED_JAVA} {os.environ.get('JAVA_TOOL_OPTIONS', '')}".strip()
        orders = str(self._orders)
        return {**os.environ, DIRECTORY_VARIABLE: orders, "JAVA_TOOL_OPTIONS": options}

    def _end(self, code: int) -> str:
        if code < 0:
            return f"the program was ended by {signal.Signals(-code).name}, not by this command"
        return f"the program failed by itself with exit code {code}"

    def _tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])
