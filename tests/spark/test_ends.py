"""How jobs end before their time: cancelled, or with a slot or Spark gone from under them."""

import itertools
import os
import signal
import time

import psutil
import pytest

from tests.programs import (
    PATIENCE,
    collected,
    graph_of,
    mapped,
    read,
    settings_of,
    wait_until,
)
from tidegate.connectors.sequence import NumberSequenceSource
from tidegate.core.errors import ExternalError, JobCanceled, SlotLost
from tidegate.driver import launch
from tidegate.driver.launch import submit
from tidegate.graph.logical import Upstream
from tidegate.graph.partitioning import Rebalance
from tidegate.protocol.job_status import JobStatus

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SMALL_STEPS = {"tidegate.step.max-records": 50}


def endless_job(function):
    """A job that nobody will see the end of, with an exchange between two slots."""
    numbers = read(NumberSequenceSource(0, 10**15))
    return graph_of(collected(mapped(function, Upstream(numbers, Rebalance()))), parallelism=2)


def with_process(number):
    return number, os.getpid()


def cancel(handle):
    handle.cancel()
    with pytest.raises(JobCanceled):
        handle.result(PATIENCE)
    assert handle.status() is JobStatus.CANCELED


def test_cancel_ends_an_endless_job_and_leaves_nothing(spark, traces):
    handle = submit(endless_job(with_process), spark.sparkContext, settings_of(SMALL_STEPS))
    pids = {pid for _, pid in itertools.islice(handle.collected("results", None), 150)}
    assert {process.pid for process in traces.slot_processes()} >= pids
    cancel(handle)
    wait_until(lambda: not any(map(psutil.pid_exists, pids)))
    wait_until(traces.are_gone)


def test_cancel_ends_a_job_whose_user_code_never_returns(spark, traces, tmp_path):
    def sleep_forever(number):
        (tmp_path / str(os.getpid())).touch()
        time.sleep(3600)

    settings = settings_of({**SMALL_STEPS, "task.cancellation.timeout": "1 s"})
    handle = submit(endless_job(sleep_forever), spark.sparkContext, settings)
    wait_until(lambda: list(tmp_path.iterdir()))
    pids = {int(path.name) for path in tmp_path.iterdir()}
    cancel(handle)
    wait_until(lambda: not any(map(psutil.pid_exists, pids)))
    wait_until(traces.are_gone)


def test_a_job_can_be_cancelled_before_its_slots_are_up(spark, traces):
    handle = submit(endless_job(with_process), spark.sparkContext, settings_of())
    cancel(handle)
    wait_until(traces.are_gone)


def test_a_killed_slot_fails_a_job_without_restarts(spark, traces):
    handle = submit(endless_job(with_process), spark.sparkContext, settings_of(SMALL_STEPS))
    _, pid = next(handle.collected("results", None))
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(SlotLost):
        handle.result(PATIENCE)
    assert handle.status() is JobStatus.FAILED
    wait_until(traces.are_gone)


def test_a_job_with_restarts_survives_a_killed_slot(spark, traces):
    numbers = read(NumberSequenceSource(1, 2000))
    job = graph_of(collected(mapped(with_process, Upstream(numbers, Rebalance()))), parallelism=2)
    restarts = {
        "restart-strategy": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": 3,
        "restart-strategy.fixed-delay.delay": "100 ms",
    }
    handle = submit(job, spark.sparkContext, settings_of({**SMALL_STEPS, **restarts}))
    results = handle.collected("results", None)
    first = next(results)
    os.kill(first[1], signal.SIGKILL)
    seen = [first, *results]
    handle.result(PATIENCE)
    assert {number for number, _ in seen} == set(range(1, 2001))
    assert len({pid for _, pid in seen}) >= 3, "the killed slot was started again"
    assert first[1] not in {pid for _, pid in seen[-100:]}


def test_jobs_of_one_session_do_not_take_the_last_core_from_each_others_steps(
    spark, traces, monkeypatch
):
    monkeypatch.setattr(launch, "task_slots", lambda context: 4)
    first = submit(endless_job(with_process), spark.sparkContext, settings_of(SMALL_STEPS))
    next(first.collected("results", None))
    short = graph_of(collected(mapped(abs, Upstream(read([-1]), Rebalance()))), parallelism=2)
    refused = submit(short, spark.sparkContext, settings_of({"tidegate.slot.start-timeout": "1 s"}))
    with pytest.raises(ExternalError, match=r"other jobs hold 2 of the 4 task slots"):
        refused.result(PATIENCE)
    waiting = submit(short, spark.sparkContext, settings_of())
    steps = first.progress().steps
    wait_until(lambda: first.progress().steps > steps + 3)
    cancel(first)
    waiting.result(PATIENCE)
    assert list(waiting.collected("results", None)) == [1]
