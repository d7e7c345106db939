"""Stops and drains, aborted at any moment, with slow or failing stores and slots."""

from __future__ import annotations

import random

from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.effort import examples
from tests.properties.stop_world import World
from tidegate.stream.elements import BarrierKind

CHOICES = st.integers(0, 1_000_000)
AFTERWARDS = st.sampled_from([0, 4, 20, 80])
"""How much happens before the next order or fault."""


class Stops(RuleBasedStateMachine):
    """Orders and faults in any mixture; the assertions are in the world."""

    @initialize(pipelines=st.integers(1, 2), slots=st.integers(1, 2), seed=CHOICES)
    def begin(self, pipelines, slots, seed):
        self.world = World(pipelines, slots, random.Random(seed))
        self.world.can_stop = False
        self.world.change_pace()
        self.world.advance(40)

    @rule(count=st.integers(1, 60))
    def all_is_well_for_a_while(self, count):
        self.world.advance(count)

    @rule(drains=st.booleans(), then=AFTERWARDS)
    def the_job_is_to_stop(self, drains, then):
        self.world.order(BarrierKind.STOP, drains=drains)
        self.world.advance(then)

    @rule(
        drains=st.booleans(),
        hanging=st.sampled_from(["store", "lines", "steps"]),
        count=st.integers(0, 30),
        failing=st.sampled_from([0, 1, None]),
    )
    def a_stop_is_aborted_while_something_hangs(self, drains, hanging, count, failing):
        """A pipeline fails, or it takes too long."""
        self.world.hold_up(hanging)
        self.world.order(BarrierKind.STOP, drains=drains)
        self.world.advance(count)
        if failing is None:
            self.world.now += 61.0
        else:
            self.world.pipelines[failing % len(self.world.pipelines)].fail()
        self.world.advance(30)
        self.world.recover()
        self.world.change_pace()

    @rule(then=AFTERWARDS)
    def a_checkpoint_is_asked_for(self, then):
        self.world.order(BarrierKind.CHECKPOINT)
        self.world.advance(then)

    @rule(awaits_next=st.booleans(), then=AFTERWARDS)
    def a_savepoint_is_asked_for(self, awaits_next, then):
        self.world.order(BarrierKind.SAVEPOINT, awaits_next=awaits_next)
        self.world.advance(then)

    @rule(after=st.integers(1, 6), then=AFTERWARDS)
    def something_will_not_be_written(self, after, then):
        self.world.trouble = after + 1
        self.world.advance(then)

    @rule(then=AFTERWARDS)
    def some_become_faster_or_slower(self, then):
        self.world.change_pace()
        self.world.advance(then)

    @rule(seconds=st.sampled_from([1.0, 61.0]), then=AFTERWARDS)
    def time_passes(self, seconds, then):
        self.world.now += seconds
        self.world.advance(then)

    @rule(choice=CHOICES, then=AFTERWARDS)
    def a_pipeline_fails(self, choice, then):
        self.world.pipelines[choice % len(self.world.pipelines)].fail()
        self.world.advance(then)

    @precondition(lambda self: any(each.step is not None for each in self.world.pipelines))
    @rule(choice=CHOICES, then=AFTERWARDS)
    def a_step_breaks(self, choice, then):
        stepping = [each for each in self.world.pipelines if each.step is not None]
        stepping[choice % len(stepping)].break_step()
        self.world.advance(then)

    @rule()
    def all_is_well_until_everything_goes_on(self):
        self.world.recover()
        self.world.change_pace()

    def teardown(self):
        if hasattr(self, "world"):
            self.world.can_stop = True
            self.world.recover()


Stops.TestCase.settings = examples(36, stateful_step_count=30, phases=[Phase.generate])
TestStops = Stops.TestCase


def test_an_undisturbed_world_is_stopped():
    world = World(2, 2, random.Random(7))
    world.advance(200)
    world.order(BarrierKind.STOP, drains=True)
    world.advance(400)
    assert world.stopped_with is not None
