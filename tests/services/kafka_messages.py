"""What consumers find in topics."""

from confluent_kafka import Consumer, KafkaError, TopicPartition


def messages(brokers, topic, isolation="read_committed"):
    """All messages that a reader can see now, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "reader of a test",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=120).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        unread, found = set(partitions), []
        while unread:
            message = consumer.poll(120)
            assert message is not None, "neither a message nor the end of a partition came"
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                unread.discard(message.partition())
        return found
    finally:
        consumer.close()


def values(brokers, topic, isolation="read_committed"):
    """The texts of these messages, sorted."""
    return sorted(message.value().decode() for message in messages(brokers, topic, isolation))
