"""Rows through a topic in every format, as Flink's own connector examples do it."""

import json

import pytest

pytest.importorskip("confluent_kafka")

from tests.services.kafka_messages import messages
from tidegate.common import Row, Types, WatermarkStrategy
from tidegate.common.serialization import ByteArraySchema, RowFieldExtractorSchema
from tidegate.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from tidegate.datastream.formats.avro import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
)
from tidegate.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from tidegate.datastream.formats.json import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from tidegate.testing.environments import mini_environment

TYPE = Types.ROW([Types.INT(), Types.STRING()])
ROWS = [(1, "hi"), (2, "hello, you"), (3, None)]
AVRO = json.dumps(
    {
        "type": "record",
        "name": "word",
        "fields": [{"name": "f0", "type": "int"}, {"name": "f1", "type": ["null", "string"]}],
    }
)
FORMATS = {
    "csv": lambda: (
        CsvRowSerializationSchema.Builder(TYPE).set_null_literal("-").build(),
        CsvRowDeserializationSchema.Builder(TYPE).set_null_literal("-").build(),
    ),
    "json": lambda: (
        JsonRowSerializationSchema.builder().with_type_info(TYPE).build(),
        JsonRowDeserializationSchema.builder().type_info(TYPE).build(),
    ),
    "avro": lambda: (
        AvroRowSerializationSchema(avro_schema_string=AVRO),
        AvroRowDeserializationSchema(avro_schema_string=AVRO),
    ),
}


def written(env, stream, kafka, **schemas):
    record = KafkaRecordSerializationSchema.builder().set_topic(schemas.pop("topic"))
    for name, schema in schemas.items():
        getattr(record, f"set_{name}_serialization_schema")(schema)
    sink = KafkaSink.builder().set_bootstrap_servers(kafka).set_record_serializer(record.build())
    stream.sink_to(sink.build())
    env.execute()


@pytest.mark.parametrize("format", FORMATS)
def test_rows_come_back_as_they_were_written(kafka, new_topic, format):
    env, topic = mini_environment(), new_topic()
    writing, reading = FORMATS[format]()
    written(env, env.from_collection(ROWS, TYPE), kafka, topic=topic, value=writing)
    source = (
        KafkaSource.builder()
        .set_topics(topic)
        .set_value_only_deserializer(reading)
        .set_properties({"bootstrap.servers": kafka, "group.id": "formats"})
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .build()
    )
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "kafka source")
    with stream.execute_and_collect() as rows:
        assert sorted(tuple(row) for row in rows) == ROWS


def test_fields_of_rows_are_keys_and_values(kafka, new_topic):
    env, topic = mini_environment(), new_topic()
    rows = env.from_collection([Row(b"k1", b"\x00\x01"), Row(b"k2", b"")])
    key, value = RowFieldExtractorSchema(0), RowFieldExtractorSchema(1)
    written(env, rows, kafka, topic=topic, key=key, value=value)
    found = sorted((message.key(), message.value()) for message in messages(kafka, topic))
    assert found == [(b"k1", b"\x00\x01"), (b"k2", b"")]


def test_bytes_are_written_as_they_are(kafka, new_topic):
    env, topic = mini_environment(), new_topic()
    records = env.from_collection(["a", "b"]).map(lambda text: text.encode())
    written(env, records, kafka, topic=topic, value=ByteArraySchema())
    assert sorted(message.value() for message in messages(kafka, topic)) == [b"a", b"b"]
