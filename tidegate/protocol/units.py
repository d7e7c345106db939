"""Units of work: what one slot does at one level of one step, exactly once.

       a connection delivers           the set of one connection          the mailbox
       packets of its own              is complete                        has run it
    ──────────────▶ COLLECTING ──────────────▶ RUNNING ──────────────▶ SEALED ──▶ forgotten
                    (per connection)           (one set, in order)    (answer)   (a higher step
                                                                                  has begun)

Spark may repeat the tasks of a step, in any order and concurrently. Each task collects its packets
on its own connection, and only complete sets arrive here. The first one runs; all others wait for
its answer. Nothing here blocks or locks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from tidegate.core.errors import ProtocolViolation
from tidegate.core.ids import Attempt, Level, StepNumber
from tidegate.protocol.packet import Packet, PacketPosition

A = TypeVar("A")


class UnitKey(NamedTuple):
    """Which unit of a pipeline and slot."""

    attempt: Attempt
    step: StepNumber
    level: Level


@dataclass(frozen=True, slots=True)
class RunNow:
    """Run these packets in this order, then `seal`; nobody else runs them."""

    key: UnitKey
    packets: tuple[Packet, ...]


@dataclass(frozen=True, slots=True)
class Pending:
    """The unit is running: wait until something is sealed, then `ask` again."""

    key: UnitKey


@dataclass(frozen=True, slots=True)
class Sealed(Generic[A]):
    """The unit has run; everybody gets this answer."""

    key: UnitKey
    answer: A


@dataclass(frozen=True, slots=True)
class Stale:
    """The unit belongs to an earlier step or deployment; its answer is not used."""

    key: UnitKey
    reason: str


class WorkUnits(Generic[A]):
    """The units of one pipeline in one slot; `A` is the type of an answer."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self._step = StepNumber(0)
        self._running: set[Level] = set()
        self._answers: dict[Level, A] = {}
        self._is_closed = False

    @property
    def deployed(self) -> Attempt | None:
        """The attempt whose units may run; None if the pipeline is undeployed."""
        return None if self._is_closed else self.attempt

    def reset(self, attempt: Attempt) -> None:
        """Begin a newer attempt: all units of older ones are stale, even running ones."""
        if attempt <= self.attempt:
            raise ProtocolViolation(
                f"attempt {attempt} cannot follow attempt {self.attempt}: attempts only grow"
            )
        self._forget()
        self.attempt = attempt
        self._step = StepNumber(0)
        self._is_closed = False

    def close(self) -> None:
        """Undeploy the pipeline: all units are stale until the next `reset`."""
        self._forget()
        self._is_closed = True

    def complete(
        self, key: UnitKey, packets: Iterable[Packet]
    ) -> RunNow | Pending | Sealed[A] | Stale:
        """Submit everything that one connection delivered before its end mark."""
        stale = self._staleness(key)
        if stale is not None:
            return stale
        if key.step == self._step:
            if key.level in self._answers:
                return Sealed(key, self._answers[key.level])
            if key.level in self._running:
                return Pending(key)
        ordered = in_order(key, packets)
        if key.step > self._step:
            self._begin(key)
        self._running.add(key.level)
        return RunNow(key, ordered)

    def ask(self, key: UnitKey) -> Pending | Sealed[A] | Stale:
        """The outcome of a submitted unit."""
        stale = self._staleness(key)
        if stale is not None:
            return stale
        if key.step == self._step and key.level in self._answers:
            return Sealed(key, self._answers[key.level])
        if key.step == self._step and key.level in self._running:
            return Pending(key)
        raise ProtocolViolation(f"{key} was requested before it was submitted")

    def seal(self, key: UnitKey, answer: A) -> bool:
        """Fix the answer of a unit that has run; False if it is stale and nobody will ask."""
        if self._staleness(key) is not None:
            return False
        if key.step != self._step or key.level not in self._running:
            raise ProtocolViolation(f"{key} was sealed, but is not running")
        self._running.remove(key.level)
        self._answers[key.level] = answer
        return True

    def _forget(self) -> None:
        self._running.clear()
        self._answers.clear()

    def _begin(self, key: UnitKey) -> None:
        if self._running:
            levels = ", ".join(map(str, sorted(self._running)))
            raise ProtocolViolation(
                f"{key} was delivered while level {levels} of step {self._step} is running; "
                "a step ends before the next begins"
            )
        self._step = key.step
        self._answers.clear()

    def _staleness(self, key: UnitKey) -> Stale | None:
        if self._is_closed:
            return Stale(key, f"attempt {self.attempt} was closed")
        if key.attempt != self.attempt:
            return Stale(key, f"attempt {self.attempt} is deployed, not {key.attempt}")
        if key.step < self._step:
            return Stale(key, f"step {self._step} has begun, step {key.step} is over")
        return None


def in_order(key: UnitKey, packets: Iterable[Packet]) -> tuple[Packet, ...]:
    """Sort by channel and sequence and drop duplicates; refuse packets of another step."""
    by_position: dict[PacketPosition, Packet] = {}
    for packet in packets:
        header = packet.header
        if (header.attempt, header.step) != (key.attempt, key.step):
            raise ProtocolViolation(
                f"{header} was delivered for attempt {key.attempt}, step {key.step}"
            )
        by_position.setdefault(header.position, packet)
    return tuple(by_position[position] for position in sorted(by_position))
