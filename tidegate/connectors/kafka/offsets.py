"""Starting and stopping offsets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tidegate.connectors.kafka.partitions import EARLIEST, KafkaTopicPartition
from tidegate.core.errors import ConfigError, UnreadableInput

Offsets = dict[KafkaTopicPartition, int]
Partitions = Sequence[KafkaTopicPartition]


class KafkaOffsetResetStrategy(Enum):
    """Where to start reading without an offset, or if the offset no longer exists."""

    LATEST = "latest"
    EARLIEST = "earliest"
    NONE = "none"
    """Fail."""

    @staticmethod
    def parse(value: object) -> KafkaOffsetResetStrategy:
        """Parse Kafka's setting ``auto.offset.reset``."""
        known = {"smallest": "earliest", "beginning": "earliest", "largest": "latest"}
        known |= {"end": "latest", "error": "none"}
        word = str(value).lower()
        try:
            return KafkaOffsetResetStrategy(known.get(word, word))
        except ValueError:
            raise ConfigError(
                "auto.offset.reset", value, "give 'earliest', 'latest' or 'none'"
            ) from None


class OffsetLookup(ABC):
    """Looks up offsets at the brokers."""

    @abstractmethod
    def ends(self, partitions: Partitions) -> Offsets:
        """The offset after the last readable record."""

    @abstractmethod
    def committed(self, partitions: Partitions) -> Offsets:
        """The committed offsets of the group; partitions without one are skipped."""

    @abstractmethod
    def at(self, partitions: Partitions, timestamp: int) -> Offsets:
        """The first record at or after a timestamp; partitions without one are skipped."""


class KafkaOffsetsInitializer(ABC):
    """Resolves the offsets from which, or up to which, partitions are read."""

    reset = KafkaOffsetResetStrategy.NONE
    """What to do if an offset no longer exists when it should be read."""

    @abstractmethod
    def resolve(self, partitions: Partitions, lookup: OffsetLookup) -> Offsets: ...

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        return _Earliest()

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        return _Latest()

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """The committed offsets of the group; other partitions follow the strategy."""
        return _Committed(offset_reset_strategy)

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """The first record at or after a timestamp, in milliseconds since the epoch."""
        return _At(timestamp)

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """The given offsets; other partitions follow the strategy."""
        for partition, offset in offsets.items():
            if offset < 0:
                raise ConfigError(f"offset of {partition}", offset, "give an offset from 0")
        return _Given(tuple(sorted(offsets.items())), offset_reset_strategy)


@dataclass(frozen=True)
class _Earliest(KafkaOffsetsInitializer):
    def resolve(self, partitions: Partitions, lookup: OffsetLookup) -> Offsets:
        return dict.fromkeys(partitions, EARLIEST)


@dataclass(frozen=True)
class _Latest(KafkaOffsetsInitializer):
    def resolve(self, partitions: Partitions, lookup: OffsetLookup) -> Offsets:
        return lookup.ends(partitions)


@dataclass(frozen=True)
class _Committed(KafkaOffsetsInitializer):
    reset: KafkaOffsetResetStrategy

    def resolve(self, partitions: Partitions, lookup: OffsetLookup) -> Offsets:
        return _completed(lookup.committed(partitions), partitions, self.reset, lookup)


@dataclass(frozen=True)
class _At(KafkaOffsetsInitializer):
    time: int

    def resolve(self, partitions: Partitions, lookup: OffsetLookup) -> Offsets:
        found = lookup.at(partitions, self.time)
        return _completed(found, partitions, KafkaOffsetResetStrategy.LATEST, lookup)


@dataclass(frozen=True)
class _Given(KafkaOffsetsInitializer):
    known: tuple[tuple[KafkaTopicPartition, int], ...]
    reset: KafkaOffsetResetStrategy

    def resolve(self, partitions: Partitions, lookup: OffsetLookup) -> Offsets:
        return _completed(dict(self.known), partitions, self.reset, lookup)


def _completed(
    found: Offsets,
    partitions: Partitions,
    strategy: KafkaOffsetResetStrategy,
    lookup: OffsetLookup,
) -> Offsets:
    missing = [partition for partition in partitions if partition not in found]
    if not missing or strategy is KafkaOffsetResetStrategy.EARLIEST:
        others = dict.fromkeys(missing, EARLIEST)
    elif strategy is KafkaOffsetResetStrategy.LATEST:
        others = lookup.ends(missing)
    else:
        raise UnreadableInput(
            str(missing[0]),
            "there is no offset to start from",
            "commit one for the group, or set a KafkaOffsetResetStrategy (auto.offset.reset)",
        )
    return {partition: found.get(partition, others.get(partition, 0)) for partition in partitions}
