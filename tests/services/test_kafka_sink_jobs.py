"""Jobs that write to Kafka while they, or the brokers, fail."""

import json

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("kafka")

from services import kafka as kafka_service
from services.__main__ import HOME
from tests.failing import FAILURES, FailsBehindCheckpoints
from tests.programs import wait_until
from tests.services.kafka_clients import create_topic
from tests.services.kafka_messages import messages, values
from tidegate.common import JsonRowSerializationSchema, RestartStrategies, SimpleStringSchema, Types
from tidegate.core.errors import KafkaFailed
from tidegate.datastream.connectors import DataGeneratorSource
from tidegate.datastream.connectors.base import DeliveryGuarantee
from tidegate.datastream.connectors.kafka import (
    FlinkKafkaProducer,
    KafkaRecordSerializationSchema,
    KafkaSink,
)
from tidegate.testing.environments import mini_environment

LAST = 600
EXPECTED = sorted(str(number) for number in range(1, LAST + 1))


@pytest.fixture
def topic(new_topic):
    return new_topic(partitions=2)


def environment(parallelism, restarts=2 * FAILURES + 2):
    env = mini_environment({"tidegate.step.max-records": 5}, parallelism=parallelism)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(restarts, 100))
    env.enable_checkpointing("50 ms")
    return env


def sink(brokers, topic, guarantee, **properties):
    builder = KafkaSink.builder().set_bootstrap_servers(brokers).set_delivery_guarantee(guarantee)
    for key, value in properties.items():
        builder.set_property(key.replace("_", "."), value)
    schema = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(topic)
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    return builder.set_record_serializer(schema).build()


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [1, 2])
def test_exactly_once_every_message_is_there_once_whatever_fails(kafka, topic, parallelism):
    env = environment(parallelism)
    numbers = env.from_sequence(1, LAST).map(FailsBehindCheckpoints()).rebalance()
    numbers.map(str).sink_to(sink(kafka, topic, DeliveryGuarantee.EXACTLY_ONCE))
    env.execute()
    wait_until(lambda: values(kafka, topic) == EXPECTED)


def test_at_least_once_no_message_is_lost_whatever_fails(kafka, topic):
    env = environment(2)
    numbers = env.from_sequence(1, LAST).map(FailsBehindCheckpoints()).rebalance()
    numbers.map(str).sink_to(sink(kafka, topic, DeliveryGuarantee.AT_LEAST_ONCE))
    env.execute()
    found = values(kafka, topic)
    assert sorted(set(found)) == EXPECTED
    assert len(found) > LAST, "what was behind the checkpoints came again"


def test_rows_of_columns_arrive_as_json(kafka, topic):
    row = Types.ROW_NAMED(["name", "size"], [Types.STRING(), Types.LONG()])
    schema = JsonRowSerializationSchema.builder().with_type_info(row).build()
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    env = mini_environment(parallelism=2)
    stream = env.from_collection([("ä", 1), ('"b"', 2)], pair)
    stream.add_sink(FlinkKafkaProducer(topic, schema, {"bootstrap.servers": kafka}))
    env.execute()
    found = [json.loads(message.value()) for message in messages(kafka, topic)]
    assert sorted(found, key=lambda row: row["size"]) == [
        {"name": "ä", "size": 1},
        {"name": '"b"', "size": 2},
    ]


# --- brokers that go away ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own_broker(kafka, tmp_path_factory):
    """A broker that may be stopped: where it lives."""
    home = tmp_path_factory.mktemp("kafka")
    for libs in (HOME / "kafka").glob("libs-*"):
        (home / libs.name).symlink_to(libs)
    kafka_service.start(home)
    yield home
    kafka_service.stop(home)


@pytest.mark.slow
@pytest.mark.parametrize(
    "guarantee",
    [
        DeliveryGuarantee.EXACTLY_ONCE,
        pytest.param(DeliveryGuarantee.AT_LEAST_ONCE, marks=pytest.mark.prove),
    ],
)
def test_a_broker_that_is_away_for_a_while_costs_no_message_and_doubles_none(own_broker, guarantee):
    brokers = kafka_service.start(own_broker)
    topic = f"numbers-{guarantee.value}"
    create_topic(brokers, topic)
    env = environment(1, restarts=100)
    numbers = DataGeneratorSource(str, type_info=Types.STRING(), count=2 * LAST, rate=300)
    quick = {"delivery_timeout_ms": 2_000, "default_api_timeout_ms": 2_000}
    env.from_source(numbers).sink_to(sink(brokers, topic, guarantee, **quick))
    job = env.execute_async()
    wait_until(lambda: len(values(brokers, topic)) > 50)
    kafka_service.stop(own_broker)
    assert kafka_service.start(own_broker) == brokers
    job.get_job_execution_result().result()
    expected = sorted(str(number) for number in range(2 * LAST))
    if guarantee is DeliveryGuarantee.EXACTLY_ONCE:
        wait_until(lambda: values(brokers, topic) == expected)
    else:
        assert sorted(set(values(brokers, topic))) == expected


def test_a_job_ends_when_its_restarts_do_and_the_broker_is_not_there():
    env = environment(1, restarts=1)
    down = "127.0.0.1:1"
    unreachable = sink(down, "any", DeliveryGuarantee.EXACTLY_ONCE, default_api_timeout_ms=300)
    env.from_collection(["a"]).sink_to(unreachable)
    with pytest.raises(KafkaFailed, match=f"Kafka at {down} failed while connecting"):
        env.execute()
