"""What a subtask that has ended still owes: to commit what it prepared, and to keep its state."""

import threading
import uuid

import pytest

from tests.jobs import (
    CHECKPOINTS,
    RESTARTS,
    Sums,
    Watched,
    fail_once,
    key_of,
    on_disk,
    pairs,
)
from tests.programs import PATIENCE, apply, collected, keyed, mapped, read, wait_until
from tests.taps import Tap
from tidegate.connectors.driver_side import CollectSink
from tidegate.connectors.files.encodings import Encoder
from tidegate.connectors.files.sink import FileSink
from tidegate.connectors.sink import Committer, CommittingWriter, SupportsCommitter
from tidegate.core.errors import TidegateError
from tidegate.operators.checkpointed import CheckpointedFunction, CheckpointListener
from tidegate.operators.endpoints.operators import SinkFunctionOperator, SinkOperator
from tidegate.operators.endpoints.two_phase_commit import (
    TwoPhaseCommitOperator,
    TwoPhaseCommitSinkFunction,
)
from tidegate.operators.functions import SinkFunction
from tidegate.operators.keyed import KeyedMapOperator
from tidegate.protocol.job_status import JobStatus
from tidegate.state.descriptors import ListStateDescriptor
from tidegate.state.keys.selection import select_key
from tidegate.stream.elements import BarrierKind

SETTINGS = {**CHECKPOINTS, **RESTARTS}
WHOLE_SPLITS = {**SETTINGS, "tidegate.step.max-records": 1000}
"""A split is read and ends within a step, so that no checkpoint holds some of it."""
ONLY_AT_THE_END = {**SETTINGS, "execution.checkpointing.interval": "1 h"}
NO_RESTART = {"restart-strategy": "none"}
PATH = "execution.state-recovery.path"


class Bank:
    """An outside system with transactions, which refuses some of the commits."""

    banks: dict[str, "Bank"] = {}  # noqa: RUF012 - slots find theirs by its name

    def __init__(self):
        self.name = uuid.uuid4().hex
        self.banks[self.name] = self
        self.open, self.prepared, self.committed = {}, {}, {}
        self.refusals = 0
        self.lock = threading.Lock()

    def begin(self):
        transaction = uuid.uuid4().hex
        self.open[transaction] = []
        return transaction

    def prepare(self, transaction):
        self.prepared[transaction] = self.open.pop(transaction)

    def commit(self, transaction):
        with self.lock:
            if self.refusals and self.prepared.get(transaction):
                self.refusals -= 1
                raise RuntimeError("the bank is closed")
            if transaction not in self.committed:
                self.committed[transaction] = self.prepared.pop(transaction)

    @property
    def visible(self):
        """What was committed, in order of its value."""
        return sorted(value for each in list(self.committed.values()) for value in each)


class Deposits:
    """A sink for a bank, which it finds in every process by its name."""

    def __init__(self, bank):
        self.name = bank.name

    @property
    def bank(self):
        return Bank.banks[self.name]


class Transfers(Deposits, TwoPhaseCommitSinkFunction):
    def begin_transaction(self):
        return self.bank.begin()

    def invoke(self, transaction, value, context):
        self.bank.open[transaction].append(value)

    def pre_commit(self, transaction):
        self.bank.prepare(transaction)

    def commit(self, transaction):
        self.bank.commit(transaction)

    def abort(self, transaction):
        self.bank.open.pop(transaction, None)


class Account(Deposits, SupportsCommitter):
    def create_writer(self, context):
        return Clerk(self.bank)

    def create_committer(self, context):
        return Cashier(self.bank)


class Clerk(CommittingWriter):
    def __init__(self, bank):
        self.bank = bank
        self.transaction = bank.begin()

    def write(self, batch):
        self.bank.open[self.transaction] += batch.records

    def prepare_commit(self):
        prepared, self.transaction = self.transaction, self.bank.begin()
        self.bank.prepare(prepared)
        return [prepared]


class Cashier(Committer):
    def __init__(self, bank):
        self.bank = bank

    def commit(self, committables):
        for each in committables:
            self.bank.commit(each)


class ByHand(Deposits, SinkFunction, CheckpointedFunction, CheckpointListener):
    """Two phases as a user writes them with nothing but the contracts of functions."""

    def initialize_state(self, context):
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("p"))
        for transaction in self.state.get():
            self.bank.commit(transaction)
        self.prepared = []
        self.current = self.bank.begin()

    def invoke(self, value, context):
        self.bank.open[self.current].append(value)

    def snapshot_state(self, context):
        self.bank.prepare(self.current)
        self.prepared.append(self.current)
        self.current = self.bank.begin()
        self.state.update(self.prepared)

    def notify_checkpoint_complete(self, checkpoint_id):
        while self.prepared:
            self.bank.commit(self.prepared[0])
            del self.prepared[0]


SINKS = {
    "function": lambda bank: TwoPhaseCommitOperator(Transfers(bank)),
    "committer": lambda bank: SinkOperator(Account(bank)),
    "by hand": lambda bank: SinkFunctionOperator(ByHand(bank)),
}


@pytest.fixture(params=list(SINKS))
def sink(request):
    return SINKS[request.param]


@pytest.fixture
def bank():
    return Bank()


def deposited(sink, bank, source, **settings):
    """A job in which sources and sinks are one chain: a subtask ends with its split."""
    operator = sink(bank)
    return apply(operator, read(source, uid="source"), is_sink=True, uid="sink", **settings)


@pytest.mark.parametrize("refusals", [1, 2])
def test_a_final_commit_that_fails_is_made_up_for_by_the_restart(start, sink, bank, refusals):
    bank.refusals = refusals
    job = start(deposited(sink, bank, range(100)), settings=ONLY_AT_THE_END)
    job.result()
    assert bank.refusals == 0
    assert bank.visible == list(range(100))


def test_what_a_subtask_that_ended_early_prepared_is_committed_after_a_failure(start, sink, bank):
    tap = Tap(range(100), range(100, 1000))
    job = start(deposited(sink, bank, tap), settings=WHOLE_SPLITS)
    tap.let_pass(500, stream=1)
    wait_until(lambda: len(bank.visible) == 500)
    bank.refusals = 1
    tap.let(100, stream=0)
    wait_until(lambda: not bank.refusals)
    tap.open()
    job.result()
    assert bank.visible == list(range(1000))
    assert tap.flow.reads[0] == 100, "no record is read again"


@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_job_that_died_in_its_final_commit_is_committed_by_the_next_one(
    start, sink, bank, tmp_path, parallelism
):
    settings = on_disk(tmp_path, **NO_RESTART, **{"execution.checkpointing.interval": "1 h"})
    tap = Tap(range(30), range(30, 100), is_open=True)
    bank.refusals = 10
    job = start(deposited(sink, bank, tap), settings=settings)
    job.fails(TidegateError)
    latest = {**settings, PATH: "latest"}
    job = start(deposited(sink, bank, tap), settings=latest, parallelism=parallelism)
    bank.refusals = 1
    job.fails(TidegateError)
    bank.refusals = 0
    start(deposited(sink, bank, tap), settings=latest, parallelism=parallelism).result()
    assert bank.visible == list(range(100))
    assert tap.reads == 100, "no record is read again"


def test_what_was_prepared_is_committed_when_a_job_with_an_ended_subtask_is_rescaled(
    start, sink, bank, tmp_path
):
    settings = on_disk(tmp_path, **NO_RESTART)
    tap = Tap(range(100), range(100, 1000))
    job = start(deposited(sink, bank, tap), settings=settings)
    job.wait_for_checkpoint()
    bank.refusals = 10**6
    tap.let(100, stream=0)
    tap.let(300, stream=1)
    job.fails(TidegateError)
    bank.refusals = 0
    tap.open()
    job = start(deposited(sink, bank, tap), settings={**settings, PATH: "latest"}, parallelism=3)
    job.result()
    assert bank.visible == list(range(1000))


def test_files_of_an_ended_job_become_visible_although_its_end_failed_at_first(
    start, watch, tmp_path
):
    fail_once(watch, "listener", "complete")
    numbers = mapped(Watched(watch, "listener"), read(range(100)))
    sink = apply(SinkOperator(FileSink(str(tmp_path), Encoder())), numbers, is_sink=True)
    start(sink, settings=ONLY_AT_THE_END).result()
    files = list(tmp_path.iterdir())
    assert not [path for path in files if path.name.startswith(".")]
    lines = [int(line) for path in files for line in path.read_text().split()]
    assert sorted(lines) == list(range(100))


@pytest.mark.parametrize("refusals", [1, 2])
def test_a_drained_job_whose_commit_fails_commits_when_it_is_deployed_again(
    start, sink, bank, tmp_path, refusals
):
    tap = Tap(range(100))
    job = start(deposited(sink, bank, tap), settings=ONLY_AT_THE_END)
    tap.let_pass(60)
    bank.refusals = refusals
    job.order(BarrierKind.STOP, tmp_path / "savepoints", drains=True).result(PATIENCE)
    job.result()
    assert job.status is JobStatus.FINISHED
    assert bank.visible == list(range(60))


class Remembers(Watched):
    """Has an element of its own in a list and in a union list, and tells what it is given."""

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.own = store.get_list_state(ListStateDescriptor("own"))
        self.all = store.get_union_list_state(ListStateDescriptor("all"))

    def open(self, runtime_context):
        super().open(runtime_context)
        self.did("list", list(self.own.get()))
        self.did("union", sorted(self.all.get()))

    def snapshot_state(self, context):
        self.own.update([f"of {self.subtask}"])
        self.all.update([f"of {self.subtask}"])
        super().snapshot_state(context)


def remembered(watch, tap):
    function = Remembers(watch, "remembers")
    return collected(mapped(function, read(tap, uid="source"), uid="remembers"), uid="sink")


def unions_of(watch, subtask):
    """What a subtask was given, each time it was opened."""
    events = [event for event in list(watch.events) if event.what == "union"]
    return [event.value for event in events if event.subtask == subtask]


def test_operator_state_of_an_ended_subtask_is_there_after_every_restore(start, watch, tmp_path):
    tap = Tap(range(10), range(100))
    settings = {**on_disk(tmp_path), **RESTARTS}
    job = start(remembered(watch, tap), settings=settings)
    tap.let_pass(10)
    for restarts in (1, 2):
        job.wait_for_checkpoint()
        job.wait_for_checkpoint()
        fail_once(watch, "remembers")
        tap.let(10 * restarts, stream=1)
        wait_until(lambda count=1 + restarts: len(unions_of(watch, subtask=1)) == count)
        assert unions_of(watch, subtask=1)[-1] == ["of 0", "of 1"]
    job.wait_for_checkpoint()
    job.cancel()
    tap.open()
    watch.events.clear()
    start(remembered(watch, tap), settings={**settings, PATH: "latest"}, parallelism=3).result()
    assert watch.values("remembers", "union") == [["of 0", "of 1"]] * 3
    assert sorted(watch.values("remembers", "list")) == [[], ["of 0"], ["of 1"]]
    assert tap.flow.reads[0] == 10


def test_keyed_state_of_an_ended_subtask_is_in_every_later_checkpoint(start, watch):
    tap = Tap(range(60))
    operator = KeyedMapOperator(Sums(watch, "sums"), [select_key(key_of)])
    sums = apply(operator, keyed(key_of, read(pairs(20))), is_keyed=True, uid="sums")
    others = mapped(Watched(watch, "others"), read(tap))
    sink = apply(SinkOperator(CollectSink("results")), sums, others, is_sink=True)
    job = start(sink, settings=SETTINGS)
    for restarts in (1, 2):
        job.wait_for_checkpoint()
        job.wait_for_checkpoint()
        fail_once(watch, "others")
        tap.let(10 * restarts)
        wait_until(lambda count=2 + restarts: watch.count("others", "open") == count)
    job.wait_for_checkpoint()
    records = job.master.checkpoints.retained.restore_point.metadata.operators.values()
    (stored,) = [record for record in records if record.uid == "sums"]
    assert stored.finished == {0, 1}
    entries = [
        count
        for handle in stored.subtasks.values()
        for chunk in handle.keyed.chunks
        for _, count in chunk.groups
    ]
    assert sum(entries) == 5, "a sum for each key"
    assert watch.count("sums", "map") == 20
