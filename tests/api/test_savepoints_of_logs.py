"""Savepoints of jobs whose sources keep files: they hold what they need, and can be moved."""

import shutil
import threading
from pathlib import Path

import pytest

from tests.api.test_durable_sources import (
    Office,
    Seen,
    Server,
    ends_with,
    environment,
    job_of,
    lines_in,
    logged_below,
    source_of,
    wait_until_seen,
)
from tests.jobs import open_with_barrier
from tests.programs import PATIENCE, wait_until
from tidegate.core.errors import CorruptCheckpoint, SavepointFailed
from tidegate.core.ids import SlotIndex
from tidegate.core.modes import SavepointFormat
from tidegate.datastream.connectors import CallbackSource, durable
from tidegate.datastream.connectors.file_system import Encoder, FileSink
from tidegate.savepoint import state_reader
from tidegate.stream.elements import BarrierKind

PATH = "execution.state-recovery.path"
CLAIM = {"execution.state-recovery.claim-mode": "CLAIM"}
SENT = 2_000
RARELY = {"execution.checkpointing.interval": "1 h"}


@pytest.fixture
def server():
    serving = Server()
    yield serving
    serving.close()


@pytest.fixture(autouse=True)
def seen(monkeypatch):
    """Records stay in the log until the test opens the gate."""
    gate = threading.Event()
    gate.set()
    monkeypatch.setattr(Seen, "seen", set())
    seen_by_map = Seen.map

    def waits(self, value):
        gate.wait(PATIENCE)
        return seen_by_map(self, value)

    monkeypatch.setattr(Seen, "map", waits)
    yield gate
    gate.set()


def segments_in(savepoint):
    return sorted(Path(savepoint).glob("taskowned/*/log/*"))


def stopped_with_a_log(server, tmp_path, gate, format=SavepointFormat.CANONICAL):
    """A job that has logged more than it has processed, and was stopped; its savepoint."""
    job = job_of(source_of(server), tmp_path, **RARELY)
    wait_until(lambda: server.connected)
    server.send(range(100))
    wait_until_seen(range(100))
    gate.clear()
    server.send(range(100, SENT))
    wait_until(lambda: SENT - 1 in map(int, logged_below(tmp_path / "checkpoints")))
    open_with_barrier(job.master.checkpoints, gate)
    path = job.order(BarrierKind.STOP, tmp_path / "savepoints", format).result(PATIENCE)
    job.result()
    assert len(lines_in(tmp_path / "out")) < SENT
    return path


def moved(path, tmp_path):
    """A copy of a savepoint under another name, and nothing of where it came from."""
    copy = tmp_path / "elsewhere" / "renamed"
    shutil.copytree(path, copy)
    shutil.rmtree(path)
    shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
    return str(copy)


def goes_on(server, tmp_path, path, **settings):
    """Start from a savepoint, send some more, and see that every line has come once."""
    connected = server.connected
    job = job_of(source_of(server), tmp_path, 3, **{PATH: path}, **settings)
    wait_until(lambda: server.connected > connected)
    ends_with(SENT, SENT + 20, server, job, tmp_path)


@pytest.mark.parametrize("format", list(SavepointFormat), ids=lambda format: format.value)
def test_a_stopped_job_continues_elsewhere_with_what_was_in_its_log(server, tmp_path, seen, format):
    path = stopped_with_a_log(server, tmp_path, seen, format)
    assert segments_in(path)
    goes_on(server, tmp_path, moved(path, tmp_path))


def test_the_log_is_taken_over_before_a_claimed_savepoint_is_deleted(server, tmp_path, seen):
    path = stopped_with_a_log(server, tmp_path, seen)
    goes_on(server, tmp_path, path, **CLAIM)
    assert not Path(path).exists()


def test_a_changed_copy_has_the_log_too(server, tmp_path, seen):
    path = stopped_with_a_log(server, tmp_path, seen)
    copy = state_reader(path).edit().write(tmp_path / "edited")
    shutil.rmtree(path)
    goes_on(server, tmp_path, copy)


def test_a_job_that_fails_after_the_restore_repeats_and_loses_nothing(server, tmp_path, seen):
    path = moved(stopped_with_a_log(server, tmp_path, seen), tmp_path)
    connected = server.connected
    Seen.fails = True
    job = job_of(source_of(server), tmp_path, **{PATH: path}, **RARELY)
    wait_until(lambda: server.connected > connected)
    wait_until_seen(range(SENT))
    connected = server.connected
    job.cluster.kill(SlotIndex(0))
    wait_until(lambda: server.connected > connected)
    ends_with(SENT, SENT + 20, server, job, tmp_path)


def test_a_log_that_has_changed_is_named(server, tmp_path, seen):
    path = stopped_with_a_log(server, tmp_path, seen)
    segment = segments_in(path)[-1]
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    job = job_of(source_of(server), tmp_path, **{PATH: path})
    assert str(segment) in str(job.fails(CorruptCheckpoint))


def test_a_savepoint_does_not_cut_the_log_that_the_last_checkpoint_needs(server, tmp_path):
    job = job_of(source_of(server), tmp_path, **RARELY)
    wait_until(lambda: server.connected)
    job.order(BarrierKind.CHECKPOINT).result(PATIENCE)
    for burst in range(5):
        server.send(range(burst * 10, burst * 10 + 10))
        wait_until_seen(range(burst * 10 + 10))
    for _ in range(2):
        job.order(BarrierKind.SAVEPOINT, tmp_path / "savepoints").result(PATIENCE)
    server.send(range(50, 60))
    wait_until_seen(range(60))
    job.cluster.kill(SlotIndex(0))
    wait_until(lambda: server.connected == 2)
    ends_with(60, 70, server, job, tmp_path)


def test_a_stop_that_fails_takes_in_what_comes_next(server, tmp_path):
    job = job_of(source_of(server), tmp_path)
    wait_until(lambda: server.connected)
    server.send(range(10))
    wait_until_seen(range(10))
    (tmp_path / "savepoints").write_text("a file in the way")
    with pytest.raises(SavepointFailed, match="savepoints"):
        job.order(BarrierKind.STOP, tmp_path / "savepoints").result(PATIENCE)
    ends_with(10, 20, server, job, tmp_path)


def test_no_record_that_was_acknowledged_is_after_the_savepoint(tmp_path):
    """Its sender keeps those that were not, and sends them to the job that goes on."""
    Office.emits = []

    def started(**settings):
        env = environment(tmp_path, **settings)
        source = durable(CallbackSource(Office.subscribe))
        pushed = env.from_source(source, source_name="Office").uid("office")
        pushed.rebalance().sink_to(FileSink(str(tmp_path / "out"), Encoder())).uid("sink")
        return env.execute_async()

    job = started()
    wait_until(lambda: Office.emits)
    senders = [
        threading.Thread(target=lambda n=n: [Office.push(i) for i in range(n, 400, 4)])
        for n in range(4)
    ]
    for sender in senders:
        sender.start()
    wait_until(lambda: len(lines_in(tmp_path / "out")) > 50)
    savepoint = job.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    job.wait()
    shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
    again = started(**{PATH: savepoint})
    for sender in senders:
        sender.join(PATIENCE)
    Office.emits[-1].end()
    again.wait()
    assert lines_in(tmp_path / "out") == list(range(400))
