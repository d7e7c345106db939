"""How the records of an edge are distributed over the subtasks of its target. Plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidegate.state.keys.selection import KeySelection


@dataclass(frozen=True, slots=True)
class Forward:
    """Subtask i to subtask i; both sides have the same parallelism."""


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Round robin over all targets."""


@dataclass(frozen=True, slots=True)
class Rescale:
    """Round robin over the sender's share of the targets."""


@dataclass(frozen=True, slots=True)
class Shuffle:
    """A random target for every record."""


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Every record to every target."""


@dataclass(frozen=True, slots=True)
class Global:
    """Every record to subtask 0."""


@dataclass(frozen=True, slots=True)
class ByKeyGroup:
    """Every record to the subtask that owns the key group of its key."""

    key: KeySelection


@dataclass(frozen=True, slots=True)
class Custom:
    """The user's partitioner: (key, number of targets) -> target."""

    partitioner: Callable[[Any, int], int]
    key: KeySelection


Partitioning = Forward | Rebalance | Rescale | Shuffle | Broadcast | Global | ByKeyGroup | Custom
