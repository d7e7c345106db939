"""What the driver asks brokers for. Brokers: see tests/services."""

import logging
import threading
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from tests.programs import wait_until
from tidegate.connectors.kafka.consumer_settings import (
    DISCOVERY_INTERVAL,
    PATIENCE,
    ConsumerSettings,
)
from tidegate.connectors.kafka.enumerator import KafkaCluster, PartitionDiscovery
from tidegate.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from tidegate.connectors.kafka.partitions import KafkaTopicPartition, Subscription
from tidegate.core.errors import KafkaFailed, KafkaRefused, UnreadableInput

PROPERTIES = {"bootstrap.servers": "nowhere:9092", "group.id": "a group"}
ZERO, ONE = (KafkaTopicPartition("t", number) for number in (0, 1))


class Group:
    """Has an offset of partition 0, and none of partition 1."""

    def __init__(self, *errors):
        self.errors = list(errors)
        """Of partition 0, in its first answers."""

    def committed(self, partitions, timeout):
        code = self.errors.pop(0) if self.errors else None
        answers = [(42, None), (-1001, None)]
        if code is not None:
            answers[0] = -1001, KafkaError(code)
        return [
            SimpleNamespace(topic=each.topic, partition=each.partition, offset=offset, error=error)
            for each, (offset, error) in zip(partitions, answers, strict=False)
        ]

    def offsets_for_times(self, partitions, timeout):
        return self.committed(partitions, timeout)

    def get_watermark_offsets(self, partition, timeout):
        return 0, 100

    def poll(self, seconds): ...


@pytest.fixture
def cluster():
    """A cluster with this client."""
    clients = []

    def build(client, **properties):
        settings = ConsumerSettings(properties={**PROPERTIES, **properties})
        made = KafkaCluster(settings, threading.Event())
        clients.append(made._client)
        made._client = client
        return made

    yield build
    for each in clients:
        each.close()


def test_the_log_has_flinks_line_for_a_partition_that_starts_from_its_committed_offset(
    cluster, caplog
):
    caplog.set_level(logging.INFO)
    assert cluster(Group()).committed([ZERO, ONE]) == {ZERO: 42}
    assert [record.getMessage() for record in caplog.records if "offset" in record.message] == [
        "Setting offset for partition t-0 to the committed offset 42"
    ]


@pytest.mark.parametrize("has_begun", [False, True])
def test_whatever_ends_the_discovery_is_reported(monkeypatch, has_begun):
    def partitions(cluster, subscription):
        raise RuntimeError("an error of the client")

    monkeypatch.setattr(KafkaCluster, "partitions", partitions)
    settings, topics = ConsumerSettings(properties=PROPERTIES), Subscription(topics=("t",))
    subject = PartitionDiscovery(topics, KafkaOffsetsInitializer.earliest(), None, settings)
    subject.restore(([ZERO], [], has_begun))
    with pytest.raises(RuntimeError, match="an error of the client"):
        wait_until(lambda: subject.next_splits(1))


@pytest.mark.parametrize(
    ("wanted", "added"),
    [
        (Subscription(topics=("t", "u")), "'u'"),
        (Subscription(partitions=(ZERO, ONE)), "topic 't', partition 1"),
    ],
)
@pytest.mark.parametrize(
    "settings",
    [
        ConsumerSettings(properties=PROPERTIES, has_end=True),
        ConsumerSettings(properties={**PROPERTIES, DISCOVERY_INTERVAL: 0}),
    ],
)
def test_what_is_added_to_a_source_that_looks_only_once_is_refused(wanted, added, settings):
    def discovery(subscription):
        return PartitionDiscovery(subscription, KafkaOffsetsInitializer.earliest(), None, settings)

    with pytest.raises(UnreadableInput, match=f"^{added}: not part of the restored state"):
        discovery(wanted).restore(([ZERO], [], True))
    discovery(wanted).restore(([], [], False))
    discovery(Subscription(topics=("t",))).restore(([ZERO], [], True))


STARTS = [
    KafkaOffsetsInitializer.timestamp(0),
    KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.LATEST),
]


@pytest.mark.parametrize("starts", STARTS)
def test_a_partition_that_has_no_leader_for_a_moment_is_asked_again(cluster, starts):
    found = cluster(Group(KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION))
    assert starts.resolve([ZERO, ONE], found) == {ZERO: 42, ONE: 100}


@pytest.mark.parametrize("starts", STARTS)
def test_a_partition_that_is_never_answered_for_has_no_start(cluster, starts):
    found = cluster(Group(*[KafkaError.LEADER_NOT_AVAILABLE] * 100), **{PATIENCE: "1"})
    with pytest.raises(KafkaFailed, match="Leader not available"):
        starts.resolve([ZERO], found)


@pytest.mark.parametrize("starts", STARTS)
def test_a_partition_that_may_not_be_read_has_no_start(cluster, starts):
    with pytest.raises(KafkaRefused, match="authorization failed"):
        starts.resolve([ZERO], cluster(Group(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
