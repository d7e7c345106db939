from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tidegate.protocol.arrivals import Arrivals, Cargo, PumpArrival, PumpedJobs, Pumps, shares
from tidegate.protocol.packet import FailureMark, Packet, PacketHeader


def packet(step=1, source=0, target=0, sequence=0):
    return Packet(PacketHeader(1, step, 0, source, 0, target, sequence), b"")


def last(source, step=1, attempt=1, **content):
    return Cargo(attempt, step, source, True, **content)


def test_a_unit_is_complete_when_every_slot_has_sent_its_last_cargo():
    arrivals = Arrivals(2)
    assert arrivals.take(Cargo(1, 1, 0, False, (packet(),))) is None
    assert arrivals.take(last(1, packets=(packet(source=1),))) is None
    found = arrivals.take(last(0, packets=(packet(sequence=1),)))
    assert found.packets == [packet(), packet(source=1), packet(sequence=1)]


def test_marks_of_all_slots_arrive_with_the_unit():
    mark = FailureMark(1, RuntimeError())
    arrivals = Arrivals(2)
    arrivals.take(last(1, marks=(mark,)))
    assert arrivals.take(last(0)).marks == [mark]


def test_a_later_step_drops_what_an_earlier_one_lacks():
    arrivals = Arrivals(2)
    arrivals.take(last(0, step=1, packets=(packet(),)))
    arrivals.take(last(0, step=2))
    assert arrivals.take(last(1, step=1)) is None
    assert arrivals.take(last(1, step=2)).packets == []


def test_a_later_attempt_begins_with_lower_steps():
    arrivals = Arrivals(1)
    assert arrivals.take(last(0, step=7)) is not None
    assert arrivals.take(last(0, step=1, attempt=2)).step == 1


def test_a_slot_that_has_sent_everything_adds_nothing():
    arrivals = Arrivals(2)
    arrivals.take(last(0))
    assert arrivals.take(last(0, packets=(packet(),))) is None
    assert arrivals.take(last(1)).packets == []


def test_packets_are_shared_out_by_their_target():
    first, second = packet(target=0), packet(target=2)
    assert shares([second, first], 3) == [[first], [], [second]]


@examples(60)
@given(st.data())
def test_steps_arrive_whole_and_in_order_however_slots_interleave(data):
    """Each slot sends step after step; nothing is said of the order between slots."""
    slots, steps = 3, 4
    sent = {
        source: [
            Cargo(1, step, source, is_last, (packet(step, source, sequence=number),))
            for step in range(1, steps + 1)
            for number, is_last in enumerate((False, True))
        ]
        for source in range(slots)
    }
    arrivals, found = Arrivals(slots), []
    step = 1
    while step <= steps:
        # A slot sends a step only when the one before is through: the driver waits for it.
        open_sources = [s for s, rest in sent.items() if rest and rest[0].step == step]
        unit = arrivals.take(sent[data.draw(st.sampled_from(open_sources))].pop(0))
        if unit is not None:
            found.append(unit)
            step += 1
    assert [unit.step for unit in found] == [1, 2, 3, 4]
    assert all(len(unit.packets) == 2 * slots for unit in found)


def test_only_pumps_of_the_latest_job_of_a_pipeline_are_admitted():
    jobs = PumpedJobs()
    assert not jobs.admits(0, 0)
    assert jobs.announce(0, 4) and jobs.announce(1, 2)
    assert jobs.admits(0, 4) and jobs.admits(1, 2)
    assert jobs.announce(0, 5)
    assert not jobs.announce(0, 5) and not jobs.announce(0, 4)
    assert [jobs.admits(0, epoch) for epoch in (4, 5, 6)] == [False, True, False]
    assert jobs.admits(1, 2)


def test_steps_can_run_once_a_pump_of_every_level_is_here():
    pumps = Pumps(2)
    assert pumps.arrive(1) is PumpArrival.AWAITING_OTHERS
    assert pumps.arrive(0) is PumpArrival.COMPLETE


def test_a_second_pump_of_a_level_never_completes_a_job():
    pumps = Pumps(2)
    pumps.arrive(0)
    assert pumps.arrive(0) is PumpArrival.REPEATED
    assert pumps.arrive(1) is PumpArrival.COMPLETE
    assert pumps.arrive(1) is PumpArrival.REPEATED


def test_the_pumps_of_an_ended_job_leave_without_breaking_it():
    pumps = Pumps(2)
    pumps.arrive(0)
    assert pumps.needs_all_pumps
    pumps.end()
    assert not pumps.needs_all_pumps
    assert pumps.arrive(1) is PumpArrival.TOO_LATE
