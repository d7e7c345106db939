import pytest

from tests.played_jobs import played_job
from tidegate.core.modes import SavepointFormat
from tidegate.protocol.assembly import assemble
from tidegate.protocol.checkpoints.retained import RetainedCheckpoints
from tidegate.stream.elements import Barrier, BarrierKind, SavepointTarget, SnapshotRequest

TARGET = SavepointTarget("/savepoints", "savepoint-1", SavepointFormat.CANONICAL)
JOB = played_job([1])


def completed(number, kind=BarrierKind.CHECKPOINT, savepoint=None):
    barrier = Barrier(number, 0.0, SnapshotRequest(kind, savepoint))
    return assemble(JOB, barrier, {}, {}, frozenset(), 1.0)


def keep(retained, *checkpoints):
    """Adds them one by one; returns what is discarded."""
    discarded = []
    for each in checkpoints:
        retained.add(each)
        discarded += retained.trim()
    return discarded


def test_the_newest_checkpoints_are_kept():
    retained = RetainedCheckpoints(2)
    assert retained.restore_point is None
    assert keep(retained, *map(completed, (1, 2, 3))) == [completed(1)]
    assert retained.own == (completed(2), completed(3))
    assert retained.restore_point == completed(3)


def test_an_older_checkpoint_that_completes_after_a_newer_one_does_not_become_the_latest():
    retained = RetainedCheckpoints(1)
    assert keep(retained, completed(2), completed(1)) == [completed(1)]
    assert retained.restore_point == completed(2)


def test_a_savepoint_is_no_point_of_recovery_and_subsumes_nothing():
    retained = RetainedCheckpoints(1)
    assert keep(retained, completed(1), completed(2, BarrierKind.SAVEPOINT, TARGET)) == []
    assert retained.restore_point == completed(1)


def test_the_savepoint_of_a_stop_is_the_last_word_and_is_never_discarded():
    retained = RetainedCheckpoints(1)
    stop = completed(2, BarrierKind.STOP, TARGET)
    assert keep(retained, completed(1), stop) == [completed(1)]
    assert retained.restore_point == stop
    assert retained.own == ()
    assert keep(retained, completed(3)) == []


def test_the_checkpoint_of_a_stop_after_which_the_job_continues_is_one_like_others():
    retained = RetainedCheckpoints(1)
    stop = completed(2, BarrierKind.STOP)
    retained.add(stop, ends_the_job=True)
    assert retained.stop_point == stop
    assert keep(retained, completed(3)) == [stop]


def test_what_an_earlier_run_left_beyond_the_limit_is_discarded_at_the_start():
    retained = RetainedCheckpoints(1, own=[completed(2), completed(1)])
    assert retained.trim() == (completed(1),)
    assert retained.trim() == ()


def test_a_job_starts_from_the_best_origin_until_it_has_a_checkpoint_of_its_own():
    retained = RetainedCheckpoints(1, origins=[completed(1), completed(2)])
    assert retained.restore_point == completed(2)
    retained.add(completed(7))
    assert retained.restore_point == completed(7)


@pytest.mark.parametrize("claims", [False, True])
def test_what_a_job_claimed_is_replaced_by_its_first_checkpoint(claims):
    retained = RetainedCheckpoints(1, origins=[completed(1)], claims=claims)
    assert retained.add(completed(2, BarrierKind.SAVEPOINT, TARGET)) == ()
    assert retained.add(completed(3)) == ((completed(1),) if claims else ())
    assert retained.add(completed(4)) == ()


def test_an_unreadable_checkpoint_is_never_gone_back_to():
    retained = RetainedCheckpoints(2, own=[completed(5), completed(6)], origins=[completed(4)])
    retained.drop(6)
    assert retained.restore_point == completed(5)
    retained.drop(5)
    assert retained.restore_point == completed(4)
    retained.drop(4)
    assert retained.restore_point is None


def test_a_checkpoint_that_is_not_kept_cannot_be_dropped():
    retained = RetainedCheckpoints(1)
    keep(retained, completed(1))
    retained.drop(2)
    assert retained.restore_point == completed(1)
