import pickle
import sys
from datetime import timedelta

import pytest

from tidegate.common import DeserializationSchema, SimpleStringSchema, Types
from tidegate.connectors.kafka.consumer_settings import ConsumerSettings, create_consumer
from tidegate.connectors.source import Boundedness
from tidegate.core.errors import ConfigError, UserError
from tidegate.datastream.connectors.kafka import (
    FlinkKafkaConsumer,
    KafkaOffsetsInitializer,
    KafkaSource,
)


def builder():
    made = KafkaSource.builder().set_bootstrap_servers("somewhere:9092").set_topics("t")
    return made.set_value_only_deserializer(SimpleStringSchema())


def settings(**properties):
    given = {key.replace("_", "."): value for key, value in properties.items()}
    return ConsumerSettings(properties={"bootstrap.servers": "somewhere:9092", **given})


def test_a_missing_package_is_for_the_user_to_install(monkeypatch):
    """So the job ends: no restart installs it."""
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(UserError, match=r"pip install 'tidegate\[kafka\]'"):
        create_consumer(settings(), "reader")


def test_a_source_ends_only_on_request():
    assert builder().build().boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    latest = KafkaOffsetsInitializer.latest()
    assert builder().set_bounded(latest).build().boundedness is Boundedness.BOUNDED
    stopping = builder().set_unbounded(latest).build()
    assert stopping.boundedness is Boundedness.CONTINUOUS_UNBOUNDED


def test_the_type_of_the_records_comes_from_the_schema():
    assert builder().build().produced_type() == Types.STRING()

    class Own(DeserializationSchema):
        def deserialize(self, message):
            return message

    assert builder().set_value_only_deserializer(Own()).build().produced_type() is None


def test_a_source_travels():
    assert pickle.loads(pickle.dumps(builder().build())).produced_type() == Types.STRING()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: KafkaSource.builder().build(), "give what to read"),
        (lambda: KafkaSource.builder().set_topics("t").build(), "give how to read values"),
        (lambda: KafkaSource.builder().set_topics(), "give at least one topic"),
        (lambda: KafkaSource.builder().set_partitions([]), "give at least one partition"),
        (lambda: builder().set_topic_pattern("x"), "'t' is already set"),
        (lambda: KafkaSource.builder().set_topic_pattern("("), "topic_pattern"),
        (lambda: builder().set_bootstrap_servers("").build(), "give the brokers' addresses"),
        (
            lambda: builder().set_property("partition.discovery.interval.ms", "soon").build(),
            "give a whole number of milliseconds",
        ),
        (
            lambda: builder().set_property("auto.offset.reset", "first").build(),
            "give 'earliest', 'latest' or 'none'",
        ),
        (lambda: FlinkKafkaConsumer([], SimpleStringSchema(), {}), "give at least one topic"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_said(make, problem):
    with pytest.raises(ConfigError, match=problem):
        make()


def test_new_partitions_are_discovered_every_five_minutes_by_default():
    assert settings().discovery_interval == timedelta(minutes=5)
    assert settings(partition_discovery_interval_ms="100").discovery_interval == timedelta(
        milliseconds=100
    )
    assert settings(partition_discovery_interval_ms=-1).discovery_interval is None


def test_offsets_are_committed_for_a_group_alone():
    assert not settings().commits_offsets
    assert settings(group_id="g").commits_offsets
    assert not settings(group_id="g", commit_offsets_on_checkpoint="false").commits_offsets


def test_the_client_never_commits_by_itself():
    client = settings(group_id="g", enable_auto_commit="true").for_client("0")
    assert client["enable.auto.commit"] is False
    assert client["enable.auto.offset.store"] is False


def test_properties_of_java_are_translated_or_dropped():
    client = settings(
        key_deserializer="org.apache.kafka.common.serialization.StringDeserializer",
        max_poll_records=10,
        fetch_max_wait_ms=7,
        client_id_prefix="job",
    ).for_client("3")
    assert client["fetch.wait.max.ms"] == 7
    assert client["client.id"] == "job-3"
    assert not {"key.deserializer", "max.poll.records", "client.id.prefix"} & set(client)


def test_a_client_without_a_group_gets_one_of_its_own():
    assert settings().for_client("0")["group.id"] != settings().for_client("0")["group.id"]
