import pytest

from tidegate.core.errors import ProtocolViolation
from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.slot_machine import (
    CloseSubtasks,
    Exit,
    Ignore,
    OpenSubtasks,
    SlotMachine,
    SlotPhase,
)


@pytest.fixture
def slot():
    state = SlotMachine(Incarnation(0, 1, 0, "nonce"))
    state.accepted(10.0, asked_at=0.0)
    return state


def test_a_slot_may_not_act_before_it_is_accepted():
    state = SlotMachine(Incarnation(0, 1, 0, "nonce"))
    assert not state.may_act(0.0)
    assert state.deploy(0, 1, 0.0) == Ignore("slot 0 (start 1.0, nonce) is STARTED")


def test_a_registered_slot_runs_nothing_until_it_is_deployed(slot):
    assert slot.refusal(0, 1, 0.0) == "pipeline 0 is not deployed in slot 0 (start 1.0, nonce)"
    assert slot.deploy(0, 1, 0.0) == OpenSubtasks(0, 1, replaces=None)
    assert slot.refusal(0, 1, 0.0) is None


def test_a_newer_attempt_replaces_the_deployed_one(slot):
    slot.deploy(0, 1, 0.0)
    assert slot.deploy(0, 3, 0.0) == OpenSubtasks(0, 3, replaces=1)
    assert slot.refusal(0, 1, 0.0) == "attempt 3 of pipeline 0 is deployed, not 1"
    assert slot.deployed == {0: 3}


@pytest.mark.parametrize("attempt", [1, 2])
def test_an_attempt_is_deployed_at_most_once(slot, attempt):
    slot.deploy(0, 2, 0.0)
    slot.undeploy(0)
    reason = "attempt 2 of pipeline 0 was deployed already"
    assert slot.deploy(0, attempt, 0.0) == Ignore(reason)


def test_pipelines_are_deployed_independently(slot):
    slot.deploy(0, 1, 0.0)
    slot.deploy(1, 5, 0.0)
    assert slot.undeploy(0) == CloseSubtasks(0, 1)
    assert slot.undeploy(0) == Ignore("pipeline 0 is not deployed")
    assert slot.deployed == {1: 5}


def test_the_lease_runs_from_the_sending_of_the_beat_that_was_answered(slot):
    number = slot.beat(4.0)
    slot.answered(number, 9.0)
    assert slot.lease_ends() == 14.0
    assert slot.may_act(13.9)
    assert not slot.may_act(14.0)


def test_an_answer_to_an_older_beat_does_not_shorten_the_lease(slot):
    first, second = slot.beat(1.0), slot.beat(5.0)
    slot.answered(second, 6.0)
    slot.answered(first, 7.0)
    assert slot.lease_ends() == 15.0


def test_an_answer_to_a_beat_that_was_never_sent_is_worth_nothing(slot):
    slot.answered(99, 5.0)
    assert slot.lease_ends() == 10.0


def test_a_slot_whose_lease_ran_out_exits_and_does_not_come_back(slot):
    slot.deploy(0, 1, 0.0)
    number = slot.beat(9.0)
    slot.answered(number, 10.0)
    assert not slot.may_act(10.0)
    assert slot.check(10.0) == Exit("the driver was not heard of for 10 s")
    assert slot.deployed == {}
    assert slot.phase is SlotPhase.EXITING
    assert slot.check(11.0) is None


def test_a_deployment_that_comes_after_the_lease_makes_the_slot_exit(slot):
    assert isinstance(slot.deploy(0, 1, 10.0), Exit)
    assert not slot.may_act(5.0)


def test_an_exiting_slot_does_nothing_more(slot):
    slot.deploy(0, 1, 0.0)
    assert slot.exit("superseded") == Exit("superseded")
    assert slot.exit("its line ended") == Exit("its line ended")
    assert not slot.may_act(0.0)
    assert isinstance(slot.deploy(0, 2, 0.0), Ignore)


def test_a_slot_is_accepted_once(slot):
    with pytest.raises(ProtocolViolation, match="cannot go from REGISTERED to REGISTERED"):
        slot.accepted(10.0, asked_at=5.0)
