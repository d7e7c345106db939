"""What tests write to Kafka and ask it, beside the connector."""

import contextlib

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.programs import wait_until


def produce(brokers, topic, values, partition=None, **message):
    """Write values and wait until the brokers have them; spread over partitions where none is."""
    producer = Producer({"bootstrap.servers": brokers})
    failures = []
    for value in values:
        producer.produce(
            topic,
            value,
            on_delivery=lambda error, _: failures.append(error) if error else None,
            **({} if partition is None else {"partition": partition}),
            **message,
        )
    assert producer.flush(120) == 0 and not failures


@contextlib.contextmanager
def transaction(brokers, transactional_id):
    """A producer in a transaction that the test ends itself."""
    producer = Producer({"bootstrap.servers": brokers, "transactional.id": transactional_id})
    producer.init_transactions(120)
    producer.begin_transaction()
    yield producer


def committed(brokers, group, topic, partitions=1):
    """What a group has committed, by partition; partitions without anything are skipped."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": group})
    asked = [TopicPartition(topic, partition) for partition in range(partitions)]
    answers = consumer.committed(asked, timeout=120)
    consumer.close()
    return {answer.partition: answer.offset for answer in answers if answer.offset >= 0}


def commit(brokers, group, topic, offsets):
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": group})
    marks = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=marks, asynchronous=False)
    consumer.close()


def _done(brokers, ask):
    """The answer to an administrator's request; the client must live until it is there."""
    admin = AdminClient({"bootstrap.servers": brokers})
    [answer] = ask(admin).values()
    return answer.result(120)


def create_topic(brokers, topic, partitions=1, **config):
    """A topic that clients see: the controller has it before the broker tells of it."""
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(topic, partitions, config=config)])[topic].result(120)
    wait_until(lambda: topic in admin.list_topics(timeout=120).topics)


def delete_topic(brokers, topic):
    _done(brokers, lambda admin: admin.delete_topics([topic]))


def add_partitions(brokers, topic, total):
    _done(brokers, lambda admin: admin.create_partitions([NewPartitions(topic, total)]))
    admin = AdminClient({"bootstrap.servers": brokers})
    wait_until(lambda: len(admin.list_topics(timeout=120).topics[topic].partitions) == total)


def delete_records(brokers, topic, upto):
    """Delete the records of partition 0 before an offset, as the retention time would."""
    _done(brokers, lambda admin: admin.delete_records([TopicPartition(topic, 0, upto)]))
