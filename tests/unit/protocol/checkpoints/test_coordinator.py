from dataclasses import replace
from datetime import timedelta

import pytest

from tests.played_jobs import acknowledgement, played_job, snapshot, states_of
from tidegate.core.checkpoint_settings import CheckpointSettings
from tidegate.core.errors import ExternalError
from tidegate.core.ids import CheckpointId, SubtaskId
from tidegate.core.modes import SavepointFormat
from tidegate.protocol.checkpoints.coordinator import CheckpointCoordinator
from tidegate.protocol.checkpoints.instructions import (
    Abandon,
    Discard,
    FailJob,
    Finish,
    GoBack,
    NotifyAborted,
    NotifyComplete,
    Publish,
    StopJob,
    TriggerCheckpoint,
)
from tidegate.protocol.messages import CheckpointDeclined
from tidegate.protocol.region import Region, RegionState
from tidegate.stream.elements import Barrier, BarrierKind, SavepointTarget, SnapshotRequest

JOB = played_job([1, 2])
EVERYBODY = [SubtaskId(0, 0), SubtaskId(1, 0), SubtaskId(1, 1)]
TARGET = SavepointTarget("/savepoints", "savepoint-1", SavepointFormat.CANONICAL)
LOST = ExternalError("the disk is full")


def region(state=RegionState.RUNNING, *, attempt=1, ended=False, pipeline=0):
    found = Region(pipeline, [0, 1])
    found.state, found.attempt = state, attempt
    found.some_ended = found.all_ended = ended
    return found


RUNNING = {0: region()}
BUSY = {0: region(RegionState.RESTARTING)}


def coordinator(**settings):
    values = {"interval": timedelta(seconds=10), "timeout": timedelta(seconds=60), **settings}
    return CheckpointCoordinator(CheckpointSettings(**values), JOB, now=0.0)


def ack(number, subtask, *, attempt=1):
    return acknowledgement(number, subtask, number, attempt=attempt)


def wrote(number, *subtasks):
    return tuple(snapshot(subtask, number) for subtask in subtasks)


def decline(number, subtask, attempt=1, *, skipped=False):
    return CheckpointDeclined(
        checkpoint_id=number, subtask=subtask, attempt=attempt, error=LOST, is_skipped=skipped
    )


def trigger(subject, now):
    (instruction,), _ = subject.look(now, 1000 + now, RUNNING)
    assert isinstance(instruction, TriggerCheckpoint)
    return instruction


def acknowledge_all(subject, number):
    results = [subject.acknowledged(ack(number, each), 2000.0) for each in EVERYBODY]
    return [instruction for found in results for instruction in found]


def complete(subject, now):
    number = trigger(subject, now).barrier.checkpoint_id
    (publish,) = acknowledge_all(subject, number)
    return subject.published(publish.checkpoint, now, RUNNING)


def test_a_checkpoint_is_triggered_when_it_is_due_and_not_before():
    subject = coordinator()
    assert subject.look(9.9, 0.0, RUNNING) == ([], 10.0)
    triggered = trigger(subject, 10.0)
    assert triggered == TriggerCheckpoint(Barrier(1, 1010.0), frozenset({0}), awaited=3)


def test_it_is_published_once_everybody_has_acknowledged():
    subject = coordinator()
    trigger(subject, 10.0)
    assert subject.acknowledged(ack(1, EVERYBODY[0]), 0.0) == []
    assert subject.acknowledged(ack(1, EVERYBODY[0]), 0.0) == []
    assert subject.acknowledged(ack(1, EVERYBODY[1]), 0.0) == []
    subject.enumerated(CheckpointId(1), {0: b"splits"})
    (publish,) = subject.acknowledged(ack(1, EVERYBODY[2]), 5.0)
    assert isinstance(publish, Publish)
    assert states_of(publish.checkpoint) == dict.fromkeys(EVERYBODY, 1)
    assert publish.checkpoint.metadata.operators["op-0"].enumerator == b"splits"
    assert subject.is_publishing
    assert subject.retained.latest is None


def test_a_complete_checkpoint_is_announced_and_the_previous_one_discarded():
    subject = coordinator()
    (notify,) = complete(subject, 10.0)
    assert isinstance(notify, NotifyComplete)
    assert subject.retained.latest == notify.checkpoint
    notify, discard = complete(subject, 20.0)
    assert notify.checkpoint.checkpoint_id == 2
    assert discard == Discard(1)


def test_an_incremental_snapshot_builds_on_the_latest_completed_checkpoint():
    subject = coordinator(incremental=True)
    complete(subject, 10.0)
    assert trigger(subject, 20.0).barrier.base == 1


def test_a_snapshot_that_is_not_to_be_incremental_builds_on_nothing():
    subject = coordinator()
    complete(subject, 10.0)
    assert trigger(subject, 20.0).barrier.base is None


def test_past_its_timeout_a_checkpoint_is_aborted_with_all_it_wrote():
    subject = coordinator(tolerable_failures=1)
    trigger(subject, 10.0)
    subject.acknowledged(ack(1, EVERYBODY[0]), 0.0)
    instructions, _ = subject.look(70.0, 0.0, RUNNING)
    aborted, abandon = instructions
    assert isinstance(aborted, NotifyAborted)
    assert "timeout of 60 s" in aborted.reason
    assert abandon == Abandon(1, wrote(1, EVERYBODY[0]), is_whole=True)
    assert trigger(subject, 70.0).barrier.checkpoint_id == 2


def test_what_is_acknowledged_too_late_is_deleted():
    subject = coordinator(tolerable_failures=1)
    trigger(subject, 10.0)
    subject.look(70.0, 0.0, RUNNING)
    (abandon,) = subject.acknowledged(ack(1, EVERYBODY[1]), 0.0)
    assert abandon == Abandon(1, wrote(1, EVERYBODY[1]), is_whole=True)


def test_a_late_repetition_of_what_is_in_use_deletes_nothing():
    subject = coordinator()
    complete(subject, 10.0)
    assert subject.acknowledged(ack(1, EVERYBODY[1]), 0.0) == []


def test_an_older_attempt_cannot_take_part():
    subject = coordinator()
    trigger(subject, 10.0)
    old = ack(1, EVERYBODY[0], attempt=0)
    assert subject.acknowledged(old, 0.0) == [Abandon(1, wrote(1, EVERYBODY[0]), is_whole=False)]
    assert subject.declined(decline(1, EVERYBODY[0], 0), 11.0) == []


def test_more_failures_than_tolerated_fail_the_job_and_say_why():
    subject = coordinator(tolerable_failures=1)
    trigger(subject, 10.0)
    assert [type(each) for each in subject.declined(decline(1, EVERYBODY[0]), 11.0)] == [
        NotifyAborted,
        Abandon,
    ]
    trigger(subject, 20.0)
    *_, failure = subject.declined(decline(2, EVERYBODY[0]), 21.0)
    assert isinstance(failure, FailJob)
    assert "v0 (1/1): the disk is full" in str(failure.cause)


def test_a_completed_checkpoint_forgives_the_failures_before_it():
    subject = coordinator(tolerable_failures=1)
    for now in (10.0, 30.0):
        number = trigger(subject, now).barrier.checkpoint_id
        aborted = subject.declined(decline(number, EVERYBODY[0]), now)
        assert not any(isinstance(each, FailJob) for each in aborted)
        complete(subject, now + 10)


def test_a_barrier_that_was_overtaken_is_no_failure():
    subject = coordinator(max_concurrent=2)
    trigger(subject, 10.0)
    trigger(subject, 20.0)
    aborted = subject.declined(decline(1, EVERYBODY[1], skipped=True), 21.0)
    assert not any(isinstance(each, FailJob) for each in aborted)


def test_a_newer_checkpoint_that_completes_subsumes_the_older_one():
    subject = coordinator(max_concurrent=2)
    trigger(subject, 10.0)
    trigger(subject, 20.0)
    (publish,) = acknowledge_all(subject, 2)
    notify, aborted, _ = subject.published(publish.checkpoint, 21.0, RUNNING)
    assert isinstance(notify, NotifyComplete)
    assert aborted == NotifyAborted(1, "checkpoint 2 completed before it")


def test_a_newer_checkpoint_does_not_abort_an_older_one_that_is_being_published():
    subject = coordinator(max_concurrent=2)
    trigger(subject, 10.0)
    trigger(subject, 20.0)
    acknowledge_all(subject, 1)
    (publish,) = acknowledge_all(subject, 2)
    assert subject.published(publish.checkpoint, 21.0, RUNNING) == [
        NotifyComplete(publish.checkpoint)
    ]
    assert subject.is_publishing


def test_what_is_being_published_is_not_declined():
    subject = coordinator()
    trigger(subject, 10.0)
    acknowledge_all(subject, 1)
    assert subject.declined(decline(1, EVERYBODY[1]), 11.0) == []
    assert subject.is_publishing


def test_a_checkpoint_that_is_already_aborted_is_not_aborted_again_by_the_store():
    subject = coordinator()
    trigger(subject, 10.0)
    subject.region_failed(11.0)
    assert subject.not_begun(CheckpointId(1), LOST, 12.0) == []


def test_only_the_latest_aborted_checkpoints_are_remembered():
    subject = coordinator(tolerable_failures=10**6)
    for number in range(1, 1002):
        trigger(subject, 10.0 * number)
        subject.region_failed(10.0 * number)
    assert subject.acknowledged(ack(1, EVERYBODY[0]), 0.0) == []
    assert subject.acknowledged(ack(2, EVERYBODY[0]), 0.0) == [
        Abandon(2, wrote(2, EVERYBODY[0]), is_whole=True)
    ]


def test_a_failed_region_aborts_what_is_not_being_published():
    subject = coordinator(max_concurrent=2)
    trigger(subject, 10.0)
    trigger(subject, 20.0)
    (publish,) = acknowledge_all(subject, 1)
    aborted, _ = subject.region_failed(21.0)
    assert aborted.checkpoint_id == 2
    assert subject.is_publishing
    subject.published(publish.checkpoint, 22.0, RUNNING)
    assert not subject.is_publishing
    assert subject.retained.latest.checkpoint_id == 1


def test_what_certainly_was_not_published_counts_as_failed():
    subject = coordinator()
    trigger(subject, 10.0)
    acknowledge_all(subject, 1)
    aborted, abandon, failure = subject.not_published(1, LOST, 11.0)
    assert isinstance(aborted, NotifyAborted)
    assert len(abandon.snapshots) == 3
    assert isinstance(failure, FailJob)


@pytest.mark.parametrize("state", [RegionState.RESTARTING, RegionState.FINISHED])
def test_none_is_taken_while_no_pipeline_can_take_part(state):
    subject = coordinator()
    assert subject.look(50.0, 0.0, {0: region(state)}) == ([], None)
    assert trigger(subject, 51.0).barrier.checkpoint_id == 1


def test_a_request_is_answered_without_waiting_for_the_interval():
    subject = coordinator()
    assert subject.is_idle
    subject.request(SnapshotRequest())
    assert not subject.is_idle
    assert trigger(subject, 1.0).barrier.checkpoint_id == 1
    acknowledge = acknowledge_all(subject, 1)
    subject.published(acknowledge[0].checkpoint, 1.5, RUNNING)
    assert subject.is_idle


# --- savepoints of jobs whose sinks commit ------------------------------------------------------


def begun_savepoint(subject, now=10.0):
    """A savepoint that waits for the next checkpoint, and that checkpoint, both triggered."""
    request = SnapshotRequest(BarrierKind.SAVEPOINT, TARGET, name="user", awaits_next=True)
    assert subject.request(request)
    (savepoint, checkpoint), _ = subject.look(now, 1000 + now, RUNNING)
    assert savepoint.barrier.kind is BarrierKind.SAVEPOINT
    assert checkpoint.barrier.kind is BarrierKind.CHECKPOINT
    return savepoint.barrier.checkpoint_id, checkpoint.barrier.checkpoint_id


def published_ids(instructions):
    return [each.checkpoint.checkpoint_id for each in instructions if isinstance(each, Publish)]


def test_a_savepoint_is_published_when_the_checkpoint_after_it_is_complete():
    subject = coordinator(max_concurrent=1)
    savepoint, checkpoint = begun_savepoint(subject, 1.0)
    assert acknowledge_all(subject, savepoint) == []
    (publish,) = acknowledge_all(subject, checkpoint)
    assert published_ids(subject.published(publish.checkpoint, 2.0, RUNNING)) == [savepoint]


def test_a_savepoint_that_is_slower_than_the_checkpoint_after_it_is_not_aborted():
    subject = coordinator()
    savepoint, checkpoint = begun_savepoint(subject, 1.0)
    (publish,) = acknowledge_all(subject, checkpoint)
    (notify,) = subject.published(publish.checkpoint, 2.0, RUNNING)
    assert isinstance(notify, NotifyComplete)
    assert published_ids(acknowledge_all(subject, savepoint)) == [savepoint]


def test_a_failure_before_the_checkpoint_after_it_leaves_nothing_of_a_savepoint():
    subject = coordinator()
    savepoint, checkpoint = begun_savepoint(subject, 1.0)
    acknowledge_all(subject, savepoint)
    instructions = subject.region_failed(2.0)
    abandoned = [each for each in instructions if isinstance(each, Abandon)]
    assert [each.checkpoint_id for each in abandoned] == [savepoint, checkpoint]
    assert abandoned[0].savepoint == TARGET
    assert published_ids(complete(subject, 11.0)) == []


def test_a_savepoint_whose_checkpoint_fails_waits_for_the_next_one():
    subject = coordinator(tolerable_failures=1)
    savepoint, checkpoint = begun_savepoint(subject, 1.0)
    acknowledge_all(subject, savepoint)
    subject.declined(decline(checkpoint, EVERYBODY[0]), 2.0)
    assert published_ids(complete(subject, 10.0)) == [savepoint]


def test_a_savepoint_that_waits_in_vain_is_aborted_after_its_timeout():
    subject = coordinator(tolerable_failures=9, interval=timedelta(hours=1))
    savepoint, checkpoint = begun_savepoint(subject, 1.0)
    acknowledge_all(subject, savepoint)
    subject.declined(decline(checkpoint, EVERYBODY[0]), 2.0)
    instructions, _ = subject.look(61.0, 0.0, RUNNING)
    assert [each.checkpoint_id for each in instructions] == [savepoint, savepoint]


# --- stops and drains ---------------------------------------------------------------------------


def stop(subject, *, drains=False):
    subject.request(SnapshotRequest(BarrierKind.STOP, drains=drains, name="stop"))
    return trigger(subject, 1.0).barrier.checkpoint_id


def test_what_is_aborted_before_the_store_is_ready_is_not_sent():
    subject = coordinator()
    number = stop(subject)
    subject.region_failed(2.0)
    assert not subject.begun(number)


ABORTS = {
    "declined": lambda subject, number: subject.declined(decline(number, EVERYBODY[0]), 2.0),
    "expired": lambda subject, number: subject.look(61.0, 0.0, BUSY)[0],
    "region failed": lambda subject, number: subject.region_failed(2.0),
    "not published": lambda subject, number: (
        acknowledge_all(subject, number) and subject.not_published(number, LOST, 2.0)
    ),
}


@pytest.mark.parametrize("abort", ABORTS.values(), ids=ABORTS)
def test_a_drain_that_is_aborted_sends_its_pipelines_back_and_says_so(abort):
    subject = coordinator()
    number = stop(subject, drains=True)
    assert subject.begun(number)
    aborted, _, back = abort(subject, number)
    assert aborted.reason.endswith("the job resumes from its start, because some inputs have ended")
    assert back == GoBack(frozenset({0}))


def test_a_drain_goes_back_to_the_last_checkpoint():
    subject = coordinator()
    complete(subject, 10.0)
    subject.begun(stop(subject, drains=True))
    aborted, *_ = subject.region_failed(12.0)
    assert "the job resumes from its last checkpoint" in aborted.reason


@pytest.mark.parametrize("abort", ABORTS.values(), ids=ABORTS)
def test_a_stop_that_ends_no_input_is_aborted_where_it_is(abort):
    subject = coordinator()
    number = stop(subject)
    assert subject.begun(number)
    assert [type(each) for each in abort(subject, number)] == [NotifyAborted, Abandon]


def test_a_drain_that_was_not_sent_has_ended_nothing():
    subject = coordinator()
    number = stop(subject, drains=True)
    instructions = subject.not_begun(number, LOST, 2.0)
    assert [type(each) for each in instructions] == [NotifyAborted, Abandon]


# --- pipelines that have ended ------------------------------------------------------------------


def saved_end(subject, regions, now=1.0):
    """All subtasks have ended, and a checkpoint that says so is complete."""
    (asked,), _ = subject.look(now, 0.0, regions)
    number = asked.barrier.checkpoint_id
    for each in EVERYBODY:
        last = acknowledgement(number, each, number, attempt=1, is_finished=True)
        instructions = subject.acknowledged(last, 0.0)
    subject.published(instructions[0].checkpoint, now, regions)
    return number


def test_a_pipeline_that_has_ended_is_finished_once_all_its_slots_know_that_it_is_saved():
    subject, regions = coordinator(), {0: region(ended=True)}
    number = saved_end(subject, regions)
    assert subject.look(2.0, 0.0, regions) == ([], None)
    subject.heard(0, 1, number, 0)
    subject.heard(0, 0, number, 1)
    assert subject.look(2.0, 0.0, regions) == ([], None), "slot 1 was heard of an older attempt"
    subject.heard(0, 1, number, 1)
    assert subject.look(2.0, 0.0, regions) == ([Finish(0)], 2.0)


def test_the_end_of_an_older_attempt_is_forgotten():
    subject, regions = coordinator(), {0: region(ended=True)}
    number = saved_end(subject, regions)
    regions[0].attempt = 2
    for slot in (0, 1):
        subject.heard(0, 1, number, slot)
    (again,), _ = subject.look(9.0, 0.0, regions)
    assert isinstance(again, TriggerCheckpoint)


def ended_acks(subject, number):
    results = [
        subject.acknowledged(replace(ack(number, each), is_finished=True), 2000.0)
        for each in EVERYBODY
    ]
    return [instruction for found in results for instruction in found]


def test_an_end_is_not_saved_while_sinks_have_prepared_for_a_later_checkpoint():
    subject, regions = coordinator(max_concurrent=2), {0: region()}
    earlier, later = trigger(subject, 10.0).barrier, trigger(subject, 20.0).barrier
    regions[0].some_ended = regions[0].all_ended = True
    (publish,) = ended_acks(subject, earlier.checkpoint_id)
    subject.published(publish.checkpoint, 21.0, regions)
    for slot in (0, 1):
        subject.heard(0, 1, earlier.checkpoint_id, slot)
    (publish,) = ended_acks(subject, later.checkpoint_id)
    assert subject.look(21.0, 0.0, regions)[0] == []
    subject.published(publish.checkpoint, 22.0, regions)
    for slot in (0, 1):
        subject.heard(0, 1, later.checkpoint_id, slot)
    assert subject.look(22.0, 0.0, regions)[0] == [Finish(0)]


def test_what_a_later_checkpoint_that_is_aborted_has_prepared_is_saved_by_one_more():
    subject, regions = coordinator(max_concurrent=2, tolerable_failures=9), {0: region()}
    earlier, later = trigger(subject, 10.0).barrier, trigger(subject, 20.0).barrier
    regions[0].some_ended = regions[0].all_ended = True
    subject.declined(decline(later.checkpoint_id, EVERYBODY[0]), 20.5)
    (publish,) = ended_acks(subject, earlier.checkpoint_id)
    subject.published(publish.checkpoint, 21.0, regions)
    (final,), _ = subject.look(21.0, 0.0, regions)
    assert isinstance(final, TriggerCheckpoint)


def test_the_final_checkpoint_is_asked_for_again_after_a_pause():
    subject, regions = coordinator(tolerable_failures=9), {0: region(ended=True)}
    (asked,), _ = subject.look(1.0, 0.0, regions)
    subject.declined(decline(asked.barrier.checkpoint_id, EVERYBODY[0]), 1.0)
    assert subject.look(1.4, 0.0, regions)[0] == []
    assert isinstance(subject.look(1.5, 0.0, regions)[0][0], TriggerCheckpoint)


def test_the_final_checkpoint_does_not_wait_for_a_savepoint_that_itself_waits_for_one():
    subject, regions = coordinator(tolerable_failures=9), {0: region(ended=True)}
    savepoint, checkpoint = begun_savepoint(subject, 1.0)
    acknowledge_all(subject, savepoint)
    subject.declined(decline(checkpoint, EVERYBODY[0]), 1.0)
    (asked,), _ = subject.look(2.0, 0.0, regions)
    assert asked.barrier.kind is BarrierKind.CHECKPOINT


def test_checkpoints_overlap_again_when_the_pipeline_that_ended_has_finished():
    subject = coordinator(max_concurrent=2)
    regions = {0: region(), 1: region(ended=True, pipeline=1)}
    trigger(subject, 10.0)
    assert subject.look(20.0, 0.0, regions)[0] == []
    regions[1].state = RegionState.FINISHED
    assert isinstance(subject.look(20.0, 0.0, regions)[0][0], TriggerCheckpoint)


def test_slots_that_do_not_commit_the_end_in_time_fail_the_job():
    subject, regions = coordinator(), {0: region(ended=True)}
    number = saved_end(subject, regions)
    subject.heard(0, 1, number, 0)
    assert subject.look(60.9, 0.0, regions)[0] == []
    ((failure,), _) = subject.look(61.0, 0.0, regions)
    assert "slot 1: functions and sinks have not completed within 60 s" in str(failure.cause)


def test_without_checkpoints_a_pipeline_is_finished_when_its_last_step_is_through():
    subject, regions = coordinator(interval=None), {0: region(ended=True)}
    regions[0].step_in_flight = 7
    assert subject.look(1.0, 0.0, regions) == ([], None)
    regions[0].step_in_flight = None
    assert subject.look(1.0, 0.0, regions) == ([Finish(0)], 1.0)


def test_a_pipeline_is_not_finished_while_a_savepoint_waits_for_it():
    subject, regions = coordinator(interval=None), {0: region()}
    subject.request(SnapshotRequest(BarrierKind.SAVEPOINT, TARGET))
    number = trigger(subject, 1.0).barrier.checkpoint_id
    regions[0].all_ended = True
    assert subject.look(2.0, 0.0, regions)[0] == []
    acknowledge_all(subject, number)
    assert subject.look(2.0, 0.0, regions)[0] == [Finish(0)]


def test_a_pipeline_that_drains_is_not_finished_before_its_savepoint_is_there():
    subject, regions = coordinator(interval=None), {0: region()}
    number = stop(subject, drains=True)
    regions[0].all_ended = True
    assert subject.look(2.0, 0.0, regions)[0] == []
    assert published_ids(acknowledge_all(subject, number)) == [number]
    assert subject.look(2.0, 0.0, regions)[0] == []


def test_a_stop_that_cannot_begin_because_subtasks_have_ended_keeps_nobody_from_finishing():
    subject = coordinator(after_tasks_finish=False)
    subject.request(SnapshotRequest(BarrierKind.STOP, name="stop"))
    assert subject.look(1.0, 0.0, {0: region(ended=True)}) == ([Finish(0)], 1.0)


def test_a_pipeline_that_is_restored_from_the_stop_has_ended():
    subject, regions = coordinator(), {0: region()}
    number = stop(subject)
    (publish,) = acknowledge_all(subject, number)
    subject.published(publish.checkpoint, 2.0, regions)
    assert subject.look(3.0, 0.0, regions)[0] == [], "its slots have not committed"
    regions[0].attempt = 2
    assert subject.look(3.0, 0.0, regions)[0] == [Finish(0)]


def test_a_publication_whose_result_stays_unknown_stops_the_job_and_is_not_asked_for_before():
    subject = coordinator()
    trigger(subject, 10.0)
    acknowledge_all(subject, 1)
    assert subject.look(70.0, 0.0, RUNNING) == ([], 130.0)
    ((stopped,), _) = subject.look(130.0, 0.0, RUNNING)
    assert isinstance(stopped, StopJob)
    assert "that checkpoint 1 is written" in str(stopped.cause)
