"""Flink at a fixed rate: how long from a record's due time to its result.

SQL: `SUM ... GROUP BY`, each result stamped by the expression after the aggregation and printed.
PyFlink: a Python function with keyed state that notes when it emits; the way on to a sink in Java
is not counted. Records come over Flink's socket source, a line each, and buffers and bundles wait
for a millisecond at most.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyflink.common import Row, Types
from pyflink.datastream import DataStream, KeyedProcessFunction, RuntimeContext
from pyflink.datastream.connectors import Sink
from pyflink.datastream.state import ValueState, ValueStateDescriptor
from pyflink.java_gateway import get_gateway
from pyflink.table import ChangelogMode, DataTypes, Schema, StreamTableEnvironment

from benchmarks.peers.feeder import Feeder
from benchmarks.peers.flink_cluster import Cluster
from benchmarks.peers.protocol import Check, Order, Result, latency_measures, leave, report
from benchmarks.peers.rule import key_cycle, sql_key, sql_value

WARM_SECONDS = 30.0
SETTINGS = {
    "state.backend.type": "hashmap",
    "execution.buffer-timeout.interval": "1 ms",
    "python.fn-execution.bundle.time": "1",
    "python.fn-execution.bundle.size": "1000",
    "table.local-time-zone": "UTC",
}
Arrival = tuple[float, str, int]
"""When a result came, its key and its total."""


class RunningSum(KeyedProcessFunction):
    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._arrivals: list[Arrival] = []
        self._state: ValueState

    def open(self, runtime_context: RuntimeContext) -> None:
        self._state = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        total = (self._state.value() or 0) + value[1]
        self._state.update(total)
        self._arrivals.append((time.time(), value[0], total))
        yield Row(value[0], total)

    def close(self) -> None:
        Path(self._directory, uuid.uuid4().hex).write_text(json.dumps(self._arrivals))


def main() -> None:
    order = Order.from_arguments()
    feeder = Feeder(order.rate, line_per_record=True)
    cluster = Cluster(order, SETTINGS)
    environment = cluster.environment()
    java = environment._j_stream_execution_environment
    lines = DataStream(java.socketTextStream("127.0.0.1", feeder.port, "\n"))
    sql = StreamTableEnvironment.create(environment)
    sql.create_temporary_view("lines", sql.from_data_stream(lines).alias("line"))
    sql.execute_sql("create temporary view numbers as select cast(line as bigint) as i from lines")
    sql.execute_sql(
        f"create temporary view records as select {sql_key('i', order.keys)} as k,"
        f" {sql_value('i')} as v from numbers"
    )
    is_python = order.options["language"] == "python"
    arrivals_of = (python_sums if is_python else sql_sums)(sql, order)
    client = environment.execute_async("latency")
    feeder.wait_for_client(120)
    job = str(client.get_job_id())
    seconds = max(order.warm_seconds, WARM_SECONDS)
    limit = max(order.warm_limit, 2 * seconds)
    warm_at = feeder.warm_up(lambda: cluster.received(job), seconds, limit)
    time.sleep(order.seconds)
    lateness = feeder.stop()
    client.get_job_execution_result().result()
    arrivals = list(arrivals_of())
    position = {key: number for number, key in enumerate(key_cycle(order.keys))}
    dues = [feeder.due((total - 1) * order.keys + position[key]) for _, key, total in arrivals]
    took = [at - due for (at, _, _), due in zip(arrivals, dues, strict=True) if due >= warm_at]
    checksum = sum(total for _, _, total in arrivals)
    report(
        Result(
            records=len(arrivals),
            checks=[Check("sum of all emitted results", len(arrivals), checksum)],
            bounded=False,
            measures=latency_measures(took),
            notes=[lateness],
            versions={"apache-flink": version("apache-flink")},
        )
    )
    leave()


def python_sums(sql: StreamTableEnvironment, order: Order) -> Any:
    directory = Path(order.scratch) / "arrivals"
    directory.mkdir()
    records = sql.to_data_stream(sql.from_path("records"))
    keyed = records.key_by(lambda record: record[0], key_type=Types.STRING())
    emitted = Types.ROW([Types.STRING(), Types.LONG()])
    sums = keyed.process(RunningSum(str(directory)), output_type=emitted)
    discard = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()
    sums.sink_to(Sink(discard))

    def arrivals() -> Iterator[Arrival]:
        for file in directory.iterdir():
            yield from (tuple(each) for each in json.loads(file.read_text()))

    return arrivals


def sql_sums(sql: StreamTableEnvironment, order: Order) -> Any:
    sums = sql.sql_query(
        "select k, total, cast(current_timestamp as string) as at_time"
        " from (select k, sum(v) as total from records group by k)"
    )
    schema = (
        Schema.new_builder()
        .column("k", DataTypes.STRING().not_null())
        .column("total", DataTypes.BIGINT())
        .column("at_time", DataTypes.STRING())
        .primary_key("k")
        .build()
    )
    sql.to_changelog_stream(sums, schema, ChangelogMode.upsert()).print()

    def arrivals() -> Iterator[Arrival]:
        """From lines like `1> +U[k12,7,2026-01-31 12:00:00.123]`."""
        for line in (Path(order.scratch) / "stdout").read_text().splitlines():
            if "[k" in line:
                key, total, at = line[line.index("[") + 1 : -1].split(",")
                moment = datetime.fromisoformat(f"{at}+00:00").timestamp()
                # A stamp is cut to milliseconds.
                yield moment + 0.001, key, int(total)

    return arrivals


if __name__ == "__main__":
    main()
