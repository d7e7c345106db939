"""Exactly-once writers at the simulator's brokers, in situations that are hard to bring about."""

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("psycopg")

from tests.services.simulated import simulated
from tests.sim.kafka_clients import TOPIC, SimulatedProducer
from tidegate.connectors.guarantee import DeliveryGuarantee
from tidegate.connectors.kafka.record_serialization import KafkaRecordSerializationSchema
from tidegate.connectors.kafka.sink import KafkaSink
from tidegate.connectors.kafka.transaction_log import FirstRecord
from tidegate.connectors.kafka.transactions import KafkaTransaction
from tidegate.connectors.sink import WriterContext
from tidegate.core.errors import (
    DirectoryTaken,
    KafkaFailed,
    LeaseEnded,
    StorageError,
    UnencodableRecord,
)
from tidegate.core.ids import CheckpointId
from tidegate.core.permit import Permit
from tidegate.stream.batch import Batch

NOBODY_ELSE = Permit()


@pytest.fixture
def sink():
    with simulated("kafka"):
        yield KafkaSink(
            "simulated:0",
            KafkaRecordSerializationSchema(TOPIC, str.encode),
            delivery_guarantee=DeliveryGuarantee.EXACTLY_ONCE,
        )


def context(permit=NOBODY_ELSE):
    return WriterContext(
        subtask=0,
        parallelism=1,
        operator_name="sink",
        console=print,
        job_id="job",
        operator_id="operator",
        is_checkpointed=True,
        permit=permit,
    )


def opened(sink, permit=NOBODY_ELSE):
    writer = sink.create_writer(context(permit))
    writer.open()
    return writer


def checkpoint(writer, number, *records):
    if records:
        writer.write(Batch.of_records(list(records)))
    writer.flush()
    writer.snapshot(CheckpointId(number))
    return writer.prepare_commit()


def test_a_slot_whose_lease_ends_while_it_waits_for_brokers_takes_no_id(sink, monkeypatch):
    has_lease = True
    asked, prepared = [], []
    look = SimulatedProducer.list_topics

    def looks_long(producer, topic, timeout):
        nonlocal has_lease
        asked.append(producer)
        if has_lease and producer._id and asked.count(producer) == 2:
            has_lease = False
            prepared.extend(checkpoint(opened(sink), 1, "('a', 1)"))
        return look(producer, topic, timeout)

    monkeypatch.setattr(SimulatedProducer, "list_topics", looks_long)
    with pytest.raises(LeaseEnded):
        opened(sink, Permit(lambda: has_lease))
    sink.create_committer(context()).commit(prepared)
    assert len(prepared) == 1


def test_a_slot_of_a_replaced_driver_takes_no_id(sink):
    is_replaced = False

    def check(takes_over):
        if takes_over and is_replaced:
            raise DirectoryTaken("a directory", 1)

    older = opened(sink, Permit(check_driver=check))
    checkpoint(older, 1, "('a', 1)")
    is_replaced = True
    newer, committer = opened(sink), sink.create_committer(context())
    for number in (1, 2):
        committer.commit(checkpoint(newer, number, "('a', 1)"))
        newer.notify_complete(CheckpointId(number))
    prepared = checkpoint(newer, 3, "('a', 1)")
    with pytest.raises(DirectoryTaken):
        older.write(Batch.of_records(["('a', 1)"]))
    committer.commit(prepared)
    assert len(prepared) == 1


def test_a_record_that_cannot_be_encoded_leaves_nothing_to_prepare(sink):
    writer = opened(sink)
    with pytest.raises(UnencodableRecord):
        writer.write(Batch.of_records([1]))  # the poison guard goes on after it
    assert not checkpoint(writer, 1)
    assert checkpoint(writer, 2, "('a', 1)")


def test_a_transaction_in_a_partition_that_is_gone_fails_with_the_reason(sink):
    gone = KafkaTransaction("an id", 1, 0, 1000, FirstRecord(TOPIC, 99, 0))
    with pytest.raises(KafkaFailed, match="UnknownTopicOrPartition"):
        sink.create_committer(context()).commit([gone])


def test_a_slot_asks_again_whose_the_job_is_if_the_storage_did_not_answer(sink):
    failures = []

    def check(takes_over):
        if failures:
            raise failures.pop()

    writer = opened(sink, Permit(check_driver=check))
    failures.append(StorageError("a directory", "no answer", "wait"))
    assert checkpoint(writer, 1, "('a', 1)")
    assert checkpoint(writer, 2, "('a', 1)")
    assert not failures


def test_an_abort_that_the_brokers_delay_is_repeated_only_with_a_lease(sink):
    left = opened(sink)
    left.write(Batch.of_records(["('a', 1)"]))
    left.flush()
    leases = iter([True, False])  # the brokers abort what is open, and want to be asked again
    with pytest.raises(LeaseEnded):
        left._transactions.fence(
            left._current.transactional_id, 60_000, Permit(is_valid=lambda: next(leases))
        )


def test_a_writer_that_cannot_abort_still_closes_its_connections(sink, monkeypatch):
    writer = opened(sink)
    writer.write(Batch.of_records(["('a', 1)"]))
    closed = []
    monkeypatch.setattr(writer._transactions, "close", lambda: closed.append(True))

    def fails():
        raise KafkaFailed("simulated:0", "aborting", "no answer")

    monkeypatch.setattr(writer._current.producer, "abort", fails)
    with pytest.raises(KafkaFailed):
        writer.close()
    assert closed
