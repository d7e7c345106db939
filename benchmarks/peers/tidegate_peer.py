"""Tidegate: `key_by().sum()`, a `KeyedProcessFunction` with `ValueState`, and a `map`.

The source cuts batches from prepared columns, so it costs next to nothing; each result is counted
and added up by the sink. The session and all settings are the defaults, but for checkpoints of the
asked interval on local disk.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import tidegate
from benchmarks.peers.feeder import FeederProcess
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
from benchmarks.peers.rule import key_cycle
from benchmarks.peers.tidegate_program import (
    PAIR,
    AnnouncedRecords,
    ArrivalSink,
    Records,
    RunningSum,
    TallySink,
    map_record,
)
from tidegate.common import Configuration
from tidegate.connectors.datagen import DataGeneratorSource
from tidegate.connectors.socket import SocketSource
from tidegate.core.errors import JobCanceled
from tidegate.datastream import StreamExecutionEnvironment
from tidegate.driver.job_handle import JobHandle

WARM_STEPS = 100
LATENCY_WARM_SECONDS = 20.0


def start(env: StreamExecutionEnvironment) -> JobHandle:
    job = env.execute_async("benchmark")
    handle = job._job
    assert isinstance(handle, JobHandle)
    return handle


def end(job: JobHandle) -> None:
    job.cancel()
    try:
        job.result()
    except JobCanceled:
        return


def environment(order: Order, **settings: str) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("tidegate.console.live-line", "off")
    if order.options["checkpoints"]:
        interval = f"{1000 * order.commit_seconds:.0f} ms"
        configuration.set_string("execution.checkpointing.interval", interval)
        directory = str(Path(order.scratch) / "checkpoints")
        configuration.set_string("execution.checkpointing.dir", directory)
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
    job = start(env)
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
        **commits(job, meter.samples[-1][0] - meter.samples[0][0]),
    )


def commits(job: JobHandle, seconds: float) -> dict[str, Any]:
    """What the checkpoints of a run came to."""
    completed = job.checkpoints.counts.completed
    last = job.checkpoints.latest_completed
    if last is None or last.duration is None:
        return {}
    return {
        "commits": completed,
        "commit_interval": seconds / completed,
        "notes": [f"last checkpoint: {last.size:,} bytes in {1000 * last.duration:.0f} ms"],
    }


def latency(order: Order) -> Result:
    """The feeder's records, as Spark's peer gets them, so that both know when one was due."""
    env = environment(order, **order.options.get("settings", {}))
    feeder = FeederProcess(order.rate)
    lines = env.from_source(SocketSource("127.0.0.1", feeder.port), source_name="lines")
    # One reader creates the records, as in the other engines: a line stands for several of them.
    records = lines.flat_map(AnnouncedRecords(order.keys), PAIR).set_parallelism(1)
    results = records.key_by(lambda pair: pair[0]).process(RunningSum(), PAIR)
    results.sink_to(ArrivalSink())
    job = start(env)
    feeder.wait_for_client()
    warm_at = feeder.start + max(order.warm_seconds, LATENCY_WARM_SECONDS)
    time.sleep(max(0.0, warm_at + order.seconds - time.time()))
    lateness = feeder.stop()
    arrivals = list(job.collected("arrivals", None))
    # A round of `keys` records touches every key once, so key and total name the record.
    position = {key: number for number, key in enumerate(key_cycle(order.keys))}
    dues = [feeder.due((total - 1) * order.keys + position[key]) for _, key, total in arrivals]
    took = [at - due for (at, _, _), due in zip(arrivals, dues, strict=True) if due >= warm_at]
    count, total = len(arrivals), sum(total for _, _, total in arrivals)
    return Result(
        records=count,
        checks=[Check("sum of all emitted results", count, total)],
        bounded=False,
        measures=latency_measures(took),
        notes=[lateness],
    )


def floor(order: Order) -> Result:
    env = environment(order, **{"tidegate.step.max-records": "1"})
    source = DataGeneratorSource(Records(order.keys), type_info=PAIR, columnar=True)
    records = env.from_source(source, source_name="records")
    results = records.key_by(lambda pair: pair[0]).sum(1)
    results.sink_to(TallySink())
    job = start(env)
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
