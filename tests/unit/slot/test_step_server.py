"""Step tasks and slots, joined by real sockets, with Spark's shuffle played by the test."""

import pickle
import queue
import threading

import pytest

from tests.programs import collected, graph_of, mapped, read
from tests.unit.slot.hosts import Requests, shipped
from tidegate.core.clock import SystemClock
from tidegate.core.errors import LineClosed, SlotLost
from tidegate.exchange import step_task
from tidegate.exchange.codec import decode
from tidegate.exchange.shuffle import _stages
from tidegate.exchange.unit_protocol import Frame
from tidegate.graph.logical import Upstream
from tidegate.graph.partitioning import Rebalance
from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.messages import (
    Accepted,
    Collected,
    Deploy,
    Deployed,
    SlotReport,
    SnapshotSettings,
)
from tidegate.protocol.packet import SlotOutOfReach
from tidegate.slot.slot_host import SlotHost
from tidegate.slot.step_server import StepServer
from tidegate.transport.wire import Listener, dial

SECRET = b"s" * 32
PLACE = SnapshotSettings(directory=None, inline_threshold=0, limit=1 << 20)


class Slots:
    """The slots of a job, each behind a socket of its own."""

    def __init__(self, job, directory):
        self.pipeline = job.pipelines[0]
        self.said = queue.SimpleQueue()
        self.hosts = []
        self.listeners = []
        for slot in range(job.slots):
            incarnation = Incarnation.create(slot, 1, 0)
            host = SlotHost(incarnation, self.said.put, SystemClock(), directory)
            listener = Listener(unix_path=str(directory / f"{slot}.sock"))
            listener.serve(SECRET, StepServer(host).serve)
            host.handle(Accepted(shipped(job), 600.0))
            host.handle(Deploy(0, 1, PLACE))
            assert self.said.get(timeout=120) == Deployed(0, 1)
            self.hosts.append(host)
            self.listeners.append(listener)
        self.addresses = [listener.address for listener in self.listeners]
        self.requests = Requests(job)

    def stages(self, step=1):
        return _stages(self.pipeline, self.requests.make(step), tuple(self.addresses), SECRET)

    def step(self, stages, twins=1):
        """Run the tasks of a step, each so often, and shuffle what they yield."""
        shuffled = {slot: [slot] for slot in range(len(self.addresses))}
        outcomes = []
        for stage in stages:
            yielded = []
            for slot, shipments in shuffled.items():
                first, *others = [list(stage(slot, iter(shipments))) for _ in range(twins)]
                assert all(other == first for other in others), "same unit, same answer"
                yielded += first
            shuffled = {slot: [] for slot in shuffled}
            for item in yielded:
                if isinstance(item, bytes):
                    outcomes.append(pickle.loads(item))
                else:
                    shuffled[item[0]].append(item)
        return outcomes

    def records(self):
        found = []
        while not self.said.empty():
            message = self.said.get()
            if isinstance(message, Collected):
                found += [r for batch in decode(message.payload, None) for r in batch.records]
        return sorted(found)

    def close(self):
        for listener, host in zip(self.listeners, self.hosts, strict=True):
            listener.close()
            host.close(10)


@pytest.fixture
def slots_of(tmp_path):
    created = []

    def create(job):
        created.append(Slots(job, tmp_path))
        return created[-1]

    step_task._connections.clear()
    yield create
    for slots in created:
        slots.close()
    step_task._connections.clear()


def two_levels(parallelism=2):
    stream = mapped(lambda x: x + 1, Upstream(read(range(6)), Rebalance()))
    return graph_of(collected(stream), parallelism=parallelism)


def test_a_step_goes_from_slot_to_slot_and_returns_their_reports(slots_of):
    slots = slots_of(two_levels())
    reports = slots.step(slots.stages())
    assert [type(report) for report in reports] == [SlotReport, SlotReport]
    assert all(report.finished == {0, 1} for report in reports)
    assert slots.records() == [1, 2, 3, 4, 5, 6]


def test_a_task_that_spark_repeats_gets_the_answer_of_the_first(slots_of):
    slots = slots_of(two_levels())
    slots.step(slots.stages(), twins=3)
    assert slots.records() == [1, 2, 3, 4, 5, 6]


def test_a_whole_step_that_is_repeated_runs_once(slots_of):
    slots = slots_of(two_levels())
    stages = slots.stages()
    assert slots.step(stages) == slots.step(stages)
    assert slots.records() == [1, 2, 3, 4, 5, 6]


def test_one_slot_needs_one_stage_for_all_levels(slots_of):
    slots = slots_of(two_levels(parallelism=1))
    stages = slots.stages()
    assert len(stages) == 1
    (report,) = slots.step(stages)
    assert report.finished == {0, 1}
    assert slots.records() == [1, 2, 3, 4, 5, 6]


def test_lines_are_used_again_for_the_next_step(slots_of):
    slots = slots_of(two_levels())
    slots.step(slots.stages(1))
    lines = dict(step_task._connections)
    assert len(lines) == 2
    slots.step(slots.stages(2))
    assert step_task._connections == lines


def test_a_slot_out_of_reach_is_a_mark_in_the_report_of_every_other(slots_of):
    slots = slots_of(two_levels())
    slots.listeners[1].close()
    first, second = slots.step(slots.stages())
    assert isinstance(second, SlotOutOfReach)
    assert second.slot == 1
    (mark,) = first.marks
    assert isinstance(mark.cause, SlotLost)


def test_a_slot_that_is_not_registered_is_out_of_reach(slots_of):
    slots = slots_of(two_levels())
    slots.addresses[0] = None
    first, second = slots.step(slots.stages())
    assert first == SlotOutOfReach(0, "it is not registered")
    assert [mark.slot for mark in second.marks] == [0]


def test_a_unit_of_the_past_is_refused_with_a_reason(slots_of):
    slots = slots_of(two_levels())
    old = slots.stages(1)
    slots.step(old)
    slots.step(slots.stages(2))
    outcomes = slots.step(old)
    assert [outcome.reason for outcome in outcomes] == ["step 2 has begun, step 1 is over"] * 2


def test_a_task_that_breaks_off_loses_its_line_and_nothing_else(slots_of):
    slots = slots_of(two_levels())
    stages = slots.stages()
    broken_off = stages[0](0, iter([0]))
    next(broken_off)
    broken_off.close()
    assert step_task._connections == {}
    slots.step(stages)
    assert slots.records() == [1, 2, 3, 4, 5, 6]


def test_frames_out_of_turn_end_the_line(slots_of, monkeypatch):
    slots = slots_of(two_levels())
    unhandled = queue.SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", unhandled.put)
    line = dial(slots.addresses[0], SECRET)
    line.send(Frame.RUN)
    with pytest.raises(LineClosed):
        line.receive()
    assert "frame of kind 4" in str(unhandled.get(timeout=120).exc_value)


def test_a_step_task_closes_the_line_of_a_unit_without_an_answer(slots_of, monkeypatch):
    """A slot that has sent a frame which was refused would wait for the next unit."""
    slots = slots_of(two_levels())
    lines = []

    def dialed(address, secret):
        lines.append(dial(address, secret))
        return lines[-1]

    def refuse(connection):
        raise LineClosed("a frame was changed in transit")

    monkeypatch.setattr(step_task, "dial", dialed)
    monkeypatch.setattr(step_task, "receive_answer", refuse)
    monkeypatch.setattr(step_task, "_connections", {})
    list(slots.stages()[0](0, iter(())))
    assert [line._socket.fileno() for line in lines] == [-1]
