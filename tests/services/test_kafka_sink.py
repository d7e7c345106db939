"""Messages in Kafka topics, each of them once, whatever fails."""

import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("kafka")

from confluent_kafka import Producer

from services import kafka as kafka_service
from services.__main__ import HOME
from tests.programs import wait_until
from tests.services.kafka_clients import delete_records
from tests.services.kafka_messages import messages, values
from tidegate.common import SimpleStringSchema
from tidegate.connectors.guarantee import DeliveryGuarantee
from tidegate.connectors.kafka.broker_client import BrokerClient
from tidegate.connectors.kafka.producer_settings import ProducerSettings
from tidegate.connectors.kafka.record_serialization import (
    KafkaRecordSerializationSchema,
)
from tidegate.connectors.kafka.sink import FlinkKafkaProducer, KafkaSink, Semantic
from tidegate.connectors.kafka.transactions import BrokerTransactions, TransactionState
from tidegate.connectors.sink import WriterContext
from tidegate.core.errors import (
    ConfigError,
    KafkaFailed,
    KafkaRefused,
    LeaseEnded,
    TransactionLost,
    UnencodableRecord,
    UnknownTopic,
)
from tidegate.core.permit import Permit
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.stream.batch import Batch
from tidegate.testing.harness import OperatorHarness

EXACTLY_ONCE = DeliveryGuarantee.EXACTLY_ONCE
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def topic(new_topic):
    return new_topic(partitions=2)


def sink(kafka, topic, guarantee=EXACTLY_ONCE, *, prefix="test", key=None, headers=None, **more):
    schema = KafkaRecordSerializationSchema(topic, SimpleStringSchema(), key, headers)
    return KafkaSink(
        kafka,
        schema,
        delivery_guarantee=guarantee,
        transactional_id_prefix=prefix,
        properties={key.replace("_", "."): value for key, value in more.items()},
    )


def opened(kafka, topic, guarantee=EXACTLY_ONCE, **more):
    """A subtask of its own job, which the topic stands for."""
    prefix = topic if isinstance(topic, str) else "test"
    return OperatorHarness(SinkOperator(sink(kafka, topic, guarantee, prefix=prefix, **more)))


@pytest.fixture
def transactions(kafka):
    found = BrokerTransactions(BrokerClient(ProducerSettings({"bootstrap.servers": kafka})))
    yield found
    found.close()


def open_ids(transactions, prefix):
    """The transactional ids under which a transaction is open."""
    ids = transactions.ids_beginning_with(prefix)
    return [each for each in ids if transactions.describe(each).state is TransactionState.OPEN]


# --- the phases ----------------------------------------------------------------------------------


def test_messages_are_invisible_until_their_checkpoint_is_complete(kafka, topic):
    with opened(kafka, topic) as subtask:
        subtask.process(["a", "b"])
        subtask.snapshot()
        assert values(kafka, topic, "read_uncommitted") == ["a", "b"]
        assert values(kafka, topic) == []
        subtask.process(["c"])
        subtask.complete_checkpoint()
        wait_until(lambda: values(kafka, topic) == ["a", "b"])


def test_a_checkpoint_that_is_aborted_leaves_its_messages_to_the_next(kafka, topic):
    with opened(kafka, topic) as subtask:
        subtask.process(["a"])
        subtask.snapshot()
        subtask.abort_checkpoint()
        subtask.process(["b"])
        subtask.snapshot()
        subtask.complete_checkpoint()
        wait_until(lambda: values(kafka, topic) == ["a", "b"])


def test_without_checkpoints_messages_are_visible_at_the_end(kafka, topic):
    operator = SinkOperator(sink(kafka, topic, prefix=topic))
    with OperatorHarness(operator, is_checkpointed=False) as subtask:
        subtask.process(["a"])
        subtask.finish()
    wait_until(lambda: values(kafka, topic) == ["a"])


def test_a_subtask_without_records_has_no_transaction(kafka, topic, transactions):
    with opened(kafka, topic) as subtask:
        for _ in range(3):
            subtask.snapshot()
            subtask.complete_checkpoint()
        assert open_ids(transactions, topic) == []
        assert len(transactions.ids_beginning_with(topic)) == 1


def test_the_brokers_know_few_ids_however_many_checkpoints_there_are(kafka, topic, transactions):
    with opened(kafka, topic) as subtask:
        for number in range(12):
            subtask.process([str(number)])
            subtask.snapshot()
            subtask.complete_checkpoint()
    assert len(transactions.ids_beginning_with(topic)) <= 4
    wait_until(lambda: len(values(kafka, topic)) == 12)


# --- after a failure -----------------------------------------------------------------------------


DIES_BETWEEN_THE_PHASES = """
    import os, pickle, signal, sys
    from pathlib import Path
    from tests.services.test_kafka_sink import opened

    kafka, topic, place = sys.argv[1:]
    subtask = opened(kafka, topic)
    subtask.process(["prepared"])
    snapshot = subtask.snapshot()
    subtask.process(["behind the barrier"])
    subtask.flush()
    Path(place).write_bytes(pickle.dumps(snapshot))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def left_by_a_dead_process(kafka, topic, tmp_path):
    """A snapshot that was taken by a process which was killed before the checkpoint completed."""
    place = tmp_path / "snapshot"
    died = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DIES_BETWEEN_THE_PHASES), kafka, topic, place],
        cwd=REPOSITORY,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL
    return pickle.loads(place.read_bytes())


def test_another_process_commits_what_a_killed_one_has_prepared(
    kafka, topic, left_by_a_dead_process
):
    assert values(kafka, topic) == []
    with restored(kafka, topic, left_by_a_dead_process) as successor:
        wait_until(lambda: values(kafka, topic) == ["prepared"])
        successor.process(["again behind the barrier"])
        successor.snapshot()
        successor.complete_checkpoint()
        everything = ["again behind the barrier", "prepared"]
        wait_until(lambda: values(kafka, topic) == everything)


def restored(kafka, topic, snapshot):
    """A successor of a subtask that left the snapshot."""
    return OperatorHarness(
        SinkOperator(sink(kafka, topic, prefix=topic)), attempt=2, restore_from=[snapshot]
    )


def test_what_a_killed_process_had_not_prepared_is_aborted_at_once(
    kafka, topic, left_by_a_dead_process, transactions
):
    assert len(open_ids(transactions, topic)) == 2
    with restored(kafka, topic, left_by_a_dead_process):
        assert open_ids(transactions, topic) == []


def test_to_commit_twice_is_to_commit_once(kafka, topic):
    with opened(kafka, topic) as subtask:
        subtask.process(["a"])
        snapshot = subtask.snapshot()
        subtask.complete_checkpoint()
    for _ in range(2):
        with restored(kafka, topic, snapshot) as successor:
            successor.process(["never committed"])
    wait_until(lambda: values(kafka, topic) == ["a"])


def test_an_old_checkpoint_whose_ids_have_been_used_again_finds_its_messages_committed(
    kafka, topic, transactions
):
    with opened(kafka, topic) as subtask:
        snapshots = []
        for number in range(8):
            subtask.process([str(number)])
            snapshots.append(subtask.snapshot())
            subtask.complete_checkpoint()
        assert len(transactions.ids_beginning_with(topic)) < len(snapshots)
    with restored(kafka, topic, snapshots[0]):
        pass
    wait_until(lambda: values(kafka, topic) == [str(number) for number in range(8)])


def test_a_process_that_was_cut_off_is_shut_out_by_its_successor(kafka, topic):
    cut_off = opened(kafka, topic)
    cut_off.process(["a"])
    snapshot = cut_off.snapshot()
    cut_off.process(["b"])
    cut_off.flush()
    with restored(kafka, topic, snapshot) as successor:
        successor.process(["b"])
        with pytest.raises(KafkaFailed):
            cut_off.snapshot()
        successor.snapshot()
        successor.complete_checkpoint()
    cut_off.close()
    wait_until(lambda: values(kafka, topic) == ["a", "b"])


# --- several subtasks, several jobs --------------------------------------------------------------


def writer(
    kafka, topic, *, job="job", subtask=0, parallelism=1, recovered=(), operator="op", **more
):
    context = WriterContext(
        subtask=subtask,
        parallelism=parallelism,
        operator_name="sink",
        console=print,
        job_id=job,
        is_checkpointed=True,
        recovered=recovered,
        operator_id=operator,
        **more,
    )
    made = sink(kafka, topic, prefix=topic).create_writer(context)
    made.open()
    return made


def write(writer, *texts):
    writer.write(Batch.of_records(list(texts)))
    writer.flush()


def prepared(writer, *texts, checkpoint=1):
    write(writer, *texts)
    writer.snapshot(checkpoint)
    return writer.prepare_commit()


def commit(kafka, topic, committables, **more):
    context = WriterContext(subtask=0, parallelism=1, operator_name="sink", console=print, **more)
    committer = sink(kafka, topic).create_committer(context)
    committer.commit(committables)
    committer.close()


def test_fewer_subtasks_abort_what_more_have_left_each_its_share(kafka, topic, transactions):
    left = [writer(kafka, topic, subtask=number, parallelism=4) for number in range(4)]
    for number, each in enumerate(left):
        write(each, str(number))
    assert len(open_ids(transactions, topic)) == 4
    first = writer(kafka, topic, subtask=0, parallelism=2)
    assert [each[-3] for each in open_ids(transactions, topic)] == ["1", "3"]
    second = writer(kafka, topic, subtask=1, parallelism=2)
    assert open_ids(transactions, topic) == []
    for each in (first, second, *left):
        each.close()


def test_what_the_checkpoint_holds_is_spared_until_it_is_committed(kafka, topic, transactions):
    lost = writer(kafka, topic)
    committables = prepared(lost, "a")
    write(lost, "b")
    successor = writer(kafka, topic, recovered=committables)
    assert open_ids(transactions, topic) == [committables[0].transactional_id]
    commit(kafka, topic, committables)
    wait_until(lambda: values(kafka, topic) == ["a"])
    successor.close()
    lost.close()


def test_without_a_lease_nothing_is_fenced_aborted_or_committed(kafka, topic, transactions):
    permits = []
    left = writer(kafka, topic, permit=Permit(lambda: not permits))
    committables = prepared(left, "a")
    write(left, "b")
    before = open_ids(transactions, topic)
    permits.append("is lost")
    lost = Permit(lambda: False)
    with pytest.raises(LeaseEnded):
        writer(kafka, topic, permit=lost)
    with pytest.raises(LeaseEnded):
        commit(kafka, topic, committables, permit=lost)
    left.close()
    assert len(before) == 2
    assert open_ids(transactions, topic) == before


@pytest.mark.parametrize("others", [{"job": "other"}, {"operator": "other"}])
def test_another_job_and_another_sink_are_left_alone(kafka, topic, others, transactions):
    one, other = writer(kafka, topic), writer(kafka, topic, **others)
    committables = [*prepared(one, "a"), *prepared(other, "b")]
    again = writer(kafka, topic, **others, recovered=committables)
    assert len(open_ids(transactions, topic)) == 2
    commit(kafka, topic, committables)
    wait_until(lambda: values(kafka, topic) == ["a", "b"])
    for each in (one, other, again):
        each.close()


def test_two_jobs_resume_from_one_checkpoint_and_do_not_fence_each_other(kafka, topic):
    first = writer(kafka, topic, job="first")
    checkpoint = prepared(first, "common")
    commit(kafka, topic, checkpoint)
    first.notify_complete(1)
    second = writer(kafka, topic, job="second", recovered=checkpoint)
    for number in range(2, 6):
        for job in (first, second):
            committables = prepared(job, f"{number}", checkpoint=number)
            commit(kafka, topic, committables)
            job.notify_complete(number)
    third = writer(kafka, topic, job="third", recovered=checkpoint)
    commit(kafka, topic, checkpoint)
    expected = ["2", "2", "3", "3", "4", "4", "5", "5", "common"]
    wait_until(lambda: values(kafka, topic) == expected)
    for each in (first, second, third):
        each.close()


# --- transactions that are lost ------------------------------------------------------------------


def test_a_transaction_that_timed_out_cannot_be_committed(kafka, topic, transactions):
    with opened(kafka, topic, transaction_timeout_ms=1000) as subtask:
        subtask.process(["a"])
        subtask.snapshot()
        wait_until(lambda: open_ids(transactions, topic) == [])
        with pytest.raises(TransactionLost) as lost:
            subtask.complete_checkpoint()
    text = str(lost.value)
    assert "the brokers have aborted it" in text
    assert "transaction.timeout.ms of 1000" in text
    assert "transaction.max.timeout.ms" in text
    assert values(kafka, topic) == []


def test_a_transaction_that_timed_out_before_the_barrier_fails_the_attempt_and_loses_nothing(
    kafka, topic, transactions
):
    with opened(kafka, topic, transaction_timeout_ms=1000) as subtask:
        subtask.process(["a"])
        subtask.flush()
        wait_until(lambda: open_ids(transactions, topic) == [])
        with pytest.raises(KafkaFailed, match="no longer open: it timed out"):
            subtask.snapshot()


def test_a_transaction_whose_id_another_producer_took_cannot_be_committed(kafka, topic):
    taken = writer(kafka, topic)
    (committable,) = prepared(taken, "a")
    thief = Producer({"bootstrap.servers": kafka, "transactional.id": committable.transactional_id})
    thief.init_transactions(120)
    with pytest.raises(TransactionLost, match="or because another producer uses its"):
        commit(kafka, topic, [committable])
    taken.close()


def test_a_transaction_whose_fate_can_no_longer_be_read_is_not_mistaken_for_committed(
    kafka, new_topic
):
    topic = new_topic()
    refused = writer(kafka, topic)
    (committable,) = prepared(refused, "a")
    commit(kafka, topic, [committable])
    thief = Producer({"bootstrap.servers": kafka, "transactional.id": committable.transactional_id})
    thief.init_transactions(120)
    commit(kafka, topic, [committable])
    delete_records(kafka, topic, upto=2)
    with pytest.raises(TransactionLost, match="can no longer be read to see whether"):
        commit(kafka, topic, [committable])
    refused.close()


def test_a_transaction_near_its_timeout_is_warned_of_once(kafka, topic):
    with opened(kafka, topic, transaction_timeout_ms=600_000) as subtask:
        subtask.process(["a"])
        subtask.snapshot()
        subtask.advance(470)
        subtask.process(["b"])
        assert subtask.console == []
        subtask.advance(20)
        subtask.process(["c"])
        subtask.process(["d"])
        (warning,) = subtask.console
        assert warning.startswith("WARNING Tested (1): the transaction ")
        assert "close to its timeout of 0:10:00" in warning


def test_a_timeout_beyond_what_the_brokers_allow_is_refused(kafka, topic):
    with pytest.raises(ConfigError, match="the brokers allow at most 900000: lower it, or raise"):
        opened(kafka, topic, transaction_timeout_ms=900_001)


# --- weaker guarantees ---------------------------------------------------------------------------


def test_at_least_once_messages_are_there_after_the_barrier(kafka, topic):
    with opened(kafka, topic, DeliveryGuarantee.AT_LEAST_ONCE) as subtask:
        subtask.process(["a", "b"])
        subtask.flush()
        assert values(kafka, topic) == ["a", "b"]


def test_without_a_guarantee_messages_are_awaited_at_the_end_only(kafka, topic):
    with opened(kafka, topic, DeliveryGuarantee.NONE, linger_ms=60_000) as subtask:
        subtask.process(["a"])
        subtask.flush()
        assert values(kafka, topic) == []
        subtask.finish()
        assert values(kafka, topic) == ["a"]


def test_the_sink_of_older_programs_writes_too(kafka, topic):
    producer = FlinkKafkaProducer(
        topic,
        SimpleStringSchema(),
        {"bootstrap.servers": kafka, "group.id": "of a consumer"},
        semantic=Semantic.EXACTLY_ONCE,
    )
    assert producer.delivery().guarantee is EXACTLY_ONCE
    with OperatorHarness(SinkOperator(producer), name=topic) as subtask:
        subtask.process(["a"])
        subtask.snapshot()
        subtask.complete_checkpoint()
    wait_until(lambda: values(kafka, topic) == ["a"])


# --- messages ------------------------------------------------------------------------------------


def test_keys_headers_and_timestamps_arrive_with_the_value(kafka, topic):
    headers = {"kind": b"greeting"}
    with opened(
        kafka,
        topic,
        DeliveryGuarantee.AT_LEAST_ONCE,
        key=lambda text: text[0],
        headers=lambda text: headers,
    ) as subtask:
        batch = Batch.of_records(["hello"])
        batch.timestamps = np.array([1_700_000_000_123])
        subtask.process_batch(batch)
        subtask.flush()
    (message,) = messages(kafka, topic)
    assert (message.key(), message.value()) == (b"h", b"hello")
    assert message.headers() == [("kind", b"greeting")]
    assert message.timestamp()[1] == 1_700_000_000_123


def test_records_of_a_key_are_in_one_partition_in_their_order(kafka, topic):
    texts = [f"{number % 7}:{number:03}" for number in range(200)]
    with opened(kafka, topic, key=lambda text: text[0]) as subtask:
        subtask.process(texts)
        subtask.snapshot()
        subtask.complete_checkpoint()
    found = wait_until(lambda: messages(kafka, topic))
    partitions = {(message.key(), message.partition()) for message in found}
    assert len(partitions) == 7
    for key in "0123456":
        of_key = [m.value().decode() for m in found if m.key() == key.encode()]
        assert of_key == [text for text in texts if text[0] == key]


def test_every_record_can_have_a_topic_of_its_own(kafka, new_topic):
    topics = [new_topic(), new_topic()]
    with opened(kafka, lambda text: topics[len(text) % 2]) as subtask:
        subtask.process(["a", "bb", "c"])
        subtask.snapshot()
        subtask.complete_checkpoint()
    wait_until(lambda: values(kafka, topics[0]) == ["bb"])
    wait_until(lambda: values(kafka, topics[1]) == ["a", "c"])


def test_a_full_queue_is_waited_for(kafka, topic):
    texts = [f"{number:05}" for number in range(5_000)]
    with opened(kafka, topic, queue_buffering_max_messages=100) as subtask:
        subtask.process(texts)
        subtask.snapshot()
        subtask.complete_checkpoint()
    wait_until(lambda: values(kafka, topic) == texts)


# --- bad input -----------------------------------------------------------------------------------


class Picky(SimpleStringSchema):
    def serialize(self, value):
        return super().serialize({"a": "a", "b": "b"}[value])


def test_a_record_that_cannot_be_encoded_is_named_and_those_before_it_are_written(kafka, topic):
    schema = KafkaRecordSerializationSchema(topic, Picky())
    operator = SinkOperator(KafkaSink(kafka, schema))
    with OperatorHarness(operator) as subtask:
        with pytest.raises(UnencodableRecord, match="'other' cannot be encoded: KeyError") as found:
            subtask.process(["a", "other", "b"])
        assert found.value.suspects == range(1, 2)
        subtask.flush()
    assert values(kafka, topic) == ["a"]


@pytest.mark.parametrize("guarantee", list(DeliveryGuarantee))
def test_a_topic_that_does_not_exist_is_found_at_the_start(kafka, guarantee):
    with pytest.raises(UnknownTopic, match="has no topic 'nowhere': create it"):
        opened(kafka, "nowhere", guarantee)


def test_a_chosen_topic_that_does_not_exist_is_found_at_the_barrier(kafka):
    elsewhere = {"topic_metadata_propagation_max_ms": 100}
    with opened(kafka, lambda text: "elsewhere", **elsewhere) as subtask:
        subtask.process(["a"])
        with pytest.raises(UnknownTopic, match="has no topic 'elsewhere'"):
            subtask.flush()


@pytest.mark.parametrize("guarantee", list(DeliveryGuarantee))
def test_a_message_that_is_too_large_fails_with_its_topic_and_the_cause(kafka, topic, guarantee):
    too_large = f"writing to '{topic}': .*too large"
    with opened(kafka, topic, guarantee) as subtask, pytest.raises(KafkaFailed, match=too_large):
        subtask.process(["a" * 2_000_000])


def test_a_property_that_no_client_knows_is_named(kafka, topic):
    with pytest.raises(ConfigError, match='No such configuration property: "lingering"'):
        opened(kafka, topic, DeliveryGuarantee.AT_LEAST_ONCE, lingering=3)


@pytest.mark.parametrize("guarantee", list(DeliveryGuarantee))
def test_brokers_that_are_down_at_the_start_are_named(guarantee):
    down = "127.0.0.1:1"
    with pytest.raises(KafkaFailed, match=f"Kafka at {down} failed while"):
        opened(down, "any", guarantee, default_api_timeout_ms=500)


# --- secured brokers -----------------------------------------------------------------------------


@pytest.fixture
def secured(kafka):
    return kafka_service.secured_address(HOME / "kafka")


def login(password):
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_jaas_config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{kafka_service.USER}" password="{password}";'
        ),
    }


def test_transactions_of_secured_brokers_are_committed_and_recovered(kafka, secured, topic):
    with opened(secured, topic, **login(kafka_service.PASSWORD)) as subtask:
        subtask.process(["a"])
        snapshot = subtask.snapshot()
        subtask.process(["b"])
        with subtask.restore(snapshot):
            wait_until(lambda: values(kafka, topic) == ["a"])


@pytest.mark.parametrize("guarantee", [DeliveryGuarantee.AT_LEAST_ONCE, EXACTLY_ONCE])
def test_a_wrong_password_is_refused(secured, topic, guarantee):
    with pytest.raises(KafkaRefused, match="Authentication failed: Invalid username or password"):
        opened(secured, topic, guarantee, **login("wrong"))
