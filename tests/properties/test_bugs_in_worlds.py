"""Planted bugs in the protocol, each of which the worlds must find.

A bug is a function that removes one rule of the protocol. Its world then draws as many examples as
in `make test`, from several seeds; for most of them, an assertion must fail.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import pytest
from hypothesis import seed as seeded
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, get_state_machine_test

from tests.effort import EFFORT, seed
from tests.properties.test_protocol import Protocol
from tests.properties.test_protocol_drivers import Drivers
from tests.properties.test_protocol_ends import Ends
from tests.properties.test_protocol_leases import Leases
from tests.properties.test_protocol_stops import Stops
from tidegate.checkpoint.ownership import Ownership
from tidegate.checkpoint.store import CheckpointStore
from tidegate.operators.user_code import USER_FAILURES
from tidegate.protocol.checkpoints.coordinator import CheckpointCoordinator
from tidegate.protocol.input_gate import REQUESTS, InputGate
from tidegate.protocol.pacing import NextStep, StepCaller
from tidegate.protocol.slot_machine import SlotMachine
from tidegate.slot.subtask import Subtask

SEEDS = 5
BUGS: list[Any] = []
World = type[RuleBasedStateMachine]
Plant = Callable[[pytest.MonkeyPatch], None]


def planted(world: World) -> Callable[[Plant], Plant]:
    """Register a bug that this world must find."""

    def note(plant: Plant) -> Plant:
        BUGS.append(pytest.param(world, plant, id=f"{plant.__name__}-{world.__name__}"))
        return plant

    return note


# --- inputs that end, sinks that commit -------------------------------------------------------


@planted(Ends)
def a_sink_that_had_ended_commits_nothing_after_a_restore(patch):
    _open_of_what_has_ended(patch, lambda operator: operator.delivery() is None)


@planted(Ends)
def the_state_of_what_had_ended_is_gone_after_the_second_restore(patch):
    _open_of_what_has_ended(patch, lambda operator: operator.delivery() is not None)


def _open_of_what_has_ended(patch, is_opened):
    def open_some(self, restored=None):
        if self.is_finished:
            chain = zip(self._operators, self._contexts, strict=True)
            opened = {context.operator_id for operator, context in chain if is_opened(operator)}
            restored = {id: found for id, found in restored.items() if id in opened}
        open_all(self, restored)

    open_all = Subtask.open
    patch.setattr(Subtask, "open", open_some)


@planted(Ends)
def a_subtask_goes_on_with_what_it_could_not_prepare(patch):
    def take_or_skip(self, order):
        try:
            take(self, order)
        except USER_FAILURES as error:
            self._snapshotter.decline(self._id, order.barrier.checkpoint_id, error)

    take = Subtask._take_snapshot
    patch.setattr(Subtask, "_take_snapshot", take_or_skip)


@planted(Ends)
def a_savepoint_is_published_before_what_it_holds_is_committed(patch):
    def request_it_alone(self, wanted):
        return request(self, replace(wanted, awaits_next=False))

    request = CheckpointCoordinator.request
    patch.setattr(CheckpointCoordinator, "request", request_it_alone)


# --- two drivers ------------------------------------------------------------------------------


@planted(Drivers)
def slots_open_without_asking_whose_the_directory_is(patch):
    ask = Ownership.check
    patch.setattr(CheckpointStore, "check_owned", lambda self: ask(self.ownership, self._store))
    patch.setattr(Ownership, "check", lambda self, store: None)


@planted(Drivers)
def a_directory_is_listed_before_it_is_claimed(patch):
    def claim_after_listing(cls, store, job_name=""):
        present = list(store.list())
        return claim(store, job_name)[0], present

    claim = Ownership.claim
    patch.setattr(Ownership, "claim", classmethod(claim_after_listing))


@planted(Drivers)
def nobody_asks_again_after_metadata_was_created(patch):
    def publish_unasked(self, metadata):
        self.check_owned()
        self.check_owned = lambda: None
        try:
            return publish(self, metadata)
        finally:
            del self.check_owned

    publish = CheckpointStore.publish
    patch.setattr(CheckpointStore, "publish", publish_unasked)


# --- stops and drains -------------------------------------------------------------------------


@planted(Stops)
def a_drain_that_failed_does_not_go_back(patch):
    patch.setattr(CheckpointCoordinator, "begun", lambda self, number: number in self._pending)


@planted(Stops)
def the_barrier_of_an_aborted_stop_is_sent_to_who_is_behind(patch):
    def abort(self, number, now):
        return [] if REQUESTS in self._inputs else abort_inputs(self, number, now)

    abort_inputs = InputGate.abort
    patch.setattr(InputGate, "abort", abort)
    patch.setattr(NextStep, "abort", lambda self, number: None)


@planted(Stops)
def a_late_store_sends_the_barrier_of_an_aborted_stop(patch):
    begun = CheckpointCoordinator.begun
    patch.setattr(CheckpointCoordinator, "begun", lambda self, number: begun(self, number) or True)


@planted(Stops)
def an_abort_that_comes_after_its_step_waits_for_good(patch):
    def calls_for_input(self, is_available):
        waiting, self._aborted = self._aborted, []
        has_called = calls(self, is_available)
        self._aborted = waiting
        return has_called

    def abort_and_call(self, number):
        abort(self, number)
        self.call()

    calls, abort = StepCaller.calls, NextStep.abort
    patch.setattr(StepCaller, "calls", calls_for_input)
    patch.setattr(NextStep, "abort", abort_and_call)


# --- slots without a lease --------------------------------------------------------------------


@planted(Leases)
@planted(Protocol)
def a_slot_opens_without_a_lease(patch):
    def open_unleased(self, pipeline, attempt, now):
        if self._units[pipeline].deployed != attempt:
            return False
        self._open[pipeline] = attempt
        return True

    patch.setattr(SlotMachine, "open", open_unleased)


@planted(Protocol)
def a_slot_runs_and_aborts_without_a_lease(patch):
    def act_unleased(self, pipeline, attempt, now):
        return self._open.get(pipeline) == attempt == self._units[pipeline].attempt

    patch.setattr(SlotMachine, "may_act", act_unleased)


# --- how they are found -----------------------------------------------------------------------


class Found(BaseException):
    """Passes through hypothesis, which would look for a simpler example."""


def examples_to_find(world: World, seed: int) -> float:
    """How many examples the world needs to find the bug; infinite: more than it draws."""

    def play(*arguments: Any, **named: Any) -> None:
        nonlocal examples
        examples += 1
        try:
            inner(*arguments, **named)
        except AssertionError as error:
            raise Found from error

    examples = 0
    drawn = round(world.TestCase.settings.max_examples / EFFORT)
    test = get_state_machine_test(
        world, settings=settings(world.TestCase.settings, max_examples=drawn)
    )
    inner, test.hypothesis.inner_test = test.hypothesis.inner_test, play
    try:
        seeded(seed)(test)()
    except Found:
        return examples
    return math.inf


@pytest.mark.prove
@pytest.mark.parametrize(("world", "plant"), BUGS)
def test_a_planted_bug_is_found_by_the_examples_of_make_test(world, plant, monkeypatch):
    plant(monkeypatch)
    rnd = random.Random(seed())
    taken = [examples_to_find(world, rnd.randrange(10**6)) for _ in range(SEEDS)]
    print(f"{plant.__name__}: {median(taken)} examples, {taken}")
    assert median(taken) < math.inf
