"""Tidegate: from the moment a record is due to a consumer that reads committed messages only.

The results go through a Kafka sink that delivers exactly once, so the checkpoint interval decides
when they can be seen. The broker runs on the same machine.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import tidegate
from benchmarks.peers import topic
from benchmarks.peers.feeder import Feeder
from benchmarks.peers.protocol import Check, Order, Result, leave, report, spread_measures
from benchmarks.peers.rule import key_cycle
from benchmarks.peers.tidegate_peer import environment, start
from benchmarks.peers.tidegate_program import PAIR, AnnouncedRecords
from services import kafka
from tidegate.connectors.socket import SocketSource
from tidegate.datastream.connectors.base import DeliveryGuarantee
from tidegate.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink

INTERVALS_MS = (100, 500, 1000)
PATIENCE = 60.0


def main() -> None:
    order = Order.from_arguments()
    brokers = kafka.start(topic.HOME)
    measures: dict[str, float] = {}
    checks: list[Check] = []
    for interval in INTERVALS_MS:
        spread, check = committed(replace(order, commit_seconds=interval / 1000), brokers)
        measures |= {f"{name[:-3]}_at_{interval}_ms": value for name, value in spread.items()}
        checks.append(check)
    report(
        Result(
            records=sum(check.records for check in checks),
            checks=checks,
            bounded=False,
            measures=measures,
            versions={"tidegate": tidegate.__version__},
        )
    )
    leave()


def committed(order: Order, brokers: str) -> tuple[dict[str, float], Check]:
    name = f"committed-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(name, order.parallelism)])[name].result(60)
    reader = Reader(brokers, name, order.parallelism)
    feeder = Feeder(order.rate)
    env = environment(order)
    lines = env.from_source(SocketSource("127.0.0.1", feeder.port), source_name="lines")
    sums = lines.flat_map(AnnouncedRecords(order.keys), PAIR).key_by(lambda pair: pair[0]).sum(1)
    sums.sink_to(exactly_once(brokers, name))
    job = start(env)
    feeder.wait_for_client(120)
    warm_at = feeder.start + order.warm_seconds
    time.sleep(max(0.0, warm_at + order.seconds - time.time()))
    feeder.stop()
    job.result()
    arrivals = reader.all(feeder.ends[-1])
    admin.delete_topics([name])[name].result(60)
    # A round of `keys` records touches every key once, so key and total name the record.
    position = {key: number for number, key in enumerate(key_cycle(order.keys))}
    took, total = [], 0
    for at, key, sum_so_far in arrivals:
        due = feeder.due((sum_so_far - 1) * order.keys + position[key])
        total += sum_so_far
        if due >= warm_at:
            took.append(at - due)
    check = Check(f"all committed results, {order.commit_seconds:g} s", len(arrivals), total)
    return spread_measures("latency", took), check


def exactly_once(brokers: str, name: str) -> KafkaSink:
    return (
        KafkaSink.builder()
        .set_bootstrap_servers(brokers)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_record_serializer(
            KafkaRecordSerializationSchema.builder()
            .set_topic(name)
            .set_key_serialization_schema(lambda pair: pair[0])
            .set_value_serialization_schema(lambda pair: str(pair[1]))
            .build()
        )
        .build()
    )


class Reader:
    """Reads a topic as another program would, and notes when each message came."""

    def __init__(self, brokers: str, name: str, partitions: int) -> None:
        settings = {"group.id": name, "isolation.level": "read_committed", "fetch.wait.max.ms": 10}
        self._consumer = Consumer({"bootstrap.servers": brokers, **settings})
        self._consumer.assign([TopicPartition(name, number, 0) for number in range(partitions)])
        self._came: list[tuple[float, str, int]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def all(self, number: int) -> list[tuple[float, str, int]]:
        """Time, key and total of all messages, once there are so many."""
        deadline = time.monotonic() + PATIENCE
        while len(self._came) < number and time.monotonic() < deadline:
            time.sleep(0.05)
        self._is_over.set()
        self._thread.join()
        self._consumer.close()
        return self._came

    def _read(self) -> None:
        while not self._is_over.is_set():
            messages = self._consumer.consume(10_000, 0.005)
            now = time.time()
            self._came += [(now, m.key().decode(), int(m.value())) for m in messages]


if __name__ == "__main__":
    main()
