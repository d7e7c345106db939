"""PyFlink's DataStream API: a Python function per record, with keyed state or (map) without.

Records are made in Java (number sequence and SQL expressions), so that Python runs only what the
workload asks for. The functions add up what they emit and leave it in a file when they close.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyflink.common import Row, Time, Types, WatermarkStrategy
from pyflink.datastream import (
    AggregateFunction,
    DataStream,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
)
from pyflink.datastream.connectors import Sink
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.state import ValueState, ValueStateDescriptor
from pyflink.datastream.window import TumblingEventTimeWindows
from pyflink.java_gateway import get_gateway
from pyflink.table import DataTypes, Schema, StreamTableEnvironment

from benchmarks.peers.flink_cluster import Cluster
from benchmarks.peers.protocol import Check, Order, Result, leave, report
from benchmarks.peers.rule import WINDOW, WINDOWED, sql_key, sql_value, timeline

EMITTED = Types.ROW([Types.STRING(), Types.LONG()])


class RunningSum(KeyedProcessFunction):
    def __init__(self, tally: str) -> None:
        self._tally = tally
        self._emitted = 0
        self._state: ValueState

    def open(self, runtime_context: RuntimeContext) -> None:
        self._state = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        total = (self._state.value() or 0) + value[1]
        self._state.update(total)
        self._emitted += total
        yield Row(value[0], total)

    def close(self) -> None:
        Path(self._tally, uuid.uuid4().hex).write_text(json.dumps(self._emitted))


class WindowSum(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Row, accumulator: int) -> int:
        return accumulator + int(value[1])

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Tally(MapFunction):
    """Adds up the results of windows, whose functions PyFlink does not close."""

    def __init__(self, tally: str) -> None:
        self._tally = tally
        self._emitted = 0

    def map(self, value: int) -> int:
        self._emitted += value
        return value

    def close(self) -> None:
        Path(self._tally, uuid.uuid4().hex).write_text(json.dumps(self._emitted))


class MapRecord(MapFunction):
    def __init__(self, tally: str) -> None:
        self._tally = tally
        self._emitted = 0

    def map(self, value: Row) -> Row:
        result = value[1] * 2 + 1
        self._emitted += result
        return Row(value[0], result)

    def close(self) -> None:
        Path(self._tally, uuid.uuid4().hex).write_text(json.dumps(self._emitted))


def records(cluster: Cluster, order: Order) -> tuple[Any, DataStream]:
    environment = cluster.environment()
    numbers = environment.from_source(
        NumberSequenceSource(0, order.records - 1),
        WatermarkStrategy.no_watermarks(),
        "numbers",
        type_info=Types.LONG(),
    )
    sql = StreamTableEnvironment.create(environment)
    schema = Schema.new_builder().column("f0", DataTypes.BIGINT())
    if order.workload in WINDOWED:
        times = timeline(order.workload, order.records, order.parallelism)
        schema = schema.column_by_expression("ts", f"to_timestamp_ltz({times.sql('f0')}, 3)")
        schema = schema.watermark("ts", "ts - interval '0.001' second(3, 3)")
    sql.create_temporary_view("numbers", numbers, schema.build())
    time = ", ts" if order.workload in WINDOWED else ""
    table = sql.sql_query(
        f"select {sql_key('f0', order.keys)} as k, {sql_value('f0')} as v{time} from numbers"
    )
    return environment, sql.to_data_stream(table)


def main() -> None:
    order = Order.from_arguments()
    tally = Path(order.scratch) / "tally"
    tally.mkdir(parents=True)
    mode = order.options["execution_mode"]
    cluster = Cluster(
        order,
        {
            "state.backend.type": "hashmap",
            "python.execution-mode": mode,
            # Bundles end with time or size; larger ones share the cost of crossing to Python.
            "python.fn-execution.bundle.size": str(order.options["bundle_size"]),
            "python.fn-execution.bundle.time": "1000",
            # Values written stay in Python until the bundle ends; more keys than this are
            # fetched from Java again.
            "python.state.cache-size": str(max(order.keys, 1000)),
        },
    )
    environment, stream = records(cluster, order)
    if order.workload == "map":
        stream = stream.map(MapRecord(str(tally)), output_type=EMITTED)
    elif order.workload in WINDOWED:
        keyed = stream.key_by(lambda record: record[0], key_type=Types.STRING())
        windows = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW)))
        sums = windows.aggregate(WindowSum(), output_type=Types.LONG())
        stream = sums.map(Tally(str(tally)), output_type=Types.LONG())
    else:
        keyed = stream.key_by(lambda record: record[0], key_type=Types.STRING())
        stream = keyed.process(RunningSum(str(tally)), output_type=EMITTED)
    discard = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()
    stream.disable_chaining()
    stream.sink_to(Sink(discard)).disable_chaining()
    sources = ("numbers",) if order.workload in WINDOWED else ()
    job = str(environment.execute_async("benchmark").get_job_id())
    watched = cluster.watch(job, sources=sources, records=order.records)
    emitted = sum(json.loads(part.read_text()) for part in tally.iterdir())
    report(
        Result(
            records=watched.records,
            emitted=watched.records,
            checks=[Check("sum of all emitted results", watched.records, emitted)],
            samples=watched.samples,
            commits=watched.commits,
            commit_interval=watched.commit_interval,
            notes=[f"{mode} mode"],
            versions={"apache-flink": version("apache-flink")},
        )
    )
    leave()


if __name__ == "__main__":
    main()
