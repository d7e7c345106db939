"""The driver's side of an endless job, without Spark."""

import pickle
import queue
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from tests.programs import PATIENCE
from tidegate.core.errors import LineClosed
from tidegate.core.ids import Address
from tidegate.exchange.contract import StepBroken, StepCanceled
from tidegate.exchange.pipelined import exchange
from tidegate.exchange.unit_protocol import Frame
from tidegate.protocol.messages import Attendance


class ReadyLine:
    """Says once that it is ready."""

    is_read = is_other_end_gone = False

    def __init__(self):
        self.closed = threading.Event()

    def send(self, kind, *parts):
        pass

    def receive(self):
        if self.is_read:
            self.closed.wait()
            raise LineClosed("there is no more")
        self.is_read = True
        return Frame.READY, bytearray()

    def close(self):
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
