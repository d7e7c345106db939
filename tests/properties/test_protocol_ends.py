"""Inputs that end and sinks that commit: nothing is lost or duplicated, whatever fails when."""

from __future__ import annotations

import random

from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.effort import examples
from tests.properties.end_world import SINKS, TROUBLE, Work, World
from tidegate.core.modes import FailoverStrategy
from tidegate.stream.elements import BarrierKind

CHOICES = st.integers(0, 1_000_000)
KINDS = st.sampled_from([BarrierKind.CHECKPOINT, BarrierKind.SAVEPOINT])
WIDTHS = st.integers(1, 3)
AFTERWARDS = st.sampled_from([0, 4, 12, 40])
"""How much happens before the next order or fault."""
STREAMS = st.lists(st.sampled_from([0, 2, 10]), min_size=1, max_size=2).map(lambda s: [*s, 30])
"""Lengths: one is long, so that the others end before it."""


class Ends(RuleBasedStateMachine):
    """Orders and faults in any mixture; the assertions are in the world."""

    @initialize(
        sink=st.sampled_from(list(SINKS)),
        lengths=st.lists(STREAMS, min_size=1, max_size=2),
        width=st.integers(2, 3),
        failover=st.sampled_from(FailoverStrategy),
        seed=CHOICES,
    )
    def begin(self, sink, lengths, width, failover, seed):
        self.world = World(Work(sink, lengths), width, random.Random(seed), failover=failover)

    @rule(count=st.integers(1, 30))
    def all_is_well_for_a_while(self, count):
        self.world.advance(count)

    @rule(kind=KINDS, then=AFTERWARDS)
    def somebody_asks(self, kind, then):
        self.world.order(kind)
        self.world.advance(then)

    @rule(after=st.integers(1, 6), then=AFTERWARDS)
    def something_will_not_be_written(self, after, then):
        self.world.trouble = after + 1
        self.world.advance(then)

    @rule(
        choice=CHOICES,
        what=st.sampled_from(["record", "prepare", "commit", "answer to a commit"]),
        asks=st.booleans(),
        then=AFTERWARDS,
    )
    def the_outside_system_will_refuse(self, choice, what, asks, then):
        outsides = self.world.work.outsides
        outsides[choice % len(outsides)].troubles.add(what)
        if asks:
            self.world.order(BarrierKind.CHECKPOINT)
        self.world.advance(then)

    @rule(kind=KINDS, count=st.integers(4, 30), choice=CHOICES)
    def a_pipeline_fails_soon_after_somebody_asked(self, kind, count, choice):
        self.world.order(kind)
        self.world.advance(count)
        self.fail(choice)

    @rule(choice=CHOICES, then=AFTERWARDS)
    def a_pipeline_fails(self, choice, then):
        self.fail(choice)
        self.world.advance(then)

    @rule(choice=CHOICES, then=AFTERWARDS)
    def a_pipeline_will_fail_when_something_is_published(self, choice, then):
        self.world.surprises.append(lambda: self.fail(choice))
        self.world.advance(then)

    def fail(self, choice):
        self.world.pipelines[choice % len(self.world.pipelines)].fail(TROUBLE)

    @rule(width=WIDTHS, then=AFTERWARDS)
    def another_driver_goes_on(self, width, then):
        self.world.lose_driver(width)
        self.world.advance(then)

    @rule(seconds=st.sampled_from([1.0, 61.0]), then=AFTERWARDS)
    def time_passes(self, seconds, then):
        self.world.now += seconds
        self.world.advance(then)

    def teardown(self):
        if hasattr(self, "world"):
            self.world.finish()
            for savepoint in self.world.savepoints:
                self.world.go_on_from(savepoint, self.world.rnd.randint(1, 3))


Ends.TestCase.settings = examples(60, stateful_step_count=13, phases=[Phase.generate])
TestEnds = Ends.TestCase


def test_an_undisturbed_job_ends():
    for sink in SINKS:
        world = World(Work(sink, [[2, 30], [6]]), 2, random.Random(7))
        world.advance(20)
        world.order(BarrierKind.SAVEPOINT)
        world.finish()
        (savepoint,) = world.savepoints
        world.go_on_from(savepoint, 3)
