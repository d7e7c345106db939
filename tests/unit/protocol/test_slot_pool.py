import pytest

from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.slot_pool import (
    LEASE_SLACK,
    CancelLaunch,
    Dismiss,
    Launch,
    MissingSlot,
    SlotGone,
    SlotPool,
    SlotReady,
    WaitReason,
)

LEASE = 10.0
EXPIRY = LEASE * LEASE_SLACK


def process(launch=1, task_attempt=0, slot=0, nonce="n"):
    return Incarnation(slot, launch, task_attempt, nonce)


@pytest.fixture
def pool():
    pool = SlotPool(1, lease=LEASE, now=0.0)
    assert pool.start(0.0) == [Launch(0, 1)]
    return pool


@pytest.fixture
def ready(pool):
    assert pool.registered(process(), 0.0) == [SlotReady(process())]
    return pool


def test_every_slot_is_launched_at_the_start():
    pool = SlotPool(2, lease=LEASE, now=5.0)
    assert pool.start(5.0) == [Launch(0, 1), Launch(1, 1)]
    assert pool.missing() == [
        MissingSlot(0, 5.0, WaitReason.SPARK, 0),
        MissingSlot(1, 5.0, WaitReason.SPARK, 0),
    ]
    assert pool.ready() == {}


def test_the_first_process_of_a_slot_is_ready_when_it_registers(ready):
    assert ready.ready() == {0: process()}
    assert ready.is_current(process())
    assert ready.missing() == []


def test_a_registration_that_comes_again_changes_nothing(ready):
    assert ready.registered(process(), 1.0) == []


def test_a_slot_that_the_job_does_not_have_is_dismissed(ready):
    stray = process(slot=7)
    assert ready.registered(stray, 0.0) == [Dismiss(stray, "the job does not need this slot")]
    assert ready.line_ended(stray, 0.0) == []
    assert not ready.beat(stray, 0.0)


def test_the_end_of_the_line_is_the_death_notice(ready):
    assert ready.line_ended(process(), 3.0) == [SlotGone(process(), "its control line ended")]
    assert ready.ready() == {}
    assert ready.missing() == [MissingSlot(0, 3.0, WaitReason.SPARK, 0)]


def test_a_process_that_spark_starts_again_is_ready_at_once_after_the_death_notice(ready):
    ready.line_ended(process(), 1.0)
    again = process(task_attempt=1)
    assert ready.registered(again, 1.5) == [SlotReady(again)]


def test_a_line_that_broke_on_the_way_leaves_the_lease_to_be_waited_for(ready):
    assert ready.line_ended(process(), 1.0, is_certain=False) == [
        SlotGone(process(), "its control line ended")
    ]
    again = process(task_attempt=1)
    assert ready.registered(again, 2.0) == []
    assert ready.line_ended(process(), 3.0, is_certain=False) == []
    assert ready.tick(EXPIRY) == [SlotReady(again)]


def test_a_newer_process_waits_until_the_lease_of_the_older_has_run_out(ready):
    newer = process(task_attempt=1)
    assert ready.registered(newer, 4.0) == [
        Dismiss(process(), f"superseded by {newer}"),
        SlotGone(process(), f"superseded by {newer}"),
    ]
    assert ready.missing() == [MissingSlot(0, 4.0, WaitReason.OLD_LEASE, 0)]
    assert ready.beat(newer, 8.0)
    assert ready.tick(EXPIRY - 0.1) == []
    assert ready.next_tick() == EXPIRY
    assert ready.tick(EXPIRY) == [SlotReady(newer)]


def test_a_newer_process_is_ready_as_soon_as_the_older_has_ended(ready):
    newer = process(task_attempt=1)
    ready.registered(newer, 4.0)
    assert ready.line_ended(process(), 5.0) == [SlotReady(newer)]


def test_a_superseded_process_gets_no_more_answers(ready):
    ready.registered(process(task_attempt=1), 4.0)
    assert not ready.beat(process(), 5.0)
    assert not ready.is_current(process())


def test_a_process_that_was_superseded_before_it_was_used_need_not_be_waited_for(ready):
    second, third = process(task_attempt=1), process(task_attempt=2)
    ready.registered(second, 1.0)
    assert ready.registered(third, 2.0) == [Dismiss(second, f"superseded by {third}")]
    assert ready.tick(EXPIRY) == [SlotReady(third)]


@pytest.mark.parametrize("old", [process(), process(launch=1, task_attempt=3, nonce="late")])
def test_an_older_process_that_wakes_up_is_dismissed(ready, old):
    ready.line_ended(process(), 1.0)
    ready.job_ended(0, 1.0)
    reason = "a newer process serves, or will serve, the slot"
    assert ready.registered(old, 2.0) == [Dismiss(old, reason)]


def test_a_process_that_was_abandoned_cannot_register_again(ready):
    ready.line_ended(process(), 1.0)
    reason = "a newer process serves, or will serve, the slot"
    assert ready.registered(process(), 2.0) == [Dismiss(process(), reason)]


def test_a_slot_whose_job_ended_is_launched_again_at_once(ready):
    ready.line_ended(process(), 1.0)
    assert ready.job_ended(0, 2.0) == [Launch(0, 2)]
    assert ready.registered(process(launch=2), 3.0) == [SlotReady(process(launch=2))]


def test_a_job_that_ends_before_the_line_leaves_the_lease_to_be_waited_for(ready):
    reason = "its Spark job ended"
    assert ready.job_ended(0, 2.0) == [
        Dismiss(process(), reason),
        SlotGone(process(), reason),
        Launch(0, 2),
    ]
    assert ready.registered(process(launch=2), 3.0) == []
    assert ready.line_ended(process(), 4.0) == [SlotReady(process(launch=2))]


def test_starts_that_come_to_nothing_are_repeated_after_growing_pauses(pool):
    pauses, now = [], 0.0
    for failed in range(1, 10):
        assert pool.job_ended(0, now) == []
        assert [(slot.reason, slot.failed_starts) for slot in pool.missing()] == [
            (WaitReason.RELAUNCH, failed)
        ]
        pauses.append(round(pool.next_tick() - now, 3))
        now = pool.next_tick()
        assert pool.tick(now) == [Launch(0, failed + 1)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_beats_renew_the_lease(ready):
    assert ready.beat(process(), 8.0)
    assert ready.tick(EXPIRY) == []
    assert ready.next_tick() == 8.0 + EXPIRY


def test_a_silent_slot_is_lost_and_its_spark_job_cancelled(ready):
    reason = "it was silent for 10 s"
    assert ready.tick(EXPIRY) == [
        Dismiss(process(), reason),
        SlotGone(process(), reason),
        CancelLaunch(0),
    ]
    assert not ready.beat(process(), EXPIRY + 1)
    assert ready.job_ended(0, EXPIRY + 1) == [Launch(0, 2)]


def test_a_beat_that_comes_too_late_is_not_answered_even_before_the_next_tick(ready):
    assert not ready.beat(process(), EXPIRY)


def test_after_the_shutdown_nobody_is_launched_or_accepted(ready):
    assert ready.shut_down() == [Dismiss(process(), "the job has ended")]
    assert ready.line_ended(process(), 1.0) == [SlotGone(process(), "its control line ended")]
    assert ready.job_ended(0, 1.0) == []
    assert ready.next_tick() is None
    newer = process(launch=2)
    assert ready.registered(newer, 2.0) == [Dismiss(newer, "the job does not need this slot")]


def test_a_process_of_an_ended_job_is_not_mistaken_for_one_of_the_next(pool):
    pool.job_ended(0, 0.0)
    late = process(task_attempt=5)
    reason = "a newer process serves, or will serve, the slot"
    assert pool.registered(late, 0.05) == [Dismiss(late, reason)]
    assert pool.tick(0.1) == [Launch(0, 2)]


def test_the_end_of_a_spark_job_counts_once(pool):
    pool.job_ended(0, 0.0)
    assert pool.job_ended(0, 0.0) == []
    assert [each.failed_starts for each in pool.missing()] == [1]
