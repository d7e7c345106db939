"""The stream of the rule as JSON messages of about 200 bytes in a Kafka topic.

`python -m benchmarks.peers.topic RECORDS KEYS PARTITIONS` prints where it is: the brokers and the
topic, which is written once and kept for every peer that reads the same size.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers.protocol import Order
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


def prepared(order: Order) -> Topic:
    """The topic for an order, filled by an interpreter that has a Kafka client."""
    wanted = [str(order.records), str(order.keys), str(order.parallelism)]
    command = [order.options["filled_by"], "-m", "benchmarks.peers.topic", *wanted]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return Topic(*told.split())


def message(record: int, keys: int) -> bytes:
    padding = PADDING.format(record)
    return f'{{"key": "{key_of(record, keys)}", "value": 1, {padding}}}'.encode()


def fill(records: int, keys: int, partitions: int) -> Topic:
    """Write the records, the next partition for each in turn, unless they are there already."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

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
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "benchmark"})
    ends = [
        consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]
        for partition in range(partitions)
    ]
    consumer.close()
    return sum(ends)


if __name__ == "__main__":
    print(*fill(*map(int, sys.argv[1:])))
