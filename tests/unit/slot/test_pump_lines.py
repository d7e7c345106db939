"""Slots and the lines of an endless job, over real sockets; the test plays the pumps."""

import pickle
import queue
import socket
import struct
import threading
from functools import cache

import pytest

from tests.programs import PATIENCE, collected, graph_of, mapped, read
from tests.unit.slot.test_step_server import SECRET, slots_of, two_levels  # noqa: F401
from tidegate.core.errors import LineClosed, UserError
from tidegate.core.workers import Threads
from tidegate.exchange.shuffle import unit_order
from tidegate.exchange.unit_protocol import Frame
from tidegate.graph.logical import Upstream
from tidegate.graph.partitioning import Rebalance
from tidegate.protocol.messages import Attendance, SlotReport, UnitOrder
from tidegate.protocol.packet import FailureMark, SlotOutOfReach
from tidegate.protocol.units import UnitKey
from tidegate.slot.pipeline_host import UnitAnswer
from tidegate.slot.pump_lines import PumpLines, Sender, _LinesOfJob
from tidegate.transport.wire import dial


class EndlessJob:
    """The driver's lines, and a pump for every slot and level, which only carry."""

    def __init__(self, slots, epoch=1):
        self.slots = slots
        self.epoch = epoch
        self.levels = slots.pipeline.levels
        self.lines = [dial(address, SECRET) for address in slots.addresses]
        width = len(self.lines)
        for line in self.lines:
            line.send(Frame.ATTEND, pickle.dumps(Attendance(0, epoch, width, self.levels)))
        self.is_attended = self.are_ready()
        self.pumps = {}
        self.ends = {}
        self.has_carried = threading.Event()
        for level in range(self.levels):
            for slot, address in enumerate(slots.addresses):
                self.pumps[level, slot] = pump = dial(address, SECRET)
                pump.send(Frame.PUMP, struct.pack(">QII", epoch, 0, level))
                self.ends[level, slot] = threading.Event()
        for place in self.pumps:
            threading.Thread(target=self.carry, args=place, daemon=True).start()

    def is_ready(self):
        return self.is_attended and self.are_ready()

    def are_ready(self):
        return [line.receive()[0] for line in self.lines] == [Frame.READY] * len(self.lines)

    def carry(self, level, slot):
        try:
            while True:
                kind, payload = self.pumps[level, slot].receive()
                if kind == Frame.END:
                    self.ends[level, slot].set()
                    return
                (target,) = struct.unpack_from(">I", payload)
                self.pumps[level + 1, target].send(Frame.CARGO, payload[4:])
                self.carried()
        except LineClosed:
            pass

    def carried(self):
        self.has_carried.set()

    def ask(self, step=1):
        request = self.slots.requests.make(step)
        for line in self.lines:
            line.send(Frame.STEP, unit_order(request, 0))

    def step(self, step=1):
        self.ask(step)
        return [pickle.loads(line.receive()[1]) for line in self.lines]

    def break_off(self):
        for line in (*self.lines, *self.pumps.values()):
            line.close()


@pytest.fixture
def slots(slots_of):  # noqa: F811
    slots = slots_of(two_levels())
    # As the driver does: a step that is repeated has the same request.
    slots.requests.make = cache(slots.requests.make)
    return slots


def test_a_step_passes_all_levels_and_every_slot_reports(slots):
    job = EndlessJob(slots)
    assert job.is_ready()
    reports = job.step()
    assert [type(report) for report in reports] == [SlotReport, SlotReport]
    assert not any(report.marks for report in reports)
    assert slots.records() == [1, 2, 3, 4, 5, 6]
    assert not any(report.marks for report in job.step(2))
    assert slots.records() == []


def test_a_step_that_is_repeated_over_another_job_has_run_once(slots):
    """The first job breaks when half of the slots were asked: the other half runs it later."""
    first = EndlessJob(slots)
    assert first.is_ready()
    first.lines[0].send(Frame.STEP, unit_order(slots.requests.make(1), 0))
    first.break_off()
    second = EndlessJob(slots, epoch=2)
    assert second.is_ready()
    second.ask()
    assert not any(pickle.loads(line.receive()[1]).marks for line in second.lines)
    assert slots.records() == [1, 2, 3, 4, 5, 6]


def test_a_repeated_step_gives_the_same_report(slots):
    first = EndlessJob(slots)
    assert first.is_ready()
    reports = first.step()
    first.break_off()
    second = EndlessJob(slots, epoch=2)
    assert second.is_ready()
    assert second.step() == reports
    assert slots.records() == [1, 2, 3, 4, 5, 6]


HAS_TRAVELED = threading.Event()


def after_travel(record):
    assert HAS_TRAVELED.wait(PATIENCE), "no packet left the slot while its unit was running"
    return record


def two_branches():
    """A unit that emits packets, then waits until one of them has left its slot."""
    records = read(range(6))
    first = mapped(lambda x: x + 1, records)
    second = mapped(after_travel, mapped(lambda x: x + 101, records))
    parts = {"first": first, "second": second}.items()
    branches = [collected(Upstream(each, Rebalance()), name) for name, each in parts]
    return graph_of(*branches, parallelism=2)


@pytest.fixture
def branches(slots_of, monkeypatch):  # noqa: F811
    monkeypatch.setattr("tidegate.slot.outbox.PACKET_BYTES", 1)
    HAS_TRAVELED.clear()
    slots = slots_of(two_branches())
    slots.requests.make = cache(slots.requests.make)
    return slots


class WatchedJob(EndlessJob):
    def carried(self):
        HAS_TRAVELED.set()


BRANCHES = [*range(1, 7), *range(101, 107)]


def test_packets_travel_while_their_unit_is_running(branches):
    job = WatchedJob(branches)
    assert job.is_ready()
    assert not any(report.marks for report in job.step())
    assert branches.records() == BRANCHES


def test_a_job_that_breaks_after_the_first_packets_of_a_unit_loses_and_repeats_none(branches):
    """The unit runs on; the next job gets all of its packets."""
    first = EndlessJob(branches)
    assert first.is_ready()
    first.ask()
    assert first.has_carried.wait(PATIENCE)
    first.break_off()
    second = EndlessJob(branches, epoch=2)
    assert second.is_ready()
    second.ask()
    HAS_TRAVELED.set()
    assert not any(pickle.loads(line.receive()[1]).marks for line in second.lines)
    assert branches.records() == BRANCHES


def is_closed(line):
    with pytest.raises(LineClosed):
        line.receive()
    return True


def test_a_job_of_a_lower_epoch_is_let_in_no_more(slots):
    assert EndlessJob(slots, epoch=2).is_ready()
    with pytest.raises(LineClosed):
        EndlessJob(slots, epoch=1)


def test_a_pump_of_a_job_that_nobody_announced_is_let_in_by_no_slot(slots):
    stray = dial(slots.addresses[0], SECRET)
    stray.send(Frame.PUMP, struct.pack(">QII", 9, 0, 0))
    assert is_closed(stray)


def test_a_newer_job_ends_the_lines_of_the_older(slots):
    older = EndlessJob(slots, epoch=1)
    assert older.is_ready()
    assert EndlessJob(slots, epoch=2).is_ready()
    assert all(is_closed(line) for line in older.lines)
    assert older.ends[0, 0].wait(60) and older.ends[0, 1].wait(60)


class StoppedJob(EndlessJob):
    """Its pumps are alive, but carry nothing: their executors have been stopped."""

    def carry(self, level, slot):
        pass

    def wait_until_full(self):
        """Wait until a slot sends a frame that does not fit into its line."""
        self.pumps[0, 0]._socket.recv(1, socket.MSG_PEEK)


def test_a_newer_job_does_not_wait_for_pumps_of_the_older_that_have_stopped(slots_of):  # noqa: F811
    large = mapped(lambda x: (x, bytes(8 << 20)), read(range(4)))
    traveled = mapped(lambda pair: pair[0], Upstream(large, Rebalance()))
    slots = slots_of(graph_of(collected(traveled), parallelism=2))
    slots.requests.make = cache(slots.requests.make)
    older = StoppedJob(slots)
    assert older.is_ready()
    older.ask()
    older.wait_until_full()
    newer = queue.SimpleQueue()
    threading.Thread(target=lambda: newer.put(EndlessJob(slots, epoch=2)), daemon=True).start()
    job = newer.get(timeout=PATIENCE)
    assert job.is_ready()
    assert not any(report.marks for report in job.step())
    assert slots.records() == [0, 1, 2, 3]
    older.break_off()


class Room:
    """A line with room for some of the frames that are sent next, or for all."""

    def __init__(self, *has_room):
        self._has_room = iter(has_room)

    def has_room_for(self, size):
        return next(self._has_room, True)


def refusing(error):
    def send():
        raise error

    return send


@pytest.mark.parametrize("has_room", [True, False], ids=["at once", "by a thread"])
@pytest.mark.parametrize("error", [LineClosed("it is gone"), OSError("it cannot be read back")])
def test_nothing_but_the_end_follows_a_packet_that_could_not_be_sent(error, has_room):
    """The last cargo would complete a set that lacks the packet."""
    sent, broken = queue.SimpleQueue(), threading.Event()
    sender = Sender(Threads(), "a sender", broken.set)
    sender.send(Room(has_room), 1, refusing(error))
    sender.send(Room(has_room), 1, lambda: sent.put("the last cargo"))
    assert broken.wait(PATIENCE), "the driver would wait for a step that cannot end"
    sender.end(Room(has_room), lambda: sent.put("the end"))
    assert sent.get(timeout=PATIENCE) == "the end"
    assert sent.empty()


class Scales:
    """A line that compares what is sent with what was announced."""

    announced = sent = 0

    def has_room_for(self, size):
        self.announced += size
        return True

    def send(self, kind, *parts):
        self.sent += sum(map(len, parts))


def test_a_slot_sends_large_marks_at_once_only_if_they_fit():
    """Otherwise, its mailbox would wait for the pump."""
    mark = FailureMark(0, UserError("long " * 10_000))
    lines = _LinesOfJob(0, Attendance(0, 1, 3, 2), None, None, Threads())
    lines._connections[0] = line = Scales()
    answer = UnitAnswer((), (mark, mark), SlotReport(slot=0))
    lines._answered(UnitKey(1, 1, 0), set(), answer)
    assert line.announced >= line.sent > 200_000


def test_nothing_follows_the_end_of_a_job():
    sent = []
    sender = Sender(Threads(), "a sender", lambda: None)
    sender.end(Room(), lambda: sent.append("the end"))
    sender.send(Room(False), 1, lambda: sent.append("a packet"))
    sender.send(Room(), 1, lambda: sent.append("the last cargo"))
    assert sent == ["the end"]


def test_pumps_run_dry_when_the_driver_leaves(slots):
    job = EndlessJob(slots)
    assert job.is_ready()
    for line in job.lines:
        line.close()
    assert all(job.ends[0, slot].wait(60) for slot in range(2))


class LeftLine:
    """A line whose other end has left after its greeting."""

    def __init__(self):
        self.sent = []

    def send(self, kind, *parts):
        self.sent.append(kind)

    def receive(self):
        raise LineClosed("it has left")

    def hang_up(self):
        pass


class AliveLine(LeftLine):
    def receive(self):
        raise AssertionError("nobody will ever send anything")


def test_a_pump_that_comes_when_the_driver_has_left_runs_dry():
    lines, pump = PumpLines(0, None, None), AliveLine()
    with pytest.raises(LineClosed):
        lines.attend(LeftLine(), pickle.dumps(Attendance(0, 1, 2, 2)))
    lines.pump(pump, struct.pack(">QII", 1, 0, 0))
    assert pump.sent == [Frame.END]


class RefusedLine:
    """A line that lives, but whose frames the system refuses after the first."""

    def __init__(self, *frames):
        self._frames = list(frames)
        self.is_hung_up = threading.Event()

    def send(self, kind, *parts):
        if kind != Frame.READY:
            raise LineClosed("[Errno 105] No buffer space available")

    def has_room_for(self, size):
        return True

    def receive(self):
        if self._frames:
            return self._frames.pop()
        assert self.is_hung_up.wait(PATIENCE), "the driver would wait for a step that cannot end"
        raise LineClosed("it has been hung up")

    def hang_up(self):
        self.is_hung_up.set()


def test_a_slot_that_can_neither_report_nor_complain_hangs_up():
    def run(pipeline, key, packets, marks, request, answer, on_packet):
        answer(UnitAnswer((), (), SlotReport(slot=0)))

    order = UnitOrder(pipeline=0, attempt=1, step=1, level=0, request=None)
    driver = RefusedLine((Frame.STEP, pickle.dumps(order)))
    with pytest.raises(LineClosed):
        PumpLines(0, run, Threads()).attend(driver, pickle.dumps(Attendance(0, 1, 1, 1)))


def test_the_driver_hears_of_a_pump_that_leaves(slots):
    job = EndlessJob(slots)
    assert job.is_ready()
    job.pumps[1, 0].close()
    assert job.lines[0].receive()[0] == Frame.BROKEN


def test_a_task_that_spark_repeats_breaks_its_job(slots):
    """What the first one carried when it ended may be lost, so the second one is of no use."""
    job = EndlessJob(slots)
    assert job.is_ready()
    again = dial(slots.addresses[1], SECRET)
    again.send(Frame.PUMP, struct.pack(">QII", job.epoch, 0, 1))
    assert job.lines[1].receive()[0] == Frame.BROKEN
    assert is_closed(again)


def test_a_slot_that_refuses_a_unit_marks_the_step_in_all_slots(slots):
    job = EndlessJob(slots)
    assert job.is_ready()
    slots.hosts[1].leave("its lease has ended")
    first, second = job.step()
    assert isinstance(second, SlotOutOfReach)
    assert [mark.slot for mark in first.marks] == [1]


def test_a_pipeline_of_one_slot_needs_no_pumps(slots_of):  # noqa: F811
    slots = slots_of(two_levels(parallelism=1))
    line = dial(slots.addresses[0], SECRET)
    line.send(Frame.ATTEND, pickle.dumps(Attendance(0, 1, 1, slots.pipeline.levels)))
    assert line.receive()[0] == Frame.READY
    line.send(Frame.STEP, unit_order(slots.requests.make(1), 0))
    report = pickle.loads(line.receive()[1])
    assert not report.marks
    assert slots.records() == [1, 2, 3, 4, 5, 6]
