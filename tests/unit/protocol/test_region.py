import pytest

from tidegate.core.errors import ExternalError, ProtocolViolation, SlotLost, StepFailed
from tidegate.protocol.region import (
    LEGAL_MOVES,
    Region,
    RegionFails,
    RegionState,
    RunStep,
    StepDone,
)

BOOM = ExternalError("boom")


@pytest.fixture
def region():
    return Region(0, [0, 1], max_step_tries=3)


@pytest.fixture
def running(region):
    region.deploy()
    region.deployed(0, 1)
    assert region.deployed(1, 1)
    return region


def test_a_region_runs_when_all_its_slots_have_opened_it(region):
    assert region.deploy() == 1
    assert region.deployed(1, 1) is False
    assert region.deployed(0, 1) is True
    assert region.state is RegionState.RUNNING


def test_the_same_slot_twice_does_not_make_two(region):
    region.deploy()
    assert region.deployed(0, 1) is False
    assert region.deployed(0, 1) is False
    assert region.state is RegionState.DEPLOYING


def test_a_slot_that_opened_an_older_attempt_does_not_count(region):
    region.deploy()
    region.fail(1, BOOM)
    region.restart()
    region.deploy()
    assert region.deployed(0, 1) is False
    assert region.deployed(1, 2) is False
    assert region.deployed(0, 2) is True


def test_steps_are_numbered_from_one_and_run_one_at_a_time(running):
    assert running.begin_step() == RunStep(1, 1, tries=1)
    with pytest.raises(ProtocolViolation, match="step 1 is in flight"):
        running.begin_step()
    assert running.step_through(1, 1) == StepDone(1)
    assert running.begin_step() == RunStep(1, 2, tries=1)


def test_a_step_that_broke_in_spark_runs_again_under_its_number_a_set_number_of_times(running):
    running.begin_step()
    assert running.step_broke(1, 1, "lost executor") == RunStep(1, 1, tries=2)
    assert running.step_broke(1, 1, "lost executor") == RunStep(1, 1, tries=3)
    failed = running.step_broke(1, 1, "lost executor")
    assert isinstance(failed, RegionFails)
    assert isinstance(failed.cause, StepFailed)
    assert failed.cause.args == (0, 1, 3, "lost executor")
    assert failed.abandoned is None
    assert running.state is RegionState.FAILING


def test_tries_are_counted_for_each_step(running):
    running.begin_step()
    running.step_broke(1, 1, "once")
    running.step_through(1, 1)
    running.begin_step()
    assert running.step_broke(1, 2, "once") == RunStep(1, 2, tries=2)


def test_a_failure_mark_fails_the_region_once_the_step_is_through(running):
    running.begin_step()
    assert running.step_through(1, 1, [BOOM]) == RegionFails(1, BOOM, abandoned=None)


def test_a_lost_slot_fails_the_region_and_abandons_its_step(running):
    running.begin_step()
    failed = running.slot_gone(1, "killed")
    assert isinstance(failed.cause, SlotLost)
    assert failed.abandoned == 1
    assert running.step_in_flight is None


def test_a_slot_of_other_regions_is_nobody_s_loss(running):
    assert running.slot_gone(7, "killed") is None
    assert running.state is RegionState.RUNNING


def test_a_region_fails_once(running):
    assert running.fail(1, BOOM) is not None
    assert running.fail(1, BOOM) is None
    assert running.slot_gone(0, "killed") is None


def test_what_comes_of_an_abandoned_step_is_ignored(running):
    running.begin_step()
    running.slot_gone(1, "killed")
    assert running.step_through(1, 1) is None
    assert running.step_broke(1, 1, "cancelled") is None
    running.restart()
    running.deploy()
    running.deployed(0, 2)
    running.deployed(1, 2)
    assert running.begin_step() == RunStep(2, 2, tries=1)
    assert running.step_through(1, 1) is None
    assert running.step_through(1, 2) is None
    assert running.fail(1, BOOM) is None
    assert running.step_in_flight == 2


def test_a_healthy_region_can_be_reset_with_the_others(running):
    running.begin_step()
    assert running.restart() == 1
    assert running.state is RegionState.RESTARTING
    assert running.deploy() == 2


def test_a_finished_region_ignores_lost_slots_and_can_be_reset(running):
    running.finish()
    assert running.slot_gone(0, "shut down") is None
    assert running.restart() is None
    assert running.state is RegionState.RESTARTING


def test_a_region_does_not_finish_in_the_middle_of_a_step(running):
    running.begin_step()
    with pytest.raises(ProtocolViolation, match="while step 1 runs"):
        running.finish()


def test_a_region_that_is_abandoned_has_failed_for_good(running):
    running.fail(1, BOOM)
    running.give_up()
    assert running.state is RegionState.FAILED
    with pytest.raises(ProtocolViolation, match="cannot go from FAILED to RESTARTING"):
        running.restart()


def test_cancelling_abandons_the_step_and_ends_when_everything_is_closed(running):
    running.begin_step()
    assert running.cancel() == 1
    assert running.cancel() is None
    assert running.step_through(1, 1) is None
    running.canceled()
    assert running.state is RegionState.CANCELED
    assert running.cancel() is None


def test_every_state_that_is_not_an_end_can_be_cancelled():
    ends = {state for state in RegionState if state.is_terminal}
    cancellable = {state for state, moves in LEGAL_MOVES.items() if RegionState.CANCELLING in moves}
    assert cancellable == set(RegionState) - ends - {RegionState.CANCELLING}


def test_no_state_is_a_trap():
    reachable = {RegionState.CREATED}
    while True:
        further = reachable | {move for state in reachable for move in LEGAL_MOVES[state]}
        if further == reachable:
            break
        reachable = further
    assert reachable == set(RegionState)
    assert {state for state, moves in LEGAL_MOVES.items() if not moves} == {
        RegionState.CANCELED,
        RegionState.FAILED,
    }
