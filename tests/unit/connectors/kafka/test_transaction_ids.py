from tidegate.connectors.kafka.transaction_ids import TransactionalIdNames, TransactionalIds

NAMES = TransactionalIdNames("shop", "job-1", "5c81")


def ids(resting=()):
    return TransactionalIds(NAMES, 3, resting)


def test_a_name_tells_job_operator_subtask_and_number():
    assert NAMES.name(3, 0) == "shop-job-1-5c81-3-0"
    assert NAMES.subtask_of("shop-job-1-5c81-12-7") == 12


def test_ids_of_others_have_no_subtask():
    for other in ("shop-job-2-5c81-3-0", "shop-job-1-5c81-3", "shop-job-1-5c81-3-x", "3-0"):
        assert NAMES.subtask_of(other) is None


def test_an_id_is_taken_once():
    pool = ids()
    assert [pool.take(), pool.take()] == [NAMES.name(3, 0), NAMES.name(3, 1)]


def test_an_id_is_used_again_when_a_later_checkpoint_than_its_own_is_complete():
    pool = ids()
    first = pool.take()
    pool.prepared(first, 1)
    assert pool.complete(1) == [first]
    second = pool.take()
    assert second != first
    pool.prepared(second, 2)
    assert pool.complete(2) == [second]
    assert pool.take() == first


def test_to_hear_of_a_checkpoint_twice_changes_nothing():
    pool = ids()
    first = pool.take()
    pool.prepared(first, 1)
    pool.complete(1)
    assert pool.complete(1) == []
    assert pool.take() != first


def test_a_transaction_of_an_aborted_checkpoint_waits_for_the_next():
    pool = ids()
    one, other = pool.take(), pool.take()
    pool.prepared(one, 1)
    pool.prepared(other, 2)
    assert pool.complete(2) == [one, other]


def test_what_the_restored_checkpoint_holds_rests_until_another_one_is_complete():
    pool = ids(resting=[NAMES.name(3, 0)])
    assert pool.take() == NAMES.name(3, 1)
    pool.complete(9)
    assert pool.take() == NAMES.name(3, 0)


def test_steady_checkpoints_need_three_ids():
    pool = ids()
    used = set()
    for checkpoint in range(1, 50):
        taken = pool.take()
        used.add(taken)
        pool.prepared(taken, checkpoint)
        pool.complete(checkpoint)
    assert len(used) <= 3
