import pytest

from tidegate.core.errors import ProtocolViolation
from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.slot_machine import ACCEPTANCE_SECONDS, SlotMachine
from tidegate.protocol.units import Pending, RunNow, Sealed, Stale, UnitKey

NAME = "slot 0 (start 1.0, nonce)"
UNIT = UnitKey(1, 1, 0)


@pytest.fixture
def slot():
    machine = SlotMachine(Incarnation(0, 1, 0, "nonce"), 0.0)
    machine.accepted(10.0)
    return machine


def opened(slot, pipeline=0, attempt=1):
    assert slot.deploy(pipeline, attempt)
    assert slot.open(pipeline, attempt, 0.0)
    return slot


def test_a_slot_may_not_act_before_it_is_accepted():
    machine = SlotMachine(Incarnation(0, 1, 0, "nonce"), 0.0)
    assert not machine.has_lease(0.0)
    assert machine.deploy(0, 1)
    assert not machine.open(0, 1, 0.0)


def test_a_slot_that_nobody_accepts_ends():
    machine = SlotMachine(Incarnation(0, 1, 0, "nonce"), 0.0)
    assert not machine.has_lease(ACCEPTANCE_SECONDS - 1)
    assert not machine.is_exiting
    assert not machine.has_lease(ACCEPTANCE_SECONDS)
    assert machine.is_exiting


def test_a_registered_slot_runs_nothing_until_it_is_deployed(slot):
    reason = f"pipeline 0 is not deployed in {NAME}"
    assert slot.deliver(0, UNIT, []) == Stale(UNIT, reason)
    assert opened(slot).deliver(0, UNIT, []) == RunNow(UNIT, ())
    assert slot.may_run(0, UNIT, 0.0)


def test_a_unit_runs_once_and_has_one_answer(slot):
    opened(slot).deliver(0, UNIT, [])
    assert slot.deliver(0, UNIT, []) == slot.ask(0, UNIT) == Pending(UNIT)
    slot.seal(0, UNIT, "answer")
    assert slot.ask(0, UNIT) == Sealed(UNIT, "answer")
    assert not slot.may_run(0, UNIT, 0.0)


def test_what_is_not_open_does_nothing(slot):
    slot.deploy(0, 1)
    slot.deliver(0, UNIT, [])
    assert not slot.may_act(0, 1, 0.0)
    assert not slot.may_run(0, UNIT, 0.0)


def test_a_newer_attempt_ends_the_older_as_soon_as_it_is_heard_of(slot):
    opened(slot).deliver(0, UNIT, [])
    assert slot.deploy(0, 3)
    assert slot.ask(0, UNIT) == Stale(UNIT, "attempt 3 is deployed, not 1")
    assert not slot.may_run(0, UNIT, 0.0)
    assert not slot.may_act(0, 1, 0.0)
    assert slot.open(0, 3, 0.0)
    assert slot.may_act(0, 3, 0.0)


def test_an_attempt_that_was_replaced_before_its_turn_is_not_opened(slot):
    slot.deploy(0, 1)
    slot.deploy(0, 2)
    assert not slot.open(0, 1, 0.0)
    assert slot.open(0, 2, 0.0)


@pytest.mark.parametrize("attempt", [1, 2])
def test_an_attempt_is_deployed_at_most_once(slot, attempt):
    opened(slot, attempt=2).undeploy(0)
    slot.closed(0)
    assert not slot.deploy(0, attempt)
    assert not slot.open(0, attempt, 0.0)


def test_what_is_undeployed_runs_nothing_but_hears_of_checkpoints_until_it_is_closed(slot):
    opened(slot).deliver(0, UNIT, [])
    slot.undeploy(0)
    assert not slot.may_run(0, UNIT, 0.0)
    assert slot.may_act(0, 1, 0.0)
    slot.closed(0)
    assert not slot.may_act(0, 1, 0.0)


def test_what_is_undeployed_before_its_turn_is_not_opened(slot):
    slot.deploy(0, 1)
    slot.undeploy(0)
    assert not slot.open(0, 1, 0.0)


def test_nobody_waits_for_an_attempt_that_could_not_be_opened(slot):
    opened(slot).deliver(0, UNIT, [])
    slot.closed(0)
    assert slot.ask(0, UNIT) == Stale(UNIT, "attempt 1 was closed")


def test_closing_an_attempt_leaves_its_successor_as_it_is(slot):
    opened(slot).undeploy(0)
    slot.deploy(0, 2)
    slot.closed(0)
    assert slot.open(0, 2, 0.0)


def test_pipelines_are_deployed_independently(slot):
    opened(opened(slot, pipeline=0, attempt=1), pipeline=1, attempt=5)
    slot.undeploy(0)
    slot.closed(0)
    assert not slot.may_act(0, 1, 0.0)
    assert slot.may_act(1, 5, 0.0)


def test_the_lease_runs_from_the_sending_of_the_beat_that_was_answered(slot):
    number = slot.beat(4.0)
    slot.answered(number, 9.0)
    assert slot.has_lease(13.9)
    assert not slot.has_lease(14.0)


def test_an_answer_to_an_older_beat_does_not_shorten_the_lease(slot):
    first, second = slot.beat(1.0), slot.beat(5.0)
    slot.answered(second, 6.0)
    slot.answered(first, 7.0)
    assert slot.has_lease(14.9)


def test_an_answer_to_a_beat_that_was_never_sent_is_worth_nothing(slot):
    slot.answered(99, 5.0)
    assert not slot.has_lease(10.0)


def test_a_lease_that_ran_out_does_not_come_back(slot):
    number = slot.beat(9.0)
    slot.answered(number, 10.0)
    assert slot.is_exiting
    assert not slot.has_lease(10.0)
    assert not slot.has_lease(5.0)


@pytest.mark.parametrize(
    "question",
    [
        lambda slot: slot.open(1, 1, 10.0),
        lambda slot: slot.may_act(0, 1, 10.0),
        lambda slot: slot.may_run(0, UNIT, 10.0),
        lambda slot: slot.has_lease(10.0),
    ],
)
def test_without_a_lease_nothing_is_opened_run_committed_or_aborted(slot, question):
    opened(slot).deliver(0, UNIT, [])
    slot.deploy(1, 1)
    assert not question(slot)
    reason = f"{NAME} may not act: the driver has not been heard from for 10 s"
    assert slot.ask(0, UNIT) == Stale(UNIT, reason)


def test_an_exiting_slot_says_why_it_went_first(slot):
    opened(slot).deliver(0, UNIT, [])
    slot.exit("superseded")
    slot.exit("its line ended")
    assert slot.ask(0, UNIT) == Stale(UNIT, f"{NAME} may not act: superseded")
    assert not slot.may_run(0, UNIT, 0.0)


def test_a_slot_is_accepted_once(slot):
    with pytest.raises(ProtocolViolation, match="cannot go from REGISTERED to REGISTERED"):
        slot.accepted(10.0)


def test_a_slot_that_was_ended_before_it_is_accepted_stays_ended():
    slot = SlotMachine(Incarnation(0, 1, 0, "nonce"), 0.0)
    slot.exit("its line ended")
    slot.accepted(10.0)
    assert not slot.has_lease(0.0)
