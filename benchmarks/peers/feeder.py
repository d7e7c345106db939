"""A socket that announces the records of the rule at a fixed rate, for the latency runs.

Record `i` is due at `start + i / rate`. Every few milliseconds one line `first,last` names the
records that have become due; the peer makes them from the line. (A line per record is no good:
Spark's socket source takes time by the square of the lines in a batch.) Flink's SQL has no way to
make records from a line, so its peers get a line per record. Latency counts from the
moment a record was due, not from when it was read, so a peer that falls behind cannot hide it.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

TICK = 0.002
CAUGHT_UP = 2.0
"""Seconds that a peer may be behind when its warm-up ends."""


class Feeder:
    """Serves one client; `start` is known once it has connected.

    `ends[n]` is the number of records announced by the first `n` lines.
    """

    def __init__(self, rate: int, line_per_record: bool = False) -> None:
        self._rate = rate
        self._message = _numbers if line_per_record else _range
        self._server = socket.create_server(("127.0.0.1", 0))
        self._stop = threading.Event()
        self._connected = threading.Event()
        self.start = 0.0
        self._delays: list[float] = []
        self.ends = [0]
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.getsockname()[1])

    def due(self, record: int) -> float:
        return self.start + record / self._rate

    def wait_for_client(self, timeout: float) -> None:
        if not self._connected.wait(timeout):
            raise TimeoutError(f"nobody connected to the record feeder within {timeout} s")

    def warm_up(self, done: Callable[[], int], seconds: float, limit: float) -> float:
        """Wait until a peer has worked off what its slow start has left.

        `done` tells how many records it has processed. Returns the moment from which records count.

        Raises:
            TimeoutError: it has not caught up within `limit` seconds.
        """
        while True:
            time.sleep(0.2)
            now = time.time()
            behind, elapsed = now - self.due(done()), now - self.start
            if elapsed >= seconds and behind < CAUGHT_UP:
                return now
            if elapsed >= limit:
                raise TimeoutError(
                    f"{behind:.0f} s behind after {elapsed:.0f} s: it cannot take"
                    f" {self._rate:,} records/s"
                )

    def stop(self) -> str:
        """Returns how late it was: a machine that delays the feeder delays the engine, too."""
        self._stop.set()
        delays = sorted(self._delays) or [0.0]
        p99 = delays[int(0.99 * len(delays))]
        return f"feeder late by {p99 * 1000:.1f} ms (p99), {delays[-1] * 1000:.0f} ms at most"

    def _serve(self) -> None:
        client, _ = self._server.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.start = time.time()
        self._connected.set()
        sent = 0
        try:
            while not self._stop.is_set():
                due = int((time.time() - self.start) * self._rate) + 1
                if due > sent:
                    self._delays.append(time.time() - self.due(sent))
                    self.ends.append(due)
                    client.sendall(self._message(sent, due))
                    sent = due
                time.sleep(TICK)
        except OSError:
            pass
        finally:
            client.close()


class FeederProcess:
    """A feeder in a process of its own, for engines whose threads would keep it waiting."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        command = [sys.executable, "-m", "benchmarks.peers.feeder", str(rate)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.port = int(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def wait_for_client(self) -> None:
        self.start = float(self._line())

    def due(self, record: int) -> float:
        return self.start + record / self._rate

    def stop(self) -> str:
        """Returns how late it was."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._line().strip()


def main() -> None:
    feeder = Feeder(int(sys.argv[1]))
    print(feeder.port, flush=True)
    feeder.wait_for_client(120)
    print(feeder.start, flush=True)
    sys.stdin.read()  # until the other end stops it, or is gone
    print(feeder.stop())


def _range(first: int, end: int) -> bytes:
    return b"%d,%d\n" % (first, end - 1)


def _numbers(first: int, end: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(first, end))


if __name__ == "__main__":
    main()
