"""Tidegate: from a failure to the first new result, with the state of all keys in memory.

The restart delay is next to nothing, so what is measured is the recovery itself: finding out,
restoring every key, seeking the sources back, the first step.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from statistics import median

import tidegate
from benchmarks.peers.protocol import Order, Result, leave, report
from benchmarks.peers.tidegate_peer import environment, start
from benchmarks.peers.tidegate_program import PAIR, FailsOnDemand, FirstResultSink, Records
from tidegate.connectors.datagen import DataGeneratorSource
from tidegate.driver.job_handle import JobHandle

REPEATS = 3


def main() -> None:
    order = Order.from_arguments()
    env = environment(
        order,
        **{
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1000",
            "restart-strategy.fixed-delay.delay": "1 ms",
        },
    )
    source = DataGeneratorSource(Records(order.keys), type_info=PAIR, columnar=True)
    records = env.from_source(source, source_name="records")
    sums = records.key_by(lambda pair: pair[0]).sum(1)
    sums.filter(lambda pair: pair[0] == "k0").map(
        FailsOnDemand(order.scratch), PAIR
    ).set_parallelism(1)
    sums.sink_to(FirstResultSink(order.scratch))
    job = start(env)
    wait_for_keys(job, order.keys)
    measures = {
        "exception_s": median(after_exception(job, Path(order.scratch)) for _ in range(REPEATS)),
        "kill_s": median(after_kill(job, Path(order.scratch)) for _ in range(REPEATS)),
    }
    last = job.checkpoints.latest_completed
    assert last is not None
    job.cancel()
    report(
        Result(
            records=0,
            checks=[],
            bounded=False,
            measures={**measures, "state_mb": last.size / 1e6},
            versions={"tidegate": tidegate.__version__},
        )
    )
    leave()


def wait_for_keys(job: JobHandle, keys: int) -> None:
    """Until a checkpoint holds every key."""
    while job.progress().records_in < 2 * keys:
        time.sleep(0.05)
    wait_for_checkpoints(job, 2)


def wait_for_checkpoints(job: JobHandle, number: int) -> None:
    wanted = job.checkpoints.counts.completed + number
    while job.checkpoints.counts.completed < wanted:
        time.sleep(0.01)


def after_exception(job: JobHandle, directory: Path) -> float:
    wait_for_checkpoints(job, 1)
    failed = directory / "failed"
    failed.unlink(missing_ok=True)
    (directory / "fail").touch()
    while not failed.exists() or not failed.read_text():
        time.sleep(0.001)
    return first_result_after(float(failed.read_text()), directory)


def after_kill(job: JobHandle, directory: Path) -> float:
    wait_for_checkpoints(job, 1)
    process = int((directory / "first-result-0").read_text().split()[1])
    killed_at = time.time()
    os.kill(process, signal.SIGKILL)
    return first_result_after(killed_at, directory)


def first_result_after(moment: float, directory: Path) -> float:
    while True:
        times = [float(file.read_text().split()[0]) for file in directory.glob("first-result-?")]
        if all(at > moment for at in times):
            return min(times) - moment
        time.sleep(0.005)


if __name__ == "__main__":
    main()
