"""Counts the words of a Kafka topic into a PostgreSQL table, each count once.

    make services
    python examples/kafka_to_postgres.py --bootstrap-servers 127.0.0.1:9092 --input lines \
        --dsn postgresql://user@127.0.0.1:5432/postgres --table word_counts

A message is a line of text; the job reads what the topic holds when it starts. For every word
there is a row with its count so far, so the table holds (be, 1) and (be, 2). Rows appear with the
checkpoint that their words belong to, and never twice, whatever is killed meanwhile.
"""

import argparse
from collections.abc import Iterator

import psycopg
from psycopg import sql

from tidegate import StreamExecutionEnvironment, Types
from tidegate.common import SimpleStringSchema
from tidegate.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from tidegate.datastream.connectors.postgres import PostgresSink

COUNT = Types.TUPLE([Types.STRING(), Types.LONG()])


def words_of(line: str) -> Iterator[tuple[str, int]]:
    for word in line.split():
        yield word.lower(), 1


def create_table(dsn: str, table: str) -> None:
    create = sql.SQL("CREATE TABLE IF NOT EXISTS {} (word text NOT NULL, count bigint NOT NULL)")
    with psycopg.connect(dsn) as connection:
        connection.execute(create.format(sql.Identifier(*table.split("."))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bootstrap-servers", required=True, help="host:port of a broker")
    parser.add_argument("--input", required=True, help="a topic of lines of text")
    parser.add_argument("--dsn", required=True, help="a database, as a URL of libpq")
    parser.add_argument("--table", required=True, help="created if it does not exist")
    arguments = parser.parse_args()
    create_table(arguments.dsn, arguments.table)

    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(arguments.bootstrap_servers)
        .set_topics(arguments.input)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    with StreamExecutionEnvironment.get_execution_environment() as env:
        env.set_parallelism(2).enable_checkpointing("1 s")
        lines = env.from_source(source, source_name="Lines", type_info=Types.STRING()).uid("lines")
        words = lines.flat_map(words_of, COUNT).uid("words")
        counts = words.key_by(0).sum(1).uid("counts")
        sink = PostgresSink(arguments.dsn, arguments.table, columns=["word", "count"])
        counts.sink_to(sink).uid("table")
        env.execute("kafka to postgres")


if __name__ == "__main__":
    main()
