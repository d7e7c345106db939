"""Partitions of topics, and splits of them with a position."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

EARLIEST = -2
"""The position of the first existing record, whatever its offset."""


@dataclass(frozen=True, slots=True, order=True)
class KafkaTopicPartition:
    """A partition of a topic."""

    topic: str
    partition: int

    def reader(self, parallelism: int) -> int:
        """The subtask that reads it; the partitions of a topic are spread evenly."""
        return (zlib.crc32(self.topic.encode()) + self.partition) % parallelism

    def __str__(self) -> str:
        return f"topic {self.topic!r}, partition {self.partition}"


@dataclass(frozen=True, slots=True)
class KafkaSplit:
    """A partition from an offset, or EARLIEST, up to, not including, another."""

    partition: KafkaTopicPartition
    position: int
    stop: int | None = None
    """None: unbounded."""

    @property
    def is_done(self) -> bool:
        return self.stop is not None and self.position >= self.stop


@dataclass(frozen=True, slots=True)
class Subscription:
    """What to read: topics by name, topics by pattern, or single partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[KafkaTopicPartition, ...] = ()

    def select(self, present: Mapping[str, Iterable[int]]) -> list[KafkaTopicPartition]:
        """The existing partitions to read; raises KeyError for a missing topic."""
        if self.pattern is not None:
            matches = re.compile(self.pattern).fullmatch
            names = [name for name in present if matches(name)]
        else:
            names = [partition.topic for partition in self.partitions] or list(self.topics)
            for name in names:
                if name not in present:
                    raise KeyError(name)
        found = {KafkaTopicPartition(name, id) for name in names for id in present[name]}
        if self.partitions:
            for wanted in self.partitions:
                if wanted not in found:
                    raise KeyError(wanted)
            found &= set(self.partitions)
        return sorted(found)

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics that match {self.pattern!r}"
        return ", ".join(map(str, self.partitions)) or ", ".join(map(repr, self.topics))
