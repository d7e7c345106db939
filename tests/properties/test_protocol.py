"""The driver and its slots on a network and a Spark that lose, repeat, delay and reorder."""

from __future__ import annotations

import random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.effort import examples
from tests.properties.protocol_world import World
from tidegate.core.errors import SlotLost
from tidegate.protocol.region import RegionState

CHOICES = st.integers(0, 1_000_000)
AFTERWARDS = st.sampled_from([0, 3, 30, 120])
"""How much happens after a fault before the next one: nothing, some, or a full recovery."""


class Protocol(RuleBasedStateMachine):
    """Progress and faults in any mixture; the assertions are in the world."""

    @initialize(slots=st.integers(1, 3), seed=CHOICES)
    def begin(self, slots, seed):
        self.world = World(slots, random.Random(seed))
        self.world.advance(40)

    def pick(self, items, choice):
        return items[choice % len(items)]

    def alive(self):
        return [process for process in self.world.processes if process.is_alive]

    @rule(count=st.integers(1, 150))
    def all_is_well_for_a_while(self, count):
        self.world.advance(count)

    @rule(seconds=st.sampled_from([0.01, 1.0, 3.0, 6.0, 12.0]), then=AFTERWARDS)
    def time_passes(self, seconds, then):
        self.world.pass_time(seconds)
        self.world.advance(then)

    @precondition(lambda self: self.world.deployments)
    @rule(choice=CHOICES, then=AFTERWARDS)
    def the_driver_repeats_itself(self, choice, then):
        process, message = self.pick(self.world.deployments, choice)
        process.to_slot.append(message)
        self.world.advance(then)

    @precondition(lambda self: self.world.region.state is RegionState.RUNNING)
    @rule(then=AFTERWARDS)
    def a_checkpoint_is_triggered(self, then):
        self.world.trigger()
        self.world.advance(then)

    @precondition(lambda self: self.world.pending)
    @rule(choice=CHOICES, then=AFTERWARDS)
    def a_checkpoint_is_aborted(self, choice, then):
        self.world.abort_checkpoint(self.pick(sorted(self.world.pending), choice))
        self.world.advance(then)

    @precondition(lambda self: self.world.tasks)
    @rule(choice=CHOICES, then=AFTERWARDS)
    def spark_repeats_a_task_that_has_not_ended(self, choice, then):
        task = self.pick(self.world.tasks, choice)
        self.world.start_task(task.job, task.level, task.slot)
        self.world.advance(then)

    @precondition(lambda self: self.world.job is not None and self.world.job.outputs)
    @rule(choice=CHOICES, then=AFTERWARDS)
    def spark_loses_the_output_of_a_task_and_repeats_it(self, choice, then):
        job = self.world.job
        level, slot = self.pick(sorted(job.outputs), choice)
        self.world.start_task(job, level, slot)
        self.world.advance(then)

    @precondition(lambda self: self.world.job is not None)
    @rule(then=AFTERWARDS)
    def the_spark_job_of_a_step_breaks(self, then):
        order = self.world.job.order
        self.world.react(self.world.region.step_broke(order.attempt, order.step, "lost"))
        self.world.advance(then)

    @precondition(lambda self: self.world.tasks)
    @rule(choice=CHOICES, then=AFTERWARDS)
    def a_connection_fails(self, choice, then):
        task = self.pick(self.world.tasks, choice)
        self.world.finish_task(task, self.world.out_of_reach(task))
        self.world.advance(then)

    @precondition(lambda self: self.alive())
    @rule(choice=CHOICES, then=AFTERWARDS)
    def user_code_will_fail(self, choice, then):
        self.pick(self.alive(), choice).user_code_fails = True
        self.world.advance(then)

    @precondition(lambda self: self.alive())
    @rule(choice=CHOICES, then=AFTERWARDS)
    def a_process_dies(self, choice, then):
        self.pick(self.alive(), choice).die()
        self.world.advance(then)

    @precondition(lambda self: self.alive())
    @rule(choice=CHOICES, then=AFTERWARDS)
    def a_process_is_cut_off(self, choice, then):
        self.pick(self.alive(), choice).is_cut_off = True
        self.world.advance(then)

    @precondition(lambda self: self.alive())
    @rule(choice=CHOICES, then=AFTERWARDS)
    def a_process_sleeps_until_it_is_replaced(self, choice, then):
        process = self.pick(self.alive(), choice)
        process.is_asleep = True
        for _ in range(2):
            self.world.pass_time(6.0)
            self.world.advance(30)
        process.is_asleep = False
        self.world.advance(then)

    @precondition(lambda self: self.alive() and self.world.region.state is RegionState.RUNNING)
    @rule(choice=CHOICES, then=AFTERWARDS)
    def a_process_sleeps_before_it_opens_until_it_is_replaced(self, choice, then):
        region = self.world.region
        self.world.react(region.fail(region.attempt, SlotLost(0, "lost")))
        self.world.deploy_if_possible()
        self.a_process_sleeps_until_it_is_replaced(choice, then)

    @rule(then=AFTERWARDS)
    def whoever_was_cut_off_wakes_up(self, then):
        for process in self.world.processes:
            process.is_cut_off = False
        self.world.advance(then)

    @precondition(lambda self: self.world.launches)
    @rule(choice=CHOICES, then=AFTERWARDS)
    def spark_starts_a_slot_beside_the_one_it_lost_sight_of(self, choice, then):
        self.world.start_process(self.pick(sorted(self.world.launches), choice))
        self.world.advance(then)

    @precondition(lambda self: self.world.launches)
    @rule(choice=CHOICES, then=AFTERWARDS)
    def the_spark_job_of_a_slot_ends(self, choice, then):
        self.world.end_spark_job(self.pick(sorted(self.world.launches), choice))
        self.world.deploy_if_possible()
        self.world.advance(then)

    def teardown(self):
        if hasattr(self, "world"):
            self.world.recover()


Protocol.TestCase.settings = examples(40, stateful_step_count=29)
TestProtocol = Protocol.TestCase


def test_an_undisturbed_world_makes_progress_and_completes_checkpoints():

    world = World(2, random.Random(7))
    world.advance(300)
    assert world.steps_done > 5
    world.trigger()
    world.advance(300)
    assert world.restore_point is not None
    assert not world.pending
