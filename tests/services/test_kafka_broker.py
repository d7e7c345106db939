"""The broker is a real one: what exactly-once relies on holds before anything is built on it."""

import pytest

confluent_kafka = pytest.importorskip("confluent_kafka")

from confluent_kafka import Consumer, KafkaException, Producer  # noqa: E402

from services.__main__ import main  # noqa: E402


@pytest.fixture
def topic(new_topic):
    return new_topic()


def test_a_service_that_runs_is_not_started_again(kafka, capsys):
    assert main(["start", "kafka"]) == 0
    assert main(["status", "kafka"]) == 0
    assert capsys.readouterr().out == f"kafka: runs at {kafka}\n" * 2


def test_a_service_that_nobody_knows_is_refused(capsys):
    assert main(["start", "kafkaesque"]) == 2
    assert capsys.readouterr().err == (
        "usage: python -m services start|stop|status [kafka postgres]\n"
    )


def producer(kafka, transactional_id):
    made = Producer({"bootstrap.servers": kafka, "transactional.id": transactional_id})
    made.init_transactions(120)
    return made


def write(producer, topic, count):
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, str(number))
    producer.flush(120)


def visible(kafka, topic):
    """How many records a reader of committed data finds up to the last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = 0
    while True:
        message = consumer.poll(10)
        assert message is not None, "neither a record nor the end of the partition came"
        if message.error():
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            consumer.close()
            return found
        found += 1


def test_open_and_aborted_transactions_are_invisible_and_committed_ones_visible(kafka, topic):
    writer = producer(kafka, topic)
    write(writer, topic, 100)
    assert visible(kafka, topic) == 0
    writer.abort_transaction(120)
    assert visible(kafka, topic) == 0
    write(writer, topic, 100)
    writer.commit_transaction(120)
    assert visible(kafka, topic) == 100


def test_a_second_producer_with_the_same_transactional_id_fences_the_first(kafka, topic):
    first = producer(kafka, topic)
    write(first, topic, 1)
    second = producer(kafka, topic)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(120)
    assert caught.value.args[0].code() == confluent_kafka.KafkaError._FENCED
    write(second, topic, 2)
    second.commit_transaction(120)
    assert visible(kafka, topic) == 2
