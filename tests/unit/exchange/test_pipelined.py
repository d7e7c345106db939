"""The driver's side of an endless job, without Spark."""

import pickle
import queue
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from types import SimpleNamespace

import pytest

from tests.programs import PATIENCE
from tidegate.core.errors import LineClosed
from tidegate.core.ids import Address
from tidegate.exchange.contract import StepBroken, StepCanceled
from tidegate.exchange.pipelined import exchange
from tidegate.exchange.unit_protocol import Frame
from tidegate.protocol.messages import Attendance, StepRequest


class ReadyLine:
    """Says once that it is ready."""

    is_read = is_other_end_gone = False

    def __init__(self):
        self.closed = threading.Event()
        self.is_hung_up = threading.Event()

    def send(self, kind, *parts):
        pass

    def receive(self):
        if self.is_read:
            self.is_hung_up.wait()
            raise LineClosed("there is no more")
        self.is_read = True
        return Frame.READY, bytearray()

    def hang_up(self):
        self.is_hung_up.set()

    def close(self):
        self.is_hung_up.set()
        self.closed.set()


def test_a_job_that_is_canceled_while_it_dials_leaves_no_line_open(monkeypatch):
    address = Address("localhost", 1)
    job = exchange._EndlessJob(None, "tag", Attendance(0, 1, 2, 1), (address, address), False)
    lines = []

    def dial(address, secret):
        lines.append(ReadyLine())
        if len(lines) == 1:
            job.give_up(StepCanceled("the step was canceled"))
        return lines[-1]

    monkeypatch.setattr(exchange, "dial", dial)
    with pytest.raises(StepCanceled):
        job.start(b"secret")
    assert all(line.closed.is_set() for line in lines)


def test_a_job_can_end_while_its_pumps_start(monkeypatch):
    job = exchange._EndlessJob(
        None, "tag", Attendance(0, 1, 1, 1), (Address("localhost", 1),), True
    )
    with ThreadPoolExecutor() as pool:
        ends = []

        class Pumps(threading.Thread):
            def start(self):
                ends.append(pool.submit(job.end))
                wait(ends, timeout=0.1)  # it has ended, or waits until this thread has started
                super().start()

        monkeypatch.setattr(exchange, "dial", lambda address, secret: ReadyLine())
        monkeypatch.setattr(exchange, "InheritableThread", Pumps)
        with pytest.raises(StepBroken):
            job.start(b"secret")
        ends[0].result()


def test_a_job_whose_pumps_have_not_come_carries_no_step(monkeypatch):
    addresses = (Address("localhost", 1),)
    job = exchange._EndlessJob(None, "tag", Attendance(0, 1, 1, 1), addresses, True)
    carries = []

    class Pumps(threading.Thread):
        """They are not here when they are started."""

        def start(self):
            carries.append(job.carries(addresses))
            super().start()

    def run(job, secret):
        job.give_up(StepCanceled("the step was canceled"))

    monkeypatch.setattr(exchange, "dial", lambda address, secret: ReadyLine())
    monkeypatch.setattr(exchange, "InheritableThread", Pumps)
    monkeypatch.setattr(exchange._EndlessJob, "_run_pumps", run)
    with pytest.raises(StepCanceled):
        job.start(b"secret")
    assert carries == [False]


@pytest.mark.parametrize("report", [pickle.dumps("a report"), b"unreadable"])
def test_a_job_carries_another_step_if_its_reports_can_be_read(monkeypatch, report):
    """Over the same job, slots that have run the step would wait for cargo that has come."""

    class ReportingLine(ReadyLine):
        def receive(self):
            if not self.is_read:
                return super().receive()
            is_asked.wait()
            is_asked.clear()
            return Frame.REPORT, bytearray(report)

    is_asked = threading.Event()
    addresses = (Address("localhost", 1),)
    job = exchange._EndlessJob(None, "tag", Attendance(0, 1, 1, 1), addresses, False)
    monkeypatch.setattr(exchange, "dial", lambda address, secret: ReportingLine())
    assert job.start(b"secret") == []
    carries = queue.SimpleQueue()
    job.run(b"a step", lambda answer: carries.put((job.carries(addresses), answer)))
    is_asked.set()
    is_carried, answer = carries.get(timeout=PATIENCE)
    assert is_carried == (answer == ["a report"])
    assert is_carried or isinstance(answer, StepBroken)


class RefusingLine(ReadyLine):
    """A line that lives, but whose frames the system refuses."""

    def send(self, kind, *parts):
        if kind == Frame.STEP:
            raise LineClosed("[Errno 105] No buffer space available")


class UnreadableLine(ReadyLine):
    """A line whose report does not fit into memory."""

    def __init__(self):
        super().__init__()
        self.is_asked = threading.Event()

    def send(self, kind, *parts):
        if kind == Frame.STEP:
            self.is_asked.set()

    def receive(self):
        if not self.is_read:
            return super().receive()
        self.is_asked.wait(PATIENCE)
        raise MemoryError


@pytest.mark.parametrize("kind", [RefusingLine, UnreadableLine])
def test_a_step_that_a_living_slot_cannot_get_or_report_is_broken(monkeypatch, kind):
    addresses = (Address("localhost", 1), Address("localhost", 2))
    lines = [kind(), ReadyLine()]
    found = iter(lines)
    job = exchange._EndlessJob(None, "tag", Attendance(0, 1, 2, 1), addresses, False)
    monkeypatch.setattr(exchange, "dial", lambda address, secret: next(found))
    assert job.start(b"secret") == []
    answers = queue.SimpleQueue()
    job.run(b"a step", answers.put)
    assert isinstance(answers.get(timeout=PATIENCE), StepBroken)
    assert not job.carries(addresses)
    assert all(line.closed.wait(PATIENCE) for line in lines)


class WaitingLine(ReadyLine):
    """A line whose reader is about to wait when the job ends."""

    def __init__(self):
        super().__init__()
        self.events = []
        self.may_return = threading.Event()

    def receive(self):
        if not self.is_read:
            return super().receive()
        self.may_return.wait(PATIENCE)
        self.events.append("received")
        raise LineClosed("there is no more")

    def close(self):
        self.events.append("closed")
        super().close()


@pytest.mark.parametrize("way", ["end", "give_up"])
def test_a_line_is_closed_by_the_thread_that_reads_it(monkeypatch, way):
    """Otherwise, the thread might read another line that gets the same file descriptor."""
    line = WaitingLine()
    job = exchange._EndlessJob(
        None, "tag", Attendance(0, 1, 1, 1), (Address("localhost", 1),), False
    )
    monkeypatch.setattr(exchange, "dial", lambda address, secret: line)
    assert job.start(b"secret") == []
    if way == "end":
        job.end()
    else:
        job.give_up(StepCanceled("the step was canceled"))
    assert line.is_hung_up.is_set()
    line.may_return.set()
    assert line.closed.wait(PATIENCE)
    assert line.events == ["received", "closed"]


class DeafSpark:
    """Does not answer when it is asked to cancel a job."""

    def __init__(self):
        self.canceled = queue.SimpleQueue()
        self.answers = threading.Event()

    def cancelJobGroup(self, group):
        self.canceled.put(group)
        self.answers.wait(PATIENCE)


def pumped(spark):
    """A job whose pumps run for ever."""
    job = exchange._EndlessJob(
        spark, "tag", Attendance(0, 1, 1, 1), (Address("localhost", 1),), True
    )
    job._thread = SimpleNamespace(join=lambda timeout: None, is_alive=lambda: True)
    return job


@pytest.mark.parametrize("way", ["give_up", "end"])
def test_nobody_waits_long_for_a_spark_that_does_not_answer(monkeypatch, way):
    """The caller may be the job master, whose slots would lose their leases."""
    monkeypatch.setattr(exchange, "_END_SECONDS", 0.01)
    spark = DeafSpark()
    job = pumped(spark)
    act = job.end if way == "end" else lambda: job.give_up(StepCanceled("it was canceled"))
    acting = threading.Thread(target=act, daemon=True)
    acting.start()
    acting.join(PATIENCE / 4)
    assert not acting.is_alive()
    assert spark.canceled.get(timeout=PATIENCE) == job._group
    spark.answers.set()


@pytest.mark.parametrize("way", ["give_up", "end"])
def test_nobody_waits_for_a_spark_that_does_not_answer_when_pumps_start(monkeypatch, way):
    """PySpark asks for the properties of a thread before it starts."""
    spark = DeafSpark()
    job = exchange._EndlessJob(
        spark, "tag", Attendance(0, 1, 1, 1), (Address("localhost", 1),), True
    )
    begun = threading.Event()

    class Pumps(threading.Thread):
        def start(self):
            begun.set()
            spark.answers.wait(PATIENCE)
            super().start()

    monkeypatch.setattr(exchange, "dial", lambda address, secret: ReadyLine())
    monkeypatch.setattr(exchange, "InheritableThread", Pumps)
    act = job.end if way == "end" else lambda: job.give_up(StepCanceled("it was canceled"))
    acting = threading.Thread(target=act, daemon=True)
    with ThreadPoolExecutor() as pool:
        starting = pool.submit(job.start, b"secret")
        assert begun.wait(PATIENCE)
        acting.start()
        acting.join(PATIENCE / 4)
        is_waiting = acting.is_alive()
        spark.answers.set()
        with pytest.raises(StepBroken):
            starting.result(PATIENCE)
    assert not is_waiting
    assert spark.canceled.get(timeout=PATIENCE) == job._group


def test_a_job_ends_when_spark_has_been_asked_to_cancel_it():
    """The next job needs its room."""
    spark = DeafSpark()
    job = pumped(spark)
    job.give_up(StepBroken("a pump was lost"))
    assert spark.canceled.get(timeout=PATIENCE) == job._group
    ending = threading.Thread(target=job.end, daemon=True)
    ending.start()
    ending.join(0.1)
    assert ending.is_alive()
    spark.answers.set()
    ending.join(PATIENCE)
    assert not ending.is_alive()


def test_a_job_cannot_be_mistaken_for_that_of_an_exchange_before():
    """A late thread of an exchange from before a rescaling would cancel it."""
    assert pumped(None)._group != pumped(None)._group


ONE_SLOT = SimpleNamespace(id=0, slots=1, levels=1)
THERE = {0: Address("localhost", 1)}


def request(step):
    return StepRequest(pipeline=0, attempt=1, step=step, slice_records=1, slice_bytes=1)


def test_an_exchange_that_has_ended_starts_no_job(monkeypatch):
    """Its pumps would take up the room of other steps, and nobody would end them."""
    dialed = []
    monkeypatch.setattr(exchange, "dial", lambda address, secret: dialed.append(address))
    ended = exchange.PipelinedExchange(None, "a-job", b"secret")
    ended.end_steps()
    with pytest.raises(StepCanceled):
        ended.run_step(ONE_SLOT, request(1), THERE, print)
    assert dialed == []


class ReportingLine(ReadyLine):
    """Reports every step at once."""

    def __init__(self):
        super().__init__()
        self.steps = queue.SimpleQueue()
        self.is_full = False

    def send(self, kind, *parts):
        if kind == Frame.STEP:
            self.steps.put(parts)

    def has_room_for(self, size):
        return not self.is_full

    def receive(self):
        if not self.is_read:
            return super().receive()
        self.steps.get()
        return Frame.REPORT, bytearray(pickle.dumps("a report"))


def test_a_step_is_not_tried_if_a_slot_has_not_read_what_was_sent_before(monkeypatch):
    """The caller is the job master, which must not wait for a slot."""
    line = ReportingLine()
    monkeypatch.setattr(exchange, "dial", lambda address, secret: line)
    running = exchange.PipelinedExchange(None, "a-job", b"secret")
    answers = queue.SimpleQueue()
    running.run_step(ONE_SLOT, request(1), THERE, answers.put)
    assert answers.get(timeout=PATIENCE) == ["a report"]
    line.is_full = True
    assert not running.try_step(ONE_SLOT, request(2), THERE, answers.put)
    assert line.steps.empty()
    line.is_full = False
    assert running.try_step(ONE_SLOT, request(2), THERE, answers.put)
    assert answers.get(timeout=PATIENCE) == ["a report"]
