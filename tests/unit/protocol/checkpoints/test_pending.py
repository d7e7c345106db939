import pytest

from tests.played_jobs import acknowledgement, finished_in, played_job, snapshot, states_of
from tidegate.core.errors import ProtocolViolation
from tidegate.core.ids import SubtaskId
from tidegate.protocol.checkpoints.pending import (
    AbortReason,
    AckResult,
    PendingCheckpoint,
    PendingState,
)
from tidegate.protocol.plan import CheckpointPlan
from tidegate.stream.elements import Barrier

A, B, GONE = SubtaskId(0, 0), SubtaskId(1, 0), SubtaskId(2, 0)
PLAN = CheckpointPlan(frozenset({A}), {A: 2, B: 2}, frozenset({GONE}))


JOB = played_job([1, 1, 1])


def ack(subtask, *, number=5, attempt=2, finished=False):
    return acknowledgement(number, subtask, "file", attempt=attempt, is_finished=finished)


@pytest.fixture
def pending():
    return PendingCheckpoint(Barrier(5, 100.0), PLAN, deadline=160.0)


@pytest.fixture
def full(pending):
    pending.acknowledge(ack(A))
    pending.acknowledge(ack(B, finished=True))
    return pending


def test_a_checkpoint_is_ready_when_all_have_acknowledged(pending):
    assert pending.acknowledge(ack(A)) is AckResult.ACCEPTED
    assert (pending.missing, pending.is_ready) == ({B}, False)
    assert pending.acknowledge(ack(B)) is AckResult.ACCEPTED
    assert (pending.missing, pending.is_ready) == (frozenset(), True)


def test_the_same_acknowledgement_again_is_a_duplicate(pending):
    pending.acknowledge(ack(A))
    assert pending.acknowledge(ack(A)) is AckResult.DUPLICATE
    assert pending.missing == {B}


@pytest.mark.parametrize("stranger", [ack(GONE), ack(SubtaskId(9, 9)), ack(A, attempt=1)])
def test_only_those_of_the_plan_count_and_only_under_their_attempt(pending, stranger):
    assert pending.acknowledge(stranger) is AckResult.UNKNOWN_SUBTASK
    assert pending.missing == {A, B}


def test_an_acknowledgement_of_another_checkpoint_is_a_violation(pending):
    with pytest.raises(ProtocolViolation, match="got an acknowledgement of checkpoint 6"):
        pending.acknowledge(ack(A, number=6))


def test_what_is_published_names_every_snapshot_and_all_that_finished(full):
    checkpoint = full.begin_publication(JOB, 123.0)
    assert states_of(checkpoint) == {A: "file", B: "file"}
    assert finished_in(checkpoint) == {B, GONE}
    assert (checkpoint.metadata.triggered_at, checkpoint.metadata.completed_at) == (100.0, 123.0)
    full.published()
    assert full.state is PendingState.COMPLETED


def test_nothing_is_published_while_somebody_is_missing(pending):
    pending.acknowledge(ack(A))
    with pytest.raises(ProtocolViolation, match=r"1 subtask\(s\) have not acknowledged it"):
        pending.begin_publication(JOB, 0.0)


def test_a_publication_begins_once(full):
    full.begin_publication(JOB, 0.0)
    assert not full.is_ready
    with pytest.raises(ProtocolViolation, match="cannot go from PUBLISHING to PUBLISHING"):
        full.begin_publication(JOB, 0.0)


def test_an_aborted_checkpoint_returns_what_was_written_once(pending):
    pending.acknowledge(ack(A))
    assert pending.abort(AbortReason.DECLINED) == (snapshot(A, "file"),)
    assert pending.abort_reason is AbortReason.DECLINED
    assert pending.abort(AbortReason.EXPIRED) is None
    assert pending.abort_reason is AbortReason.DECLINED


def test_nothing_is_aborted_while_the_result_of_a_publication_is_unknown(full):
    full.begin_publication(JOB, 0.0)
    assert full.abort(AbortReason.REGION_FAILED) is None
    assert full.abort(AbortReason.EXPIRED) is None
    assert full.state is PendingState.PUBLISHING


def test_a_publication_that_certainly_did_not_happen_leaves_everything_to_be_deleted(full):
    full.begin_publication(JOB, 0.0)
    assert full.not_published() == (snapshot(A, "file"), snapshot(B, "file"))
    assert full.abort_reason is AbortReason.STORAGE


def test_a_checkpoint_that_is_not_being_published_cannot_fail_to_be(pending):
    with pytest.raises(ProtocolViolation, match="checkpoint 5 is COLLECTING"):
        pending.not_published()


def test_failures_of_the_checkpoint_itself_count_and_others_do_not():
    assert {reason for reason in AbortReason if reason.counts} == {
        AbortReason.DECLINED,
        AbortReason.EXPIRED,
        AbortReason.STORAGE,
    }
