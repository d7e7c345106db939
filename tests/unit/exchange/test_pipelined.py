"""The driver's side of an endless job, without Spark."""

import pytest

from tidegate.core.errors import LineClosed
from tidegate.core.ids import Address
from tidegate.exchange.contract import StepCanceled
from tidegate.exchange.pipelined import exchange
from tidegate.exchange.unit_protocol import Frame
from tidegate.protocol.messages import Attendance


class ReadyLine:
    """Says once that it is ready."""

    is_closed = is_read = False

    def send(self, kind, *parts):
        pass

    def receive(self):
        if self.is_read:
            raise LineClosed("there is no more")
        self.is_read = True
        return Frame.READY, bytearray()

    def close(self):
        self.is_closed = True


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
    assert all(line.is_closed for line in lines)
