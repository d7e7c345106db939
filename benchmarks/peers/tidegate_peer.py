"""Tidegate: `key_by().sum()`, a `KeyedProcessFunction` with `ValueState`, and a `map`.

The source cuts batches from prepared columns, so it costs next to nothing; each result is counted
and added up by the sink. The session and all settings are the defaults.
"""

from __future__ import annotations

import time

import tidegate
from benchmarks.peers.protocol import (
    Check,
    Meter,
    Order,
    Result,
    latency_measures,
    leave,
    report,
    spread_measures,
)
from benchmarks.peers.tidegate_program import (
    PAIR,
    STAMPED,
    LatencySink,
    Records,
    RunningSum,
    StampedRecords,
    TallySink,
    map_record,
)
from tidegate.common import Configuration
from tidegate.connectors.datagen import DataGeneratorSource
from tidegate.datastream import DataStream, StreamExecutionEnvironment
from tidegate.runtime.job_handle import JobHandle

WARM_STEPS = 100
NO_CHECKPOINTS = "this version takes no checkpoints"


def start(stream: DataStream, env: StreamExecutionEnvironment) -> JobHandle:
    job = env.execute_async("benchmark")
    handle = job._job
    assert isinstance(handle, JobHandle)
    return handle


def environment(order: Order, **settings: str) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("tidegate.console.live-line", "off")
    for key, value in settings.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_parallelism(order.parallelism)


def throughput(order: Order) -> Result:
    env = environment(order)
    source = DataGeneratorSource(
        Records(order.keys), type_info=PAIR, count=order.records, columnar=True
    )
    records = env.from_source(source, source_name="records")
    if order.workload == "map":
        results = records.map(map_record, PAIR)
    elif order.workload == "function":
        results = records.key_by(lambda pair: pair[0]).process(RunningSum(), PAIR)
    else:
        results = records.key_by(lambda pair: pair[0]).sum(1)
    results.sink_to(TallySink())
    job = start(results, env)
    meter = Meter()
    while not job.status().is_terminal:
        meter.mark(job.progress().records_out)
        time.sleep(0.05)
    tallies = list(job.collected("tally", None))
    count, total = (sum(part) for part in zip(*tallies, strict=True))
    return Result(
        records=count,
        emitted=count,
        checks=[Check("sum of all emitted results", count, total)],
        samples=meter.samples,
        notes=[NO_CHECKPOINTS],
    )


def latency(order: Order) -> Result:
    env = environment(order)
    seconds = max(order.warm_seconds, 20.0) + order.seconds
    source = DataGeneratorSource(
        StampedRecords(order.keys, order.rate / order.parallelism),
        type_info=STAMPED,
        count=int(order.rate * seconds),
        rate=order.rate,
        columnar=True,
    )
    records = env.from_source(source, source_name="records")
    results = records.key_by(lambda record: record[0]).process(RunningSum(), STAMPED)
    results.sink_to(LatencySink())
    job = start(results, env)
    tallies = list(job.collected("tally", None))
    count, total = (sum(part) for part in zip(*tallies, strict=True))
    noted = list(job.collected("latencies", None))
    warm_at = min(due for due, _ in noted) + seconds - order.seconds
    return Result(
        records=count,
        checks=[Check("sum of all emitted results", count, total)],
        bounded=False,
        measures=latency_measures(took for due, took in noted if due >= warm_at),
        notes=[NO_CHECKPOINTS],
    )


def floor(order: Order) -> Result:
    env = environment(order, **{"tidegate.step.max-records": "1"})
    source = DataGeneratorSource(Records(order.keys), type_info=PAIR, columnar=True)
    records = env.from_source(source, source_name="records")
    results = records.key_by(lambda pair: pair[0]).sum(1)
    results.sink_to(TallySink())
    job = start(results, env)
    steps: list[float] = []
    known = 0
    while sum(steps) < order.seconds:
        progress = job.progress()
        if progress.steps > max(known, WARM_STEPS) and progress.step_seconds is not None:
            steps.append(progress.step_seconds)
        known = max(known, progress.steps)
        time.sleep(0.002)
    job.cancel()
    return Result(
        records=0,
        checks=[],
        measures=spread_measures("step", steps),
        notes=[f"{len(steps)} steps after {WARM_STEPS} to warm up"],
    )


def main() -> None:
    order = Order.from_arguments()
    run = {"latency": latency, "floor": floor}.get(order.workload, throughput)
    result = run(order)
    result.versions["tidegate"] = tidegate.__version__
    report(result)
    leave()


if __name__ == "__main__":
    main()
