"""The stream of the rule as JSON messages of about 200 bytes in a Kafka topic.

It is written once for a size, and kept by the broker.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.peers.rule import key_of
from services import kafka

HOME = Path(__file__).resolve().parents[2] / ".services" / "kafka"

PADDING = (
    '"page": "/products/category-17/item-2093", "country": "DE", "session": "{:032x}", '
    '"agent": "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101"'
)


class Topic(NamedTuple):
    brokers: str
    name: str


def message(record: int, keys: int) -> bytes:
    padding = PADDING.format(record)
    return f'{{"key": "{key_of(record, keys)}", "value": 1, {padding}}}'.encode()


def fill(records: int, keys: int, partitions: int) -> Topic:
    """Write the records, the next partition for each in turn, unless they are there already."""
    brokers = kafka.start(HOME)
    name = f"benchmark-{records}-{keys}-{partitions}"
    admin = AdminClient({"bootstrap.servers": brokers})
    if name in admin.list_topics(timeout=30).topics:
        if _length(brokers, name, partitions) == records:
            return Topic(brokers, name)
        admin.delete_topics([name])[name].result(60)
    admin.create_topics([NewTopic(name, partitions)])[name].result(60)
    settings = {"linger.ms": 50, "batch.size": 1 << 20, "queue.buffering.max.messages": 500_000}
    producer = Producer({"bootstrap.servers": brokers, **settings})
    for record in range(records):
        _send(producer, name, message(record, keys), record % partitions)
    producer.flush(120)
    assert _length(brokers, name, partitions) == records
    return Topic(brokers, name)


def _send(producer: Any, topic: str, value: bytes, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=partition)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def _length(brokers: str, topic: str, partitions: int) -> int:
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "benchmark"})
    ends = [
        consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]
        for partition in range(partitions)
    ]
    consumer.close()
    return sum(ends)
