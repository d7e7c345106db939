import errno
import os
import pickle
import socket
import struct
import threading
from pathlib import Path

import pytest

from tests.programs import wait_until
from tidegate.core.errors import ExternalError, LineClosed, NotAuthorized
from tidegate.core.ids import Address
from tidegate.transport.wire import Connection, Listener, dial, this_machine

SECRET = b"s" * 32
HEADER = struct.Struct(">QB")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "line.sock")


@pytest.fixture
def listening(path):
    """A listener by both ways, and what its handler was told."""
    heard = []

    def handle(connection):
        while True:
            kind, payload = connection.receive()
            heard.append((kind, bytes(payload)))
            connection.send(kind, payload)

    listener = Listener(unix_path=path, host="127.0.0.1")
    listener.serve(SECRET, handle)
    listener.heard = heard
    yield listener
    listener.close()


@pytest.fixture(params=["unix", "tcp"])
def address(request, listening):
    if request.param == "unix":
        return listening.address
    return Address(listening.address.host, listening.address.port, "/nowhere", "another machine")


@pytest.fixture
def stranger(address):
    """A raw connection of somebody who knows where, but not the secret."""
    if address.machine == this_machine():
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(address.unix_path)
    else:
        sock = socket.create_connection((address.host, address.port))
    sock.settimeout(120)
    yield sock
    sock.close()


def frame(kind, payload):
    return HEADER.pack(len(payload), kind) + payload


def read_frame(sock):
    length, _ = HEADER.unpack(read_exactly(sock, HEADER.size))
    return read_exactly(sock, length)


def read_exactly(sock, length):
    data = b""
    while len(data) < length:
        more = sock.recv(length - len(data))
        assert more, "closed"
        data += more
    return data


def is_hung_up_on(sock):
    try:
        while sock.recv(1 << 16):
            pass  # the challenge and the proof of the other side
    except ConnectionResetError:
        pass  # it left some of our words unread
    return True


class Bomb:
    """Leaves a trace in the file system of whoever unpickles it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_those_who_share_the_secret_talk(address, listening):
    line = dial(address, SECRET)
    line.send(7, b"hello ", bytearray(b"there"))
    assert line.receive() == (7, b"hello there")
    line.close()
    assert listening.heard == [(7, b"hello there")]


def test_frames_of_any_size_arrive_whole(address):
    line = dial(address, SECRET)
    for size in (0, 1, (1 << 16) - 1, 1 << 16, 3 << 20):
        payload = os.urandom(size)
        threading.Thread(target=line.send, args=(1, payload[:10], memoryview(payload)[10:])).start()
        assert line.receive() == (1, payload)
    line.close()


def test_several_threads_may_send(address):
    line = dial(address, SECRET)
    words = [bytes([number]) * 70_000 for number in range(20)]
    for word in words:
        threading.Thread(target=line.send, args=(1, word[:1], word[1:])).start()
    arrived = [bytes(line.receive()[1]) for _ in words]
    assert sorted(arrived) == words
    line.close()


def test_who_dials_with_another_secret_is_refused(address, listening):
    with pytest.raises((NotAuthorized, LineClosed)):
        dial(address, b"x" * 32).receive()
    assert listening.heard == []


def test_a_listener_with_another_secret_is_refused(path):
    listener = Listener(unix_path=path)
    listener.serve(b"x" * 32, lambda connection: None)
    with pytest.raises((NotAuthorized, LineClosed)):
        dial(listener.address, SECRET)
    listener.close()


def test_nothing_of_a_stranger_is_unpickled(stranger, listening, tmp_path):
    bomb = pickle.dumps(Bomb(tmp_path / "crater"))
    stranger.sendall(frame(0, os.urandom(32)) + frame(0, bomb[:60]) + frame(1, bomb))
    assert is_hung_up_on(stranger)
    assert listening.heard == []
    assert not (tmp_path / "crater").exists()


def test_a_stranger_that_speaks_before_it_proves_anything_is_hung_up_on(stranger, listening):
    stranger.sendall(frame(1, b"let me in"))
    assert is_hung_up_on(stranger)
    assert listening.heard == []


def test_a_large_frame_of_a_stranger_is_not_even_read(stranger, listening):
    stranger.sendall(HEADER.pack(1 << 33, 0))
    assert is_hung_up_on(stranger)
    assert listening.heard == []


def test_our_own_proof_sent_back_is_no_proof(stranger, listening):
    challenge = read_frame(stranger)
    stranger.sendall(frame(0, challenge))
    stranger.sendall(frame(0, read_frame(stranger)))
    assert is_hung_up_on(stranger)
    assert listening.heard == []


def test_a_stranger_does_not_keep_others_waiting(stranger, address):
    line = dial(address, SECRET)
    line.send(1, b"me first")
    assert line.receive() == (1, b"me first")
    line.close()


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    yield Connection(ours), theirs
    ours.close()
    theirs.close()


def test_a_line_that_the_other_side_closes_ends(pair):
    line, other = pair
    other.close()
    with pytest.raises(LineClosed, match="closed"):
        line.receive()


def test_a_line_that_the_other_side_half_closes_ends(pair):
    line, other = pair
    other.shutdown(socket.SHUT_WR)
    with pytest.raises(LineClosed, match="closed"):
        line.receive()


def test_a_frame_that_breaks_off_ends_the_line(pair):
    line, other = pair
    other.sendall(HEADER.pack(100, 1) + b"only this")
    other.shutdown(socket.SHUT_WR)
    with pytest.raises(LineClosed, match="closed"):
        line.receive()


def test_a_frame_above_the_limit_ends_the_line(pair):
    line, other = pair
    other.sendall(HEADER.pack(65, 1))
    with pytest.raises(LineClosed, match="65 bytes, but at most 64"):
        line.receive(limit=64)


def test_sending_to_nobody_ends_in_line_closed(pair):
    line, other = pair
    other.close()
    with pytest.raises(LineClosed):
        line.send(1, b"anybody?" * 1_000_000)


def test_closing_a_line_wakes_who_waits_on_it(pair):
    line, _ = pair
    ended = []

    def wait():
        try:
            line.receive()
        except LineClosed:
            ended.append(True)

    waiting = threading.Thread(target=wait)
    waiting.start()
    line.close()
    waiting.join(120)
    assert ended == [True]


def test_a_line_is_closed_after_those_who_send_have_let_go_of_it():
    """Otherwise, they might send to another line that gets the same file descriptor."""
    is_sending, is_shut = threading.Event(), threading.Event()
    events = []

    class Socket:
        family = socket.AF_UNIX

        def sendall(self, data):
            is_sending.set()
            is_shut.wait(120)
            events.append("sent")

        def shutdown(self, how):
            is_shut.set()

        def close(self):
            events.append("closed")

    line = Connection(Socket())
    sender = threading.Thread(target=line.send, args=(1, b"x"))
    sender.start()
    is_sending.wait(120)
    line.close()
    sender.join(120)
    assert events == ["sent", "closed"]


def test_nothing_follows_a_frame_of_which_only_a_part_was_sent():
    """The other end would take it for the rest of that frame."""
    sent = []

    class Socket:
        family = socket.AF_UNIX

        def sendall(self, data):
            sent.append(bytes(data))
            raise OSError(errno.ENOBUFS, "No buffer space available")

    line = Connection(Socket())
    for _ in range(2):
        with pytest.raises(LineClosed):
            line.send(1, b"x")
    assert len(sent) == 1


def test_nobody_at_the_address_is_line_closed(path):
    with pytest.raises(LineClosed, match=f"cannot reach {path} or 127"):
        dial(Address("127.0.0.1", 1, path, this_machine()), SECRET)
    with pytest.raises(LineClosed, match=r"cannot reach 127\.0\.0\.1:1: "):
        dial(Address("127.0.0.1", 1, None, "another machine"), SECRET)


def test_a_closed_listener_leaves_no_socket_file(listening, path):
    assert Path(path).exists()
    listening.close()
    assert not Path(path).exists()
    with pytest.raises(LineClosed):
        dial(listening.address, SECRET)


def test_a_stale_socket_file_is_replaced(path):
    Listener(unix_path=path)._sockets[0].close()
    assert Path(path).exists()
    listener = Listener(unix_path=path)
    listener.serve(SECRET, lambda connection: connection.send(1, b"new"))
    line = dial(listener.address, SECRET)
    assert line.receive() == (1, b"new")
    listener.close()


def test_the_first_free_port_of_a_range_is_taken():
    first = Listener(host="127.0.0.1")
    taken = first.address.port
    with pytest.raises(ExternalError, match=rf"no port of \[{taken}\] is free on 127.0.0.1"):
        Listener(host="127.0.0.1", ports=[taken])
    second = Listener(host="127.0.0.1", ports=[taken, 0])
    assert second.address.port != taken
    first.close()
    second.close()


def test_a_handler_that_returns_hangs_up(path):
    listener = Listener(unix_path=path)
    listener.serve(SECRET, lambda connection: None)
    line = dial(listener.address, SECRET)
    with pytest.raises(LineClosed):
        line.receive()
    listener.close()


def test_connections_end_with_their_threads(address, listening):
    def threads():
        return [t for t in threading.enumerate() if t.name == "tidegate-connection"]

    before = len(threads())
    lines = [dial(address, SECRET) for _ in range(5)]
    wait_until(lambda: len(threads()) == before + 5)
    for line in lines:
        line.close()
    wait_until(lambda: len(threads()) == before)
