"""Tidegate: windows on columns, windows with a Python function, and an interval join.

Records and times are cut from prepared columns. The number of results is not that of records, so
what the sources have read is counted.
"""

from __future__ import annotations

import time

import tidegate
from benchmarks.peers.protocol import Check, Meter, Order, Result, leave, report
from benchmarks.peers.rule import SESSION_GAP, SLIDE, WINDOW, join_bound, timeline
from benchmarks.peers.tidegate_peer import commits, environment, start
from benchmarks.peers.tidegate_program import PAIR, TallySink
from benchmarks.peers.tidegate_window_program import (
    TIMED,
    TimedRecords,
    WindowSum,
    WithKey,
)
from tidegate.common import Time, WatermarkStrategy
from tidegate.connectors.datagen import DataGeneratorSource
from tidegate.datastream import DataStream, StreamExecutionEnvironment
from tidegate.datastream.aggregates import sum_
from tidegate.datastream.joins import left, right
from tidegate.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)

ASSIGNERS = {
    "tumbling": TumblingEventTimeWindows.of(Time.milliseconds(WINDOW)),
    "sliding": SlidingEventTimeWindows.of(Time.milliseconds(WINDOW), Time.milliseconds(SLIDE)),
    "session": EventTimeSessionWindows.with_gap(Time.milliseconds(SESSION_GAP)),
}


def source(env: StreamExecutionEnvironment, order: Order, records: int, name: str) -> DataStream:
    times = timeline(order.workload, records, order.parallelism)
    made = DataGeneratorSource(
        TimedRecords(order.keys, times), type_info=TIMED, count=records, columnar=True
    )
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(2)
    return env.from_source(made, strategy, name)


def results(env: StreamExecutionEnvironment, order: Order, streams: int) -> DataStream:
    each = order.records // streams
    keyed = source(env, order, each, "records").key_by(lambda record: record[0])
    if order.workload == "interval-join":
        others = source(env, order, each, "others").key_by(lambda record: record[0])
        bound = Time.milliseconds(join_bound(order.keys))
        join = keyed.interval_join(others).between(Time.milliseconds(0), bound)
        return join.select(key=left(0), value=left(1), other=right(1))
    if order.workload == "window-function":
        windows = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW)))
        return windows.aggregate(WindowSum(), WithKey(), output_type=PAIR)
    return keyed.window(ASSIGNERS[order.workload]).agg(total=sum_(1))


def main() -> None:
    order = Order.from_arguments()
    env = environment(order)
    streams = 2 if order.workload == "interval-join" else 1
    results(env, order, streams).sink_to(TallySink())
    job = start(env)
    meter = Meter()
    while not job.status().is_terminal:
        meter.mark(job.progress().records_in)
        time.sleep(0.05)
    tallies = list(job.collected("tally", None))
    count, total = (sum(part) for part in zip(*tallies, strict=True))
    if streams == 2:
        total /= order.parallelism  # a record joins that of each reader with its key and time
    read = order.records // streams * streams
    meter.samples.append((time.time(), read))
    report(
        Result(
            records=read,
            emitted=count,
            checks=[Check("sum of all emitted results", read // streams, total)],
            samples=meter.samples,
            versions={"tidegate": tidegate.__version__},
            **commits(job, meter.samples[-1][0] - meter.samples[0][0]),
        )
    )
    leave()


if __name__ == "__main__":
    main()
