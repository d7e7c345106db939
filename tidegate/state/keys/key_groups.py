"""Maps keys to key groups, the unit in which keyed state is stored and moved, and to subtasks.

    key_group = stable_hash(key) % max_parallelism
    subtask   = key_group * parallelism // max_parallelism

The first line never changes in the life of a job; the second depends on its parallelism. Rescaling
therefore moves whole key groups between subtasks without looking at keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tidegate.core.errors import ConfigError
from tidegate.core.ids import KeyGroup, SubtaskIndex

MAX_PARALLELISM_LIMIT: Final = 32768
_DEFAULT_LOWER_BOUND: Final = 128


@dataclass(frozen=True, slots=True)
class KeyGroupRange:
    """The key groups from `start` up to, not including, `stop`; empty if both are equal."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop:
            raise ConfigError("key group range", (self.start, self.stop), "give 0 <= start <= stop")

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[KeyGroup]:
        return (KeyGroup(group) for group in range(self.start, self.stop))

    def __contains__(self, key_group: object) -> bool:
        return isinstance(key_group, int) and self.start <= key_group < self.stop

    def intersection(self, other: KeyGroupRange) -> KeyGroupRange:
        start = max(self.start, other.start)
        return KeyGroupRange(start, max(start, min(self.stop, other.stop)))


def key_groups_of(hashes: npt.NDArray[np.uint64], max_parallelism: int) -> npt.NDArray[np.uint16]:
    if max_parallelism & (max_parallelism - 1) == 0:
        return (hashes & np.uint64(max_parallelism - 1)).astype(np.uint16)
    return (hashes % np.uint64(max_parallelism)).astype(np.uint16)


def subtask_of(key_group: int, parallelism: int, max_parallelism: int) -> SubtaskIndex:
    """The subtask that owns a key group."""
    return SubtaskIndex(key_group * parallelism // max_parallelism)


def subtasks_of(
    key_groups: npt.NDArray[np.uint16], parallelism: int, max_parallelism: int
) -> npt.NDArray[np.int32]:
    """`subtask_of` for a whole column of key groups."""
    owners = np.arange(max_parallelism, dtype=np.int64) * parallelism // max_parallelism
    owner_of_group: npt.NDArray[np.int32] = owners.astype(np.int32)
    return owner_of_group[key_groups]


def range_of(subtask: int, parallelism: int, max_parallelism: int) -> KeyGroupRange:
    """All key groups that a subtask owns."""
    return KeyGroupRange(
        -(-subtask * max_parallelism // parallelism),
        -(-(subtask + 1) * max_parallelism // parallelism),
    )


def default_max_parallelism(parallelism: int) -> int:
    """Flink's rule: 1.5 times the parallelism, as a power of two, from 128 to 32768."""
    roomy = parallelism + parallelism // 2
    power_of_two = 1 << max(roomy - 1, 0).bit_length()
    return min(max(power_of_two, _DEFAULT_LOWER_BOUND), MAX_PARALLELISM_LIMIT)


def check_max_parallelism(max_parallelism: int, parallelism: int) -> None:
    """Refuse a max parallelism that Flink refuses, too, or that is below the parallelism."""
    if not 0 < max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise ConfigError(
            "pipeline.max-parallelism", max_parallelism, f"give 1 to {MAX_PARALLELISM_LIMIT}"
        )
    if parallelism > max_parallelism:
        raise ConfigError(
            "pipeline.max-parallelism",
            max_parallelism,
            f"it is below the parallelism {parallelism}; each subtask needs a key group, "
            "so give at least that many",
        )
