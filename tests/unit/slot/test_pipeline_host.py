import math
import pickle
from typing import ClassVar

import pytest

from tests.programs import apply, collected, graph_of, keyed, mapped, read, wait_until
from tests.unit.slot.hosts import Requests, Surroundings, exchange, shipped
from tidegate.checkpoint.ownership import Ownership
from tidegate.connectors.collection import RangeSplit
from tidegate.connectors.source import Boundedness, InputStatus, Poll, Source, SourceReader
from tidegate.connectors.splits import KnownSplits
from tidegate.core.clock import ManualClock
from tidegate.core.errors import DirectoryTaken, SlotLost, UserFunctionError
from tidegate.exchange.codec import encode
from tidegate.graph.logical import Upstream
from tidegate.graph.partitioning import Broadcast, Global, Rebalance
from tidegate.operators.functions import MapFunction
from tidegate.operators.stateless import MapOperator
from tidegate.protocol.messages import RestoreOrder, SnapshotSettings
from tidegate.protocol.pacing import LONGEST_LOOK, LONGEST_SLEEP
from tidegate.protocol.packet import FailureMark
from tidegate.protocol.restore import SubtaskRestore
from tidegate.protocol.units import UnitKey, in_order
from tidegate.slot import pipeline_host
from tidegate.slot.pipeline_host import HostServices, PipelineHost
from tidegate.state.pointers import ChannelHandle, InlineBytes
from tidegate.storage.filesystem import open_store
from tidegate.stream.batch import Batch
from tidegate.stream.elements import Barrier, BarrierKind, SnapshotRequest
from tidegate.transport.shipping import unpack


class Pipeline:
    """All slots of a pipeline, stepped by hand."""

    def __init__(self, job, directory, budget=1 << 20, restore=None, snapshots=None):
        self.job = job
        self.outside = Surroundings(directory)
        services = HostServices(
            clock=self.outside.clock,
            console=self.outside.console.append,
            deliver=self.outside.deliver,
            directory=directory,
            spill_threshold=budget,
            send=self.outside.sent.append,
        )
        package = shipped(job)
        self.hosts = [
            PipelineHost(
                unpack(package, directory),
                0,
                1,
                slot,
                services,
                snapshots or SnapshotSettings(directory=None, inline_threshold=0, limit=1 << 20),
                restore,
            )
            for slot in range(job.slots)
        ]
        self.requests = Requests(job)

    def open(self):
        for host in self.hosts:
            host.open()
        return self

    def step(self, step=1, records=1000, marks=(), barriers=()):
        request = self.requests.make(step, records=records, barriers=barriers)
        packets = {slot: [] for slot in range(self.job.slots)}
        answers = []
        for level in range(self.job.pipelines[0].levels):
            key = UnitKey(1, step, level)
            answers = [
                host.run(
                    step,
                    level,
                    in_order(key, packets[slot]),
                    marks if level == 0 and slot == 0 else (),
                    request if level == 0 else None,
                )
                for slot, host in enumerate(self.hosts)
            ]
            packets = exchange(answers)
        assert not any(packets.values()), "nothing is sent behind the last level"
        return [answer.report for answer in answers]


@pytest.fixture
def pipeline(tmp_path):
    def build(*sinks, parallelism=2, chaining=True, **settings):
        job = graph_of(*sinks, parallelism=parallelism, chaining=chaining)
        return Pipeline(job, tmp_path, **settings).open()

    return build


def test_a_step_moves_records_through_all_levels(pipeline):
    stream = mapped(lambda x: x + 1, keyed(abs, mapped(lambda x: x * 10, read(range(6)))))
    subject = pipeline(collected(stream))
    reports = subject.step()
    assert sorted(subject.outside.records()) == [1, 11, 21, 31, 41, 51]
    assert all(report.finished == {0, 1} for report in reports)
    assert sum(report.records_in[1] for report in reports) == 6


def test_after_opening_only_what_takes_over_asks_whose_the_job_is(pipeline, tmp_path):
    directory = str(tmp_path / "job")
    ownership, _ = Ownership.claim(open_store(directory))
    snapshots = SnapshotSettings(
        directory=directory, inline_threshold=0, limit=1, ownership=ownership
    )
    subject = pipeline(collected(read(range(1))), snapshots=snapshots)
    permit = subject.hosts[0]._permit
    permit.require(takes_over=True)
    Ownership.claim(open_store(directory))
    permit.require()
    with pytest.raises(DirectoryTaken):
        permit.require(takes_over=True)


def test_a_slice_is_all_that_a_step_reads(pipeline):
    subject = pipeline(collected(Upstream(read(range(10)), Rebalance())))
    first, _ = subject.step(1, records=2)
    assert sorted(subject.outside.records()) == [0, 1, 5, 6]
    assert first.sources[0].records == 2
    assert first.finished == set()
    subject.step(2, records=2)
    first, second = subject.step(3, records=2)
    assert sorted(subject.outside.records()) == list(range(10))
    assert first.finished == second.finished == {0, 1}


def test_packets_for_a_later_level_wait_for_it(pipeline):
    source = read(range(4))
    long = mapped(
        lambda x: x + 100, Upstream(mapped(abs, Upstream(source, Rebalance())), Rebalance())
    )
    both = apply(MapOperator(abs), Upstream(source, Rebalance()), Upstream(long, Rebalance()))
    subject = pipeline(collected(both))
    assert subject.job.vertices[-1].level == 3
    subject.step()
    assert sorted(subject.outside.records()) == [0, 1, 2, 3, 100, 101, 102, 103]


def test_packets_that_wait_past_the_budget_wait_on_disk(pipeline):
    source = read(range(200))
    long = mapped(abs, Upstream(mapped(abs, Upstream(source, Rebalance())), Rebalance()))
    both = apply(MapOperator(abs), Upstream(source, Rebalance()), Upstream(long, Rebalance()))
    subject = pipeline(collected(both), budget=0)
    subject.step()
    assert sorted(subject.outside.records()) == sorted([*range(200)] * 2)
    assert list(subject.outside.directory.iterdir()) == []


def test_forward_edges_between_vertices_stay_in_the_slot(pipeline):
    subject = pipeline(collected(mapped(abs, mapped(abs, read(range(4))))), chaining=False)
    assert subject.job.pipelines[0].levels == 1
    subject.step()
    assert sorted(subject.outside.delivered) == [("results", 0, [0, 1]), ("results", 1, [2, 3])]


def test_a_narrow_vertex_lives_in_the_first_slots_only(pipeline):
    narrow = collected(Upstream(read(range(4)), Global()), parallelism=1)
    subject = pipeline(narrow)
    first, second = subject.step()
    assert {subtask for _, subtask, _ in subject.outside.delivered} == {0}
    assert set(first.records_in) == {0, 1}
    assert set(second.records_in) == {0}


def test_order_within_a_channel_is_kept_over_packets(pipeline, monkeypatch):
    monkeypatch.setattr("tidegate.slot.outbox.PACKET_BYTES", 200)
    source = read(range(300), parallelism=1)
    subject = pipeline(collected(Upstream(source, Broadcast())))
    subject.step(records=50)
    subject.step(2, records=250)
    for slot in (0, 1):
        got = [
            r
            for _, subtask, records in subject.outside.delivered
            for r in records
            if subtask == slot
        ]
        assert got == list(range(300))


def test_a_failed_subtask_is_reported_and_others_continue(pipeline):
    def fail_on_three(x):
        if x == 3:
            raise ValueError("three")
        return x

    stream = mapped(fail_on_three, Upstream(read(range(8)), Rebalance()), name="picky")
    subject = pipeline(collected(stream))
    reports = subject.step()
    failures = [failure for report in reports for failure in report.failures]
    assert [failure.vertex for failure in failures] == [1]
    assert isinstance(failures[0].error, UserFunctionError)
    assert failures[0].error.args[3] == "3"
    seen = set(subject.outside.records())
    assert 3 not in seen
    healthy = 1 - failures[0].subtask
    assert 1 in reports[healthy].finished
    assert 1 not in reports[failures[0].subtask].finished


def test_a_mark_is_part_of_every_answer_from_then_on(pipeline):
    subject = pipeline(collected(Upstream(read(range(2)), Rebalance())))
    mark = FailureMark(1, SlotLost(1, "gone"))
    first, second = subject.step(marks=[mark])
    assert first.marks == (mark,)
    assert second.marks == ()


class Opening(MapFunction):
    events: ClassVar = []

    def __init__(self, name, *, fails=False):
        self.name = name
        self.fails = fails

    def open(self, runtime_context):
        self.events.append(f"open {self.name}")
        if self.fails:
            raise OSError("no database")

    def map(self, value):
        return value

    def close(self):
        self.events.append(f"close {self.name}")


@pytest.fixture
def events():
    Opening.events = []
    return Opening.events


def test_vertices_are_opened_from_the_last_to_the_first(pipeline, events):
    stream = mapped(Opening("b"), keyed(abs, mapped(Opening("a"), read([1]))))
    pipeline(collected(stream), parallelism=1)
    assert events == ["open b", "open a"]


def test_everything_is_closed_again_when_one_cannot_be_opened(tmp_path, events):
    stream = mapped(Opening("b"), keyed(abs, mapped(Opening("a", fails=True), read([1]))))
    job = graph_of(collected(stream), parallelism=1)
    with pytest.raises(UserFunctionError, match="no database"):
        Pipeline(job, tmp_path).open()
    assert events == ["open b", "open a", "close b"]


def test_each_subtask_has_a_function_of_its_own(pipeline):
    class Counting(MapFunction):
        def __init__(self):
            self.count = 0

        def map(self, value):
            self.count += 1
            return self.count

    subject = pipeline(collected(mapped(Counting(), read(range(4)))))
    subject.step(1, records=1)
    subject.step(2, records=1)
    assert sorted(subject.outside.records()) == [1, 1, 2, 2]


def test_an_idle_host_knows_whether_a_step_would_find_something(pipeline):
    subject = pipeline(collected(read(range(4))))
    subject.step(1, records=1)
    assert all(host.caller.calls(host.is_available) for host in subject.hosts)
    subject.step(2)
    assert not any(host.caller.calls(host.is_available) for host in subject.hosts)


def test_what_was_in_flight_is_taken_in_before_anything_else(pipeline):
    elements = encode(Batch.of_records([100])) + encode(Batch.of_records([101]))
    order = RestoreOrder(
        checkpoint_id=1,
        location=None,
        subtasks={1: SubtaskRestore(in_flight=(ChannelHandle(0, 0, InlineBytes(elements)),))},
    )
    subject = pipeline(collected(Upstream(read([1, 2]), Rebalance())), parallelism=1, restore=order)
    subject.step()
    assert subject.outside.records() == [100, 101, 1, 2]


def test_the_snapshots_of_a_step_are_acknowledged_by_every_subtask(pipeline):
    subject = pipeline(collected(Upstream(read(range(4)), Rebalance())))
    subject.step(1, records=1)
    subject.step(2, records=1, barriers=[Barrier(5, 0.0)])
    wait_until(lambda: len(subject.outside.sent) == 4)
    acks = {ack.subtask: ack.snapshot.operators for ack in subject.outside.sent}
    assert acks.keys() == {(vertex, slot) for vertex in (0, 1) for slot in (0, 1)}
    (split,) = acks[0, 0][0].source_splits
    assert pickle.loads(split) == RangeSplit(1, 2)


def test_an_aborted_checkpoint_changes_nothing_before_the_next_step(pipeline):
    subject = pipeline(collected(Upstream(read(range(4)), Rebalance())))
    subject.hosts[0].abort_checkpoint(7)
    subject.step(1)
    assert sorted(subject.outside.records()) == [0, 1, 2, 3]


STOP = Barrier(7, 0.0, SnapshotRequest(BarrierKind.STOP))
DRAIN = Barrier(7, 0.0, SnapshotRequest(BarrierKind.STOP, drains=True))


@pytest.mark.parametrize("barrier", [STOP, DRAIN], ids=["stop", "drain"])
def test_a_barrier_that_comes_after_its_abort_is_ignored(pipeline, barrier):
    subject = pipeline(collected(Upstream(read(range(4)), Rebalance())))
    for host in subject.hosts:
        host.abort_checkpoint(7)
    subject.step(1, records=1, barriers=[barrier])
    subject.step(2)
    assert sorted(subject.outside.records()) == [0, 1, 2, 3]
    assert not subject.outside.sent, "nobody has taken a snapshot"


def test_a_stop_that_some_slots_know_to_be_aborted_holds_nobody_up(pipeline):
    subject = pipeline(collected(Upstream(read(range(4)), Rebalance())))
    subject.hosts[0].abort_checkpoint(7)
    subject.step(1, records=1, barriers=[STOP])
    subject.hosts[1].abort_checkpoint(7)
    aborted = subject.hosts[1]
    assert aborted.caller.calls(aborted.is_available), "its source is halted until it is stepped"
    subject.step(2)
    assert sorted(subject.outside.records()) == [0, 1, 2, 3]


class Silent(Source, SourceReader):
    """A source that never has anything, and knows it."""

    boundedness = Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self):
        return KnownSplits(lambda parallelism: [])

    def create_reader(self, context):
        return self

    def add_splits(self, splits):
        pass

    def snapshot(self):
        return []

    def is_available(self):
        return False

    def available_in(self):
        return math.inf

    def poll(self, max_records):
        return Poll(None, InputStatus.NOTHING_AVAILABLE)


class Unforeseeable(Silent):
    def available_in(self):
        return SourceReader.available_in(self)


class Alarm(MapOperator):
    """Has a timer at this time of the slot's clock."""

    def next_timer(self):
        return 102.5


def test_the_next_timer_is_reported_by_how_long_it_takes(pipeline):
    """The clock of the driver may show another time: a step that comes too early is repeated."""
    subject = pipeline(collected(apply(Alarm(abs), read(range(4)))), parallelism=1)
    assert [report.timer_in for report in subject.step(1, records=1)] == [2.5]
    subject.outside.clock.advance(2.0)
    assert [report.timer_in for report in subject.step(2, records=1)] == [0.5]


def test_a_slot_looks_again_when_its_next_timer_is_due(pipeline, monkeypatch):
    subject = pipeline(collected(apply(Alarm(abs), read(Silent()))), parallelism=1)
    subject.step(1)
    (host,) = subject.hosts
    subject.outside.clock.advance(2.0)
    assert host.next_look() == LONGEST_LOOK, "a test may move the clock at any time"
    monkeypatch.setattr(ManualClock, "sleep_for", lambda clock, seconds: seconds)
    assert host.next_look() == 0.5


def test_a_slot_looks_again_when_its_metrics_are_due(pipeline, monkeypatch):
    monkeypatch.setattr(pipeline_host, "_COUNTING_SECONDS", math.inf)
    subject = pipeline(collected(read(Silent())), parallelism=1)
    subject.step(1)
    (host,) = subject.hosts
    assert host.next_look() == LONGEST_SLEEP
    monkeypatch.setattr(pipeline_host, "_COUNTING_SECONDS", 0.0)
    assert host.next_look() == LONGEST_LOOK
    host.send_counts_when_due()
    assert host.next_look() == LONGEST_SLEEP


def test_a_slot_does_not_look_for_work_that_a_step_will_find(pipeline):
    subject = pipeline(collected(read(Unforeseeable())), parallelism=1)
    subject.step(1)
    (host,) = subject.hosts
    host.send_counts_when_due()
    assert host.next_look() == LONGEST_LOOK
    assert host.caller.calls(lambda: True)
    assert host.next_look() > LONGEST_LOOK


def test_only_the_last_level_reports(pipeline):
    subject = pipeline(collected(Upstream(read(range(4)), Rebalance())), parallelism=1)
    request = subject.requests.make(1, records=4)
    first = subject.hosts[0].run(1, 0, (), (), request)
    assert first.report.records_in == {}
    assert subject.hosts[0].run(1, 1, ()).report.records_in[0] == 4
