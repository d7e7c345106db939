import queue
import threading
from typing import ClassVar

import pytest

from tests.programs import apply, collected, graph_of, mapped, read, wait_until
from tests.unit.slot.hosts import Requests, shipped
from tidegate.connectors.print import PrintSink
from tidegate.connectors.source import (
    Boundedness,
    InputStatus,
    Poll,
    Source,
    SourceReader,
    SplitEnumerator,
)
from tidegate.core.clock import SystemClock
from tidegate.core.errors import InternalError, UserError, UserFunctionError
from tidegate.exchange.codec import decode
from tidegate.graph.logical import Upstream
from tidegate.graph.partitioning import Rebalance
from tidegate.operators.endpoints import SinkOperator
from tidegate.operators.functions import MapFunction
from tidegate.protocol.messages import (
    Accepted,
    Collected,
    ConsoleLines,
    Deploy,
    Deployed,
    DeployFailed,
    Refused,
    Shutdown,
    Undeploy,
    Undeployed,
    Wake,
)
from tidegate.protocol.units import Stale, UnitKey
from tidegate.slot.pipeline_host import UnitAnswer
from tidegate.slot.slot_host import SlotHost
from tidegate.stream.batch import Batch

WAIT = 20.0


class Slot:
    """A slot host, and what it said."""

    def __init__(self, directory, may_act=lambda: True):
        self.said = queue.SimpleQueue()
        self.host = SlotHost(0, self.said.put, SystemClock(), directory, may_act)

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

    def deployed(self, job, attempt=1):
        self.job = job
        self.hears(Accepted(shipped(job), 10.0), Deploy(0, attempt))
        assert self.says((Deployed, DeployFailed)) == Deployed(0, attempt)
        self.requests = Requests(job, attempt)
        return self

    def run(self, step=1, level=0, attempt=1, request=None):
        return self.host.run_unit(0, UnitKey(attempt, step, level), [], [], request)

    def step(self, step=1, attempt=1, records=1000):
        return self.run(step, 0, attempt, self.requests.make(step, records=records))


@pytest.fixture
def slot(tmp_path):
    slot = Slot(tmp_path)
    yield slot
    assert slot.host.close(WAIT)


def simple_job(function=abs):
    return graph_of(collected(mapped(function, read([-1, -2]))))


def test_a_deployed_pipeline_runs_its_units(slot):
    answer = slot.deployed(simple_job()).step()
    assert isinstance(answer, UnitAnswer)
    assert answer.report.finished == {0}
    collected_batch = slot.says(Collected)
    assert collected_batch.collector == "results"
    assert [b.records for b in decode(collected_batch.payload, None)] == [[1, 2]]


def test_nothing_runs_before_it_is_deployed(slot):
    assert slot.run() == Stale(UnitKey(1, 1, 0), "pipeline 0 is not deployed in slot 0")


def test_nothing_runs_once_the_lease_is_over(tmp_path):
    lease = threading.Event()
    slot = Slot(tmp_path, may_act=lambda: not lease.is_set()).deployed(simple_job())
    lease.set()
    assert slot.step() == Stale(UnitKey(1, 1, 0), "the lease of slot 0 has run out")
    slot.host.close(WAIT)


def test_a_unit_that_several_ask_for_runs_once(slot):
    calls = []
    gate = threading.Event()
    slot.deployed(simple_job(Shared(calls, gate)))
    request = slot.requests.make()
    answers = queue.SimpleQueue()
    for _ in range(4):
        threading.Thread(target=lambda: answers.put(slot.run(request=request))).start()
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
    threading.Thread(target=lambda: answers.put(slot.step())).start()
    wait_until(lambda: calls)
    slot.hears(Undeploy(0))
    assert isinstance(answers.get(timeout=WAIT), Stale), "though user code has not returned"
    gate.set()
    assert slot.says(Undeployed) == Undeployed(0)
    assert slot.host.close(WAIT)


def test_a_newer_attempt_begins_anew(slot):
    slot.deployed(simple_job()).step()
    slot.hears(Deploy(0, 2))
    assert slot.says(Deployed) == Deployed(0, 2)
    assert isinstance(slot.run(2, attempt=1), Stale)
    slot.requests = Requests(slot.job, attempt=2)
    assert slot.step(3, attempt=2).report.records_in == {0: 2}


def test_a_closed_pipeline_runs_nothing_until_it_is_deployed_again(slot):
    slot.deployed(simple_job())
    slot.hears(Undeploy(0))
    assert slot.says(Undeployed) == Undeployed(0)
    assert isinstance(slot.step(), Stale)
    slot.hears(Deploy(0, 2))
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
    slot.hears(Accepted(shipped(simple_job(CannotOpen())), 10.0), Deploy(0, 1))
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
    slot.hears(Accepted(shipped(simple_job(Unreadable())), 10.0), Deploy(0, 1))
    failed = slot.says((Deployed, DeployFailed))
    assert isinstance(failed.error, UserError)
    assert "slot 0: ModuleNotFoundError: No module named 'only_on_the_driver'" in str(failed.error)


def test_a_job_that_cannot_be_read_fails_the_deployment(slot):
    slot.hears(Accepted(b"not a job", 10.0), Deploy(0, 1))
    assert "the job cannot be read in slot 0" in str(slot.says(DeployFailed).error)


def test_a_fault_of_our_own_is_an_answer_too(slot):
    slot.deployed(graph_of(collected(Upstream(read([1]), Rebalance())), parallelism=1))
    slot.host._pipelines[0]._host.run = lambda *_: 1 // 0
    answer = slot.step()
    (mark,) = answer.report.marks
    assert isinstance(mark.cause, InternalError)
    assert "ZeroDivisionError" in str(mark.cause)


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
    Dripping.waiting.put("drip")
    assert slot.says(Wake) == Wake(0)
    slot.step(3)


def test_printed_lines_reach_the_driver_before_the_answer(slot):
    slot.deployed(graph_of(apply(SinkOperator(PrintSink()), read(["a", "b"]))))
    slot.step()
    assert "\n".join(slot.says(ConsoleLines).lines) == "a\nb"
