"""The points of the checkpoint protocol at which `tidegate verify` kills a process.

Without a directory of orders in the environment they do nothing. An order is a file that says which
process dies at which point; the first process to reach the point removes the file and dies.

    driver   BARRIER ─▶ …               SNAPSHOT ─▶ ACKNOWLEDGED ─▶ PRE_COMMITTED ─▶ COMMIT
    slot          BARRIER ─▶ SNAPSHOT ─▶ ACKNOWLEDGED      …      PRE_COMMITTED ─▶ COMMIT
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Final, NoReturn

DIRECTORY_VARIABLE: Final = "TIDEGATE_FAULT_ORDERS"
_ORDER: Final = "order.json"
_LONGEST_DELAY_SECONDS = 0.05


class FaultPoint(Enum):
    """A point of the protocol, as named in messages."""

    BARRIER = "before the barrier"
    SNAPSHOT = "during the snapshot"
    ACKNOWLEDGED = "between acknowledge and complete"
    PRE_COMMITTED = "between pre-commit and commit"
    COMMIT = "in the middle of commit"
    RESTORE = "during restore"


class Victim(Enum):
    """What kind of process dies."""

    SLOT = "slot"
    DRIVER = "driver"


@dataclass(frozen=True, slots=True)
class Order:
    """Which process dies at which point, after it has passed the point `spared` times."""

    number: int
    point: FaultPoint
    victim: Victim
    spared: int = 0

    def give(self, directory: Path) -> None:
        """Publish the order; it replaces the previous one."""
        fresh = directory / f"{_ORDER}.fresh"
        facts = {**asdict(self), "point": self.point.name, "victim": self.victim.name}
        fresh.write_text(json.dumps(facts))
        fresh.replace(directory / _ORDER)

    def is_carried_out(self, directory: Path) -> bool:
        return (directory / f"done-{self.number}").exists()

    @staticmethod
    def withdraw(directory: Path) -> None:
        (directory / _ORDER).unlink(missing_ok=True)


class _Orders:
    """The directory of orders, as seen by a process that may die."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._passed: Counter[int] = Counter()
        self._lock = threading.Lock()

    def claim(self, point: FaultPoint, victim: Victim) -> bool:
        """Whether this process should die now."""
        with self._lock:
            try:
                facts = json.loads((self._directory / _ORDER).read_text())
            except FileNotFoundError:
                return False
            if (facts["point"], facts["victim"]) != (point.name, victim.name):
                return False
            self._passed[facts["number"]] += 1
            if self._passed[facts["number"]] <= facts["spared"]:
                return False
            try:
                (self._directory / _ORDER).rename(self._directory / f"done-{facts['number']}")
            except FileNotFoundError:
                return False
            return True


_orders: Final = (
    _Orders(Path(os.environ[DIRECTORY_VARIABLE])) if DIRECTORY_VARIABLE in os.environ else None
)


def passing(point: FaultPoint, victim: Victim) -> None:
    """Mark this point of the protocol."""
    if _orders is not None and _orders.claim(point, victim):
        _die()


@contextmanager
def during(point: FaultPoint, victim: Victim) -> Iterator[None]:
    """Make a whole block the point: the process dies inside it, at the latest at its end."""
    if _orders is None or not _orders.claim(point, victim):
        yield
        return
    threading.Thread(target=_die_soon, daemon=True).start()
    yield
    _die()


def _die_soon() -> NoReturn:
    time.sleep(random.uniform(0, _LONGEST_DELAY_SECONDS))
    _die()


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit  # not reached
