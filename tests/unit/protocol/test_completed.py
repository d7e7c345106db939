from tidegate.core.modes import SavepointFormat
from tidegate.protocol.completed import CompletedCheckpoint, RetainedCheckpoints
from tidegate.stream.elements import BarrierKind, SavepointTarget

TARGET = SavepointTarget("/savepoints", "savepoint-1", SavepointFormat.CANONICAL)


def completed(number, kind=BarrierKind.CHECKPOINT, savepoint=None):
    return CompletedCheckpoint(
        checkpoint_id=number,
        kind=kind,
        triggered_at=0.0,
        completed_at=1.0,
        snapshots={},
        enumerators={},
        finished=frozenset(),
        size=0,
        savepoint=savepoint,
    )


def test_the_newest_checkpoints_are_kept():
    retained = RetainedCheckpoints(2)
    assert retained.latest is None
    assert [retained.add(completed(n)) for n in (1, 2, 3)] == [(), (), (completed(1),)]
    assert retained.kept == (completed(2), completed(3))
    assert retained.latest == completed(3)


def test_an_older_checkpoint_that_completes_after_a_newer_one_does_not_become_the_latest():
    retained = RetainedCheckpoints(1)
    retained.add(completed(2))
    assert retained.add(completed(1)) == (completed(1),)
    assert retained.latest == completed(2)


def test_a_savepoint_is_no_point_of_recovery_and_subsumes_nothing():
    retained = RetainedCheckpoints(1)
    retained.add(completed(1))
    assert retained.add(completed(2, BarrierKind.SAVEPOINT, TARGET)) == ()
    assert retained.latest == completed(1)


def test_the_savepoint_of_a_stop_is_the_last_word_and_is_never_discarded():
    retained = RetainedCheckpoints(1)
    retained.add(completed(1))
    stop = completed(2, BarrierKind.STOP, TARGET)
    assert retained.add(stop) == (completed(1),)
    assert retained.latest == stop
    assert retained.add(completed(3)) == ()


def test_the_checkpoint_of_a_stop_behind_which_the_job_goes_on_is_one_as_others():
    retained = RetainedCheckpoints(1)
    stop = completed(2, BarrierKind.STOP)
    retained.add(stop)
    assert retained.add(completed(3)) == (stop,)
