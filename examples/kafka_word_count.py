"""Counts words from a Kafka topic, for as long as words come.

    make services
    python examples/kafka_word_count.py --bootstrap-servers 127.0.0.1:9092

It writes a few words to a topic of its own, and ends when each has been counted. A message is a
JSON object, decoded in whole batches into typed rows; offsets are part of the checkpoints, and
committed for the group `word-count` when one is complete.
"""

import argparse
import json
import uuid

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tidegate import StreamExecutionEnvironment, Types
from tidegate.datastream.connectors.kafka import FlinkKafkaConsumer
from tidegate.datastream.formats.json import JsonRowDeserializationSchema

WORDS = ["a", "b", "a", "a", "c", "b"]
WORD_COUNT = Types.ROW_NAMED(["word", "frequency"], [Types.STRING(), Types.LONG()])


def write_words(brokers: str) -> str:
    """A new topic with the words; returns its name."""
    topic = f"words-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(topic, 2)])[topic].result()
    producer = Producer({"bootstrap.servers": brokers})
    for word in WORDS:
        producer.produce(topic, json.dumps({"word": word, "frequency": 1}), key=word)
    producer.flush()
    return topic


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bootstrap-servers", required=True, help="host:port of a broker")
    brokers = parser.parse_args().bootstrap_servers
    properties = {
        "bootstrap.servers": brokers,
        "group.id": "word-count",
        "auto.offset.reset": "earliest",
    }
    schema = JsonRowDeserializationSchema.builder().type_info(WORD_COUNT).build()
    with StreamExecutionEnvironment.get_execution_environment() as env:
        env.set_parallelism(2).enable_checkpointing("1 s")
        words = env.add_source(FlinkKafkaConsumer(write_words(brokers), schema, properties))
        counts = words.uid("words").key_by("word").sum("frequency").uid("counts")
        with counts.execute_and_collect("count words") as results:
            for _, result in zip(WORDS, results, strict=False):
                print(f"{result.word}: {result.frequency}")


if __name__ == "__main__":
    main()
