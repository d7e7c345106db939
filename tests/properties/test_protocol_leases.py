"""Leases: two processes never act for one slot, whatever their clocks and the network do."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.effort import examples
from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.slot_machine import SlotMachine
from tidegate.protocol.slot_pool import (
    CancelLaunch,
    Dismiss,
    Launch,
    SlotPool,
    SlotReady,
)

LEASE = 10.0
PIPELINE = 0
WHICH = st.integers(0, 3)


class Process:
    def __init__(self, incarnation, speed, now):
        self.state = SlotMachine(incarnation, now * speed)
        self.speed = speed
        self.to_driver = deque([("register", None)])
        self.to_slot = deque()
        self.is_alive, self.is_open = True, False


class Leases(RuleBasedStateMachine):
    """One slot. Every message waits on its line until a rule delivers it."""

    @initialize()
    def begin(self):
        self.now, self.attempt, self.launch, self.starts = 0.0, 0, None, 0
        self.processes: list[Process] = []
        self.pool = SlotPool(1, lease=LEASE, now=0.0)
        self.carry_out(self.pool.start(0.0))

    def process_of(self, incarnation):
        return next(p for p in self.processes if p.state.incarnation == incarnation)

    def carry_out(self, instructions):
        for instruction in instructions:
            match instruction:
                case Launch(_, number):
                    self.launch, self.starts = number, 0
                case Dismiss(incarnation, reason):
                    self.process_of(incarnation).to_slot.append(("dismiss", reason))
                case CancelLaunch():
                    self.launch = None
                    self.carry_out(self.pool.job_ended(0, self.now))
        for incarnation in self.pool.ready().values():
            to_slot = self.process_of(incarnation).to_slot
            if not any(kind == "deploy" for kind, _ in to_slot):
                self.attempt += 1
                to_slot.append(("deploy", self.attempt))

    @precondition(lambda self: self.launch is not None)
    @rule(speed=st.sampled_from([0.98, 1.0, 1.02]))
    def spark_starts_a_process(self, speed):
        incarnation = Incarnation(0, self.launch, self.starts, str(len(self.processes)))
        self.starts += 1
        self.processes.append(Process(incarnation, speed, self.now))

    @precondition(lambda self: self.launch is not None)
    @rule()
    def spark_gives_the_slot_up(self):
        self.launch = None
        self.carry_out(self.pool.job_ended(0, self.now))

    def some(self, which, queue):
        able = [
            p for p in self.processes if getattr(p, queue) and (p.is_alive or queue == "to_driver")
        ]
        return able[-1 - which % len(able)] if able else None

    @rule(which=WHICH)
    def all_messages_of_a_process_arrive(self, which):
        for _ in range(2):
            self.the_driver_receives(which, 9)
            self.a_slot_receives(which, 9)

    @rule(which=WHICH, count=st.integers(1, 4))
    def the_driver_receives(self, which, count):
        process = self.some(which, "to_driver")
        for _ in range(count):
            if process is None or not process.to_driver:
                return
            kind, content = process.to_driver.popleft()
            incarnation = process.state.incarnation
            if kind == "register":
                instructions = self.pool.registered(incarnation, self.now)
                if self.pool.is_current(incarnation):
                    process.to_slot.append(("accepted", LEASE))
                self.carry_out(instructions)
            elif kind == "line ended":
                self.carry_out(self.pool.line_ended(incarnation, self.now))
            elif kind == "line reset":
                ended = self.pool.line_ended(incarnation, self.now, is_certain=False)
                self.carry_out(ended)
            elif self.pool.beat(incarnation, self.now):
                process.to_slot.append(("answer", content))

    @rule(which=WHICH, count=st.integers(1, 4))
    def a_slot_receives(self, which, count):
        process = self.some(which, "to_slot")
        for _ in range(count):
            if process is None or not process.to_slot:
                return
            local = self.now * process.speed
            match process.to_slot.popleft():
                case "accepted", lease:
                    process.state.accepted(lease)
                case "answer", number:
                    process.state.answered(number, local)
                case "deploy", attempt:
                    if process.state.deploy(PIPELINE, attempt):
                        process.is_open = process.state.open(PIPELINE, attempt, local)
                        # Opening is acting: sinks commit and abort what they find.
                        others = {*self.acting(), *self.pool.ready().values()}
                        assert not process.is_open or others <= {process.state.incarnation}
                case "dismiss", reason:
                    process.state.exit(reason)
                    process.is_alive = False
                    process.to_driver.append(("line ended", None))

    @precondition(lambda self: any(p.is_alive for p in self.processes))
    @rule(which=WHICH)
    def a_slot_beats(self, which):
        able = [p for p in self.processes if p.is_alive]
        process = able[-1 - which % len(able)]
        number = process.state.beat(self.now * process.speed)
        process.to_driver.append(("beat", number))

    @rule(seconds=st.sampled_from([0.5, 4.0, 9.0, 10.1, 10.4]))
    def time_passes(self, seconds):
        self.now += seconds
        self.carry_out(self.pool.tick(self.now))

    @precondition(lambda self: self.processes)
    @rule()
    def all_are_silent_until_they_are_replaced(self):
        self.time_passes(10.6)
        if self.launch is not None:
            self.spark_starts_a_process(1.0)
            self.the_driver_receives(0, 9)

    @precondition(lambda self: any(p.is_alive for p in self.processes))
    @rule(which=WHICH)
    def a_process_dies(self, which):
        able = [p for p in self.processes if p.is_alive]
        process = able[-1 - which % len(able)]
        process.is_alive = False
        process.to_driver.append(("line ended", None))

    @precondition(lambda self: any(p.is_alive for p in self.processes))
    @rule(which=WHICH)
    def a_line_is_reset_on_the_way(self, which):
        """The driver notices, the slot does not yet."""
        able = [p for p in self.processes if p.is_alive]
        able[-1 - which % len(able)].to_driver.append(("line reset", None))

    def may_act(self, process):
        has_lease = process.is_alive and process.state.has_lease(self.now * process.speed)
        return has_lease and process.is_open

    def acting(self):
        return [p.state.incarnation for p in self.processes if self.may_act(p)]

    @invariant()
    def at_most_one_process_acts_for_the_slot(self):
        acting = self.acting()
        ready = [*self.pool.ready().values()]
        assert len({*acting, *ready}) <= 1, f"{acting} may act, {ready} is ready"


Leases.TestCase.settings = examples(100, stateful_step_count=26)
TestLeases = Leases.TestCase


DELAYS = st.sampled_from([0.0, 0.5, 3.0, 9.5, 12.0])


@given(
    beats=st.lists(st.tuples(st.sampled_from([0.5, 2.0, 5.0]), DELAYS, DELAYS), max_size=6),
    speed=st.sampled_from([0.97, 1.0, 1.03]),
    superseded_at=st.sampled_from([1.0, 6.0, 9.0, 15.0, 22.0]),
)
@examples(100)
def test_a_replacement_is_used_only_when_the_lease_has_ended_on_the_old_one_s_own_clock(
    beats, speed, superseded_at
):
    """Every heartbeat is sent after a pause; it and its answer take some time to arrive."""
    old, new = Incarnation(0, 1, 0, "old"), Incarnation(0, 1, 1, "new")
    pool, slot = SlotPool(1, lease=LEASE, now=0.0), SlotMachine(old, 0.0)
    pool.start(0.0)
    pool.registered(old, 0.0)
    slot.accepted(LEASE)

    events, sent, at_driver, at_slot = [(superseded_at, 1, "supersede", 0)], 0.0, 0.0, 0.0
    for number, (pause, there, back) in enumerate(beats, 1):
        sent += pause
        at_driver = max(at_driver, sent + there)
        at_slot = max(at_slot, at_driver + back)
        events += [(sent, 0, "beat", number), (at_driver, 2, "heard", number)]
        events += [(at_slot, 3, "answered", number)]
    # Readings in between, to check every moment at which something could go wrong.
    events += [(tenth / 10, 4, "look", 0) for tenth in range(0, 500, 5)]
    answered, is_ready = set(), False
    for now, _, kind, number in sorted(events):
        instructions = pool.tick(now)
        if kind == "beat":
            slot.beat(now * speed)
        elif kind == "heard" and pool.beat(old, now):
            answered.add(number)
        elif kind == "answered" and number in answered:
            slot.answered(number, now * speed)
        elif kind == "supersede":
            instructions += pool.registered(new, now)
        if pool.is_current(new):
            pool.beat(new, now)
        is_ready = is_ready or SlotReady(new) in instructions
        assert not (is_ready and slot.has_lease(now * speed))
    assert is_ready
