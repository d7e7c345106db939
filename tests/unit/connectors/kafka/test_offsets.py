import pickle

import pytest

from tidegate.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    OffsetLookup,
)
from tidegate.connectors.kafka.partitions import EARLIEST, KafkaTopicPartition
from tidegate.core.errors import ConfigError, UnreadableInput

ONE, TWO = KafkaTopicPartition("t", 1), KafkaTopicPartition("t", 2)


class TestingLookup(OffsetLookup):
    """Partitions of 100 records; the first has an offset of the group, and a record at time 7."""

    __test__ = False

    def ends(self, partitions):
        return dict.fromkeys(partitions, 100)

    def committed(self, partitions):
        return {ONE: 42} if ONE in partitions else {}

    def at(self, partitions, timestamp):
        return {ONE: 7} if timestamp == 7 else {}


def resolved(initializer):
    return initializer.resolve([ONE, TWO], TestingLookup())


@pytest.mark.parametrize(
    ("initializer", "offsets"),
    [
        (KafkaOffsetsInitializer.earliest(), (EARLIEST, EARLIEST)),
        (KafkaOffsetsInitializer.latest(), (100, 100)),
        (KafkaOffsetsInitializer.timestamp(7), (7, 100)),
        (KafkaOffsetsInitializer.timestamp(8), (100, 100)),
        (KafkaOffsetsInitializer.offsets({TWO: 5}), (EARLIEST, 5)),
        (KafkaOffsetsInitializer.offsets({TWO: 5}, KafkaOffsetResetStrategy.LATEST), (100, 5)),
        (
            KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST),
            (42, EARLIEST),
        ),
        (KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.LATEST), (42, 100)),
    ],
)
def test_every_partition_gets_an_offset(initializer, offsets):
    assert resolved(initializer) == dict(zip((ONE, TWO), offsets, strict=True))
    assert resolved(pickle.loads(pickle.dumps(initializer))) == resolved(initializer)


def test_without_a_strategy_a_missing_offset_is_an_error():
    with pytest.raises(UnreadableInput, match="topic 't', partition 2: there is no offset to"):
        resolved(KafkaOffsetsInitializer.committed_offsets())


def test_offsets_begin_at_0():
    with pytest.raises(ConfigError, match="give an offset from 0"):
        KafkaOffsetsInitializer.offsets({ONE: -1})


@pytest.mark.parametrize(
    ("word", "strategy"),
    [
        ("earliest", KafkaOffsetResetStrategy.EARLIEST),
        ("smallest", KafkaOffsetResetStrategy.EARLIEST),
        ("LATEST", KafkaOffsetResetStrategy.LATEST),
        ("none", KafkaOffsetResetStrategy.NONE),
        ("error", KafkaOffsetResetStrategy.NONE),
    ],
)
def test_the_words_of_all_clients_are_known(word, strategy):
    assert KafkaOffsetResetStrategy.parse(word) is strategy


def test_other_words_are_refused():
    with pytest.raises(ConfigError, match="give 'earliest', 'latest' or 'none'"):
        KafkaOffsetResetStrategy.parse("first")
