"""Counts the views of pages from a Kafka topic into another one, each count once.

    make services
    python examples/kafka_to_kafka.py --bootstrap-servers 127.0.0.1:9092 --input views \
        --output counts

A message is a JSON object with a "page"; the job reads what the topic holds when it starts. For
every view it writes the count of its page so far: {"page":"/","views":1}, {"page":"/","views":2}.
Consumers with isolation.level=read_committed see the counts with the checkpoint that their views
belong to, and never twice, whatever is killed meanwhile.
"""

import argparse

from confluent_kafka.admin import AdminClient, NewTopic

from tidegate import StreamExecutionEnvironment, Types
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

VIEW = Types.ROW_NAMED(["page"], [Types.STRING()])
COUNT = Types.ROW_NAMED(["page", "views"], [Types.STRING(), Types.LONG()])
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


def create_topic(brokers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": brokers})
    if topic not in admin.list_topics(timeout=30).topics:
        admin.create_topics([NewTopic(topic, num_partitions=2)])[topic].result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bootstrap-servers", required=True, help="host:port of a broker")
    parser.add_argument("--input", required=True, help="a topic of JSON objects with a page")
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
            .set_key_serialization_schema(lambda count: count[0])
            .set_value_serialization_schema(JsonRowSerializationSchema(COUNT))
            .build()
        )
        .build()
    )
    with StreamExecutionEnvironment.get_execution_environment() as env:
        env.set_parallelism(2).enable_checkpointing("1 s")
        views = env.from_source(source, source_name="Views").uid("views")
        ones = views.map(lambda view: (view.page, 1), PAIR).uid("ones")
        counts = ones.key_by(0).sum(1).uid("counts")
        counts.sink_to(sink).uid("topic")
        env.execute("kafka to kafka")


if __name__ == "__main__":
    main()
