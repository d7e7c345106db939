"""Counts the views of each page in every ten seconds, from a Kafka topic into another one.

    make services
    python examples/kafka_windows.py --bootstrap-servers 127.0.0.1:9092 --input views \
        --output windows

A message is a JSON object with a "page" and the milliseconds "at" which it was viewed. The job
reads what the topic holds when it starts, and writes a message per page and window:
{"page":"/","start":1700000000000,"views":3,"last":1700000009120}. Each partition has a watermark
of its own, so partitions may be read at different speeds. The results are the same, and each is
there once, whatever is killed meanwhile.
"""

import argparse

from confluent_kafka.admin import AdminClient, NewTopic

from tidegate import StreamExecutionEnvironment, Types
from tidegate.common import Duration, Time, WatermarkStrategy
from tidegate.datastream.aggregates import count, max_, window_start
from tidegate.datastream.connectors.base import DeliveryGuarantee
from tidegate.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from tidegate.datastream.formats.json import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from tidegate.datastream.window import TumblingEventTimeWindows

VIEW = Types.ROW_NAMED(["page", "at"], [Types.STRING(), Types.LONG()])


def create_topic(brokers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": brokers})
    if topic not in admin.list_topics(timeout=30).topics:
        admin.create_topics([NewTopic(topic, num_partitions=2)])[topic].result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bootstrap-servers", required=True, help="host:port of a broker")
    parser.add_argument("--input", required=True, help="a topic of JSON objects with page and at")
    parser.add_argument("--output", required=True, help="created if it does not exist")
    arguments = parser.parse_args()
    create_topic(arguments.bootstrap_servers, arguments.output)

    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(arguments.bootstrap_servers)
        .set_topics(arguments.input)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(JsonRowDeserializationSchema(VIEW))
        .build()
    )
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(arguments.bootstrap_servers)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_record_serializer(
            KafkaRecordSerializationSchema.builder()
            .set_topic(arguments.output)
            .set_key_serialization_schema(lambda window: window.page)
            .set_value_serialization_schema(JsonRowSerializationSchema())
            .build()
        )
        .build()
    )
    by_time = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    with StreamExecutionEnvironment.get_execution_environment() as env:
        env.set_parallelism(2).enable_checkpointing("1 s")
        views = env.from_source(source, by_time.with_timestamp_assigner("at"), "Views").uid("views")
        windows = (
            views.key_by("page")
            .window(TumblingEventTimeWindows.of(Time.seconds(10)))
            .agg(start=window_start(), views=count(), last=max_("at"))
            .uid("windows")
        )
        windows.sink_to(sink).uid("topic")
        env.execute("kafka windows")


if __name__ == "__main__":
    main()
