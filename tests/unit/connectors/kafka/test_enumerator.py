"""What the driver asks brokers for. Brokers: see tests/services."""

import logging
import threading
from types import SimpleNamespace

from tidegate.connectors.kafka.consumer_settings import ConsumerSettings
from tidegate.connectors.kafka.enumerator import KafkaCluster
from tidegate.connectors.kafka.partitions import KafkaTopicPartition


class Group:
    """Has an offset of partition 0, and none of partition 1."""

    def committed(self, partitions, timeout):
        return [
            SimpleNamespace(topic=each.topic, partition=each.partition, offset=offset)
            for each, offset in zip(partitions, (42, -1001), strict=True)
        ]


def test_the_log_has_flinks_line_for_a_partition_that_starts_from_its_committed_offset(caplog):
    caplog.set_level(logging.INFO)
    properties = {"bootstrap.servers": "nowhere:9092", "group.id": "a group"}
    cluster = KafkaCluster(ConsumerSettings(properties=properties), threading.Event())
    client, cluster._client = cluster._client, Group()
    zero, one = (KafkaTopicPartition("t", number) for number in (0, 1))
    assert cluster.committed([zero, one]) == {zero: 42}
    assert [record.getMessage() for record in caplog.records if "offset" in record.message] == [
        "Setting offset for partition t-0 to the committed offset 42"
    ]
    client.close()
