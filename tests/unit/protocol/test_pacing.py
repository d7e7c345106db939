import math

import pytest

from tidegate.connectors.source import InputStatus
from tidegate.protocol.messages import SlotReport, SourceReport
from tidegate.protocol.pacing import (
    LONG_IDLE_FACTOR,
    LONG_IDLE_LOOKS,
    LONGEST_LOOK,
    LONGEST_SLEEP,
    NextStep,
    SliceSize,
    StepCaller,
)
from tidegate.protocol.region import RunStep
from tidegate.stream.elements import Barrier

TARGET = 0.4


@pytest.fixture
def size():
    return SliceSize(TARGET, maximum=1_000_000)


def full(size, seconds, busy=0.0):
    size.observe(seconds, busy, size.records)
    return size.records


def settled(size, *, fixed, rate, steps=30):
    """How long a full step takes in the end, where it costs something even with no records."""
    for _ in range(steps):
        work = size.records / rate
        full(size, fixed + work, work)
    return fixed + size.records / rate


def test_slices_grow_at_most_fourfold(size):
    first = size.records
    assert full(size, 0.001) == 4 * first
    assert full(size, 0.001) == 16 * first


def test_slices_shrink_at_most_to_a_quarter(size):
    first = size.records
    full(size, 0.05)
    assert full(size, 60.0) == first
    assert full(size, 60.0) == first // 4


def test_a_step_that_was_not_full_says_nothing_about_a_full_one(size):
    first = size.records
    size.observe(0.001, 0.0, first // 2)
    size.observe(5.0, 4.9, first // 2)
    assert size.records == first


def test_slices_stay_within_their_bounds():
    size = SliceSize(TARGET, maximum=6000)
    for _ in range(5):
        full(size, 0.001)
    assert size.records == 6000
    for _ in range(20):
        full(size, 10.0)
    assert size.records == 1
    assert SliceSize(TARGET, maximum=10).records == 10


@pytest.mark.parametrize("rate", [3_000, 30_000, 100_000, 1_000_000])
def test_a_full_step_comes_to_take_the_target_time(size, rate):
    assert settled(size, fixed=0.05, rate=rate) == pytest.approx(TARGET, rel=0.1)


def test_steps_become_longer_where_spark_alone_needs_much_of_the_target(size):
    assert settled(size, fixed=0.3, rate=100_000) == pytest.approx(1.3, rel=0.2)


def test_steps_become_longer_when_the_cluster_becomes_busy(size):
    settled(size, fixed=0.02, rate=100_000)
    assert settled(size, fixed=1.0, rate=100_000, steps=60) == pytest.approx(2.0, rel=0.1)
    assert settled(size, fixed=0.05, rate=100_000) == pytest.approx(TARGET, rel=0.1)


def test_where_spark_alone_needs_longer_than_any_step_should_take_steps_still_carry_much(size):
    assert settled(size, fixed=4.0, rate=100_000) == pytest.approx(5.0, rel=0.1)


def test_steps_do_not_become_longer_than_two_seconds(size):
    assert settled(size, fixed=1.0, rate=100_000) == pytest.approx(2.0, rel=0.1)


def report(*statuses, timer=None, room=None, records=0):
    sources = {i: SourceReport(records, status, None) for i, status in enumerate(statuses)}
    return SlotReport(slot=0, sources=sources, timer_in=timer, room=room)


def step(number, tries=1):
    return RunStep(attempt=1, step=number, tries=tries)


def due(*reports, now=100.0, discovery=None):
    subject = NextStep()
    subject.begin(step(1))
    subject.through(reports, now=now, discovery_seconds=discovery)
    return subject.due


def test_the_next_step_is_due_at_once_while_any_source_has_more():
    idle, busy = InputStatus.NOTHING_AVAILABLE, InputStatus.MORE_AVAILABLE
    assert due(report(idle, timer=30.0), report(busy)) == 0.0


def test_sources_wait_until_the_last_operator_has_room():
    busy = InputStatus.MORE_AVAILABLE
    assert due(report(busy, room=5), report(busy)) == 0.0
    assert due(report(busy, room=5), report(busy, room=0)) is None
    assert due(report(busy, room=0), report(busy, timer=10.0)) == 110.0


def test_an_idle_pipeline_waits_to_be_called():
    assert due(report(InputStatus.NOTHING_AVAILABLE)) is None
    assert due(report(InputStatus.END_OF_INPUT)) is None


def test_the_first_timer_calls():
    idle = InputStatus.NOTHING_AVAILABLE
    assert due(report(idle, timer=30.0), report(idle, timer=10.0), report(idle)) == 110.0


def test_enumerators_that_may_find_more_are_asked_again():
    assert due(report(InputStatus.NOTHING_AVAILABLE), discovery=1.0) == 101.0
    assert due(report(InputStatus.NOTHING_AVAILABLE, timer=0.5), discovery=1.0) == 100.5


@pytest.fixture
def next_step():
    return NextStep()


PACE = 0.005


@pytest.fixture
def paced():
    """A step began at second 10."""
    subject = NextStep(PACE)
    subject.begin(step(1), 10.0)
    return subject


def left(subject, *reports, at=10.001):
    subject.through(reports, now=100.0, discovery_seconds=None)
    return subject.seconds_left(100.0, at)


def flowing(records, status=InputStatus.NOTHING_AVAILABLE):
    return SlotReport(slot=0, sources={0: SourceReport(records, status, None)})


def test_sources_that_trickle_are_asked_again_at_the_pace_of_steps(paced):
    assert left(paced, flowing(3)) == pytest.approx(0.004)
    assert paced.seconds_left(100.0, 10.006) == 0.0


def test_a_source_that_fills_its_slices_does_not_wait_for_the_pace(paced):
    assert left(paced, flowing(3), flowing(9, InputStatus.MORE_AVAILABLE)) == 0.0


def test_sources_that_had_nothing_or_have_ended_are_not_asked_again(paced):
    assert left(paced, flowing(0), flowing(3, InputStatus.END_OF_INPUT)) is None


def test_a_slot_that_calls_waits_for_the_pace_and_a_barrier_does_not(paced):
    paced.wake()
    assert left(paced, flowing(0)) == pytest.approx(0.004)
    paced.trigger(BARRIERS[0])
    assert paced.seconds_left(100.0, 10.001) == 0.0


def test_the_pace_does_not_depend_on_the_wall_clock(paced):
    assert left(paced, flowing(3)) == pytest.approx(0.004)
    assert paced.seconds_left(-1e6, 10.001) == pytest.approx(0.004)


BARRIERS = tuple(Barrier(number, 0.0) for number in (1, 2))


def test_a_call_during_a_step_makes_the_next_one_due(next_step):
    next_step.begin(step(1))
    next_step.call()
    next_step.through([report(InputStatus.NOTHING_AVAILABLE)], now=0.0, discovery_seconds=None)
    assert next_step.due == 0.0


def test_barriers_are_carried_by_the_next_step_and_make_it_due(next_step):
    for barrier in BARRIERS:
        next_step.trigger(barrier)
    assert next_step.due == 0.0
    assert next_step.begin(step(1)) == BARRIERS
    assert next_step.due is None
    assert next_step.begin(step(2)) == ()


def test_a_step_that_is_tried_again_carries_the_same_barriers(next_step):
    next_step.trigger(BARRIERS[0])
    next_step.begin(step(1))
    next_step.trigger(BARRIERS[1])
    next_step.abort(1)
    assert next_step.begin(step(1, tries=2)) == BARRIERS[:1]
    assert next_step.begin(step(2)) == BARRIERS[1:]


def test_the_barrier_of_an_aborted_checkpoint_is_not_carried(next_step):
    for barrier in BARRIERS:
        next_step.trigger(barrier)
    next_step.abort(1)
    assert next_step.begin(step(1)) == BARRIERS[1:]


def test_a_new_attempt_gets_no_barrier_of_an_older_one(next_step):
    next_step.trigger(BARRIERS[0])
    next_step.deployed()
    assert next_step.due == 0.0
    assert next_step.begin(step(1)) == ()


@pytest.fixture
def caller():
    """Of a slot that has run its part of a step."""
    caller = StepCaller()
    caller.ran()
    return caller


def always():
    return True


def never():
    return False


def test_a_slot_calls_for_a_step_once(caller):
    assert not caller.calls(never)
    assert caller.calls(always)
    assert not caller.calls(always)
    caller.ran()
    assert caller.calls(always)


@pytest.mark.parametrize("room", [None, 0])
@pytest.mark.parametrize("records", [0, 1])
@pytest.mark.parametrize("status", InputStatus)
def test_a_slot_that_does_not_call_is_stepped_all_the_same(
    caller, next_step, status, records, room
):
    read = report(status, records=records, room=room)
    caller.ran(read.sources.values())
    next_step.begin(step(1))
    next_step.through([read], now=100.0, discovery_seconds=None)
    if not caller.calls(always):
        assert next_step.seconds_left(100.0, 0.0) == 0.0


def test_a_slot_does_not_call_if_it_has_read_all_there_was(caller):
    caller.ran(report(InputStatus.NOTHING_AVAILABLE, records=1).sources.values())
    assert not caller.calls(always)
    caller.ran(report(InputStatus.NOTHING_AVAILABLE).sources.values())
    assert caller.calls(always)


def test_a_new_deployment_is_stepped_without_a_call():
    assert not StepCaller().calls(always)


def test_an_abort_that_comes_after_its_step_calls_for_another_one(caller):
    caller.abort(7)
    assert caller.calls(never)
    assert caller.begin() == [7]
    caller.ran()
    assert not caller.calls(never)


def test_an_abort_between_two_levels_of_a_step_waits_for_the_next_step(caller):
    caller.begin()
    caller.abort(7)
    caller.ran()
    assert caller.calls(never)


def test_a_slot_looks_soon_after_an_action_unless_a_step_will_come(caller):
    assert caller.first_look() == LONGEST_LOOK
    caller.calls(always)
    assert caller.first_look() == LONGEST_SLEEP


def test_a_slot_sleeps_until_work_may_come(caller):
    assert caller.next_look([math.inf, 0.4, 0.3]) == 0.3


def test_a_slot_does_not_look_more_often_for_work_that_it_foresees(caller):
    assert caller.next_look([LONGEST_LOOK / 10]) == LONGEST_LOOK


@pytest.mark.parametrize("work_in", [[], [math.inf], [3600.0]])
def test_a_slot_looks_once_in_a_while_even_if_no_work_can_come(caller, work_in):
    assert caller.next_look(work_in) == LONGEST_SLEEP


def test_a_slot_looks_less_often_for_unforeseen_work_if_it_has_found_none_for_long(caller):
    assert caller.next_look([0.0, math.inf]) == LONGEST_LOOK
    for _ in range(LONG_IDLE_LOOKS + 1):
        caller.calls(never)
    assert caller.next_look([0.0, math.inf]) == LONG_IDLE_FACTOR * LONGEST_LOOK
    assert caller.next_look([0.0, LONGEST_LOOK]) == LONGEST_LOOK, "a timer is not late for it"
    caller.ran(report(InputStatus.MORE_AVAILABLE, records=1).sources.values())
    assert caller.next_look([0.0, math.inf]) == LONGEST_LOOK


def test_a_step_that_read_nothing_does_not_end_a_long_idle_time(caller):
    """A checkpoint every second would keep it from looking less often."""
    for _ in range(LONG_IDLE_LOOKS + 1):
        caller.calls(never)
    caller.ran(report(InputStatus.NOTHING_AVAILABLE).sources.values())
    assert caller.next_look([0.0, math.inf]) == LONG_IDLE_FACTOR * LONGEST_LOOK
