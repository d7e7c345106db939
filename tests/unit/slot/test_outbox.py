import pytest

from tests.programs import collected, graph_of, keyed, mapped, read
from tidegate.core.errors import UserFunctionError
from tidegate.core.poison import PoisonOrders
from tidegate.exchange.codec import decode
from tidegate.exchange.spill import SpillStore, loaded
from tidegate.graph.logical import Upstream
from tidegate.graph.partitioning import Broadcast, Custom, Rebalance
from tidegate.operators.poison import guarded
from tidegate.operators.stateless import MapOperator
from tidegate.protocol.packet import Channel
from tidegate.slot import outbox as outbox_module
from tidegate.slot.outbox import ChannelWriter, Outbox
from tidegate.state.keys.selection import select_key
from tidegate.stream.batch import Batch
from tidegate.stream.elements import EndOfInput, Watermark
from tidegate.testing.harness import OperatorHarness
from tidegate.types.arrow import arrow_format
from tidegate.types.typeinfo import Types

CHANNEL = Channel(0, 1)


@pytest.fixture
def outbox(tmp_path):
    outbox = Outbox(1, 5, SpillStore(tmp_path, 1 << 20))
    outbox.begin_step(9)
    return outbox


def contents(packet):
    return [
        element.records if isinstance(element, Batch) else element
        for element in decode(loaded(packet.body), None)
    ]


def test_what_stays_in_the_slot_is_handed_over_as_it_is(outbox):
    batch = Batch.of_records([object()])
    outbox.put(CHANNEL, 3, 1, batch)
    assert outbox.take_packets() == []
    assert outbox.take_local(3) == {CHANNEL: [batch]}
    assert outbox.take_local(3) == {}


def test_what_leaves_the_slot_is_one_packet_for_each_channel_and_target(outbox):
    outbox.put(CHANNEL, 3, 0, Batch.of_records([1]))
    outbox.put(CHANNEL, 3, 2, Batch.of_records([2]))
    outbox.put(Channel(4, 1), 5, 0, Batch.of_records([3]))
    outbox.put(CHANNEL, 3, 0, EndOfInput())
    packets = outbox.take_packets()
    assert [(p.header.edge, p.header.target_vertex, p.header.target_subtask) for p in packets] == [
        (0, 3, 0),
        (0, 3, 2),
        (4, 5, 0),
    ]
    assert [contents(packet) for packet in packets] == [[[1], EndOfInput()], [[2]], [[3]]]
    assert all((p.header.attempt, p.header.step, p.header.source) == (5, 9, 1) for p in packets)
    assert outbox.take_packets() == []


def test_a_packet_that_is_full_is_followed_by_the_next(outbox, monkeypatch):
    monkeypatch.setattr(outbox_module, "PACKET_BYTES", 100)
    for number in range(4):
        outbox.put(CHANNEL, 3, 0, Batch.of_records([number, "x" * 60]))
    packets = outbox.take_packets()
    assert [packet.header.sequence for packet in packets] == list(range(len(packets)))
    assert len(packets) >= 2
    records = [record for packet in packets for part in contents(packet) for record in part]
    assert records[::2] == [0, 1, 2, 3]


def test_sequences_continue_within_a_step_and_start_fresh_with_the_next(outbox):
    def sequence():
        outbox.put(CHANNEL, 3, 0, Watermark(1))
        (packet,) = outbox.take_packets()
        return packet.header.sequence

    assert [sequence(), sequence()] == [0, 1]
    outbox.begin_step(10)
    assert sequence() == 0


@pytest.fixture
def writer_of(outbox):
    """The writer of the first edge of a job, in subtask 1."""

    def create(*sinks, parallelism=3, poison=None):
        job = graph_of(*sinks, parallelism=parallelism)
        edge = job.edges[0]
        source, target = job.vertices[edge.source], job.vertices[edge.target]
        writer = ChannelWriter(edge, 1, source, target, outbox)
        harness = OperatorHarness(
            MapOperator(abs), name="sender", subtask=1, parallelism=3, poison=poison
        )
        writer.open(harness.context)
        writer.guarded = guarded(writer.write, harness.context, harness)
        return writer

    return create


def everything(outbox, vertex=1):
    by_target = {p.header.target_subtask: contents(p) for p in outbox.take_packets()}
    local = [e.records if isinstance(e, Batch) else e for e in outbox.take_local(vertex)[CHANNEL]]
    return {**by_target, 1: local}


def test_records_are_split_and_control_elements_go_down_every_channel(outbox, writer_of):
    writer = writer_of(collected(Upstream(read([1]), Rebalance())))
    writer.write(Batch.of_records(["a", "b"]))
    writer.broadcast(EndOfInput())
    assert everything(outbox) == {
        1: [["a"], EndOfInput()],
        2: [["b"], EndOfInput()],
        0: [EndOfInput()],
    }


def test_the_records_before_one_without_a_key_travel_on(outbox, writer_of):
    writer = writer_of(collected(mapped(abs, keyed(lambda record: record["key"], read([])))))
    records = [{"key": 1}, {"key": 2}, {"no": 3}, {"key": 4}]
    with pytest.raises(UserFunctionError) as failure:
        writer.write(Batch.of_records(records))
    assert failure.value.args[:4] == ("sender", None, "(2/3)", "{'no': 3}")
    assert failure.value.cause == "KeyError: 'key'"
    by_target = {p.header.target_subtask: contents(p) for p in outbox.take_packets()}
    local = [batch.records for batch in outbox.take_local(1).get(CHANNEL, ())]
    arrived = [r for parts in (*by_target.values(), local) for part in parts for r in part]
    assert sorted(r["key"] for r in arrived) == [1, 2]


@pytest.mark.parametrize("typed", [False, True])
def test_the_records_around_poison_records_travel_on(outbox, writer_of, typed):
    """Some have no key; in a typed stream some are not of its type, wherever they would go."""
    source = read([], type_info=Types.LONG() if typed else None)
    sink = collected(mapped(abs, keyed(lambda record: 10 // record, source)))
    writer = writer_of(sink, poison=PoisonOrders(skips_at_once=True))
    bad = ["seven", None] if typed else [0, 0]
    records = [*range(1, 200), bad[0], *range(200, 300), bad[1]]
    writer.guarded(Batch.of_records(records, arrow_format(Types.LONG()) if typed else None))
    arrived = [
        record
        for packet in outbox.take_packets()
        for batch in decode(loaded(packet.body), arrow_format(Types.LONG()) if typed else None)
        for record in batch.records
    ]
    arrived += [r for batch in outbox.take_local(1).get(CHANNEL, ()) for r in batch.records]
    assert sorted(arrived) == list(range(1, 300))


def test_a_partitioner_that_points_nowhere_names_the_record(writer_of):
    partitioning = Custom(lambda key, targets: key, select_key(abs))
    writer = writer_of(collected(Upstream(read([]), partitioning)))
    with pytest.raises(UserFunctionError, match="the partitioner chose target 7") as failure:
        writer.write(Batch.of_records([0, 7, 1]))
    assert failure.value.args[3] == "7"


def test_a_record_that_cannot_travel_fails_its_sender(writer_of):
    writer = writer_of(collected(Upstream(read([]), Broadcast())))
    with pytest.raises(UserFunctionError, match="cannot be sent to the slots") as failure:
        writer.write(Batch.of_records([lambda: None]))
    assert failure.value.args[0] == "sender"
