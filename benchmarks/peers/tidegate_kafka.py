"""Tidegate: a Kafka topic of JSON messages, and `key_by().sum()` of its typed rows."""

from __future__ import annotations

import time

import tidegate
from benchmarks.peers import topic
from benchmarks.peers.protocol import Check, Meter, Order, Result, leave, report, steady_window
from benchmarks.peers.tidegate_peer import commits, environment, start
from benchmarks.peers.tidegate_program import TallySink
from tidegate.common import Types
from tidegate.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from tidegate.datastream.formats.json import JsonRowDeserializationSchema

ROW = Types.ROW_NAMED(["key", "value"], [Types.STRING(), Types.LONG()])


def main() -> None:
    order = Order.from_arguments()
    brokers, name = topic.fill(order.records, order.keys, order.parallelism)
    env = environment(order)
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(brokers)
        .set_group_id("benchmark")
        .set_topics(name)
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(JsonRowDeserializationSchema(ROW))
        .build()
    )
    rows = env.from_source(source, source_name="topic")
    rows.key_by(lambda row: row["key"]).sum("value").sink_to(TallySink())
    job = start(env)
    meter = Meter()
    while not job.status().is_terminal:
        meter.mark(job.progress().records_out)
        time.sleep(0.05)
    tallies = list(job.collected("tally", None))
    count, total = (sum(part) for part in zip(*tallies, strict=True))
    window = steady_window(meter.samples, order=order, total=count, bounded=True)
    report(
        Result(
            records=count,
            emitted=count,
            checks=[Check("sum of all emitted results", count, total)],
            samples=meter.samples,
            measures={"us_per_record": 1e6 / window.rate},
            versions={"tidegate": tidegate.__version__},
            **commits(job, meter.samples[-1][0] - meter.samples[0][0]),
        )
    )
    leave()


if __name__ == "__main__":
    main()
