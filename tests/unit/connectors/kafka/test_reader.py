"""Polls of a reader that makes watermarks for each partition. Brokers: see tests/services."""

from dataclasses import dataclass

from tidegate.connectors.kafka.consumer_settings import ConsumerSettings
from tidegate.connectors.kafka.decoding import KafkaRecordDeserializationSchema, decoder_of
from tidegate.connectors.kafka.offsets import KafkaOffsetResetStrategy
from tidegate.connectors.kafka.partitions import KafkaSplit, KafkaTopicPartition
from tidegate.connectors.kafka.reader import KafkaReader
from tidegate.connectors.serialization import SimpleStringSchema
from tidegate.connectors.source import InputStatus, refuse
from tidegate.stream.batch import NO_TIMESTAMP


@dataclass
class Message:
    """What the client returns for a record."""

    at: tuple[str, int, int, int]
    """Topic, partition, offset, timestamp."""

    def topic(self):
        return self.at[0]

    def partition(self):
        return self.at[1]

    def offset(self):
        return self.at[2]

    def timestamp(self):
        return 1, self.at[3]

    def value(self):
        return f"{self.at[1]}@{self.at[2]}".encode()

    def error(self):
        return None


class Client:
    """Returns messages as brokers would, one fetch after the other."""

    def __init__(self, messages):
        self.messages = messages

    def consume(self, count, timeout):
        taken, self.messages = self.messages[:count], self.messages[count:]
        return taken

    def pause(self, partitions):
        self.told = [*getattr(self, "told", ()), ("pause", *(p.partition for p in partitions))]

    def resume(self, partitions):
        self.told += [("resume", *(p.partition for p in partitions))]

    def incremental_assign(self, partitions): ...

    def incremental_unassign(self, partitions): ...


def split(partition, stop=None):
    return KafkaSplit(KafkaTopicPartition("t", partition), 0, stop)


def reader_of(messages, *splits):
    settings = ConsumerSettings(
        properties={"bootstrap.servers": "nowhere:9092"},
        has_end=any(each.stop is not None for each in splits),
    )
    schema = KafkaRecordDeserializationSchema.value_only(SimpleStringSchema())
    decoder = decoder_of(schema, None)
    reset = KafkaOffsetResetStrategy.EARLIEST
    reader = KafkaReader(settings, decoder, reset, "0", refuse, has_event_time=True)
    reader._client = Client([Message(("t", *at)) for at in messages])
    reader.add_splits(splits)
    return reader


def polls(reader):
    while (poll := reader.poll(100)).status is InputStatus.MORE_AVAILABLE:
        batch = poll.batch
        records = [] if batch is None else list(zip(batch.records, batch.timestamps, strict=True))
        yield poll.split, records, poll.ended


def test_a_poll_has_records_of_one_partition_with_their_timestamps():
    reader = reader_of([(0, 0, 10), (0, 1, 11), (1, 0, 5), (0, 2, 12)], split(0), split(1))
    assert list(polls(reader)) == [
        (("t", 0), [("0@0", 10), ("0@1", 11)], ()),
        (("t", 1), [("1@0", 5)], ()),
        (("t", 0), [("0@2", 12)], ()),
    ]
    assert [each.position for each in reader.snapshot()] == [3, 1]
    assert [reader.split_key(each) for each in reader.snapshot()] == [("t", 0), ("t", 1)]


def test_a_record_without_a_timestamp_takes_none_from_others():
    reader = reader_of([(0, 0, 10), (0, 1, -1)], split(0))
    assert list(polls(reader)) == [(("t", 0), [("0@0", 10), ("0@1", NO_TIMESTAMP)], ())]


def test_a_partition_that_is_read_to_its_end_holds_no_watermark_back():
    reader = reader_of([(0, 0, 10), (1, 0, 5), (0, 1, 11)], split(0, stop=2), split(1))
    assert [(key, ended) for key, _, ended in polls(reader)] == [
        (("t", 0), ()),
        (("t", 1), ()),
        (("t", 0), (("t", 0),)),
    ]


def test_a_partition_that_had_been_read_to_its_end_says_so_again():
    done = KafkaSplit(KafkaTopicPartition("t", 0), 2, 2)
    reader = reader_of([], done, split(1))
    assert reader.poll(100).ended == (("t", 0),)
    assert reader.poll(100).ended == ()


def test_records_of_a_partition_that_is_paused_come_when_it_is_not():
    reader = reader_of([(0, 0, 1), (1, 0, 2), (0, 1, 3), (1, 1, 4)], split(0), split(1))
    assert reader.is_available()
    reader.pause({("t", 0)})
    assert [records for _, records, _ in polls(reader)] == [[("1@0", 2), ("1@1", 4)]]
    assert not reader.is_available()
    reader._client.messages = [Message(("t", 0, 2, 5)), Message(("t", 1, 2, 6))]
    assert [records for _, records, _ in polls(reader)] == [[("1@2", 6)]]
    assert {split.partition.partition: split.position for split in reader.snapshot()} == {
        0: 0,
        1: 3,
    }
    reader.pause(())
    assert [records for _, records, _ in polls(reader)] == [[("0@0", 1), ("0@1", 3), ("0@2", 5)]]
    assert reader._client.told == [("pause", 0), ("resume", 0)]
