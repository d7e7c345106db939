import math
import queue
import threading
from dataclasses import replace
from typing import ClassVar

import pytest

from tests.programs import apply, collected, graph_of, mapped, read, wait_until
from tests.unit.slot.hosts import Requests, shipped
from tidegate.checkpoint.ownership import Ownership
from tidegate.connectors.driver_side import PrintSink
from tidegate.connectors.source import (
    Boundedness,
    InputStatus,
    Poll,
    Source,
    SourceReader,
    SplitEnumerator,
)
from tidegate.core.clock import SystemClock
from tidegate.core.errors import (
    DirectoryTaken,
    InternalError,
    LeaseEnded,
    UserError,
    UserFunctionError,
)
from tidegate.exchange.codec import decode
from tidegate.graph.logical import Upstream
from tidegate.graph.partitioning import Rebalance
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.operators.endpoints.two_phase_commit import (
    TwoPhaseCommitOperator,
    TwoPhaseCommitSinkFunction,
)
from tidegate.operators.functions import MapFunction
from tidegate.protocol import pacing
from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.messages import (
    Accepted,
    CheckpointAborted,
    CheckpointAcknowledged,
    CheckpointCompleted,
    CheckpointNotified,
    Collected,
    ConsoleLines,
    Deploy,
    Deployed,
    DeployFailed,
    DriverHeartbeat,
    Refused,
    Shutdown,
    SlotHeartbeat,
    SnapshotSettings,
    Undeploy,
    Undeployed,
    Wake,
)
from tidegate.protocol.pacing import (
    LONG_IDLE_FACTOR,
    LONG_IDLE_LOOKS,
    LONGEST_LOOK,
    LONGEST_SLEEP,
)
from tidegate.protocol.slot_machine import SlotMachine
from tidegate.protocol.units import Stale, UnitKey
from tidegate.slot import pipeline_host
from tidegate.slot.pipeline_host import UnitAnswer
from tidegate.slot.slot_host import SlotHost
from tidegate.storage.local import LocalStore
from tidegate.stream.batch import Batch
from tidegate.stream.elements import Barrier, BarrierKind, SnapshotRequest

WAIT = 20.0
PLACE = SnapshotSettings(directory=None, inline_threshold=0, limit=1 << 20)
LEASE = 10.0
NAME = "slot 0 (start 1.0, nonce)"


class Slot:
    """A slot host, what it said, and the clock of its lease."""

    def __init__(self, directory):
        self.said = queue.SimpleQueue()
        self.now = 0.0
        incarnation = Incarnation(0, 1, 0, "nonce")
        self.host = SlotHost(
            incarnation, self.said.put, SystemClock(), directory, now=lambda: self.now
        )

    def has_settled(self):
        """Everything that was posted to the mailboxes is done."""
        for hosted in self.host._pipelines.values():
            done = threading.Event()
            hosted.mailbox.post(done.set)
            assert done.wait(WAIT)
        return self

    def loses_its_lease(self):
        self.now += LEASE
        return self

    def hears(self, *messages):
        for message in messages:
            self.host.handle(message)
        return self

    def says(self, kind):
        """The next message of this kind; others are passed over."""
        while True:
            message = self.said.get(timeout=WAIT)
            if isinstance(message, kind):
                return message

    def deployed(self, job, attempt=1, snapshots=PLACE):
        self.job = job
        self.hears(Accepted(shipped(job), LEASE), Deploy(0, attempt, snapshots))
        assert self.says((Deployed, DeployFailed)) == Deployed(0, attempt)
        self.requests = Requests(job, attempt)
        return self

    def run(self, step=1, level=0, attempt=1, request=None):
        answers = queue.SimpleQueue()
        self.host.run_unit(0, UnitKey(attempt, step, level), [], [], request, answers.put)
        return answers.get(timeout=WAIT)

    def step(self, step=1, attempt=1, records=1000, barriers=()):
        request = self.requests.make(step, records=records, barriers=barriers)
        return self.run(step, 0, attempt, request)


@pytest.fixture
def slot(tmp_path):
    slot = Slot(tmp_path)
    yield slot
    assert slot.host.close(WAIT)


def simple_job(function=abs):
    return graph_of(read_and_collected(function))


def read_and_collected(function):
    return collected(mapped(function, read([-1, -2])))


def test_a_deployed_pipeline_runs_its_units(slot):
    answer = slot.deployed(simple_job()).step()
    assert isinstance(answer, UnitAnswer)
    assert answer.report.finished == {0}
    collected_batch = slot.says(Collected)
    assert collected_batch.collector == "results"
    assert [b.records for b in decode(collected_batch.payload, None)] == [[1, 2]]


def test_nothing_runs_before_it_is_deployed(slot):
    assert slot.run() == Stale(
        UnitKey(1, 1, 0), f"{NAME} may not act: the driver has not accepted it"
    )
    slot.hears(Accepted(shipped(simple_job()), LEASE))
    assert slot.run() == Stale(UnitKey(1, 1, 0), f"pipeline 0 is not deployed in {NAME}")


def test_nothing_runs_once_the_lease_is_over(slot):
    slot.deployed(simple_job()).loses_its_lease()
    refusal = f"{NAME} may not act: the driver has not been heard from for 10 s"
    assert slot.step() == Stale(UnitKey(1, 1, 0), refusal)


def test_a_unit_that_waits_for_its_turn_is_refused_when_the_lease_has_run_out_meanwhile(slot):
    calls, gate = [], threading.Event()
    slot.deployed(graph_of(collected(mapped(Shared(calls, gate), read([1])))))
    answers = queue.SimpleQueue()
    request = slot.requests.make()
    slot.host.run_unit(0, UnitKey(1, 1, 0), [], [], request, answers.put)
    slot.host.run_unit(0, UnitKey(1, 1, 1), [], [], None, answers.put)
    wait_until(lambda: calls)
    slot.loses_its_lease()
    gate.set()
    found = [answers.get(timeout=WAIT) for _ in range(2)]
    assert isinstance(found[1], Stale)


def test_a_beat_that_is_answered_renews_the_lease(slot):
    slot.deployed(simple_job())
    slot.now = 9.0
    slot.host.beat()
    slot.hears(DriverHeartbeat(slot.says(SlotHeartbeat).number)).now = 18.0
    assert isinstance(slot.step(), UnitAnswer)


def test_a_slot_that_finds_its_lease_run_out_is_over(slot):
    slot.deployed(simple_job())
    slot.loses_its_lease().host.beat()
    assert slot.host.is_over.is_set()


class Transactional(TwoPhaseCommitSinkFunction):
    """Notes every call, and holds up the test's slot where the test says so."""

    notes: ClassVar = []
    on_note: ClassVar = staticmethod(lambda what: None)

    def note(self, what):
        self.notes.append(what)
        Transactional.on_note(what)

    def begin_transaction(self):
        self.note("begin")
        return len(self.notes)

    def invoke(self, transaction, value, context):
        pass

    def pre_commit(self, transaction):
        self.note("prepare")

    def commit(self, transaction):
        self.note("commit")

    def abort(self, transaction):
        self.note("abort")

    def close(self):
        self.note("close")


@pytest.fixture
def notes():
    Transactional.notes.clear()
    Transactional.on_note = staticmethod(lambda what: None)
    return Transactional.notes


def transactional_job():
    return graph_of(apply(TwoPhaseCommitOperator(Transactional()), read(range(5))))


def begun(slot, barriers=1):
    """A transaction for each of so many barriers is prepared."""
    slot.job = transactional_job()
    slot.hears(Accepted(shipped(slot.job), LEASE), Deploy(0, 1, PLACE))
    slot.says(Deployed)
    slot.requests = Requests(slot.job)
    for number in range(1, barriers + 1):
        request = slot.requests.make(number, records=1, barriers=[Barrier(number, 0.0)])
        slot.run(number, request=request)
        slot.says(CheckpointAcknowledged)
    return slot


def test_a_slot_without_a_lease_opens_begins_and_aborts_nothing(slot, notes):
    slot.hears(Accepted(shipped(transactional_job()), LEASE)).loses_its_lease()
    slot.hears(Deploy(0, 1, PLACE)).has_settled()
    assert slot.host.close(WAIT)
    assert notes == []


@pytest.mark.parametrize(
    "message",
    [CheckpointCompleted(0, 1, 1), CheckpointAborted(0, 1, 1), Deploy(0, 2, PLACE), Undeploy(0)],
)
def test_a_slot_without_a_lease_carries_out_no_orders(slot, notes, message):
    begun(slot).loses_its_lease()
    before = list(notes)
    slot.hears(message).has_settled()
    assert slot.host.close(WAIT)
    assert notes == before


@pytest.mark.parametrize("farewell", [Refused("superseded"), None])
def test_a_slot_that_another_may_replace_aborts_nothing_when_it_goes(slot, notes, farewell):
    begun(slot)
    before = list(notes)
    if farewell is None:
        slot.host.leave("its control line ended")
    else:
        slot.hears(farewell)
    assert slot.host.is_over.is_set()
    assert slot.host.close(WAIT)
    assert notes == before


def test_a_slot_that_is_sent_home_aborts_what_it_has_begun(slot, notes):
    begun(slot).hears(Shutdown())
    assert slot.host.close(WAIT)
    assert notes[-2:] == ["abort", "close"]


def test_the_lease_is_checked_again_before_every_single_commit(slot, notes):
    begun(slot, barriers=2)
    Transactional.on_note = staticmethod(lambda what: what == "commit" and slot.loses_its_lease())
    slot.hears(CheckpointCompleted(0, 1, 2))
    failure = slot.says(CheckpointNotified).failure
    assert isinstance(failure, LeaseEnded)
    assert notes.count("commit") == 1


class Overtaken(Transactional):
    """Another driver takes over the job while this is opened."""

    store: ClassVar = None

    def open(self, runtime_context):
        Ownership.claim(self.store)


def test_ownership_of_the_directory_is_checked_again_before_a_sink_touches_what_it_finds(
    slot, notes, tmp_path
):
    Overtaken.store = LocalStore(tmp_path)
    ownership, _ = Ownership.claim(Overtaken.store)
    place = replace(PLACE, directory=str(tmp_path), ownership=ownership)
    job = graph_of(apply(TwoPhaseCommitOperator(Overtaken()), read(range(5))))
    slot.hears(Accepted(shipped(job), LEASE), Deploy(0, 1, place))
    assert isinstance(slot.says(DeployFailed).error, DirectoryTaken)
    assert notes == ["close"]


def test_a_deployment_that_was_heard_of_before_is_not_opened_again(slot, notes):
    begun(slot).hears(Deploy(0, 1, PLACE), Deploy(0, 2, PLACE))
    assert slot.says(Deployed) == Deployed(0, 2)
    assert notes.count("begin") == 3, "for the first attempt, its barrier, and the second"


def test_a_unit_that_several_ask_for_runs_once(slot):
    calls = []
    gate = threading.Event()
    slot.deployed(simple_job(Shared(calls, gate)))
    request = slot.requests.make()
    answers = queue.SimpleQueue()
    for _ in range(4):
        slot.host.run_unit(0, UnitKey(1, 1, 0), [], [], request, answers.put)
    wait_until(lambda: calls)
    gate.set()
    first, *others = [answers.get(timeout=WAIT) for _ in range(4)]
    assert all(answer is first for answer in others)
    assert calls == [-1, -2]


class Shared:
    """A function that tests can watch and hold up: pickled by reference to what they hold."""

    objects: ClassVar = {}

    def __init__(self, calls, gate):
        Shared.objects[id(calls)] = (calls, gate)
        self.key = id(calls)

    def __call__(self, value):
        calls, gate = Shared.objects[self.key]
        calls.append(value)
        assert gate.wait(WAIT)
        return value


def test_who_waits_for_a_unit_is_sent_away_when_the_pipeline_is_undeployed(tmp_path):
    calls, gate = [], threading.Event()
    slot = Slot(tmp_path).deployed(simple_job(Shared(calls, gate)))
    answers = queue.SimpleQueue()
    slot.host.run_unit(0, UnitKey(1, 1, 0), [], [], slot.requests.make(), answers.put)
    wait_until(lambda: calls)
    slot.hears(Undeploy(0))
    assert isinstance(answers.get(timeout=WAIT), Stale), "though user code has not returned"
    gate.set()
    assert slot.says(Undeployed) == Undeployed(0)
    assert slot.host.close(WAIT)


def test_a_unit_that_ends_asks_nothing_about_the_units_of_other_pipelines(tmp_path, monkeypatch):
    calls, gate = [], threading.Event()
    held = read_and_collected(Shared(calls, gate))
    slot = Slot(tmp_path).deployed(graph_of(held, read_and_collected(abs)))
    slot.hears(Deploy(1, 1, PLACE))
    slot.says(Deployed)
    answers = queue.SimpleQueue()
    slot.host.run_unit(0, UnitKey(1, 1, 0), [], [], slot.requests.make(), answers.put)
    wait_until(lambda: calls)
    asked = []
    ask = SlotMachine.ask
    monkeypatch.setattr(SlotMachine, "ask", lambda *args: asked.append(args[1]) or ask(*args))
    other = queue.SimpleQueue()
    request = replace(slot.requests.make(), pipeline=1)
    slot.host.run_unit(1, UnitKey(1, 1, 0), [], [], request, other.put)
    assert isinstance(other.get(timeout=WAIT), UnitAnswer)
    assert set(asked) == {1}
    slot.host.leave("asked to")
    assert isinstance(answers.get(timeout=WAIT), Stale), "though its pipeline was not touched"
    gate.set()
    assert slot.host.close(WAIT)


def test_a_newer_attempt_starts_fresh(slot):
    slot.deployed(simple_job()).step()
    slot.hears(Deploy(0, 2, PLACE))
    assert slot.says(Deployed) == Deployed(0, 2)
    assert isinstance(slot.run(2, attempt=1), Stale)
    slot.requests = Requests(slot.job, attempt=2)
    assert slot.step(3, attempt=2).report.records_in == {0: 2}


def test_a_closed_pipeline_runs_nothing_until_it_is_deployed_again(slot):
    slot.deployed(simple_job())
    slot.hears(Undeploy(0))
    assert slot.says(Undeployed) == Undeployed(0)
    assert isinstance(slot.step(), Stale)
    slot.hears(Deploy(0, 2, PLACE))
    assert slot.says(Deployed) == Deployed(0, 2)


def test_undeploying_what_was_never_deployed_is_answered(slot):
    slot.hears(Undeploy(3))
    assert slot.says(Undeployed) == Undeployed(3)


class CannotOpen(MapFunction):
    def open(self, runtime_context):
        raise OSError("no route")

    def map(self, value):
        return value


def test_a_function_that_cannot_be_opened_fails_the_deployment(slot):
    slot.hears(Accepted(shipped(simple_job(CannotOpen())), 10.0), Deploy(0, 1, PLACE))
    failed = slot.says((Deployed, DeployFailed))
    assert (failed.pipeline, failed.attempt) == (0, 1)
    assert isinstance(failed.error, UserFunctionError)


class Unreadable:
    """Pickles well and cannot be read."""

    def __reduce__(self):
        return (missing_here, ())

    def __call__(self, value):
        return value


def missing_here():
    raise ModuleNotFoundError("No module named 'only_on_the_driver'")


def test_an_operator_that_cannot_be_read_fails_the_deployment(slot):
    slot.hears(Accepted(shipped(simple_job(Unreadable())), 10.0), Deploy(0, 1, PLACE))
    failed = slot.says((Deployed, DeployFailed))
    assert isinstance(failed.error, UserError)
    assert "slot 0: ModuleNotFoundError: No module named 'only_on_the_driver'" in str(failed.error)


def test_a_deployment_that_fails_leaves_no_thread_but_the_mailbox(slot):
    before = {*threading.enumerate()}
    slot.hears(Accepted(shipped(simple_job(Unreadable())), LEASE))
    for attempt in (1, 2, 3):
        slot.hears(Deploy(0, attempt, PLACE))
        slot.says(DeployFailed)
    slot.has_settled()
    names = ["tidegate-pipeline-0"]  # a timer that was cancelled takes a moment to end
    wait_until(lambda: [each.name for each in {*threading.enumerate()} - before] == names)


def test_a_job_that_cannot_be_read_fails_the_deployment(slot):
    slot.hears(Accepted(b"not a job", 10.0), Deploy(0, 1, PLACE))
    assert "the job cannot be read in slot 0" in str(slot.says(DeployFailed).error)


def test_a_fault_of_our_own_is_an_answer_too(slot):
    slot.deployed(graph_of(collected(Upstream(read([1]), Rebalance())), parallelism=1))
    slot.host._pipelines[0]._host.run = lambda *_: 1 // 0
    answer = slot.step()
    (mark,) = answer.report.marks
    assert isinstance(mark.cause, InternalError)
    assert "ZeroDivisionError" in str(mark.cause)


def test_a_fault_while_the_slot_is_idle_fails_the_next_step(slot):
    slot.deployed(simple_job()).step(1)
    slot.host._pipelines[0]._host.send_counts_when_due = lambda: 1 // 0
    assert slot.says(Wake) == Wake(0)
    for step in (2, 3):
        (mark,) = slot.step(step).report.marks
        assert isinstance(mark.cause, InternalError)
        assert "ZeroDivisionError" in str(mark.cause)
    slot.hears(Deploy(0, 2, PLACE))
    assert slot.says(Deployed) == Deployed(0, 2)
    assert slot.step(1, attempt=2).report.marks == ()


def test_user_code_that_does_not_return_keeps_the_slot_from_closing(tmp_path):
    calls, gate = [], threading.Event()
    slot = Slot(tmp_path).deployed(simple_job(Shared(calls, gate)))
    threading.Thread(target=slot.step, daemon=True).start()
    wait_until(lambda: calls)
    assert not slot.host.close(0.05)
    gate.set()


def test_the_driver_sends_a_slot_home(tmp_path):
    for farewell in (Shutdown(), Refused("superseded")):
        slot = Slot(tmp_path)
        assert not slot.host.is_over.is_set()
        slot.hears(farewell)
        assert slot.host.is_over.is_set()


class Dripping(Source, SplitEnumerator, SourceReader):
    """An endless source that has a record whenever a test puts one there."""

    boundedness = Boundedness.CONTINUOUS_UNBOUNDED
    waiting = queue.SimpleQueue()

    def create_enumerator(self):
        return self

    def create_reader(self, context):
        return self

    def next_splits(self, parallelism):
        return {}

    def add_splits(self, splits):
        pass

    def snapshot(self):
        return []

    def is_available(self):
        return not self.waiting.empty()

    def poll(self, max_records):
        records = []
        while not self.waiting.empty():
            records.append(self.waiting.get())
        return Poll(Batch.of_records(records), InputStatus.NOTHING_AVAILABLE)


def test_an_idle_slot_calls_once_when_there_is_input(slot):
    slot.deployed(graph_of(collected(read(Dripping()))))
    slot.step(1)
    Dripping.waiting.put("drop")
    assert slot.says(Wake) == Wake(0)
    slot.step(2)
    batch = slot.says((Collected, Wake))
    assert [b.records for b in decode(batch.payload, None)] == [["drop"]]
    slot.step(3)
    Dripping.waiting.put("drip")
    assert slot.says(Wake) == Wake(0)
    slot.step(4)


def test_a_slot_that_has_read_something_does_not_call_as_another_step_follows(slot):
    Dripping.waiting.put("drop")
    slot.deployed(graph_of(collected(read(Dripping())))).step(1)
    Dripping.waiting.put("drip")
    hosted = slot.host._pipelines[0]
    hosted.mailbox.post(hosted._look)
    slot.has_settled().step(2)
    said = [slot.says((Collected, Wake)) for _ in range(2)]
    assert [type(message) for message in said] == [Collected, Collected]


def test_printed_lines_reach_the_driver_before_the_answer(slot):
    slot.deployed(graph_of(apply(SinkOperator(PrintSink()), read(["a", "b"]))))
    slot.step()
    assert "\n".join(slot.says(ConsoleLines).lines) == "a\nb"


def test_an_abort_that_comes_after_its_step_calls_for_another_one(slot):
    place = SnapshotSettings(directory=None, inline_threshold=0, limit=1 << 20)
    slot.deployed(simple_job(), snapshots=place)
    slot.step(1, barriers=[Barrier(7, 0.0, SnapshotRequest(BarrierKind.STOP))])
    slot.hears(CheckpointAborted(0, 1, 7))
    assert slot.says(Wake) == Wake(0)
    assert slot.step(2).report.finished == {0}, "it is no longer halted"


def test_a_slot_looks_around_less_often_after_a_while_without_records(slot):
    slot.deployed(graph_of(collected(read(Dripping())))).step()
    hosted, pauses = slot.host._pipelines[0], []

    def look_around():
        pauses.append([hosted._look_around() for _ in range(2 * LONG_IDLE_LOOKS)])

    hosted.mailbox.post(look_around)
    slot.has_settled()
    Dripping.waiting.put("drip")
    slot.step(2)
    slot.step(3)
    hosted.mailbox.post(look_around)
    slot.has_settled()
    for found in pauses:
        assert found == sorted(found)
        assert (found[0], found[-1]) == (LONGEST_LOOK, LONG_IDLE_FACTOR * LONGEST_LOOK)


class Ringing(Dripping):
    """The same, but it can tell when there is one."""

    waiting = queue.SimpleQueue()
    contexts: ClassVar = []

    def create_reader(self, context):
        self.contexts.append(context)
        return self

    def available_in(self):
        return math.inf


@pytest.fixture
def ring(slot, monkeypatch):
    """Puts a record into the source of a slot that would sleep for long, and rings."""
    monkeypatch.setattr(pacing, "LONGEST_SLEEP", 3600.0)
    monkeypatch.setattr(pipeline_host, "_COUNTING_SECONDS", 0.0)
    slot.deployed(graph_of(collected(read(Ringing())))).step(1)
    wait_until(lambda: slot.host._pipelines[0]._is_asleep)

    def ring():
        Ringing.waiting.put("drop")
        Ringing.contexts[-1].wake()

    yield ring
    Ringing.contexts.clear()
    Ringing.waiting = queue.SimpleQueue()


def test_a_slot_that_sleeps_is_woken_by_its_source(slot, ring):
    for step in (2, 4):
        ring()
        assert slot.says(Wake) == Wake(0)
        slot.step(step)
        slot.step(step + 1)
        batch = slot.says(Collected)
        assert [b.records for b in decode(batch.payload, None)] == [["drop"]]
        wait_until(lambda: slot.host._pipelines[0]._is_asleep)


def test_a_source_that_rings_while_the_slot_looks_is_heard(slot, ring):
    """It has looked and found nothing, but does not sleep yet."""
    host = slot.host._pipelines[0]._host

    def is_available():
        del host.is_available
        ring()
        return False

    host.is_available = is_available
    slot.step(2)
    assert slot.says(Wake) == Wake(0)


def test_a_source_that_rings_until_the_step_comes_does_not_keep_the_slot_from_its_work(slot, ring):
    ring()
    assert slot.says(Wake) == Wake(0)
    hosted, looks = slot.has_settled().host._pipelines[0], []
    hosted._look = lambda: looks.append(1)
    for _ in range(10):
        ring()
    slot.has_settled()
    assert looks == []


@pytest.mark.parametrize("has_host", [True, False])
def test_a_slot_without_anything_to_wait_for_sleeps_as_long_as_it_may(slot, monkeypatch, has_host):
    monkeypatch.setattr(pipeline_host, "_COUNTING_SECONDS", 0.0)
    slot.deployed(simple_job()).step()
    if not has_host:
        slot.hears(Undeploy(0))
        slot.says(Undeployed)
    hosted, pauses = slot.host._pipelines[0], []
    hosted.mailbox.post(lambda: pauses.append(hosted._look_around()))
    slot.has_settled()
    assert pauses == [LONGEST_SLEEP]
