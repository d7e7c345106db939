from datetime import timedelta

import pytest

from tidegate.core.errors import LeaseEnded, UserFunctionError
from tidegate.operators.endpoints.two_phase_commit import (
    TwoPhaseCommitOperator,
    TwoPhaseCommitSinkFunction,
)
from tidegate.testing.harness import OperatorHarness


class Bank:
    """An outside system: it outlives every attempt."""

    def __init__(self):
        self.open = {}
        self.prepared = {}
        self.visible = []
        self.aborted = []
        self.commits = []
        self.refuses = False

    def names(self, transactions):
        return sorted(transactions)


BANK = Bank()


@pytest.fixture(autouse=True)
def bank():
    BANK.__init__()
    return BANK


class Transfers(TwoPhaseCommitSinkFunction):
    def begin_transaction(self):
        name = f"t{len(BANK.open) + len(BANK.prepared) + len(BANK.aborted) + len(BANK.commits)}"
        BANK.open[name] = []
        return name

    def invoke(self, transaction, value, context):
        if value == "bad":
            raise ValueError(value)
        BANK.open[transaction].append(value)

    def pre_commit(self, transaction):
        BANK.prepared[transaction] = BANK.open.pop(transaction)

    def commit(self, transaction):
        if BANK.refuses:
            raise ConnectionError("the bank is closed")
        BANK.commits.append(transaction)
        BANK.visible += BANK.prepared.pop(transaction, [])

    def abort(self, transaction):
        BANK.aborted.append(transaction)
        BANK.open.pop(transaction, None)

    def initialize_user_context(self):
        return "opened in spring"


def opened(function=None, **settings):
    return OperatorHarness(TwoPhaseCommitOperator(function or Transfers()), **settings)


def test_records_become_visible_when_their_checkpoint_is_complete_and_only_then(bank):
    with opened() as harness:
        harness.process([1, 2])
        harness.snapshot()
        harness.process([3])
        assert (bank.visible, bank.names(bank.prepared)) == ([], ["t0"])
        harness.complete_checkpoint()
        assert bank.visible == [1, 2]
        assert bank.open == {"t1": [3]}


def test_a_completed_checkpoint_commits_what_earlier_ones_held_too(bank):
    with opened() as harness:
        harness.process([1])
        harness.snapshot()
        harness.abort_checkpoint()
        harness.process([2])
        harness.snapshot()
        harness.complete_checkpoint()
        assert bank.visible == [1, 2]


def test_a_restored_sink_commits_again_and_aborts_what_had_only_begun(bank):
    with opened() as harness:
        harness.process([1])
        snapshot = harness.snapshot()
        harness.complete_checkpoint()
        harness.process([2])
        with harness.restore(snapshot):
            assert bank.commits == ["t0", "t0"]
            assert bank.visible == [1]
            assert bank.aborted == ["t1"]


def test_a_sink_without_a_lease_commits_begins_and_aborts_nothing(bank):
    with opened() as harness:
        harness.process([1])
        snapshot = harness.snapshot()
        harness.process([2])
        harness.has_lease = False
        for act in (
            harness.complete_checkpoint,
            harness.snapshot,
            lambda: opened(restore_from=[snapshot], has_lease=False),
            lambda: opened(has_lease=False),
        ):
            with pytest.raises(LeaseEnded):
                act()
    assert (bank.commits, bank.aborted) == ([], [])
    assert bank.open == {}, "what was prepared meanwhile is there, and nothing was begun"


def test_a_closed_sink_aborts_its_open_transaction_and_nothing_else(bank):
    with opened() as harness:
        harness.process([1])
        harness.snapshot()
    assert bank.aborted == ["t1"]
    assert bank.names(bank.prepared) == ["t0"]


def test_without_checkpoints_the_end_of_the_input_commits(bank):
    with opened(is_checkpointed=False) as harness:
        harness.process([1])
        harness.finish()
        assert bank.visible == [1]
    assert bank.aborted == []


def test_without_checkpoints_the_end_of_the_input_commits_what_savepoints_held_too(bank):
    with opened(is_checkpointed=False) as harness:
        harness.process([1])
        harness.snapshot()
        harness.process([2])
        harness.finish()
        assert bank.visible == [1, 2]
        assert not bank.prepared


def test_with_checkpoints_the_end_of_the_input_waits_for_the_last_one(bank):
    with opened() as harness:
        harness.process([1])
        harness.finish()
        assert bank.visible == []
        harness.snapshot()
        harness.complete_checkpoint()
        assert bank.visible == [1]


def test_the_user_context_is_restored(bank):
    with opened() as harness:
        assert harness.operator.function.user_context == "opened in spring"
        harness.operator.function.user_context = "closed in autumn"
        snapshot = harness.snapshot()
        with harness.restore(snapshot) as restored:
            assert restored.operator.function.user_context == "closed in autumn"


def test_pending_transactions_follow_when_the_parallelism_changes(bank):
    first, second = opened(subtask=0, parallelism=2), opened(subtask=1, parallelism=2)
    first.process([1])
    second.process([2])
    snapshots = [first.snapshot(), second.snapshot()]
    with first.restore(*snapshots, parallelism=1):
        assert sorted(bank.visible) == [1, 2]


def test_a_commit_that_fails_is_the_users_failure(bank):
    with opened() as harness:
        harness.process([1])
        harness.snapshot()
        bank.refuses = True
        with pytest.raises(UserFunctionError, match="the bank is closed"):
            harness.complete_checkpoint()
        bank.refuses = False
        harness.complete_checkpoint()
        assert bank.visible == [1]


def test_a_failing_record_is_named(bank):
    with opened() as harness, pytest.raises(UserFunctionError, match="record 'bad'"):
        harness.process([1, "bad", 2])


def test_a_transaction_close_to_its_timeout_is_warned_of(bank):
    function = Transfers()
    function.set_transaction_timeout(timedelta(seconds=10))
    function.enable_transaction_timeout_warnings(0.5)
    with opened(function) as harness:
        harness.snapshot()
        harness.advance(4)
        harness.snapshot()
        assert harness.console == []
        harness.advance(2)
        harness.snapshot()
        assert "close to its timeout of 0:00:10" in harness.console[0]


def test_a_transaction_that_the_external_system_aborted_can_be_ignored(bank):
    function = Transfers()
    function.set_transaction_timeout(10_000)
    function.ignore_failures_after_transaction_timeout()
    with opened(function) as harness:
        harness.process([1])
        harness.snapshot()
        bank.refuses = True
        harness.advance(11)
        harness.complete_checkpoint()
        assert "has timed out and is lost" in harness.console[-1]
