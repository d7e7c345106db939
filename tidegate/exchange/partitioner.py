"""Assigns the records of a batch to subtasks."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final, assert_never

import numpy as np
import numpy.typing as npt

from tidegate.core.errors import UserError
from tidegate.graph.partitioning import (
    Broadcast,
    ByKeyGroup,
    Custom,
    Forward,
    Global,
    Partitioning,
    Rebalance,
    Rescale,
    Shuffle,
)
from tidegate.operators.base import OperatorContext
from tidegate.operators.runtime_context import RuntimeContext
from tidegate.stream.batch import Batch

_FEW: Final = 8192
Share = tuple[int, Batch]


class StreamPartitioner(ABC):
    """Splits a batch; every record goes to exactly one target, or to all in a broadcast."""

    def open(self, context: OperatorContext) -> None:
        """Called once before the first `split`, with the context of the sending operator."""

    @abstractmethod
    def split(self, batch: Batch) -> Iterable[Share]:
        """The shares of the targets; the order of the records is kept within each."""

    def close(self) -> None:
        """Release resources of user code."""


def create_partitioner(
    partitioning: Partitioning, *, subtask: int, parallelism: int, targets: int, key_groups: int
) -> StreamPartitioner:
    """The partitioner of subtask `subtask` of `parallelism` senders.

    `key_groups` is the max parallelism of the target vertex.
    """
    match partitioning:
        case Forward():
            return _Single(subtask)
        case Global():
            return _Single(0)
        case Broadcast():
            return _Everyone(targets)
        case _ if targets == 1 and not isinstance(partitioning, Custom):
            return _Single(0)
        case Rebalance():
            return _RoundRobin(range(targets), subtask)
        case Rescale():
            return _RoundRobin(rescale_targets(subtask, parallelism, targets), 0)
        case Shuffle():
            return _Random(targets)
        case ByKeyGroup():
            return _ByKeyGroup(partitioning, targets, key_groups)
        case Custom():
            return _Custom(partitioning, targets)
        case _:
            assert_never(partitioning)


def rescale_targets(subtask: int, senders: int, targets: int) -> range:
    """The targets of one sender if each sends only to its own share, as in Flink."""
    if targets <= senders:
        target = ((subtask + 1) * targets - 1) // senders
        return range(target, target + 1)
    return range(
        (subtask * targets + senders - 1) // senders,
        ((subtask + 1) * targets + senders - 1) // senders,
    )


class _Single(StreamPartitioner):
    def __init__(self, target: int) -> None:
        self._target = target

    def split(self, batch: Batch) -> Iterable[Share]:
        return ((self._target, batch),)


class _Everyone(StreamPartitioner):
    def __init__(self, targets: int) -> None:
        self._targets = targets

    def split(self, batch: Batch) -> Iterable[Share]:
        return [(target, batch) for target in range(self._targets)]


class _RoundRobin(StreamPartitioner):
    """Distributes the records round-robin, continuing where the last batch ended."""

    def __init__(self, targets: range, first: int) -> None:
        self._targets = targets
        self._next = first % len(targets)

    def split(self, batch: Batch) -> Iterable[Share]:
        count, width = len(batch), len(self._targets)
        indices = {
            self._targets[(self._next + i) % width]: np.arange(i, count, width, dtype=np.intp)
            for i in range(min(width, count))
        }
        self._next = (self._next + count) % width
        return _shares(batch, indices)


class _ByTargets(StreamPartitioner):
    """Splits by a target number per record."""

    def __init__(self, targets: int) -> None:
        self._targets = targets

    @abstractmethod
    def _target_of(self, batch: Batch) -> npt.NDArray[np.integer]: ...

    def split(self, batch: Batch) -> Iterable[Share]:
        targets = self._target_of(batch)
        return _shares(batch, {i: (targets == i).nonzero()[0] for i in range(self._targets)})


def _shares(batch: Batch, indices: Mapping[int, npt.NDArray[np.intp]]) -> Iterable[Share]:
    """The records at these indices for each target.

    Few are taken at once and then cut, because taking has a high fixed cost. Many are not: each
    part would keep all of them in memory.
    """
    shares = [(target, chosen) for target, chosen in indices.items() if len(chosen)]
    if len(shares) < 2:
        return [(target, batch) for target, _ in shares]
    if len(batch) > _FEW:
        return [(target, batch.take(chosen)) for target, chosen in shares]
    taken = batch.take(np.concatenate([chosen for _, chosen in shares]))
    ends = accumulate(len(chosen) for _, chosen in shares)
    return [
        (target, taken.slice(end - len(chosen), end))
        for (target, chosen), end in zip(shares, ends, strict=True)
    ]


class _Random(_ByTargets):
    def __init__(self, targets: int) -> None:
        super().__init__(targets)
        self._random = np.random.default_rng(random.getrandbits(64))

    def _target_of(self, batch: Batch) -> npt.NDArray[np.integer]:
        return self._random.integers(0, self._targets, len(batch), dtype=np.int32)


class _ByKeyGroup(_ByTargets):
    def __init__(self, partitioning: ByKeyGroup, targets: int, key_groups: int) -> None:
        super().__init__(targets)
        self._key = partitioning.key
        self._key_groups = key_groups
        self._shift = key_groups.bit_length() - 1 if key_groups.bit_count() == 1 else None

    def open(self, context: OperatorContext) -> None:
        self._key.open(RuntimeContext(context))

    def close(self) -> None:
        self._key.close()

    def _target_of(self, batch: Batch) -> npt.NDArray[np.integer]:
        hashes = self._key.hashes(batch)
        if self._shift is None:
            groups = (hashes % np.uint64(self._key_groups)).astype(np.uint32)
            return groups * np.uint32(self._targets) // np.uint32(self._key_groups)
        # Dividing 64-bit numbers would cost more than everything else here.
        groups = (hashes & np.uint64(self._key_groups - 1)).astype(np.uint32)
        return (groups * np.uint32(self._targets)) >> np.uint32(self._shift)


class _Custom(_ByTargets):
    def __init__(self, partitioning: Custom, targets: int) -> None:
        super().__init__(targets)
        self._key = partitioning.key
        self._partitioner = partitioning.partitioner

    def open(self, context: OperatorContext) -> None:
        self._key.open(RuntimeContext(context))

    def close(self) -> None:
        self._key.close()

    def _target_of(self, batch: Batch) -> npt.NDArray[np.integer]:
        choose, targets = self._partitioner, self._targets
        chosen = np.fromiter(
            (choose(key, targets) for key in self._key.values(batch)),
            dtype=np.int64,
            count=len(batch),
        )
        wrong = np.flatnonzero((chosen < 0) | (chosen >= targets))
        if len(wrong):
            raise UserError(
                f"the partitioner chose target {chosen[wrong[0]]} for the key "
                f"{self._key.values(batch)[wrong[0]]!r}; it must be in 0..{targets - 1}"
            )
        return chosen
