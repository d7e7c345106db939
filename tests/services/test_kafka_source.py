"""Records of Kafka topics: all of them, from where they should, each once, whatever fails."""

import json
import logging
import runpy
import shutil
import time
from datetime import date
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from services import kafka as broker
from services.__main__ import HOME
from tests.failing import FailsBehindCheckpoints
from tests.programs import wait_until
from tests.services.kafka_clients import (
    add_partitions,
    commit,
    committed,
    create_topic,
    delete_records,
    delete_topic,
    produce,
    transaction,
)
from tests.unit.connectors.reading import first_splits, reader_of
from tidegate.common import RestartStrategies, SimpleStringSchema, Types
from tidegate.connectors.kafka.partitions import EARLIEST, KafkaSplit
from tidegate.connectors.source import InputStatus
from tidegate.core.errors import (
    ConfigError,
    KafkaFailed,
    KafkaRefused,
    UndecodableRecord,
    UnknownTopic,
    UnreadableInput,
    UserFunctionError,
)
from tidegate.datastream import (
    ProcessFunction,
    StreamExecutionEnvironment,
)
from tidegate.datastream.connectors.kafka import (
    FlinkKafkaConsumer,
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaSource,
    KafkaTopicPartition,
)
from tidegate.datastream.formats.csv import CsvRowDeserializationSchema
from tidegate.datastream.formats.json import JsonRowDeserializationSchema
from tidegate.testing.environments import mini_environment
from tidegate.testing.scripted import CollectingSink

LATEST = KafkaOffsetsInitializer.latest()
TEXT = SimpleStringSchema()


def builder(brokers, *topics, schema=TEXT):
    made = KafkaSource.builder().set_bootstrap_servers(brokers)
    made.set_value_only_deserializer(schema)
    return made.set_topics(*topics) if topics else made


def bounded(brokers, *topics, schema=TEXT, start=None):
    made = builder(brokers, *topics, schema=schema).set_bounded(LATEST)
    return made if start is None else made.set_starting_offsets(start)


def read(source, parallelism=2):
    return list(mini_environment(parallelism=parallelism).from_source(source).execute_and_collect())


class Running:
    """A job without an end whose records the test watches arrive."""

    def __init__(self, source, parallelism=2, **settings):
        env = mini_environment(settings, parallelism=parallelism)
        self.sink = CollectingSink()
        stream = env.from_source(source)
        stream.sink_to(self.sink)
        self.job = env.execute_async("running")

    def wait_for(self, records):
        wait_until(lambda: len(self.sink.records) >= len(records))
        assert sorted(self.sink.records) == sorted(records)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.job.cancel_and_wait()


def texts(count, prefix="m"):
    return [f"{prefix}{number}" for number in range(count)]


# --- what is read, and from where ---------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_all_partitions_of_a_topic_are_read_once(kafka, new_topic, parallelism):
    topic = new_topic(partitions=3)
    produce(kafka, topic, texts(1000))
    assert sorted(read(bounded(kafka, topic).build(), parallelism)) == sorted(texts(1000))


def test_an_empty_topic_ends_at_once(kafka, new_topic):
    assert read(bounded(kafka, new_topic(partitions=2)).build()) == []


def test_records_of_a_partition_keep_their_order(kafka, new_topic):
    topic = new_topic()
    produce(kafka, topic, texts(500))
    assert read(bounded(kafka, topic).build(), 1) == texts(500)


def test_a_pattern_chooses_topics_by_their_whole_name(kafka, new_topic):
    first, second = new_topic(), new_topic()
    produce(kafka, first, ["a"])
    produce(kafka, second, ["b"])
    source = bounded(kafka).set_topic_pattern(f"{first}|{second[:-1]}").build()
    assert read(source) == ["a"]


def test_single_partitions_can_be_chosen(kafka, new_topic):
    topic = new_topic(partitions=2)
    for partition in (0, 1):
        produce(kafka, topic, texts(3, prefix=f"p{partition}-"), partition)
    source = bounded(kafka).set_partitions({KafkaTopicPartition(topic, 1)}).build()
    assert read(source) == ["p1-0", "p1-1", "p1-2"]


def test_reading_begins_at_given_offsets_and_else_where_the_strategy_says(kafka, new_topic):
    topic = new_topic(partitions=2)
    for partition in (0, 1):
        produce(kafka, topic, texts(3, prefix=f"p{partition}-"), partition)
    known = {KafkaTopicPartition(topic, 0): 2}
    start = KafkaOffsetsInitializer.offsets(known)
    assert sorted(read(bounded(kafka, topic, start=start).build())) == [
        "p0-2",
        "p1-0",
        "p1-1",
        "p1-2",
    ]
    start = KafkaOffsetsInitializer.offsets(known, KafkaOffsetResetStrategy.LATEST)
    assert read(bounded(kafka, topic, start=start).build()) == ["p0-2"]


def test_reading_begins_at_a_time(kafka, new_topic):
    topic = new_topic(partitions=2)
    produce(kafka, topic, ["early"], partition=0, timestamp=1_000)
    produce(kafka, topic, ["late"], partition=0, timestamp=2_000)
    produce(kafka, topic, ["early"], partition=1, timestamp=1_999)
    start = KafkaOffsetsInitializer.timestamp(2_000)
    assert read(bounded(kafka, topic, start=start).build()) == ["late"]


def test_reading_stops_before_given_offsets(kafka, new_topic):
    topic = new_topic(partitions=2)
    for partition in (0, 1):
        produce(kafka, topic, texts(100, prefix=f"p{partition}-"), partition)
    stops = {KafkaTopicPartition(topic, 0): 60, KafkaTopicPartition(topic, 1): 0}
    source = builder(kafka, topic).set_bounded(KafkaOffsetsInitializer.offsets(stops)).build()
    assert read(source) == texts(60, prefix="p0-")


def test_reading_begins_where_the_group_is(kafka, new_topic):
    topic = new_topic()
    produce(kafka, topic, texts(5))
    commit(kafka, topic, topic, {0: 3})
    start = KafkaOffsetsInitializer.committed_offsets()
    source = bounded(kafka, topic, start=start).set_group_id(topic).build()
    assert read(source) == ["m3", "m4"]


def test_a_group_without_offsets_needs_a_strategy(kafka, new_topic):
    topic = new_topic()
    produce(kafka, topic, texts(2))

    def source(*strategy):
        start = KafkaOffsetsInitializer.committed_offsets(*strategy)
        return bounded(kafka, topic, start=start).set_group_id(topic).build()

    assert read(source(KafkaOffsetResetStrategy.EARLIEST)) == texts(2)
    assert read(source(KafkaOffsetResetStrategy.LATEST)) == []
    with pytest.raises(UnreadableInput, match="there is no offset to start from; commit one"):
        read(source())


def test_a_job_without_an_end_reads_what_comes_while_it_runs(kafka, new_topic):
    topic = new_topic(partitions=2)
    produce(kafka, topic, ["before"])
    with Running(builder(kafka, topic).build()) as running:
        running.wait_for(["before"])
        produce(kafka, topic, texts(10))
        running.wait_for(["before", *texts(10)])


def test_latest_leaves_out_what_is_there_already(kafka, new_topic):
    topic = new_topic()
    produce(kafka, topic, ["before"])
    source = builder(kafka, topic).set_starting_offsets(LATEST).build()
    enumerator = source.create_enumerator()
    [[split]] = first_splits(enumerator, 1).values()
    enumerator.close()
    assert split.position == 1
    produce(kafka, topic, ["behind"])
    reader = reader_of(source, splits=[split], no_more=False)
    wait_until(reader.is_available)
    assert reader.poll(10).batch.records == ["behind"]
    reader.close()


def test_new_partitions_are_found_and_read_from_their_beginning(kafka, new_topic):
    topic = new_topic()
    source = builder(kafka, topic).set_property("partition.discovery.interval.ms", "100").build()
    produce(kafka, topic, ["old"])
    with Running(source) as running:
        running.wait_for(["old"])
        add_partitions(kafka, topic, 3)
        for partition in (1, 2):
            produce(kafka, topic, [f"new-{partition}"], partition)
        running.wait_for(["old", "new-1", "new-2"])


def test_partitions_that_come_later_begin_earliest_also_where_others_begin_latest(kafka, new_topic):
    topic = new_topic()
    produce(kafka, topic, ["old"])
    source = builder(kafka, topic).set_starting_offsets(LATEST)
    source.set_property("partition.discovery.interval.ms", 3_600_000)
    enumerator = source.build().create_enumerator()
    assert first_splits(enumerator, 1) == {0: [KafkaSplit(KafkaTopicPartition(topic, 0), 1)]}
    state = enumerator.snapshot()
    enumerator.close()
    add_partitions(kafka, topic, 2)
    restored = source.build().create_enumerator()
    restored.restore(state)
    found = []
    wait_until(lambda: found.extend(restored.next_splits(1).values()) or found)
    restored.close()
    assert found == [[KafkaSplit(KafkaTopicPartition(topic, 1), EARLIEST)]]


def test_new_topics_that_match_are_found(kafka, new_topic):
    source = builder(kafka).set_property("partition.discovery.interval.ms", 100)
    first = new_topic()
    produce(kafka, first, ["first"])
    later = f"{first}-later"
    with Running(source.set_topic_pattern(f"{first}.*").build()) as running:
        running.wait_for(["first"])
        new_topic(name=later)
        produce(kafka, later, ["later"])
        running.wait_for(["first", "later"])


# --- transactions of producers ------------------------------------------------------------------


def test_only_committed_records_are_read_and_their_marks_do_not_hide_the_end(kafka, new_topic):
    topic = new_topic()
    with transaction(kafka, f"{topic}-aborted") as aborted:
        aborted.produce(topic, "aborted")
        aborted.flush(120)
        aborted.abort_transaction(120)
    with transaction(kafka, f"{topic}-committed") as writer:
        writer.produce(topic, "committed")
        writer.commit_transaction(120)
    assert read(bounded(kafka, topic).build()) == ["committed"]


def test_reading_stops_at_the_mark_of_a_transaction_although_records_follow(kafka, new_topic):
    topic = new_topic()
    with transaction(kafka, topic) as writer:
        writer.produce(topic, "committed")
        writer.commit_transaction(120)
    produce(kafka, topic, texts(1000))
    stop = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, 0): 2})
    reader = reader_of(builder(kafka, topic).set_bounded(stop).build())
    wait_until(reader.is_available)
    assert reader.poll(1000).batch.records == ["committed"]
    assert [split.position for split in reader.snapshot()] == [2]
    assert reader.poll(1000).status is InputStatus.END_OF_INPUT
    reader.close()


def test_a_bounded_source_ends_before_an_open_transaction(kafka, new_topic):
    topic = new_topic()
    produce(kafka, topic, ["before"])
    with transaction(kafka, topic) as writer:
        writer.produce(topic, "open")
        writer.flush(120)
        assert read(bounded(kafka, topic).build()) == ["before"]
        writer.abort_transaction(120)


# --- checkpoints --------------------------------------------------------------------------------


PURCHASE = Types.ROW_NAMED(["user", "amount"], [Types.STRING(), Types.LONG()])


def test_every_record_counts_once_although_the_job_fails(kafka, new_topic, caplog):
    topic = new_topic(partitions=3)
    amounts = range(3000)
    produce(kafka, topic, [json.dumps({"user": f"u{n % 7}", "amount": n}) for n in amounts])
    env = mini_environment({"tidegate.step.max-records": 40}, parallelism=2)
    env.enable_checkpointing("10 ms")
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(20, 1))
    source = bounded(kafka, topic, schema=JsonRowDeserializationSchema(PURCHASE)).build()
    stream = env.from_source(source).map(FailsBehindCheckpoints(), output_type=PURCHASE)
    sums = stream.key_by(lambda row: row.user, Types.STRING()).sum("amount")
    final = {}
    for row in sums.execute_and_collect():
        final[row.user] = max(row.amount, final.get(row.user, 0))
    assert final == {f"u{key}": sum(range(key, 3000, 7)) for key in range(7)}
    assert "behind a checkpoint" in caplog.text


def test_offsets_are_committed_when_a_checkpoint_is_complete_and_not_without(kafka, new_topic):
    topic = new_topic(partitions=2)
    for partition in (0, 1):
        produce(kafka, topic, texts(10 + partition), partition)

    def run(group, **settings):
        env = mini_environment(settings, parallelism=2)
        source = bounded(kafka, topic).set_group_id(group).build()
        list(env.from_source(source).execute_and_collect())
        return committed(kafka, group, topic, 2)

    assert run(f"{topic}-without") == {}
    checkpoints = {"execution.checkpointing.interval": "20 ms"}
    assert run(f"{topic}-with", **checkpoints) == {0: 10, 1: 11}


def test_commits_can_be_switched_off(kafka, new_topic):
    topic = new_topic()
    produce(kafka, topic, texts(10))
    env = mini_environment({"execution.checkpointing.interval": "20 ms"}, parallelism=1)
    source = bounded(kafka, topic).set_group_id(topic)
    source.set_property("commit.offsets.on.checkpoint", "false")
    assert list(env.from_source(source.build()).execute_and_collect()) == texts(10)
    assert committed(kafka, topic, topic) == {}


def test_a_new_reader_continues_after_the_snapshot_of_another(kafka, new_topic):
    topic = new_topic(partitions=2)
    for partition in (0, 1):
        produce(kafka, topic, texts(50, prefix=f"p{partition}-"), partition)
    source = bounded(kafka, topic).build()
    first = reader_of(source)
    records = []
    while len(records) < 30:
        poll = first.poll(7)
        records += [] if poll.batch is None else poll.batch.records
    splits = first.snapshot()
    first.close()
    second = reader_of(source, splits=splits)
    while (poll := second.poll(100)).status is not InputStatus.END_OF_INPUT:
        records += [] if poll.batch is None else poll.batch.records
    second.close()
    assert sorted(records) == sorted(texts(50, "p0-") + texts(50, "p1-"))


def test_an_idle_topic_holds_up_nobody(kafka, new_topic):
    reader = reader_of(builder(kafka, new_topic()).build(), no_more=False)
    began = time.perf_counter()
    for _ in range(100):
        assert not reader.is_available()
        assert reader.poll(1000).status is InputStatus.NOTHING_AVAILABLE
    assert time.perf_counter() - began < 5
    reader.close()


def test_the_lag_is_known(kafka, new_topic):
    topic = new_topic()
    produce(kafka, topic, texts(100))
    reader = reader_of(builder(kafka, topic).build(), no_more=False)
    wait_until(reader.is_available)
    taken = len(reader.poll(120).batch)
    assert reader.pending_records() == 100 - taken
    reader.close()


# --- what messages become -----------------------------------------------------------------------


def test_rows_hold_all_parts_of_a_message(kafka, new_topic):
    topic = new_topic()
    produce(kafka, topic, ["v"], key="k", headers=[("h", b"1"), ("h", None)], timestamp=1234)
    produce(kafka, topic, [None], key="gone", timestamp=1235)
    source = bounded(kafka, topic).set_deserializer(KafkaRecordDeserializationSchema.rows())
    first, second = read(source.build())
    assert first.as_dict() == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": 1234,
        "key": b"k",
        "value": b"v",
        "headers": [("h", b"1"), ("h", None)],
    }
    assert (second.offset, second.key, second.value, second.headers) == (1, b"gone", None, [])


def test_a_function_decides_what_a_message_becomes(kafka, new_topic):
    topic = new_topic()
    for key in ("a", "b", "c"):
        produce(kafka, topic, [key.upper()], key=key)
    schema = KafkaRecordDeserializationSchema.of(
        lambda record: None if record.key == b"b" else (record.key.decode(), record.offset),
        Types.TUPLE([Types.STRING(), Types.LONG()]),
    )
    assert read(bounded(kafka, topic).set_deserializer(schema).build()) == [("a", 0), ("c", 2)]


def test_messages_without_a_value_are_skipped(kafka, new_topic):
    topic = new_topic()
    produce(kafka, topic, ["a", None, "b"], key="k")
    for charset in ("UTF-8", "latin-1"):
        assert read(bounded(kafka, topic, schema=SimpleStringSchema(charset)).build()) == ["a", "b"]


def test_json_objects_become_rows_of_the_declared_type(kafka, new_topic):
    topic = new_topic()
    produce(
        kafka,
        topic,
        [
            '{"name": "a", "at": "2024-02-29", "tags": ["x"], "more": {"deep": 1}}',
            '\n{ "at": null,\n "name": "b" }\n',
        ],
    )
    row = Types.ROW_NAMED(
        ["name", "at", "tags"], [Types.STRING(), Types.SQL_DATE(), Types.LIST(Types.STRING())]
    )
    schema = JsonRowDeserializationSchema.builder().type_info(row).build()
    rows = read(bounded(kafka, topic, schema=schema).build())
    assert [tuple(row) for row in rows] == [("a", date(2024, 2, 29), ["x"]), ("b", None, None)]


def test_lines_of_values_become_rows(kafka, new_topic):
    topic = new_topic()
    produce(kafka, topic, ["a;1", '"b;c";'])
    schema = CsvRowDeserializationSchema.Builder(PURCHASE).set_field_delimiter(";").build()
    rows = read(bounded(kafka, topic, schema=schema).build())
    assert [tuple(row) for row in rows] == [("a", 1), ("b;c", None)]


class StampsOf(ProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp()


def test_records_have_the_time_of_their_message(kafka, new_topic):
    topic = new_topic()
    produce(kafka, topic, ["a"], timestamp=1234)
    stream = mini_environment().from_source(bounded(kafka, topic).build()).process(StampsOf())
    assert list(stream.execute_and_collect()) == [("a", 1234)]


def test_a_message_that_does_not_decode_ends_the_job_after_those_before_it(kafka, new_topic):
    topic = new_topic()
    good = ['{"user": "a", "amount": 1}'] * 700
    produce(kafka, topic, [*good, '{"user": "b", "amount": "many"}', *good])
    source = bounded(kafka, topic, schema=JsonRowDeserializationSchema(PURCHASE)).build()
    reader = reader_of(source)
    records = []
    while len(records) < 700:
        poll = reader.poll(1000)
        records += [] if poll.batch is None else poll.batch.records
    with pytest.raises(UndecodableRecord) as failure:
        reader.poll(1000)
    assert len(records) == 700
    assert [split.position for split in reader.snapshot()] == [700]
    reader.close()
    assert f"topic {topic!r}, partition 0, offset 700: the record" in str(failure.value)
    assert '"amount": "many"}\' cannot be decoded: JSON parse error' in str(failure.value)


def test_what_the_schema_of_a_user_raises_names_the_message(kafka, new_topic):
    topic = new_topic()
    produce(kafka, topic, ["ok", b"\xff"])
    with pytest.raises(UserFunctionError, match=r"offset 1: the record b'\\xff' cannot be decoded"):
        read(bounded(kafka, topic).build())


def test_messages_that_do_not_decode_can_be_dead_letters(kafka, new_topic):
    topic = new_topic()
    row = json.dumps({"user": "a", "amount": 1})
    produce(kafka, topic, ["x", row, "y", "z", *[row] * 50, "end"])
    source = bounded(kafka, topic, schema=JsonRowDeserializationSchema(PURCHASE)).build()
    letters = []

    def undecodable(position, raw, error):
        letters.append((position.rpartition(" ")[2], raw))

    reader = reader_of(source, undecodable=undecodable)
    records = []
    while (poll := reader.poll(20)).status is not InputStatus.END_OF_INPUT:
        records += [] if poll.batch is None else poll.batch.records
    assert [split.position for split in reader.snapshot()] == [55]
    reader.close()
    assert len(records) == 51
    assert letters == [("0", b"x"), ("2", b"y"), ("3", b"z"), ("54", b"end")]


def test_messages_that_do_not_decode_can_be_skipped(kafka, new_topic):
    topic = new_topic()
    row = json.dumps({"user": "a", "amount": 1})
    broken = ["", "{}{}", "[]", '{"user": 1}', row[:-1], "}"]
    produce(kafka, topic, [row, *broken, row, broken[1], "", row])
    schema = JsonRowDeserializationSchema.builder().type_info(PURCHASE).ignore_parse_errors()
    assert len(read(bounded(kafka, topic, schema=schema.build()).build())) == 3


# --- the older name -----------------------------------------------------------------------------


def test_a_flink_kafka_consumer_begins_where_its_properties_say(kafka, new_topic):
    topic = new_topic()
    produce(kafka, topic, texts(3))
    properties = {
        "bootstrap.servers": kafka,
        "group.id": topic,
        "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
        "auto.offset.reset": "earliest",
    }
    env = mini_environment({"execution.checkpointing.interval": "10 ms"}, parallelism=1)
    sink = CollectingSink()
    env.add_source(FlinkKafkaConsumer(topic, TEXT, properties)).uid("KafkaSource").sink_to(sink)
    job = env.execute_async()
    wait_until(lambda: sink.records == texts(3))
    wait_until(lambda: committed(kafka, topic, topic) == {0: 3})
    job.cancel_and_wait()
    produce(kafka, topic, ["behind"])
    with Running(FlinkKafkaConsumer([topic], TEXT, properties)) as running:
        running.wait_for(["behind"])
    consumer = FlinkKafkaConsumer(topic, TEXT, properties).set_start_from_earliest()
    with Running(consumer.set_commit_offsets_on_checkpoints(False)) as running:
        running.wait_for([*texts(3), "behind"])


# --- what goes wrong ----------------------------------------------------------------------------

NOBODY = "127.0.0.1:1"


def test_brokers_that_are_not_there_are_named(kafka):
    source = bounded(NOBODY, "t").set_property("default.api.timeout.ms", 1500).build()
    with pytest.raises(KafkaFailed, match=r"127\.0\.0\.1:1 failed while looking for partitions"):
        read(source)


def test_a_topic_that_is_not_there_is_named(kafka):
    with pytest.raises(UnknownTopic, match="has no topic 'no-such-topic'"):
        read(bounded(kafka, "no-such-topic").build())


def test_a_partition_that_is_not_there_is_named(kafka, new_topic):
    missing = KafkaTopicPartition(new_topic(), 7)
    with pytest.raises(UnreadableInput, match="partition 7: does not exist at"):
        read(bounded(kafka).set_partitions({missing}).build())


def test_a_wrong_password_ends_the_job_at_once(kafka, new_topic):
    source = bounded(broker.secured_address(HOME / "kafka"), new_topic())
    source.set_properties({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"})
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="{}" '
    login = login.format(broker.USER)
    source.set_property("sasl.jaas.config", f'{login} password="wrong";')
    with pytest.raises(KafkaRefused, match="Authentication failed"):
        read(source.build())
    source.set_property("sasl.jaas.config", f'{login} password="{broker.PASSWORD}";')
    assert read(source.build()) == []


def test_a_property_that_nobody_knows_is_refused(kafka, new_topic):
    source = bounded(kafka, new_topic()).set_property("fetch.speed", "high").build()
    with pytest.raises(ConfigError, match='No such configuration property: "fetch'):
        read(source)


def test_an_offset_that_was_deleted_is_an_error_unless_a_strategy_says_where_to_continue(
    kafka, new_topic, caplog
):
    topic = new_topic()
    produce(kafka, topic, texts(10))
    delete_records(kafka, topic, 6)
    start = KafkaOffsetsInitializer.offsets(
        {KafkaTopicPartition(topic, 0): 2}, KafkaOffsetResetStrategy.NONE
    )
    with pytest.raises(UserFunctionError, match="offset 2: the brokers do not have this offset"):
        read(bounded(kafka, topic, start=start).build())
    source = bounded(kafka, topic, start=start).set_property("auto.offset.reset", "earliest")
    with caplog.at_level(logging.WARNING):
        assert read(source.build()) == ["m6", "m7", "m8", "m9"]
    assert "the records in between are lost" in caplog.text


def test_a_topic_that_is_deleted_ends_the_job(kafka, new_topic):
    topic = new_topic()
    produce(kafka, topic, ["a"])
    source = builder(kafka, topic).set_property("topic.metadata.propagation.max.ms", 500)
    with Running(source.build()) as running:
        running.wait_for(["a"])
        delete_topic(kafka, topic)
        with pytest.raises(UserFunctionError, match="topic does not exist"):
            running.job.wait(120)


@pytest.fixture
def own_kafka(kafka, tmp_path):
    """A broker that the test may stop and start."""
    home = tmp_path / "kafka"
    home.mkdir()
    for libs in (HOME / "kafka").resolve().glob("libs-*"):
        (home / libs.name).symlink_to(libs)
    broker.start(home)
    yield home
    broker.stop(home)
    shutil.rmtree(home)


@pytest.mark.slow
def test_a_job_whose_broker_goes_away_fails_and_continues_when_it_is_back(own_kafka):
    brokers = broker.address(own_kafka)
    topic = "topic"
    create_topic(brokers, topic, partitions=2)
    produce(brokers, topic, texts(10))
    source = builder(brokers, topic).set_property("default.api.timeout.ms", 2000)
    env = mini_environment({"execution.checkpointing.interval": "50 ms"}, parallelism=2)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(100, 100))
    sink = CollectingSink()
    env.from_source(source.build()).sink_to(sink)
    job = env.execute_async()
    wait_until(lambda: sorted(sink.records) == sorted(texts(10)))
    broker.stop(own_kafka)
    wait_until(lambda: job.get_job_status().result().name == "RESTARTING")
    assert broker.start(own_kafka) == brokers
    produce(brokers, topic, ["back"])
    wait_until(lambda: "back" in sink.records)
    assert sink.records.count("back") == 1
    job.cancel_and_wait()


def test_the_example_counts_its_words(kafka, monkeypatch, capsys):
    monkeypatch.setattr(
        StreamExecutionEnvironment, "get_execution_environment", staticmethod(mini_environment)
    )
    monkeypatch.setattr("sys.argv", ["kafka_word_count.py", "--bootstrap-servers", kafka])
    example = Path(__file__).parents[2] / "examples" / "kafka_word_count.py"
    runpy.run_path(str(example), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == ["a: 1", "a: 2", "a: 3", "b: 1", "b: 2", "c: 1"]
