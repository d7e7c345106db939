"""What happens to processes, played with threads: a slot that may be replaced does nothing more."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest

from tests.jobs import CHECKPOINTS, Job
from tests.programs import apply, graph_of, read, wait_until
from tidegate.operators.endpoints.two_phase_commit import (
    TwoPhaseCommitOperator,
    TwoPhaseCommitSinkFunction,
)
from tidegate.testing.mini_cluster import MiniCluster

RECORDS = 2_000
SETTINGS = {
    **CHECKPOINTS,
    "heartbeat.interval": "20 ms",
    "heartbeat.timeout": "400 ms",
    "restart-strategy": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": 10**6,
    "restart-strategy.fixed-delay.delay": "1 ms",
}


class Ledger(TwoPhaseCommitSinkFunction):
    """Writes down who does what, and tells the test before it is done."""

    entries: ClassVar[list[tuple[int, str]]] = []
    rows: ClassVar[dict[int, list[int]]] = {}
    committed: ClassVar[set[int]] = set()
    before: ClassVar[Callable[[int, str], None]]

    def note(self, what):
        Ledger.before(self.attempt, what)
        self.entries.append((self.attempt, what))

    def open(self, runtime_context):
        self.attempt = runtime_context.get_attempt_number()
        self.note("open")

    def begin_transaction(self):
        self.note("begin")
        number = len(self.rows)
        self.rows[number] = []
        return number

    def invoke(self, transaction, value, context):
        self.rows[transaction].append(value)

    def pre_commit(self, transaction):
        self.note("prepare")

    def commit(self, transaction):
        self.note("commit")
        self.committed.add(transaction)

    def abort(self, transaction):
        self.note("abort")

    def close(self):
        self.note("close")


@pytest.fixture
def cluster():
    Ledger.entries.clear()
    Ledger.rows.clear()
    Ledger.committed.clear()
    Ledger.before = staticmethod(lambda attempt, what: None)
    return MiniCluster(heartbeat_seconds=0.02)


@pytest.fixture
def job(cluster):
    graph = graph_of(apply(TwoPhaseCommitOperator(Ledger()), read(range(RECORDS))))
    jobs = []

    def start():
        jobs.append(Job(graph, SETTINGS, cluster))
        return jobs[0]

    yield start
    jobs[0].cancel()


def once_before(wanted, act):
    """Do something when the first attempt is about to do this for the second time."""
    seen = []

    def before(attempt, what):
        seen.append((attempt, what))
        if what == wanted and seen.count((seen[0][0], what)) == 2:
            Ledger.before = staticmethod(lambda attempt, what: None)
            act()

    Ledger.before = staticmethod(before)


def attempts():
    """Of whoever did something, in the order in which it was done."""
    return [attempt for attempt, _ in Ledger.entries]


def each_once():
    rows = [row for number in Ledger.committed for row in Ledger.rows[number]]
    return sorted(rows) == list(range(RECORDS))


@pytest.mark.parametrize("moment", ["begin", "prepare", "commit"])
def test_a_slot_that_is_cut_off_does_nothing_once_its_successor_is_there(cluster, job, moment):
    once_before(moment, lambda: cluster.cut(0))
    running = job()
    running.result()
    assert len(set(attempts())) > 1
    assert attempts() == sorted(attempts())
    assert each_once()


@pytest.mark.parametrize("moment", ["begin", "prepare", "commit"])
def test_a_slot_that_wakes_up_beside_its_successor_does_nothing_more(cluster, job, moment):
    wake = []

    def freeze_unnoticed():
        cluster.cut(0)
        wake.append(cluster.pause(0))

    once_before(moment, freeze_unnoticed)
    running = job()
    wait_until(lambda: len(set(attempts())) > 1)
    wake[0]()
    running.result()
    assert attempts() == sorted(attempts())
    assert each_once()


def test_a_slot_that_is_killed_closes_nothing(cluster, job):
    running = job()
    wait_until(lambda: running.latest)
    cluster.kill(0)
    running.result()
    first = attempts()[0]
    assert (first, "abort") not in Ledger.entries
    assert (first, "close") not in Ledger.entries
    assert each_once()
