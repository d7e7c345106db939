"""Tidegate: from a failure to the first new result, with the state of all keys in memory.

The restart delay is next to nothing, so what is measured is the recovery itself: finding out,
replacing what was lost, restoring every key, seeking the sources back, the first step. The job runs
under `tidegate run --supervise`: on a local master, and on a cluster of two executors.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

import psutil

import tidegate
from benchmarks.peers import tidegate_recovery_job
from benchmarks.peers.protocol import Order, Result, leave, report
from tidegate.cli.class_storing import store_if_missing

REPEATS = 3
EXECUTORS = 2
CLUSTER = ("--master", f"local-cluster[{EXECUTORS},16,2048]")
"""Each executor has room for the whole job."""
_REST_SECONDS = 1.0
"""A process that uses no processor for so long has done its imports."""


def main() -> None:
    order = Order.from_arguments()
    store_if_missing()  # as the supervisor has done in a job that has run for a while
    measures: dict[str, float] = {}
    with running(order, "local") as job:
        measures["exception_s"] = job.median_after(job.fail)
        measures["kill_s"] = job.median_after(job.kill_slot)
        # A supervisor waits longer before the second restart within a minute.
        measures["driver_s"] = job.median_after(job.kill_driver, repeats=1)
        measures["state_mb"] = job.state_bytes() / 1e6
    with running(order, "cluster", *CLUSTER) as job:
        measures["executor_s"] = job.median_after(job.kill_executor)
    report(
        Result(
            records=0,
            checks=[],
            bounded=False,
            measures=measures,
            versions={"tidegate": tidegate.__version__},
        )
    )
    leave()


@contextmanager
def running(order: Order, name: str, *options: str) -> Iterator[SupervisedJob]:
    """The job, once a checkpoint holds every key."""
    directory = Path(order.scratch) / name
    directory.mkdir()
    arguments = json.dumps(asdict(replace(order, scratch=str(directory))))
    program = str(tidegate_recovery_job.__file__)
    command = [sys.executable, "-m", "tidegate", "run", "--supervise", *options, program, arguments]
    process = subprocess.Popen(command)
    try:
        job = SupervisedJob(directory, psutil.Process(process.pid))
        while len(list(directory.glob("all-keys-*"))) < order.parallelism:
            assert process.poll() is None, "the job has ended"
            time.sleep(0.05)
        yield job
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


class SupervisedJob:
    """A running job, its processes and the files by which it tells what it does."""

    def __init__(self, directory: Path, supervisor: psutil.Process) -> None:
        self._directory = directory
        self._supervisor = supervisor

    def median_after(self, disturb: Callable[[], float], repeats: int = REPEATS) -> float:
        """Seconds from a failure to the first new result. `disturb` returns when it happened."""
        took = []
        for _ in range(repeats):
            self._wait_for_checkpoints(2)
            took.append(self._first_result_after(disturb()))
        return median(took)

    def fail(self) -> float:
        failed = self._directory / "failed"
        failed.unlink(missing_ok=True)
        (self._directory / "fail").touch()
        while not failed.exists() or not failed.read_text():
            time.sleep(0.001)
        return float(failed.read_text())

    def kill_slot(self) -> float:
        return _kill(self._slot())

    def kill_executor(self) -> float:
        self._wait_for_executors()
        return _kill(self._executor())

    def kill_driver(self) -> float:
        # The other children of the supervisor prepare the start of the next driver.
        return _kill(min(self._supervisor.children(), key=psutil.Process.create_time))

    def state_bytes(self) -> int:
        return sum(each.stat().st_size for each in self._checkpoints()[-1].iterdir())

    def _slot(self) -> psutil.Process:
        return psutil.Process(int((self._directory / "first-result-0").read_text().split()[1]))

    def _checkpoints(self) -> list[Path]:
        complete = (self._directory / "checkpoints").glob("*/chk-*/_metadata")
        return sorted((each.parent for each in complete), key=lambda path: int(path.name[4:]))

    def _wait_for_checkpoints(self, number: int) -> None:
        seen: set[Path] = set(self._checkpoints())
        wanted = len(seen) + number
        while len(seen) < wanted:
            seen |= set(self._checkpoints())
            time.sleep(0.01)

    def _wait_for_executors(self) -> None:
        """Wait until all executors have started their Python, as in a job that runs for long."""
        while True:
            before = self._daemons()
            time.sleep(_REST_SECONDS)
            if len(before) == EXECUTORS and self._daemons() == before:
                return

    def _executor(self) -> psutil.Process:
        return next(each for each in self._slot().parents() if each.name() == "java")

    def _daemons(self) -> dict[int, float]:
        """The CPU time of the processes from which executors fork their workers."""
        driver = next(each for each in self._executor().cmdline() if each.startswith("spark://"))
        executors = [
            process
            for process in psutil.process_iter(["name", "cmdline"])
            if process.info["name"] == "java" and driver in (process.info["cmdline"] or ())
        ]
        return {
            daemon.pid: sum(daemon.cpu_times()[:2])
            for executor in executors
            for daemon in executor.children()
        }

    def _first_result_after(self, moment: float) -> float:
        while True:
            marks = self._directory.glob("first-result-?")
            times = [float(mark.read_text().split()[0]) for mark in marks]
            if all(at > moment for at in times):
                return min(times) - moment
            time.sleep(0.005)


def _kill(process: psutil.Process) -> float:
    killed_at = time.time()
    os.kill(process.pid, signal.SIGKILL)
    return killed_at


if __name__ == "__main__":
    main()
