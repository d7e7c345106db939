"""Sources that cannot replay, in jobs that fail: what was logged takes effect once."""

import socket
import threading
from pathlib import Path
from typing import ClassVar

import pytest

from tests.jobs import RESTARTS, Job, on_disk
from tests.programs import apply, graph_of, mapped, read, wait_until
from tidegate.common import RestartStrategies
from tidegate.connectors.durable.log import DurableLog
from tidegate.connectors.files.encodings import Encoder
from tidegate.connectors.files.sink import FileSink
from tidegate.core.errors import ConfigError, GraphError, NotAccepted, StorageError
from tidegate.core.ids import SlotIndex
from tidegate.datastream import CheckpointedFunction, MapFunction, SourceFunction
from tidegate.datastream.connectors import CallbackSource, SocketSource, durable
from tidegate.graph.partitioning import Rebalance
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.testing.environments import mini_environment

MANY_RESTARTS = {**RESTARTS, "restart-strategy.fixed-delay.attempts": 1000}


class Server:
    """Sends lines over TCP to whoever connected last, each of them once."""

    def __init__(self):
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._connections = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self):
        while True:
            try:
                self._connections.append(self._listening.accept()[0])
            except OSError:
                return

    @property
    def connected(self):
        return len(self._connections)

    def send(self, lines):
        self._connections[-1].sendall("".join(f"{line}\n" for line in lines).encode())

    def hang_up(self):
        self._connections[-1].close()

    def close(self):
        self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._listening.close()
        for connection in self._connections:
            connection.close()
        self._thread.join(120)


@pytest.fixture
def server():
    serving = Server()
    yield serving
    serving.close()


def source_of(server):
    return durable(SocketSource("127.0.0.1", server.port))


def logs_below(directory):
    """The log of the only durable source of the only job."""
    return [DurableLog(str(path.parent)) for path in Path(directory).glob("*/taskowned/*/log")]


def logged_below(directory):
    """How many records there are, or have been."""
    for log in logs_below(directory):
        numbers = log.numbers()
        try:
            batches = [batch for n in numbers for batch in log.read(n).batches(None)]
            return [record for batch in batches for record in batch.records]
        except StorageError:  # it was deleted meanwhile
            return []
    return []


def lines_in(directory):
    files = [path for path in Path(directory).rglob("part-*") if path.is_file()]
    return sorted(int(line) for path in files for line in path.read_text().split())


class Seen(MapFunction):
    """Passes records on, and can be told to fail at the next one."""

    seen: ClassVar = set()
    fails = False

    def map(self, value):
        if Seen.fails:
            Seen.fails = False
            raise RuntimeError("told to fail")
        Seen.seen.add(int(value))
        return value


@pytest.fixture(autouse=True)
def nothing_seen():
    Seen.seen = set()
    Seen.fails = False


def job_of(source, tmp_path, parallelism=2, **settings):
    lines = read(source, name="lines", uid="lines", parallelism=1, max_parallelism=1)
    seen = mapped(Seen(), lines, name="seen", uid="seen", partitioning=Rebalance())
    sink = apply(
        SinkOperator(FileSink(str(tmp_path / "out"), Encoder())),
        seen,
        name="sink",
        uid="sink",
        is_sink=True,
    )
    graph = graph_of(sink, parallelism=parallelism)
    return Job(graph, on_disk(tmp_path / "checkpoints", **MANY_RESTARTS, **settings))


def wait_until_seen(numbers):
    wait_until(lambda: Seen.seen.issuperset(numbers))


def ends_with(first, last, server, job, tmp_path):
    """Send the last lines; every line has then come once."""
    server.send(range(first, last))
    wait_until_seen(range(first, last))
    server.hang_up()
    job.result()
    assert lines_in(tmp_path / "out") == list(range(last))


@pytest.mark.parametrize("retained", [1, 3])
def test_lines_of_a_socket_take_effect_once_whatever_is_killed(server, tmp_path, retained):
    job = job_of(source_of(server), tmp_path, **{"execution.checkpointing.num-retained": retained})
    sent = 0
    for damage in ("none", "function", "slot", "other slot", "function", "none"):
        connected = server.connected
        if damage == "function":
            Seen.fails = True
            server.send(range(sent, sent + 5))
            sent += 5
            # What is logged by now is not lost; what is sent from now on is, until it connects.
            wait_until(lambda before=connected: server.connected > before)
        elif damage != "none":
            job.cluster.kill(SlotIndex(0 if damage == "slot" else 1))
            wait_until(lambda before=connected: server.connected > before)
        wait_until(lambda: server.connected)
        server.send(range(sent, sent + 40))
        sent += 40
        wait_until_seen(range(sent))
    server.hang_up()
    job.result()
    assert lines_in(tmp_path / "out") == list(range(sent))


def test_the_log_is_cut_as_checkpoints_complete(server, tmp_path):
    job = job_of(source_of(server), tmp_path)
    wait_until(lambda: server.connected)
    for burst in range(20):
        server.send(range(burst * 10, burst * 10 + 10))
        wait_until_seen(range(burst * 10 + 10))
    job.wait_for_checkpoints(2)
    wait_until(lambda: not logged_below(tmp_path / "checkpoints"))
    server.hang_up()
    job.result()
    assert lines_in(tmp_path / "out") == list(range(200))
    assert logs_below(tmp_path / "checkpoints") == []


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("interval", ["10 ms", "1 h"], ids=["checkpoints", "no checkpoint"])
def test_a_job_that_is_started_again_continues_with_the_log(
    server, tmp_path, parallelism, interval
):
    """Also with more subtasks, or fewer, behind the source."""
    job = job_of(source_of(server), tmp_path, **{"execution.checkpointing.interval": interval})
    wait_until(lambda: server.connected)
    server.send(range(50))
    wait_until_seen(range(50))
    if interval != "1 h":
        job.wait_for_checkpoint()
    server.send(range(50, 60))
    wait_until_seen(range(60))
    job.cancel()
    Seen.seen.clear()
    again = job_of(
        source_of(server), tmp_path, parallelism, **{"execution.state-recovery.path": "latest"}
    )
    wait_until(lambda: server.connected == 2)
    ends_with(60, 70, server, again, tmp_path)


def test_without_a_completed_checkpoint_nothing_that_was_logged_is_lost(server, tmp_path):
    job = job_of(source_of(server), tmp_path, **{"execution.checkpointing.interval": "1 h"})
    wait_until(lambda: server.connected)
    server.send(range(30))
    wait_until_seen(range(30))
    job.cluster.kill(SlotIndex(0))
    wait_until(lambda: server.connected == 2)
    ends_with(30, 40, server, job, tmp_path)


# --- functions and callbacks --------------------------------------------------------------------


def environment(tmp_path, **settings):
    env = mini_environment(
        {
            "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
            "tidegate.step.max-records": 10,
            **settings,
        },
        parallelism=2,
    )
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(100, 1))
    return env.enable_checkpointing("10 ms")


class Feed(SourceFunction):
    """Numbers that nobody can have again: each run takes up where the last one was interrupted."""

    next = 0

    def run(self, ctx):
        self.runs = True
        while self.runs and Feed.next < 300:
            ctx.collect(Feed.next)
            Feed.next += 1

    def cancel(self):
        self.runs = False


def test_a_source_function_without_state_takes_effect_once(tmp_path):
    Feed.next = 0
    env = environment(tmp_path)
    numbers = env.add_source(durable(Feed()), "Feed")
    numbers.map(FailsAt(60, 120, 121)).rebalance().sink_to(
        FileSink(str(tmp_path / "out"), Encoder())
    )
    env.execute()
    assert lines_in(tmp_path / "out") == list(range(300))


class Breaking(SourceFunction):
    """Its first run fails."""

    runs = 0

    def run(self, ctx):
        Breaking.runs += 1
        if Breaking.runs == 1:
            ctx.collect(1)
            raise ConnectionError("the connection broke")
        ctx.collect(2)

    def cancel(self): ...


def test_a_source_function_that_fails_is_run_again(tmp_path):
    Breaking.runs = 0
    env = environment(tmp_path)
    env.add_source(durable(Breaking())).sink_to(FileSink(str(tmp_path / "out"), Encoder()))
    env.execute()
    assert lines_in(tmp_path / "out") == [1, 2]


class FailsAt(MapFunction):
    """Fails once at each of these numbers."""

    failed: ClassVar = set()

    def __init__(self, *numbers):
        self.numbers = numbers
        FailsAt.failed = set()

    def map(self, value):
        if value in self.numbers and value not in FailsAt.failed:
            FailsAt.failed.add(value)
            raise RuntimeError(f"at {value}")
        return value


class Office:
    """A sender that sends a record again until the job has taken it."""

    emits: ClassVar = []

    @staticmethod
    def subscribe(emit):
        Office.emits.append(emit)

    @staticmethod
    def push(record):
        while True:
            count = len(Office.emits)
            try:
                return Office.emits[-1](record)
            except NotAccepted:
                wait_until(lambda before=count: len(Office.emits) > before)


def test_a_record_that_was_acknowledged_takes_effect_once(tmp_path):
    """One that was not is sent again, which may bring it twice: its sender cannot know."""
    Office.emits = []
    env = environment(tmp_path)
    pushed = env.from_source(durable(CallbackSource(Office.subscribe)), source_name="Office")
    failing = pushed.map(FailsAt(30, 77, 120))
    failing.rebalance().sink_to(FileSink(str(tmp_path / "out"), Encoder()))
    job = env.execute_async()
    wait_until(lambda: Office.emits)
    senders = [
        threading.Thread(target=lambda n=n: [Office.push(i) for i in range(n, 200, 4)])
        for n in range(4)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(120)
    Office.emits[-1].end()
    job.wait()
    found = lines_in(tmp_path / "out")
    assert sorted(set(found)) == list(range(200))
    assert len(found) <= 200 + 3 * len(senders)


# --- what is refused ----------------------------------------------------------------------------


def test_checkpoints_in_memory_have_no_place_for_a_log(server):
    env = mini_environment(parallelism=1).enable_checkpointing("1 s")
    env.from_source(source_of(server)).add_sink(print)
    with pytest.raises(ConfigError, match="durable"):
        env.execute()


class Remembers(Feed, CheckpointedFunction):
    def initialize_state(self, context): ...

    def snapshot_state(self, context): ...


def test_functions_with_state_need_no_log():
    with pytest.raises(GraphError, match="Remembers is a CheckpointedFunction that restores"):
        durable(Remembers())
    with pytest.raises(TypeError, match="durable"):
        durable("a topic")


def test_only_the_log_makes_a_socket_replay(server):
    plain = SocketSource("127.0.0.1", server.port)
    assert not plain.replay().is_possible
    assert plain.durable().replay().is_possible
    assert durable(plain).max_readers() == 1
