"""Steps over an endless Spark job: what holds when it breaks, and when it cannot be had."""

import threading
import time

import pytest

from tests.programs import (
    apply,
    collected,
    graph_of,
    keyed,
    needs_streaming_shuffle,
    read,
    results_of,
    settings_of,
    wait_until,
)
from tests.properties.random_programs import RunningTotal, remainder
from tidegate.connectors.datagen import DataGeneratorSource
from tidegate.connectors.sequence import NumberSequenceSource
from tidegate.core.errors import JobCanceled, UnsuitableSpark
from tidegate.core.modes import ExchangeMode
from tidegate.driver.launch import submit
from tidegate.exchange.choice import create_exchange
from tidegate.exchange.pipelined import exchange, self_test
from tidegate.exchange.shuffle import ShuffleExchange
from tidegate.state.keys.selection import select_key

pytestmark = [pytest.mark.spark, pytest.mark.slow, needs_streaming_shuffle]
KEY = select_key(remainder)


def totals(last):
    numbers = read(NumberSequenceSource(1, last), parallelism=1)
    results = apply(RunningTotal(KEY, sums=True), keyed(remainder, numbers), is_keyed=True)
    return graph_of(collected(results), parallelism=2)


def test_a_step_is_repeated_when_its_job_breaks_and_counts_once(spark, traces, caplog):
    """Pumps are canceled again and again while records flow."""
    settings = {"tidegate.exchange": "pipelined", "tidegate.step.max-records": 50}
    handle = submit(totals(20_000), spark.sparkContext, settings_of(settings))
    is_over = threading.Event()

    def break_jobs():
        epoch = 0
        while not is_over.wait(0.05):
            if handle.progress().steps > 20 * epoch:
                epoch += 1
            for thread in threading.enumerate():  # named like their groups
                if thread.name.startswith(f"tidegate-{handle.job_id}-pumps-0-{epoch}-"):
                    spark.sparkContext.cancelJobGroup(thread.name)

    breaker = threading.Thread(target=break_jobs)
    breaker.start()
    try:
        (results,) = results_of(handle)
    finally:
        is_over.set()
        breaker.join()
    broken = [record for record in caplog.records if "lost a pump" in record.getMessage()]
    assert len(broken) >= 3
    assert sorted(results) == sorted(RunningTotal(KEY, sums=True).results(range(1, 20_001), {}))


def test_a_job_steps_although_another_one_of_the_session_leaves_its_pumps_no_room(
    spark, traces, tmp_path, caplog, monkeypatch
):
    """Of 16 task slots it holds 11, and beside two slots four pumps have to run at once."""
    monkeypatch.setattr(exchange, "_START_SECONDS", 3.0)
    release, held = tmp_path / "release", tmp_path / "held"

    def hold(_):
        held.touch()
        while not release.exists():
            time.sleep(0.05)

    others = spark.sparkContext.parallelize(range(11), 11)
    other = threading.Thread(target=others.foreach, args=(hold,))
    other.start()
    try:
        wait_until(held.exists)
        (results,) = results_of(submit(totals(300), spark.sparkContext, settings_of()))
    finally:
        release.touch()
        other.join()
    assert sorted(results) == sorted(RunningTotal(KEY, sums=True).results(range(1, 301), {}))
    assert "from now on, steps are Spark jobs" in caplog.text


def test_pumps_without_frames_wait_in_their_own_way(spark, traces):
    """Spark's own readers look around a hundred times a second."""
    never = DataGeneratorSource(abs, rate=1e-9)
    handle = submit(
        graph_of(collected(keyed(remainder, read(never))), parallelism=2),
        spark.sparkContext,
        settings_of({"tidegate.exchange": "pipelined"}),
    )

    def waiting():
        found = spark.sparkContext._jvm.java.lang.Thread.getAllStackTraces().items()
        return {
            thread.getName(): frames
            for thread, frames in ((each, [str(f) for f in stack]) for each, stack in found)
            if any("StreamingShuffleReader" in frame for frame in frames)
        }

    try:
        names = {"tidegate-push-1-0", "tidegate-push-1-1"}
        wait_until(lambda: waiting().keys() == names)
        for frames in waiting().values():
            assert any("Pumps$PatientQueue.poll" in frame for frame in frames)
    finally:
        handle.cancel()
        with pytest.raises(JobCanceled):
            handle.result()


def test_a_job_says_what_keeps_it_from_the_fast_exchange(spark, caplog):
    """Two slots, and two pumps for each of two levels, and one task to spare."""
    caplog.set_level("INFO", "tidegate.spark")
    context, job = spark.sparkContext, totals(1)
    with pytest.raises(UnsuitableSpark, match="Spark has 6 task slots for the job, but it needs 7"):
        create_exchange(ExchangeMode.PIPELINED, context, lambda: 6, job, "job", b"secret")
    found, pumps = create_exchange(ExchangeMode.AUTO, context, lambda: 6, job, "job", b"secret")
    assert isinstance(found, ShuffleExchange) and pumps == 0
    assert "steps are Spark jobs, not pipelined: Spark has 6 task slots" in caplog.text


def test_the_streaming_shuffle_is_tried_out_once(spark, caplog, monkeypatch):
    caplog.set_level("INFO", "tidegate.spark")
    context, job = spark.sparkContext, totals(1)
    monkeypatch.setattr(self_test, "_passed", set())
    monkeypatch.setattr(self_test, "_FRAMES", 5)
    reason = "a test of the streaming shuffle failed: 4 of 5 frames arrived"
    with pytest.raises(UnsuitableSpark, match=reason):
        create_exchange(ExchangeMode.PIPELINED, context, lambda: 7, job, "job", b"secret")
    (results,) = results_of(submit(totals(300), spark.sparkContext, settings_of()))
    assert sorted(results) == sorted(RunningTotal(KEY, sums=True).results(range(1, 301), {}))
    assert f"steps are Spark jobs, not pipelined: {reason}" in caplog.text
    monkeypatch.undo()
    assert self_test.SelfTest(context).failure() is None
    monkeypatch.setattr(self_test, "InheritableThread", None)  # it needs none any more
    assert self_test.SelfTest(context).failure() is None
