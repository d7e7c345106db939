import contextlib
import socket
import threading

import pytest

from tests.unit.connectors.reading import reader_of
from tidegate.connectors.socket import SocketSource
from tidegate.connectors.source import InputStatus
from tidegate.core.clock import ManualClock
from tidegate.core.errors import ConfigError, ExternalError


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(120)
        yield listening


def port_of(server):
    return server.getsockname()[1]


def poll_until(reader, count):
    """Poll until so many records came, or the end."""
    records = []
    while True:
        poll = reader.poll(100)
        records += poll.batch.records if poll.batch is not None else []
        if len(records) >= count or poll.status is InputStatus.END_OF_INPUT:
            return records, poll.status


def test_lines_come_as_they_are_sent_and_end_with_the_connection(server):
    reader = reader_of(SocketSource("127.0.0.1", port_of(server)))
    assert reader.poll(10).status is InputStatus.NOTHING_AVAILABLE
    with contextlib.closing(server.accept()[0]) as client:
        assert not reader.is_available()
        client.sendall(b"eins\r\nzw")
        assert poll_until(reader, 1)[0] == ["eins"]
        client.sendall("ei\ndr\u00fc".encode())
        assert poll_until(reader, 1)[0] == ["zwei"]
        assert len(reader.snapshot()) == 1
    assert poll_until(reader, 9) == (["dr\u00fc"], InputStatus.END_OF_INPUT)
    assert reader.is_available()
    assert reader.snapshot() == []
    reader.close()


def test_a_poll_returns_no_more_than_asked(server):
    reader = reader_of(SocketSource("127.0.0.1", port_of(server), delimiter="|"))
    reader.poll(1)
    with contextlib.closing(server.accept()[0]) as client:
        client.sendall(b"a|b\n|c|d")
    first = reader.poll(2)
    while first.batch is None:
        first = reader.poll(2)
    assert first.batch.records == ["a", "b\n"]
    assert poll_until(reader, 9)[0] == ["c", "d"]
    reader.close()


def test_a_broken_connection_is_made_again_as_often_as_asked(server):
    clock = ManualClock()
    reader = reader_of(SocketSource("127.0.0.1", port_of(server), retries=1), clock=clock)
    reader.poll(1)
    with contextlib.closing(server.accept()[0]) as client:
        client.sendall(b"before\n")
    assert poll_until(reader, 1)[0] == ["before"]
    while reader.is_available():
        assert reader.poll(1).status is InputStatus.NOTHING_AVAILABLE
    clock.advance(1)
    assert reader.is_available()

    def accept_and_close():
        server.accept()[0].close()

    thread = threading.Thread(target=accept_and_close)
    thread.start()
    assert poll_until(reader, 1) == ([], InputStatus.END_OF_INPUT)
    thread.join()
    reader.close()


def test_a_server_that_is_not_there_is_named(server):
    port = port_of(server)
    server.close()
    reader = reader_of(SocketSource("127.0.0.1", port))
    with pytest.raises(ExternalError, match=f"no connection to 127.0.0.1:{port}: .*set retries"):
        reader.poll(1)


def test_one_reader_is_enough():
    assert SocketSource("h", 1).max_readers() == 1
    with pytest.raises(ConfigError, match="port = 0"):
        SocketSource("h", 0)
    with pytest.raises(ConfigError, match="the end of a line"):
        SocketSource("h", 1, delimiter="")
