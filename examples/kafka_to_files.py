"""Counts the views of pages from a Kafka topic into CSV files, each count once.

    make services
    python examples/kafka_to_files.py --bootstrap-servers 127.0.0.1:9092 --input views \
        --output counts

A message is a JSON object with a "page"; the job reads what the topic holds when it starts. For
every view it writes a line with the count of its page so far. A file appears with the checkpoint
that its lines belong to, whole, whatever is killed meanwhile: `tidegate verify` proves it.

    tidegate verify --sink 'counts-{run}' examples/kafka_to_files.py \
        --bootstrap-servers 127.0.0.1:9092 --input views --output 'counts-{run}'
"""

import argparse

from tidegate import StreamExecutionEnvironment, Types
from tidegate.datastream.connectors.file_system import CsvEncoding, FileSink
from tidegate.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from tidegate.datastream.formats.json import JsonRowDeserializationSchema

VIEW = Types.ROW_NAMED(["page"], [Types.STRING()])
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bootstrap-servers", required=True, help="host:port of a broker")
    parser.add_argument("--input", required=True, help="a topic of JSON objects with a page")
    parser.add_argument("--output", required=True, help="a directory without files of other jobs")
    arguments = parser.parse_args()

    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(arguments.bootstrap_servers)
        .set_topics(arguments.input)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(JsonRowDeserializationSchema(VIEW))
        .build()
    )
    with StreamExecutionEnvironment.get_execution_environment() as env:
        env.set_parallelism(2).enable_checkpointing("1 s")
        views = env.from_source(source, source_name="Views").uid("views")
        ones = views.map(lambda view: (view.page, 1), PAIR).uid("ones")
        counts = ones.key_by(0).sum(1).uid("counts")
        counts.sink_to(FileSink(arguments.output, CsvEncoding(header=False))).uid("files")
        env.execute("kafka to files")


if __name__ == "__main__":
    main()
