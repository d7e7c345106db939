"""A job that fails resumes from its latest checkpoint, and counts every record once."""

import threading

import pytest

from tests.effort import some
from tests.jobs import (
    CHECKPOINTS,
    RESTARTS,
    TOLERANT,
    fail_once,
    hold_checkpoints,
    raise_,
    summed,
    totals,
)
from tests.programs import PATIENCE, read, wait_until
from tests.taps import Tap
from tests.unit.driver.conftest import RECORDS
from tidegate.core.errors import UserFunctionError
from tidegate.protocol.job_status import JobStatus

SETTINGS = {**CHECKPOINTS, **RESTARTS}


@pytest.fixture(params=some("hashmap", "rocksdb"))
def settings(request):
    return {**SETTINGS, "state.backend.type": request.param}


def let_through_a_checkpoint(job, tap, records):
    """Let so many records pass, and wait until a checkpoint holds them."""
    tap.let_pass(records)
    return job.wait_for_checkpoint()


def results_after(job, tap, records=RECORDS):
    tap.open()
    job.result()
    return dict(job.records())


def test_state_and_position_of_the_checkpoint_are_restored_after_a_user_exception(
    start, watch, settings
):
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap, parallelism=1)), settings=settings)
    let_through_a_checkpoint(job, tap, 30)
    tap.let(40)
    wait_until(lambda: watch.count("sums", "map") == 40)
    fail_once(watch, "sums")
    assert results_after(job, tap) == totals(RECORDS)
    assert tap.reads < 60 + 60, "it did not start fresh"
    assert watch.values("sums", "initialize") == [False] * 2 + [True] * 2


def test_records_after_the_checkpoint_are_processed_again_and_those_before_it_are_not(
    begun, watch, settings
):
    job, tap = begun(30, settings={**settings, **TOLERANT}, parallelism=1)
    job.wait_for_checkpoint()
    hold_checkpoints(job, watch, "sums")
    tap.let(40)
    wait_until(lambda: watch.count("sums", "map") == 40)
    watch.actions.clear()
    job.cluster.kill(0)
    assert results_after(job, tap) == totals(RECORDS)
    assert watch.values("sums", "map") == RECORDS[:40] + RECORDS[30:]


@pytest.mark.parametrize("slot", [0, 1])
def test_a_killed_slot_takes_nothing_with_it(start, watch, settings, slot):
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap, parallelism=1)), settings=settings)
    let_through_a_checkpoint(job, tap, 30)
    tap.let(40)
    wait_until(lambda: watch.count("sums", "map") == 40)
    job.cluster.kill(slot)
    assert results_after(job, tap) == totals(RECORDS)
    assert job.history.counts.restored == 1


def test_without_a_completed_checkpoint_a_job_starts_fresh(start, watch):
    tap = Tap(RECORDS, is_open=True)
    settings = {**SETTINGS, "execution.checkpointing.interval": "1 h"}
    fail_once(watch, "sums")
    job = start(summed(watch, read(tap)), settings=settings)
    assert results_after(job, tap) == totals(RECORDS)
    assert watch.values("sums", "initialize") == [False] * 4


def test_failures_in_a_row_each_go_back_until_the_attempts_are_used_up(begun, watch):
    job, tap = begun(30, settings=SETTINGS, parallelism=1)
    job.wait_for_checkpoint()
    poison = RECORDS[35]
    watch.on("sums", "map", lambda v: raise_(ValueError("bad")) if v == poison else v)
    tap.open()
    failure = job.fails(UserFunctionError)
    assert failure.cause == "ValueError: bad"
    assert watch.values("sums", "initialize") == [False, True, True]
    assert job.status is JobStatus.FAILED
    mapped = watch.values("sums", "map")
    assert mapped.count(poison) == 3
    assert [mapped.count(record) for record in RECORDS[:30]] == [1] * 30
    assert dict(job.records()) == totals(RECORDS[:35]), "what came before the failure counts"


def test_a_job_that_fails_while_it_recovers_tries_again(begun, watch):
    job, tap = begun(30, settings=SETTINGS, parallelism=1)
    job.wait_for_checkpoint()
    fail_once(watch, "sums", "open")
    job.cluster.kill(0)
    assert results_after(job, tap) == totals(RECORDS)


def test_two_slots_lost_at_once_are_one_recovery(start, watch):
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap, parallelism=1)), settings=SETTINGS, parallelism=3)
    let_through_a_checkpoint(job, tap, 30)
    job.cluster.kill(1)
    job.cluster.kill(2)
    assert results_after(job, tap) == totals(RECORDS)


def test_a_checkpoint_that_was_under_way_is_aborted_when_a_region_fails(start, watch):
    tap = Tap(RECORDS)
    gate, is_blocked = threading.Event(), threading.Event()
    job = start(summed(watch, read(tap)), settings=SETTINGS, parallelism=1)
    let_through_a_checkpoint(job, tap, 30)

    def block(_):
        is_blocked.set()
        gate.wait(PATIENCE)

    watch.on("sums", "snapshot", block)
    assert is_blocked.wait(PATIENCE)
    blocked = watch.last_snapshot("sums")
    job.cluster.kill(0)
    wait_until(lambda: watch.count("sums", "initialize") == 2)
    watch.actions.clear()
    gate.set()
    assert results_after(job, tap) == totals(RECORDS)
    assert watch.count("sums", "complete") and blocked not in watch.values("sums", "complete")


# --- failover -----------------------------------------------------------------------------------


def two_pipelines(start, watch, strategy):
    """A pipeline that fails once both are behind a checkpoint, and one that does not."""
    bad, good = Tap(RECORDS), Tap(RECORDS)
    settings = {**SETTINGS, "jobmanager.execution.failover-strategy": strategy}
    job = start(
        summed(watch, read(bad), "bad"), summed(watch, read(good), "good"), settings=settings
    )
    for tap in (bad, good):
        tap.let(30)
    wait_until(lambda: watch.count("bad", "map") == watch.count("good", "map") == 30)
    job.wait_for_checkpoint()
    good.let(40)
    wait_until(lambda: watch.count("good", "map") == 40)
    fail_once(watch, "bad")
    bad.let(40)
    wait_until(lambda: watch.count("bad", "open") == 4)
    bad.open()
    good.open()
    job.result()
    for name in ("bad", "good"):
        assert dict(job.records(name)) == totals(RECORDS)
    return good


def test_a_region_that_fails_goes_back_alone(start, watch):
    good = two_pipelines(start, watch, "region")
    assert sorted(watch.values("good", "map")) == sorted(RECORDS), "each once"
    assert good.reads == len(RECORDS)
    assert watch.count("good", "open") == watch.count("good", "close") == 2


def test_with_full_failover_all_regions_go_back_to_the_checkpoint(start, watch):
    two_pipelines(start, watch, "full")
    assert watch.values("good", "initialize") == [False] * 2 + [True] * 2


def test_a_region_continues_while_another_waits_for_its_restart(start, watch):
    bad, good = Tap(RECORDS), Tap(RECORDS)
    settings = {**SETTINGS, "restart-strategy.fixed-delay.delay": "1 h"}
    job = start(
        summed(watch, read(bad), "bad"), summed(watch, read(good), "good"), settings=settings
    )
    watch.on("bad", "map", lambda v: raise_(ValueError("for now")))
    bad.let(1)
    wait_until(lambda: watch.count("bad", "map"))
    good.open()
    wait_until(lambda: watch.count("good", "map") == len(RECORDS))
    assert watch.count("bad", "open") == 2, "it still waits"
    wait_until(lambda: job.status is JobStatus.RESTARTING)
