import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.connectors.kafka.partitions import KafkaSplit, KafkaTopicPartition, Subscription

PRESENT = {"a": [0, 1], "ab": [0], "b": [0]}


def named(*places):
    return [KafkaTopicPartition(topic, partition) for topic, partition in places]


def test_topics_are_chosen_by_name():
    assert Subscription(topics=("b", "a")).select(PRESENT) == named(("a", 0), ("a", 1), ("b", 0))


def test_a_pattern_must_match_the_whole_name():
    assert Subscription(pattern="a").select(PRESENT) == named(("a", 0), ("a", 1))
    assert Subscription(pattern="c.*").select(PRESENT) == []


def test_single_partitions_are_chosen():
    [wanted] = named(("a", 1))
    assert Subscription(partitions=(wanted,)).select(PRESENT) == [wanted]


@pytest.mark.parametrize(
    "subscription",
    [
        Subscription(topics=("a", "c")),
        Subscription(partitions=tuple(named(("c", 0)))),
        Subscription(partitions=tuple(named(("a", 2)))),
    ],
)
def test_what_is_named_must_be_there(subscription):
    with pytest.raises(KeyError):
        subscription.select(PRESENT)


@given(st.text(min_size=1), st.integers(1, 20), st.integers(1, 50))
def test_the_partitions_of_a_topic_are_spread_evenly(topic, parallelism, partitions):
    readers = [KafkaTopicPartition(topic, n).reader(parallelism) for n in range(partitions)]
    counts = [readers.count(reader) for reader in range(parallelism)]
    assert sum(counts) == partitions
    assert max(counts) - min(counts) <= 1


def test_a_split_is_done_when_it_reached_its_stop():
    [partition] = named(("a", 0))
    assert KafkaSplit(partition, 5, stop=5).is_done
    assert not KafkaSplit(partition, 4, stop=5).is_done
    assert not KafkaSplit(partition, 10**9).is_done
