"""A listener that is kept busy by connections that never prove the secret."""

import os
import resource
import socket
import threading
from pathlib import Path

import pytest

from tests.effort import seed, times
from tests.programs import wait_until
from tests.strangers import attack, connected, exactly
from tidegate.core.errors import LineClosed
from tidegate.core.ids import Address
from tidegate.transport import wire
from tidegate.transport.wire import Listener, dial

SECRET = b"s" * 32


@pytest.fixture
def listener():
    listener = Listener(host="127.0.0.1")
    yield listener
    listener.close()


@pytest.fixture
def elsewhere(listener):
    return Address("127.0.0.1", listener.address.port, None, "another machine")


def say_hello(connection):
    connection.send(1, b"hello")


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def welcome_threads():
    return [each for each in threading.enumerate() if each.name == "tidegate-connection"]


@pytest.mark.slow
def test_idle_connections_take_few_files_and_keep_nobody_out(listener, elsewhere):
    before, files = len(welcome_threads()), open_files()
    listener.serve(SECRET, say_hello)
    strangers = []
    for _ in range(4 * wire._MOST_STRANGERS):
        strangers.append(connected(elsewhere))
        if len(strangers) > wire._MOST_STRANGERS:
            # The oldest is hung up on: what it reads comes to an end.
            oldest = strangers[len(strangers) - 1 - wire._MOST_STRANGERS]
            oldest.settimeout(120)
            while oldest.recv(1024):
                pass
    wait_until(lambda: len(welcome_threads()) - before <= wire._MOST_STRANGERS)
    wait_until(lambda: open_files() - files - len(strangers) <= wire._MOST_STRANGERS)
    line = dial(elsewhere, SECRET)
    assert line.receive() == (1, b"hello")
    line.close()
    for stranger in strangers:
        stranger.close()


def test_who_drips_bytes_does_not_stay_longer(listener, elsewhere, monkeypatch):
    monkeypatch.setattr(wire, "_HANDSHAKE_SECONDS", 0.3)
    listener.serve(SECRET, say_hello)
    stranger = connected(elsewhere)
    exactly(stranger, 41)
    stranger.settimeout(0.1)
    dripped = 0
    for byte in (64).to_bytes(8, "big") + bytes(65):
        try:
            stranger.send(bytes([byte]))
            dripped += 1
            if stranger.recv(1) == b"":
                break
        except TimeoutError:
            continue
        except ConnectionError:
            break
    assert dripped < 73
    stranger.close()


def test_accepting_continues_when_files_have_run_out(listener, elsewhere, caplog):
    strangers = [connected(elsewhere) for _ in range(3)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    next_free = os.dup(0)
    os.close(next_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_free, hard))
    try:
        listener.serve(SECRET, say_hello)
        wait_until(lambda: "no connection can be accepted" in caplog.text)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    line = dial(elsewhere, SECRET)
    assert line.receive() == (1, b"hello")
    line.close()
    for stranger in strangers:
        stranger.close()


@pytest.fixture
def local(tmp_path_factory):
    listener = Listener(unix_path=str(tmp_path_factory.mktemp("s") / "line"))
    yield listener
    listener.close()


@pytest.mark.parametrize("kind", ["TCP", "Unix"])
def test_whatever_strangers_send_a_line_that_is_known_works_on(
    listener, local, elsewhere, kind, tmp_path, monkeypatch
):
    unhandled = []
    monkeypatch.setattr(threading, "excepthook", unhandled.append)
    before, address = len(welcome_threads()), elsewhere if kind == "TCP" else local.address
    welcome = []

    def answer(connection):
        welcome.append(connection)
        while True:
            connection.send(*connection.receive())

    (listener if kind == "TCP" else local).serve(SECRET, answer)
    line = dial(address, SECRET)
    first = seed()
    for number in range(times(4)):
        attack(address, first + number, 100, tmp_path / "sprung")
        line.send(3, b"still here")
        assert line.receive() == (3, b"still here")
    assert len(welcome) == 1
    assert not (tmp_path / "sprung").exists()
    assert not unhandled
    line.close()
    wait_until(lambda: len(welcome_threads()) <= before)


class Tampering:
    """Sits between two ends and changes the frames from one to the other."""

    def __init__(self, to):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._socket.getsockname()[1], None, "elsewhere")
        self._to = to
        self.change = lambda frames: frames
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        near, _ = self._socket.accept()
        far = connected(self._to)
        threading.Thread(target=self._copy, args=(far, near), daemon=True).start()
        # The proof, 41 bytes twice, is left as it is.
        far.sendall(exactly(near, 82))
        frames = [self._frame(near), self._frame(near)]
        try:
            far.sendall(b"".join(self.change(frames)))
            self._copy(near, far)
        except OSError:
            pass

    @staticmethod
    def _frame(near):
        header = exactly(near, 9)
        return header + exactly(near, int.from_bytes(header[:8], "big") + 2 * wire._TAG_BYTES)

    @staticmethod
    def _copy(source, target):
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self):
        self._socket.close()


def flipped(frame, place):
    return frame[:place] + bytes([frame[place] ^ 1]) + frame[place + 1 :]


FORGED = (3).to_bytes(8, "big") + b"\x01"
CHANGES = {
    "untouched": (lambda one, two: [one, two], [b"one", b"two"]),
    "length": (lambda one, two: [flipped(one, 4), two], []),  # 16 MiB more
    "kind": (lambda one, two: [flipped(one, 8), two], []),
    "tag of the header": (lambda one, two: [flipped(one, 9), two], []),
    "payload": (lambda one, two: [flipped(one, 25), two], []),
    "tag": (lambda one, two: [one, flipped(two, -1 % len(two))], [b"one"]),
    "inserted": (lambda one, two: [FORGED + b"t" * 16 + b"bad" + b"t" * 16, one], []),
    "inserted without a tag": (lambda one, two: [FORGED + b"bad", one], []),
    "repeated": (lambda one, two: [one, one, two], [b"one"]),
    "reordered": (lambda one, two: [two, one], []),
    "dropped": (lambda one, two: [two], []),
}


@pytest.mark.parametrize("change", CHANGES)
def test_frames_that_somebody_changes_on_the_way_are_refused(listener, elsewhere, change, caplog):
    heard, over = [], threading.Event()

    def hear(connection):
        try:
            while True:
                heard.append(bytes(connection.receive()[1]))
        except LineClosed:
            is_gone.append(connection.is_other_end_gone)
            over.set()

    is_gone = []
    listener.serve(SECRET, hear)
    between = Tampering(elsewhere)
    alter, expected = CHANGES[change]
    between.change = lambda frames: alter(*frames)
    line = dial(between.address, SECRET)
    line.send(1, b"one")
    line.send(1, b"two")
    if change == "untouched":
        wait_until(lambda: len(heard) == 2)
        line.close()
    assert over.wait(120)
    assert heard == expected
    assert ("refused" in caplog.text) is (change != "untouched")
    # The other end may well be alive.
    assert is_gone == [change == "untouched"]
    line.close()
    between.close()


def test_the_frames_of_one_line_are_strange_to_another(listener, elsewhere):
    """And those of one direction to the other: what is recorded is of no use."""
    one, other = wire._Seal(b"a" * 32), wire._Seal(b"b" * 32)
    assert one.tag(b"frame") != other.tag(b"frame")
    listener.serve(SECRET, lambda connection: connection.receive())
    lines = [dial(elsewhere, SECRET) for _ in range(2)]
    keys = {seal.tag() for line in lines for seal in (line._sends, line._receives)}
    assert len(keys) == 4
    for line in lines:
        line.close()
