import pytest

from tidegate.core.errors import ProtocolViolation
from tidegate.core.ids import Attempt
from tidegate.protocol.packet import Packet, PacketHeader
from tidegate.protocol.units import (
    Pending,
    RunNow,
    Sealed,
    Stale,
    UnitKey,
    WorkUnits,
)


def key(step=1, level=0, attempt=1):
    return UnitKey(attempt, step, level)


def packet(sequence=0, *, edge=0, source=0, vertex=1, attempt=1, step=1, body=b"x"):
    return Packet(PacketHeader(attempt, step, edge, source, vertex, 0, sequence), body)


@pytest.fixture
def units():
    return WorkUnits[str](Attempt(1))


def run(units, unit, answer="answer"):
    assert isinstance(units.complete(unit, []), RunNow)
    assert units.seal(unit, answer)


def test_the_first_complete_set_runs_and_everybody_else_waits(units):
    packets = (packet(0), packet(1))
    assert units.complete(key(), packets) == RunNow(key(), packets)
    assert units.complete(key(), packets) == Pending(key())
    assert units.ask(key()) == Pending(key())


def test_every_request_for_a_sealed_unit_gets_the_same_answer(units):
    run(units, key(), "first")
    assert units.ask(key()) == Sealed(key(), "first")
    assert units.complete(key(), [packet()]) == Sealed(key(), "first")


def test_packets_run_by_vertex_and_channel_and_sequence_whatever_the_order_of_arrival(units):
    ordered = (
        packet(0, edge=1, vertex=1),
        packet(1, edge=1, vertex=1),
        packet(0, edge=2, source=0, vertex=1),
        packet(0, edge=2, source=1, vertex=1),
        packet(0, edge=0, vertex=2),
    )
    shuffled = [ordered[i] for i in (4, 1, 3, 0, 2)]
    assert units.complete(key(), shuffled) == RunNow(key(), ordered)


def test_a_packet_that_was_delivered_twice_runs_once(units):
    assert units.complete(key(), [packet(0), packet(1), packet(0)]) == RunNow(
        key(), (packet(0), packet(1))
    )


def test_the_levels_of_a_step_are_units_of_their_own(units):
    run(units, key(level=0), "sources")
    run(units, key(level=1), "sums")
    assert units.ask(key(level=0)) == Sealed(key(level=0), "sources")
    assert units.ask(key(level=1)) == Sealed(key(level=1), "sums")


def test_a_lower_step_is_stale_once_a_higher_one_has_begun(units):
    run(units, key(step=1))
    assert units.ask(key(step=1)) == Sealed(key(step=1), "answer")
    run(units, key(step=2))
    stale = Stale(key(step=1), "step 2 has begun, step 1 is over")
    assert units.complete(key(step=1), []) == stale
    assert units.ask(key(step=1)) == stale


def test_a_refused_set_leaves_the_steps_as_they_are(units):
    run(units, key(step=1))
    with pytest.raises(ProtocolViolation, match="was delivered for attempt 1, step 2"):
        units.complete(key(step=2), [packet(step=1)])
    assert units.ask(key(step=1)) == Sealed(key(step=1), "answer")


@pytest.mark.parametrize("attempt", [0, 2])
def test_units_of_another_attempt_than_the_deployed_one_are_stale(units, attempt):
    other = key(attempt=attempt)
    assert units.complete(other, []) == Stale(other, f"attempt 1 is deployed, not {attempt}")


def test_a_new_attempt_begins_with_nothing_of_the_old_one(units):
    run(units, key())
    units.complete(key(level=1), [])
    units.reset(Attempt(2))
    assert units.seal(key(level=1), "too late") is False
    assert isinstance(units.ask(key()), Stale)
    assert isinstance(units.complete(key(attempt=2), []), RunNow)


def test_an_attempt_cannot_come_back(units):
    units.reset(Attempt(3))
    with pytest.raises(ProtocolViolation, match="attempt 2 cannot follow attempt 3"):
        units.reset(Attempt(2))


def test_waiting_askers_learn_that_the_pipeline_was_closed(units):
    units.complete(key(), [])
    units.close()
    assert units.ask(key()) == Stale(key(), "attempt 1 was closed")
    assert units.seal(key(), "nobody will ask") is False
    units.reset(Attempt(2))
    assert isinstance(units.complete(key(attempt=2), []), RunNow)


def test_a_step_cannot_begin_while_the_one_before_it_runs(units):
    units.complete(key(step=1), [])
    with pytest.raises(ProtocolViolation, match="level 0 of step 1 is running"):
        units.complete(key(step=2), [])


def test_an_answer_is_sealed_once(units):
    run(units, key(), "first")
    with pytest.raises(ProtocolViolation, match="was sealed, but is not running"):
        units.seal(key(), "second")
    assert units.ask(key()) == Sealed(key(), "first")


def test_asking_for_what_nobody_completed_is_a_violation(units):
    with pytest.raises(ProtocolViolation, match="before it was submitted"):
        units.ask(key())
