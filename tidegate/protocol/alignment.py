"""Barrier alignment as a state machine over the channels of one subtask.

An `Arriving` exists for each checkpoint that has some, but not all, of its barriers. Each event
returns rulings, to be carried out in order:

    barrier n, channels still owe it      ──▶ Block(channel)          (EXACTLY_ONCE only)
    barrier n, last channel that owed it  ──▶ Complete(n), Release(channels)
    unaligned barrier n, the first        ──▶ Complete(n); channels that owe it are logged
    unaligned barrier n, the last         ──▶ Logged(n)
    barrier m > n on a channel that       ──▶ Abort(n), Release(channels), then as above for m
      owes n, or abort(n) from outside
    barrier of a settled checkpoint       ──▶ nothing

All blocked channels wait for the same checkpoint: a channel that would block on a higher one still
owes the lower one, and so aborts it. A channel that has ended owes no barrier and is never blocked,
but barriers that still arrive on it count.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tidegate.core.ids import CheckpointId
from tidegate.core.modes import CheckpointingMode
from tidegate.stream.elements import Barrier

C = TypeVar("C", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Block(Generic[C]):
    """Hold back what follows on this channel."""

    channel: C


@dataclass(frozen=True, slots=True)
class Release(Generic[C]):
    """Let these channels flow again, buffered elements first."""

    channels: tuple[C, ...]


@dataclass(frozen=True, slots=True)
class Complete:
    """Take the snapshot and forward the barrier."""

    barrier: Barrier
    first_barrier_at: float
    owed: frozenset[Any] = frozenset()
    """Channels on which an unaligned barrier is still due: log them until `Logged`."""


@dataclass(frozen=True, slots=True)
class Logged:
    """The barrier has arrived on all channels: the log holds everything that was in flight."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class Abort:
    """The checkpoint cannot be taken here; decline it to the coordinator."""

    checkpoint_id: CheckpointId
    reason: str


Ruling = Block[C] | Release[C] | Complete | Logged | Abort


@dataclass(slots=True)
class Arriving(Generic[C]):
    """A checkpoint whose barrier has arrived on some channels, but not on all."""

    barrier: Barrier
    owed: set[C]
    first_barrier_at: float
    blocked: list[C] = field(default_factory=list)


class Alignment(Generic[C]):
    """Aligns the barriers on the channels of one subtask."""

    def __init__(self, channels: Iterable[C]) -> None:
        self._highest: dict[C, CheckpointId] = dict.fromkeys(channels, CheckpointId(0))
        """The highest barrier of each channel that has not ended."""
        self._newest = CheckpointId(0)
        """The highest barrier of any channel before it ended."""
        self._arriving: dict[CheckpointId, Arriving[C]] = {}
        self._logging: dict[CheckpointId, set[C]] = {}
        """Unaligned checkpoints already taken, and the channels whose records they log."""
        self._aborted: set[CheckpointId] = set()
        self._completed = CheckpointId(0)

    @property
    def in_flight(self) -> tuple[CheckpointId, ...]:
        """Checkpoints with some of their barriers, oldest first."""
        return tuple(sorted(self._arriving))

    def logged_by(self, channel: C) -> list[CheckpointId]:
        """The checkpoints that log this channel."""
        return [number for number, owed in self._logging.items() if channel in owed]

    @property
    def remembered(self) -> int:
        """How many aborted checkpoints may still get a barrier."""
        return len(self._aborted)

    def barrier(self, channel: C, barrier: Barrier, now: float) -> list[Ruling[C]]:
        """Handle a barrier on a channel that is not blocked."""
        number = barrier.checkpoint_id
        rulings: list[Ruling[C]] = []
        if channel in self._highest:
            if number <= self._highest[channel]:
                return rulings
            self._highest[channel] = number
            self._newest = max(self._newest, number)
            rulings += self._abort_skipped(channel, number)
        elif number <= self._newest:
            # The channel has ended, and a channel that had not has already settled this barrier.
            return rulings
        rulings += self._arrived(channel, barrier, now)
        self._forget_aborted()
        return rulings

    def ended(self, channel: C) -> list[Ruling[C]]:
        """Handle the end of a channel: it owes no barriers from here on."""
        del self._highest[channel]
        rulings: list[Ruling[C]] = []
        for number in self.logged_by(channel):
            rulings += self._arrived_at_log(channel, number)
        for number in self.in_flight:
            arriving = self._arriving.get(number)
            if arriving is not None and channel in arriving.owed:
                arriving.owed.remove(channel)
                if not arriving.owed:
                    rulings += self._complete(arriving)
        return rulings

    def abort(self, number: CheckpointId) -> list[Ruling[C]]:
        """Abort a checkpoint for the coordinator: release its channels, ignore its barriers."""
        self._logging.pop(number, None)
        if number <= self._completed:
            return []
        self._aborted.add(number)
        arriving = self._arriving.pop(number, None)
        if arriving is None or not arriving.blocked:
            return []
        return [Release(tuple(arriving.blocked))]

    def _arrived(self, channel: C, barrier: Barrier, now: float) -> list[Ruling[C]]:
        number = barrier.checkpoint_id
        if number in self._logging:
            return self._arrived_at_log(channel, number)
        if number <= self._completed or number in self._aborted:
            return []
        arriving = self._arriving.get(number)
        if arriving is None:
            overtaken = [c for c, highest in self._highest.items() if highest > number]
            if overtaken:
                self._aborted.add(number)
                return [Abort(number, f"channel {overtaken[0]} skipped it")]
            arriving = Arriving(barrier, set(self._highest), now)
            self._arriving[number] = arriving
        arriving.owed.discard(channel)
        # Snapshots keep the order of their barriers: an unaligned one waits for an aligned one.
        is_next = all(number <= other for other in self._arriving)
        if not arriving.owed or (barrier.is_unaligned and is_next):
            return self._complete(arriving)
        if barrier.mode is CheckpointingMode.EXACTLY_ONCE and channel in self._highest:
            arriving.blocked.append(channel)
            return [Block(channel)]
        return []

    def _arrived_at_log(self, channel: C, number: CheckpointId) -> list[Ruling[C]]:
        owed = self._logging[number]
        owed.discard(channel)
        if owed:
            return []
        del self._logging[number]
        return [Logged(number)]

    def _abort_skipped(self, channel: C, number: CheckpointId) -> list[Ruling[C]]:
        rulings: list[Ruling[C]] = []
        for lower in self.logged_by(channel):
            if lower < number:
                del self._logging[lower]
                rulings.append(Abort(lower, f"channel {channel} brought {number} before it"))
        for lower in self.in_flight:
            if lower < number and channel in self._arriving[lower].owed:
                rulings.append(Abort(lower, f"channel {channel} brought {number} before it"))
                rulings += self.abort(lower)
        return rulings

    def _complete(self, arriving: Arriving[C]) -> list[Ruling[C]]:
        number = arriving.barrier.checkpoint_id
        del self._arriving[number]
        self._completed = number
        owed = frozenset(arriving.owed)
        if owed:
            self._logging[number] = set(owed)
        rulings: list[Ruling[C]] = [Complete(arriving.barrier, arriving.first_barrier_at, owed)]
        if arriving.blocked:
            rulings.append(Release(tuple(arriving.blocked)))
        return rulings

    def _forget_aborted(self) -> None:
        """Forget checkpoints that every channel has passed: no barrier of theirs can follow."""
        passed = min(self._highest.values(), default=self._completed)
        self._aborted = {number for number in self._aborted if number > passed}
