"""Checkpoints when sources end: one is the last, and what has ended does not run again."""

import threading

import pytest

from tests.jobs import (
    CHECKPOINTS,
    RESTARTS,
    NotNow,
    Sums,
    WatchedMap,
    fail_once,
    key_of,
    pairs,
    summed,
    totals,
)
from tests.programs import PATIENCE, apply, collected, keyed, read, wait_until
from tests.taps import Tap
from tidegate.core.errors import UserFunctionError
from tidegate.graph.logical import Upstream
from tidegate.protocol.job_status import JobStatus
from tidegate.state.keys.selection import select_key

SETTINGS = {**CHECKPOINTS, **RESTARTS}
ONLY_AT_THE_END = {**SETTINGS, "execution.checkpointing.interval": "1 h"}
RECORDS = pairs(60)


def test_one_checkpoint_precedes_the_end_of_a_bounded_job(start, watch):
    job = start(summed(watch, read(RECORDS)), settings=ONLY_AT_THE_END)
    job.result()
    assert job.history.counts.completed == 1
    for subtask in (0, 1):
        events = [e for e in watch.events if e.subtask == subtask and e.what != "map"]
        assert [(e.what, e.value) for e in events] == [
            ("open", None),
            ("snapshot", 1),
            ("complete", 1),
            ("close", None),
        ]


def test_the_final_checkpoint_holds_every_subtask_as_finished(start, watch):
    kept = []
    job = start(summed(watch, read(RECORDS)), settings=ONLY_AT_THE_END)
    retained = job.master.checkpoints.retained
    watch.on("sums", "complete", lambda _: kept.append(retained.restore_point))
    job.result()
    for record in kept[0].metadata.operators.values():
        assert record.finished == {0, 1}, record.name


def test_a_job_whose_final_notification_fails_goes_back_and_tells_again(start, watch):
    fail_once(watch, "sums", "complete")
    job = start(summed(watch, read(RECORDS)), settings=ONLY_AT_THE_END, parallelism=1)
    job.result()
    assert dict(job.records()) == totals(RECORDS)
    assert job.status is JobStatus.FINISHED
    assert watch.values("sums", "map") == RECORDS


def test_a_job_without_records_ends_with_a_checkpoint_too(start, watch):
    job = start(summed(watch, read([])), settings=ONLY_AT_THE_END)
    job.result()
    assert job.history.counts.completed == 1


def test_a_failure_before_the_final_checkpoint_is_complete_is_recovered_from(start, watch):
    fail_once(watch, "sums", "snapshot")
    settings = {**ONLY_AT_THE_END, "execution.checkpointing.tolerable-failed-checkpoints": 0}
    job = start(summed(watch, read(RECORDS)), settings=settings, parallelism=1)
    job.result()
    assert dict(job.records()) == totals(RECORDS)
    assert watch.count("sums", "open") == 2


def test_a_final_checkpoint_that_fails_within_what_is_tolerated_is_taken_again(start, watch):
    fail_once(watch, "sums", "snapshot", NotNow())
    settings = {**ONLY_AT_THE_END, "execution.checkpointing.tolerable-failed-checkpoints": 1}
    job = start(summed(watch, read(RECORDS)), settings=settings, parallelism=1)
    job.result()
    assert job.history.counts.completed == job.history.counts.failed == 1
    assert watch.count("sums", "open") == 1


def test_a_job_whose_checkpoints_stop_with_its_tasks_simply_ends(start, watch):
    key = "execution.checkpointing.checkpoints-after-tasks-finish"
    job = start(summed(watch, read(RECORDS)), settings={**ONLY_AT_THE_END, key: "false"})
    job.result()
    assert job.history.counts.triggered == 0
    assert dict(job.records()) == totals(RECORDS)


def one_ends_early(start, watch, **settings):
    """Two pipelines of which one has finished, with checkpoints behind that."""
    short, long = Tap(RECORDS, is_open=True), Tap(RECORDS)
    job = start(
        summed(watch, read(short), "short"),
        summed(watch, read(long), "long"),
        settings={**SETTINGS, **settings},
    )
    wait_until(lambda: watch.count("short", "close") == 2)
    long.let(30)
    wait_until(lambda: watch.count("long", "map") == 30)
    job.wait_for_checkpoint()
    return job, long


def test_checkpoints_continue_when_a_pipeline_has_finished(start, watch):
    job, long = one_ends_early(start, watch)
    last = max(watch.values("short", "complete"))
    job.wait_for_checkpoints(3)
    assert max(watch.values("short", "complete")) == last, "it is told nothing any more"
    long.open()
    job.result()
    assert dict(job.records("short")) == dict(job.records("long")) == totals(RECORDS)


@pytest.mark.parametrize("strategy", ["region", "full"])
def test_what_has_finished_does_not_run_again_when_another_pipeline_fails(start, watch, strategy):
    settings = {"jobmanager.execution.failover-strategy": strategy}
    job, long = one_ends_early(start, watch, **settings)
    fail_once(watch, "long")
    long.open()
    job.result()
    assert dict(job.records("long")) == totals(RECORDS)
    assert watch.count("long", "open") == 4
    assert watch.count("short", "open") == watch.count("short", "close") == 2
    assert sorted(watch.values("short", "map")) == sorted(RECORDS)


def test_a_pipeline_that_ended_after_the_checkpoint_runs_again_with_full_failover(start, watch):
    short, long = Tap(RECORDS), Tap(RECORDS)
    settings = {
        **SETTINGS,
        "execution.checkpointing.interval": "1 h",
        "jobmanager.execution.failover-strategy": "full",
    }
    gate = threading.Event()
    job = start(
        summed(watch, read(short), "short"),
        summed(watch, read(long), "long"),
        settings=settings,
        parallelism=1,
    )
    watch.on("short", "snapshot", lambda _: gate.wait(PATIENCE))
    short.open()
    wait_until(lambda: watch.count("short", "snapshot"))
    fail_once(watch, "long")
    long.open()
    wait_until(lambda: watch.count("long", "open") == 2)
    gate.set()
    job.result()
    assert dict(job.records("short")) == dict(job.records("long")) == totals(RECORDS)
    assert watch.count("short", "open") == 2


def test_a_source_subtask_that_has_finished_is_not_run_again(start, watch):
    first, second = pairs(20), [(key, number + 1000) for key, number in pairs(40)]
    tap = Tap(first, second)
    job = start(summed(watch, read(tap)), settings=SETTINGS)
    tap.let(20, stream=0)
    tap.let(20, stream=1)
    wait_until(lambda: watch.count("sums", "map") == 40)
    job.wait_for_checkpoint()
    job.wait_for_checkpoint()
    fail_once(watch, "sums")
    tap.open()
    job.result()
    assert dict(job.records()) == totals(first + second)
    assert tap.flow.reads[0] == 20, "no record twice"
    mapped = watch.values("sums", "map")
    assert all(mapped.count(record) == 1 for record in first)


def test_an_input_that_has_ended_stays_ended_after_a_failure(start, watch):
    ended, going_on = Tap(RECORDS, is_open=True), Tap(RECORDS)
    operator = WatchedMap(Sums(watch, "sums"), [select_key(key_of)] * 2)
    inputs = [
        Upstream(up.transformation, up.partitioning, input_index=index)
        for index, up in enumerate([keyed(key_of, read(ended)), keyed(key_of, read(going_on))])
    ]
    job = start(collected(apply(operator, *inputs, is_keyed=True)), settings=SETTINGS)
    going_on.let(30)
    wait_until(lambda: watch.count("sums", "map") == 90)
    job.wait_for_checkpoint()
    job.wait_for_checkpoint()
    fail_once(watch, "sums")
    going_on.open()
    job.result()
    assert dict(job.records()) == totals(RECORDS * 2)
    assert ended.reads == len(RECORDS)


def test_the_end_of_a_job_that_cannot_be_saved_is_a_failure(start, watch):
    def refuse(_):
        raise ValueError("never")

    watch.on("sums", "complete", refuse)
    job = start(summed(watch, read(RECORDS)), settings={**SETTINGS, "restart-strategy": "none"})
    assert job.fails(UserFunctionError).cause == "ValueError: never"
