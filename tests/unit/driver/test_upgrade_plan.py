"""What a changed program would make of a savepoint, found out without running it."""

import pytest

from tests.jobs import Sums, on_disk, pairs, summed
from tests.programs import PATIENCE, graph_of, read
from tests.taps import Tap
from tidegate.checkpoint.locate import open_checkpoint
from tidegate.common import Types
from tidegate.core.modes import SavepointFormat
from tidegate.driver.upgrade_plan import StateFate, plan_upgrade
from tidegate.state.descriptors import ValueStateDescriptor
from tidegate.stream.elements import BarrierKind

RECORDS = pairs(30)


class Texts(Sums):
    descriptor = ValueStateDescriptor("sum", Types.STRING())


class Renamed(Sums):
    descriptor = ValueStateDescriptor("total", Types.LONG())


@pytest.fixture
def savepoint(start, watch, tmp_path):
    tap = Tap(RECORDS)
    job = start(summed(watch, read(tap, uid="source")), settings=on_disk(tmp_path / "checkpoints"))
    tap.let_pass(20)
    order = job.order(BarrierKind.STOP, tmp_path / "savepoints", SavepointFormat.NATIVE)
    path = order.result(PATIENCE)
    return open_checkpoint(path).metadata


def planned(savepoint, watch, *, name="sums", function=Sums, parallelism=2, **settings):
    program = summed(watch, read(Tap(RECORDS), uid="source"), name, function, **settings)
    return plan_upgrade(savepoint, graph_of(program, parallelism=parallelism))


def fates(plan):
    return {operator.name: operator.fate for operator in plan.operators}


def test_the_same_program_fits(savepoint, watch):
    plan = planned(savepoint, watch)
    assert plan.fits()
    assert set(fates(plan).values()) == {StateFate.RESTORED}
    [sums] = [operator for operator in plan.operators if operator.uid == "sums"]
    assert [(state.name, state.fate) for state in sums.states] == [("sum", StateFate.RESTORED)]
    assert sums.bytes > 0
    assert plan.bytes_not_restored == 0


def test_state_of_an_operator_that_is_gone_does_not_fit_unless_it_may_be_left(savepoint, watch):
    plan = planned(savepoint, watch, name="others")
    assert fates(plan)["sums"] is StateFate.DROPPED
    assert fates(plan)["others"] is StateFate.NEW
    assert plan.bytes_not_restored > 0
    assert not plan.fits()
    assert plan.fits(allow_non_restored=True)


def test_a_state_of_another_type_is_named(savepoint, watch):
    plan = planned(savepoint, watch, function=Texts)
    assert not plan.fits(allow_non_restored=True)
    [reason] = plan.obstacles
    assert reason == (
        "'sums': state 'sum' holds value state of Long, but is declared as value state of String: "
        "the type was Long and is String now; give the new state another name, or declare it as it "
        "was"
    )


def test_states_may_be_added_and_dropped(savepoint, watch):
    plan = planned(savepoint, watch, function=Renamed)
    [sums] = [operator for operator in plan.operators if operator.uid == "sums"]
    assert {state.name: state.fate for state in sums.states} == {
        "sum": StateFate.DROPPED,
        "total": StateFate.NEW,
    }
    assert plan.fits()
