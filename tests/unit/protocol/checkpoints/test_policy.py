from datetime import timedelta

import pytest

from tidegate.core.checkpoint_settings import CheckpointSettings
from tidegate.protocol.checkpoints.policy import (
    MAX_QUEUED,
    CheckpointSchedule,
    FailureTolerance,
    Wait,
)
from tidegate.stream.elements import BarrierKind, SnapshotRequest


def schedule(interval=10, min_pause=0, max_concurrent=1):
    settings = CheckpointSettings(
        interval=None if interval is None else timedelta(seconds=interval),
        min_pause=timedelta(seconds=min_pause),
        max_concurrent=max_concurrent,
    )
    return CheckpointSchedule(settings, now=0.0)


def request(kind=BarrierKind.CHECKPOINT, name=""):
    return SnapshotRequest(kind, name=name)


PERIODIC = request()


def test_periodic_checkpoints_start_at_every_interval():
    plan = schedule(interval=10)
    assert plan.decide(9.9, under_way=0) == Wait(10.0)
    assert plan.decide(10.0, under_way=0) == PERIODIC
    assert plan.decide(10.0, under_way=1) == Wait(20.0)
    assert plan.decide(21.0, under_way=0) == PERIODIC


def test_without_an_interval_only_what_is_asked_for_starts():
    plan = schedule(interval=None)
    assert plan.decide(1e9, under_way=0) == Wait(None)
    plan.submit(request())
    assert plan.decide(1e9, under_way=0) == request()


def test_no_more_checkpoints_are_under_way_than_allowed():
    plan = schedule(interval=10, max_concurrent=2)
    assert plan.decide(10.0, under_way=1) == PERIODIC
    assert plan.decide(20.0, under_way=2) == Wait(None)
    assert plan.decide(21.0, under_way=1) == PERIODIC


def test_a_periodic_checkpoint_keeps_the_minimum_pause():
    plan = schedule(interval=10, min_pause=5)
    plan.decide(10.0, under_way=0)
    plan.ended(18.0)
    assert plan.decide(20.0, under_way=0) == Wait(23.0)
    assert plan.decide(23.0, under_way=0) == PERIODIC


def test_an_interval_shorter_than_the_minimum_pause_makes_no_sense_and_is_stretched():
    assert schedule(interval=1, min_pause=30).decide(1.0, under_way=0) == Wait(30.0)


def test_a_savepoint_overtakes_a_queued_checkpoint_and_waits_for_nobody():
    plan = schedule(min_pause=60)
    plan.submit(request())
    plan.submit(request(BarrierKind.SAVEPOINT))
    plan.ended(3.0)
    assert plan.decide(3.0, under_way=1) == request(BarrierKind.SAVEPOINT)
    assert plan.decide(3.0, under_way=1) == Wait(63.0)
    assert plan.decide(3.0, under_way=0) == request()


def test_requests_of_one_kind_start_in_the_order_they_were_made():
    plan = schedule()
    wanted = [request(BarrierKind.SAVEPOINT, name) for name in "cab"]
    for each in wanted:
        plan.submit(each)
    assert [plan.decide(5.0, under_way=9) for _ in wanted] == wanted


def test_too_many_requests_are_refused():
    plan = schedule()
    assert all(plan.submit(request()) for n in range(MAX_QUEUED))
    assert plan.submit(request(BarrierKind.SAVEPOINT)) is False
    assert len(plan.withdraw_all()) == MAX_QUEUED
    assert plan.withdraw_all() == ()


def test_periodic_checkpoints_end_with_the_job():
    plan = schedule(interval=10)
    plan.pause_periodic()
    assert plan.decide(50.0, under_way=0) == Wait(None)


@pytest.mark.parametrize("tolerable", [0, 2])
def test_the_job_fails_with_the_first_checkpoint_that_is_not_tolerated(tolerable):
    tolerance = FailureTolerance(tolerable)
    verdicts = [tolerance.failed(number) for number in range(1, 2 * tolerable + 3)]
    assert verdicts == ([False] * tolerable + [True]) * 2


def test_a_success_forgives_the_failures_before_it():
    tolerance = FailureTolerance(1)
    assert not tolerance.failed(1)
    tolerance.succeeded(2)
    assert not tolerance.failed(3)
    assert tolerance.failed(4)


def test_a_checkpoint_counts_once_however_often_it_is_said_to_have_failed():
    tolerance = FailureTolerance(1)
    assert not tolerance.failed(1)
    assert not tolerance.failed(1)
    assert tolerance.failed(2)


def test_a_failure_of_a_checkpoint_that_a_newer_one_made_obsolete_does_not_count():
    tolerance = FailureTolerance(0)
    tolerance.succeeded(5)
    assert not tolerance.failed(4)
    assert tolerance.failed(6)
