"""Connections that are many, silent or slow, and a job that does not mind."""

import os
import signal
import socket
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.programs import wait_until
from tidegate.core.rest_settings import RestSettings
from tidegate.protocol.job_status import JobStatus
from tidegate.web.serving import connections

REQUEST = b"GET /jobs HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.fixture
def served(serve):
    return serve(rest=RestSettings())


@pytest.fixture
def connect(served):
    """Opens raw connections to the server of a job."""
    opened = []
    address = urlsplit(served.server.url)

    def create():
        sock = socket.create_connection((address.hostname, address.port))
        sock.settimeout(120)
        opened.append(sock)
        return sock

    yield create
    for sock in opened:
        sock.close()


def is_cut(sock):
    try:
        while sock.recv(1 << 16):
            pass  # an answer that needs no more of the request
        return True
    except ConnectionError:
        return True


def answer(sock):
    text = b""
    while not text.endswith(b"]}"):
        text += sock.recv(1 << 16)
    return text.partition(b"\r\n")[0]


def sockets_of_the_process():
    links = list(Path("/proc/self/fd").iterdir())
    return sum(1 for link in links if _target(link).startswith("socket:"))


def _target(link):
    try:
        return str(link.readlink())
    except OSError:
        return ""


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(connections, "_files", lambda: 4 * 16)


def test_idle_connections_make_room_for_others(few, served, connect):
    before = sockets_of_the_process()
    strangers = [connect() for _ in range(16)]
    for number in range(300):
        strangers.append(connect())
        if number % 10 == 0:
            assert served.ask("/jobs").status == 200
    # Theirs and ours; and the kernel holds some that nobody has accepted yet.
    assert is_cut(strangers[0])
    wait_until(lambda: sockets_of_the_process() - before - len(strangers) <= 17)
    assert served.ask("/jobs").status == 200
    assert served.job.status() is JobStatus.RUNNING


def test_the_connection_that_waited_longest_makes_room(few, connect):
    first, *others = [connect() for _ in range(16)]
    for sock in (*others, first):
        sock.sendall(REQUEST)
        assert answer(sock).endswith(b"200 OK")
    connect()
    assert is_cut(others[0])
    first.sendall(REQUEST)
    assert answer(first).endswith(b"200 OK")


POST = b"POST /jobs/x/savepoints HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{"


@pytest.mark.parametrize(
    "words",
    [b"", b"GET /jobs HT", POST],
    ids=["silent", "within the head", "within the body"],
)
def test_who_does_not_finish_a_request_is_cut(monkeypatch, connect, words):
    monkeypatch.setattr(connections, "_REQUEST_SECONDS", 0.2)
    stranger = connect()
    stranger.sendall(words)
    assert is_cut(stranger)


def test_who_does_not_read_the_answer_is_cut(monkeypatch, connect):
    monkeypatch.setattr(connections, "_ANSWER_SECONDS", 0.2)
    stranger = connect()
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    pipelined = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 1000
    with pytest.raises(OSError, match=r"reset|pipe"):
        stranger.sendall(pipelined * 100)


def test_a_connection_that_is_used_stays(monkeypatch, connect):
    monkeypatch.setattr(connections, "_REQUEST_SECONDS", 60)
    sock = connect()
    for _ in range(20):
        sock.sendall(REQUEST)
        assert answer(sock).endswith(b"200 OK")


FILES = 200
SERVER = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))
from tidegate.core.rest_settings import RestSettings
from tidegate.web.server import RestServer
server = RestServer(RestSettings())
print(server.url, flush=True)
input()
"""


def answers(host, port):
    connection = HTTPConnection(host, port, timeout=60)
    try:
        connection.request("GET", "/jobs")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@pytest.mark.slow
def test_a_burst_of_connections_takes_no_more_files_than_the_limit():
    """They arrive while the server is stopped, so that it finds all of them at once."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        address = urlsplit(process.stdout.readline())
        host = (address.hostname, address.port)
        wait_until(lambda: answers(*host))
        process.send_signal(signal.SIGSTOP)
        burst = [socket.create_connection(host) for _ in range(3 * FILES)]
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: answers(*host))
        for sock in burst:
            sock.close()
        _, errors = process.communicate("")
    assert "Too many open files" not in errors
