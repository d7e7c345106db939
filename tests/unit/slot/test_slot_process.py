"""The process of a slot, on a thread of the test, with a driver that is reached over TCP."""

import threading

import pytest

from tests.programs import PATIENCE
from tidegate.core.errors import LineClosed
from tidegate.core.ids import Address, PipelineId
from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.messages import Wake
from tidegate.slot import slot
from tidegate.slot.slot import SlotTask, _SlotProcess
from tidegate.transport import control, wire
from tidegate.transport.wire import Listener

SECRET = b"s" * 32


class Driver:
    """Reads the line of a slot to its end."""

    def __init__(self, events):
        self.events = events
        self.registered, self.is_over = threading.Event(), threading.Event()
        self.listener = Listener(host="127.0.0.1")
        self.listener.serve(SECRET, self.serve)

    def serve(self, connection):
        self.connection = connection
        try:
            while True:
                connection.receive()
                self.registered.set()
        except LineClosed:
            self.events.append(("the line ended", connection.is_other_end_gone))
            self.is_over.set()


@pytest.fixture
def events():
    return []


@pytest.fixture
def driver(events):
    driver = Driver(events)
    yield driver
    driver.listener.close()


@pytest.fixture
def process(driver, tmp_path, monkeypatch):
    for name in ("_change_threads_quickly", "_collect_garbage_rarely", "set_up_memory"):
        monkeypatch.setattr(slot, name, lambda: None)
    monkeypatch.setattr(slot, "forward_logs", lambda send, level: None)
    task = SlotTask(
        slot=0,
        launch=1,
        control=Address("127.0.0.1", driver.listener.address.port),
        secret=SECRET,
        is_local=True,
        host=None,
        ports=(0,),
        directory=None,
        heartbeat_seconds=PATIENCE,
        closing_seconds=PATIENCE,
        log_level=0,
    )
    return _SlotProcess(task, Incarnation.create(0, 1, 0), tmp_path)


def receive_a_forged_frame(driver, process, monkeypatch):
    driver.connection._sends = wire._Seal(b"another key")
    driver.connection.send(1, b"forged")


def fill_the_queue(driver, process, monkeypatch):
    monkeypatch.setattr(control, "_MOST_WAITING", 0)
    process._send(Wake(PipelineId(0)))


def have_a_frame_refused_by_the_system(driver, process, monkeypatch):
    def refuse(kind, *parts):
        raise LineClosed("[Errno 105] No buffer space available")

    monkeypatch.setattr(process._line._connection, "send", refuse)
    process._send(Wake(PipelineId(0)))


@pytest.mark.parametrize(
    "trouble", [receive_a_forged_frame, fill_the_queue, have_a_frame_refused_by_the_system]
)
def test_a_slot_whose_line_fails_ends_it_when_nothing_acts_any_more(
    driver, process, events, monkeypatch, trouble
):
    """The driver may use a successor as soon as it sees the end of the line."""
    is_closing, may_close = threading.Event(), threading.Event()

    def close(timeout):
        is_closing.set()
        assert may_close.wait(PATIENCE)
        events.append("nothing acts any more")
        return True

    monkeypatch.setattr(process._host, "close", close)
    running = threading.Thread(target=process.run, daemon=True)
    running.start()
    assert driver.registered.wait(PATIENCE)
    trouble(driver, process, monkeypatch)
    assert is_closing.wait(PATIENCE / 4)
    driver.is_over.wait(0.2)
    may_close.set()
    running.join(PATIENCE)
    assert driver.is_over.wait(PATIENCE)
    assert events == ["nothing acts any more", ("the line ended", True)]
