"""A job with its successive drivers: starts them and receives their events."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kills.cases import Case
from tests.kills.ground import Ground
from tests.kills.servers import Servers
from tests.kills.stage import Driver, Script, Stage

PATIENCE = 600.0
"""Seconds without a checkpoint after which a job is considered hung."""
LEASE_SECONDS = 20
_STARTS = 8
EXACT, WRONG, HUNG, FAILED = "exact", "wrong", "hung", "failed"


class Hung(Exception):
    """The job makes no progress."""


class JobEnded(Exception):
    """The job has ended, successfully or not."""


@dataclass(slots=True)
class Kill:
    fault: str
    seconds: float


@dataclass(slots=True)
class Outcome:
    outcome: str
    kills: list[Kill] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lost: int = 0
    doubled: int = 0
    seconds: float = 0.0


class DrivenJob:
    def __init__(
        self,
        case: Case,
        stage: Stage,
        servers: Servers,
        directory: Path,
        is_traced: bool = False,
    ) -> None:
        self._is_traced = is_traced
        self._started = time.monotonic()
        self._case = case
        self._stage = stage
        self._servers = servers
        self._ground = Ground(case, servers, directory)
        self._checkpoints: list[Path] = []
        """A directory for each start of the job, fresh or from a savepoint."""
        self._savepoint: str | None = None
        self._parallelism = case.parallelism
        self._answer: tuple[str, str] | None = None
        self._is_over = False
        self._is_stopping = False
        self.outcome = Outcome(EXACT)

    def _begin(self, savepoint: str | None) -> None:
        """Start the job from a savepoint, or fresh."""
        self._savepoint = savepoint
        name = f"{len(self._checkpoints)}"
        self._checkpoints.append(self._ground.place.checkpoints / name)
        self._starts = 0
        self._resume()

    def _resume(self, **more: Any) -> None:
        """Start a driver for a job that has lost its own."""
        self._starts += 1
        if self._starts > _STARTS + len(self._case.faults):
            raise JobEnded(f"{self._starts} drivers have failed")
        self._stage.start()
        directory = self._checkpoints[-1]
        origin = "latest"
        if self._savepoint is not None and not any(directory.glob("*/chk-*/_metadata")):
            origin = self._savepoint
        case = self._case
        settings = {
            "execution.checkpointing.interval": f"{case.interval_ms} ms",
            "execution.checkpointing.mode": "EXACTLY_ONCE" if case.exactly else "AT_LEAST_ONCE",
            "execution.checkpointing.dir": str(directory),
            "execution.checkpointing.savepoint-dir": str(self._ground.savepoints),
            "execution.checkpointing.num-retained": case.retained,
            "execution.checkpointing.incremental": case.incremental,
            "execution.checkpointing.unaligned.enabled": case.unaligned and case.exactly,
            "execution.checkpointing.tolerable-failed-checkpoints": 3,
            "execution.checkpointing.timeout": "60 s",
            "execution.state-recovery.path": origin,
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "state.backend.type": case.backend,
            "jobmanager.execution.failover-strategy": case.failover,
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": 1_000_000,
            "restart-strategy.fixed-delay.delay": "20 ms",
            "heartbeat.interval": "500 ms",
            "heartbeat.timeout": f"{LEASE_SECONDS} s",
            "tidegate.exchange": case.exchange,
            "tidegate.step.max-records": 40,
            "tidegate.rest.enabled": False,
            "tidegate.slot.start-timeout": "10 min",
            "tidegate.console.live-line": "off",
            **more,
        }
        self._note(f"starts a driver, from {origin}")
        self._driver = Driver(
            Script(
                case.program,
                self._ground.place,
                self._stage.gateway,
                self._parallelism,
                settings,
            )
        )

    def _note(self, text: str) -> None:
        """Print a line when a single case is run."""
        if self._is_traced:
            print(f"{time.monotonic() - self._started:7.2f} {text}", flush=True)

    def _hear(self, seconds: float) -> str | None:
        """The next event of the driver, if it comes in time."""
        try:
            if not self._driver.line.poll(seconds):
                return None
            what, text = self._driver.line.recv()
        except (EOFError, OSError):
            self._driver.join()
            if self._driver.exit_code not in (0, -signal.SIGKILL):
                self.outcome.notes.append(f"a driver has ended with {self._driver.exit_code}")
            return "gone"
        self._note(f"driver: {text}")
        if what in ("done", "refused"):
            self._answer = (what, str(text))
        elif what == "failed":
            self.outcome.notes.append(f"driver: {text}")
        elif what == "ended" and not self._is_stopping:
            self._is_over = True
        return str(what)

    def _catch_up(self) -> None:
        """Discard earlier events."""
        while self._hear(0) not in (None, "gone", "failed"):
            pass

    def _await_checkpoint(self) -> None:
        """Wait until a checkpoint is complete, of any driver."""
        deadline = time.monotonic() + PATIENCE
        while not self._is_over and time.monotonic() < deadline:
            match self._hear(1.0):
                case "Completed checkpoint":
                    return
                case "gone" | "failed":
                    self._driver.join()
                    if not self._is_over:
                        self._resume()
        if not self._is_over:
            raise Hung(f"no checkpoint for {PATIENCE} s")

    def _ask(self, what: str, **arguments: Any) -> bool:
        self._answer = None
        try:
            self._driver.line.send((what, arguments))
        except OSError:
            return False
        return True
