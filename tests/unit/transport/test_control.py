import errno
import socket
import struct
import threading

import pytest

from tests.programs import PATIENCE, wait_until
from tidegate.core.errors import LineClosed
from tidegate.core.ids import PipelineId
from tidegate.protocol.messages import ConsoleLines, Wake
from tidegate.transport import control
from tidegate.transport.control import ControlLine
from tidegate.transport.wire import Connection

BIG = ConsoleLines(("x" * (4 << 20),))


@pytest.fixture
def ends():
    """A line whose other end is read by hand, if at all."""
    ours, theirs = (Connection(each) for each in socket.socketpair())
    line = ControlLine(ours)
    yield line, ControlLine(theirs)
    line.close()
    theirs.close()


def in_background(act):
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def test_messages_arrive_in_order(ends):
    line, other = ends
    sent = [Wake(PipelineId(number)) for number in range(100)]
    for message in sent:
        line.send(message)
    line.close(PATIENCE)
    assert list(other.messages()) == sent


def test_an_end_that_reads_nothing_holds_up_nobody_who_sends(ends):
    line, other = ends

    def send_all():
        for _ in range(5):
            line.send(BIG)

    sending = in_background(send_all)
    sending.join(PATIENCE / 4)
    assert not sending.is_alive()
    messages = other.messages()
    assert [next(messages) for _ in range(5)] == [BIG] * 5


def test_a_line_on_which_too_much_waits_is_closed(ends, monkeypatch):
    monkeypatch.setattr(control, "_MOST_WAITING", 3)
    line, other = ends
    for _ in range(3):
        line.send(BIG)
    with pytest.raises(LineClosed, match="3 messages"):
        line.send(BIG)
    with pytest.raises(LineClosed):
        line.send(BIG)
    in_background(lambda: list(other.messages())).join(PATIENCE)


def test_a_sender_that_waits_for_room_continues_when_there_is_some(ends):
    line, other = ends
    sending = in_background(lambda: [line.send(BIG, waits=True) for _ in range(3)])
    messages = other.messages()
    assert [next(messages) for _ in range(3)] == [BIG] * 3
    sending.join(PATIENCE)
    assert not sending.is_alive()


def test_who_waits_for_room_is_freed_by_the_end_of_the_line(ends):
    line, _ = ends
    failures = []

    def send_until_it_ends():
        try:
            while True:
                line.send(BIG, waits=True)
        except LineClosed as failure:
            failures.append(failure)

    sending = in_background(send_until_it_ends)
    line.send(BIG)
    line.close()
    sending.join(PATIENCE)
    assert failures


def refused(kind, *parts):
    raise LineClosed("[Errno 105] No buffer space available")


def test_a_line_whose_frame_the_system_refuses_ends_when_the_other_end_closes_it(ends, monkeypatch):
    """The other end sees that nothing more comes; when it closes the line, it is gone."""
    line, other = ends
    monkeypatch.setattr(line._connection, "send", refused)
    reading = in_background(lambda: list(line.messages()))
    line.send(Wake(PipelineId(1)))
    assert list(other.messages()) == []
    assert reading.is_alive()
    other.close()
    reading.join(PATIENCE)
    assert line._connection.is_other_end_gone


def test_an_end_that_must_not_end_the_line_is_asked_what_to_do_if_it_fails(monkeypatch):
    ours, theirs = (Connection(each) for each in socket.socketpair())
    failed = threading.Event()
    line, other = ControlLine(ours, failed.set), ControlLine(theirs)
    monkeypatch.setattr(ours, "send", refused)
    line.send(Wake(PipelineId(1)))
    assert failed.wait(PATIENCE)
    reading = in_background(lambda: list(other.messages()))
    reading.join(0.1)
    assert reading.is_alive()
    line.close()
    reading.join(PATIENCE)
    for each in (ours, theirs):
        each.close()


# --- what the end of a line says ----------------------------------------------------------------


def tcp_pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        dialed = socket.create_connection(server.getsockname())
        return server.accept()[0], dialed


def reset(sock):
    """Closed as by something on the way that has forgotten the connection."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def leave_unread(sock):
    wait_until(lambda: sock.recv(1, socket.MSG_PEEK))
    sock.close()


@pytest.mark.parametrize(
    ("pair", "end", "is_gone"),
    [
        (socket.socketpair, socket.socket.close, True),
        (socket.socketpair, leave_unread, True),
        (tcp_pair, socket.socket.close, True),
        (tcp_pair, reset, False),
    ],
)
def test_only_some_ends_of_a_line_say_that_the_other_process_is_through(pair, end, is_gone):
    ours, theirs = pair()
    connection = Connection(ours)
    connection.send(1, b"unread")
    if end is socket.socket.close:
        Connection(theirs).receive()
    end(theirs)
    with pytest.raises(LineClosed):
        connection.receive()
    assert connection.is_other_end_gone is is_gone
    connection.close()


@pytest.mark.parametrize(
    ("pair", "end", "is_gone"),
    [
        (socket.socketpair, socket.socket.close, True),
        (tcp_pair, socket.socket.close, True),
        (tcp_pair, reset, False),
    ],
)
def test_who_sends_first_does_not_change_what_the_end_of_a_line_says(pair, end, is_gone):
    """The system reports a reset once, to whoever asks first; others only see an end."""
    ours, theirs = pair()
    connection = Connection(ours)
    end(theirs)

    def is_refused():
        try:
            connection.send(1, b"anybody?")
        except LineClosed:
            return True
        return False

    wait_until(is_refused)
    with pytest.raises(LineClosed):
        connection.receive()
    assert connection.is_other_end_gone is is_gone
    connection.close()


@pytest.mark.parametrize(("pair", "is_gone"), [(socket.socketpair, True), (tcp_pair, False)])
def test_a_tcp_line_that_ends_while_somebody_sends_says_nothing_about_the_other_end(pair, is_gone):
    """Who sends may be about to learn that it was reset."""
    ours, theirs = pair()
    connection = Connection(ours)
    theirs.close()
    with connection._sending, pytest.raises(LineClosed):
        connection.receive()
    assert connection.is_other_end_gone is is_gone
    connection.close()


@pytest.mark.parametrize(
    ("number", "is_gone"), [(errno.ENOBUFS, True), (errno.EPIPE, True), (errno.ECONNRESET, False)]
)
def test_a_frame_that_the_system_refuses_is_no_reset(monkeypatch, number, is_gone):
    def refuse(sock, data):
        raise OSError(number, "refused")

    monkeypatch.setattr(socket.socket, "sendall", refuse)
    ours, theirs = tcp_pair()
    connection = Connection(ours)
    with pytest.raises(LineClosed):
        connection.send(1, b"refused")
    theirs.close()
    with pytest.raises(LineClosed):
        connection.receive()
    assert connection.is_other_end_gone is is_gone
    connection.close()


def test_a_line_that_was_closed_here_says_nothing_about_the_other_end():
    ours, theirs = socket.socketpair()
    connection = Connection(ours)
    connection.close()
    with pytest.raises(LineClosed):
        connection.receive()
    assert not connection.is_other_end_gone
    theirs.close()
