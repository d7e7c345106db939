"""Barriers in random graphs: the contents of snapshots, and complete cleanup after aborts."""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tidegate.core.modes import CheckpointingMode
from tidegate.protocol.input_gate import (
    InFlight,
    InputEnded,
    InputGate,
    Records,
    SnapshotAborted,
    TakeSnapshot,
)
from tidegate.protocol.packet import Channel
from tidegate.stream.batch import Batch
from tidegate.stream.elements import Barrier, EndOfInput

EXACT = Barrier(0, 0.0, mode=CheckpointingMode.EXACTLY_ONCE)
LOOSE = Barrier(0, 0.0, mode=CheckpointingMode.AT_LEAST_ONCE)
UNALIGNED = replace(EXACT, is_unaligned=True)


@dataclass(frozen=True)
class Graph:
    """Vertices in topological order, by parallelism, and edges between them, with repetitions."""

    parallelism: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]

    def out_of(self, vertex):
        return [
            (edge, target) for edge, (source, target) in enumerate(self.edges) if source == vertex
        ]

    def into(self, vertex):
        return [
            (edge, source) for edge, (source, target) in enumerate(self.edges) if target == vertex
        ]

    @property
    def subtasks(self):
        return [
            (v, i) for v, parallelism in enumerate(self.parallelism) for i in range(parallelism)
        ]

    @property
    def sources(self):
        return [(vertex, i) for vertex, i in self.subtasks if not self.into(vertex)]

    def targets(self, edge, target, record):
        """The targets of a record: a fixed choice, so that the expected result can be computed."""
        return target, sum(map(ord, f"{edge}{record}")) % self.parallelism[target]


@st.composite
def graphs(draw):
    parallelism = draw(st.lists(st.integers(1, 2), min_size=2, max_size=5))
    edges = []
    for target in range(1, len(parallelism)):
        sources = st.lists(st.integers(0, target - 1), min_size=0, max_size=3)
        edges += [(source, target) for source in draw(sources)]
    return Graph(tuple(parallelism), tuple(edges))


def effects(graph, records):
    """What each subtask receives if sources emit these records: a tally by edge and record."""
    taken = {subtask: Counter() for subtask in graph.subtasks}
    arrived = [(subtask, record) for subtask, record in records]
    while arrived:
        (vertex, _), record = arrived.pop()
        for edge, target in graph.out_of(vertex):
            to = graph.targets(edge, target, record)
            taken[to][edge, record] += 1
            arrived.append((to, record))
    return taken


@dataclass
class Subtask:
    """A subtask with its gate, if it has inputs; `plan` is what a source will do, in order."""

    gate: InputGate | None
    plan: deque
    taken: Counter = field(default_factory=Counter)
    snapshots: dict = field(default_factory=dict)
    aborts: deque = field(default_factory=deque)
    aborted: set = field(default_factory=set)
    in_flight: dict = field(default_factory=dict)
    ended_at: dict = field(default_factory=dict)
    ended_inputs: set = field(default_factory=set)


class Flow:
    """Runs a graph to its end, in the order that `rnd` chooses."""

    def __init__(self, graph, plans, rnd):
        self.graph, self.rnd = graph, rnd
        self.subtasks = {}
        for vertex, i in graph.subtasks:
            channels = {
                Channel(edge, sender): place
                for place, (edge, source) in enumerate(graph.into(vertex))
                for sender in range(graph.parallelism[source])
            }
            gate = InputGate(channels) if channels else None
            self.subtasks[vertex, i] = Subtask(gate, deque(plans.get((vertex, i), ())))
        self.wires = {}
        self.sent, self.received = Counter(), Counter()
        self.declined = set()

    def run(self, aborts):
        """Aborts are (checkpoint, number of actions before the abort)."""
        actions = 0
        while True:
            for number, after in aborts:
                if after == actions:
                    self.give_up(number)
            able = [("source", s) for s, each in self.subtasks.items() if each.plan]
            able += [("wire", wire) for wire, elements in self.wires.items() if elements]
            able += [("abort", s) for s, each in self.subtasks.items() if each.aborts]
            if not able:
                return
            actions += 1
            kind, who = self.rnd.choice(able)
            if kind == "source":
                self.act(who, self.subtasks[who].plan.popleft())
            elif kind == "abort":
                self.hear_of_abort(who)
            else:
                self.transport(who)

    def give_up(self, number):
        for subtask in self.subtasks.values():
            subtask.aborts.append(number)

    def hear_of_abort(self, name):
        subtask = self.subtasks[name]
        number = subtask.aborts.popleft()
        subtask.aborted.add(number)
        if subtask.gate is not None:
            self.carry_out(name, subtask.gate.abort(number, 0.0))

    def act(self, name, step):
        subtask = self.subtasks[name]
        if isinstance(step, Barrier):
            if step.checkpoint_id not in subtask.aborted:
                self.snapshot(name, step)
        elif isinstance(step, EndOfInput):
            self.broadcast(name, step)
        else:
            self.forward(name, step)

    def transport(self, wire):
        name, channel = wire
        sequence, element = self.wires[wire].popleft()
        gate = self.subtasks[name].gate
        if isinstance(element, Batch) and gate.open_input(channel) is not None:
            self.take(name, channel.edge, element)
        else:
            self.carry_out(name, gate.feed(channel, element, 0.0))
        self.received[wire] += 1
        assert self.received[wire] == sequence

    def carry_out(self, name, deliveries):
        for delivery in deliveries:
            match delivery:
                case Records(place, batch):
                    self.take(name, self.graph.into(name[0])[place][0], batch)
                case TakeSnapshot(barrier, _, _, ended_inputs, is_whole):
                    assert ended_inputs == self.subtasks[name].ended_inputs
                    self.snapshot(name, barrier, is_whole=is_whole)
                case InFlight(number, elements):
                    assert number not in self.subtasks[name].aborted
                    self.subtasks[name].in_flight[number] = elements
                case SnapshotAborted(number, _):
                    self.declined.add(number)
                    self.give_up(number)
                case InputEnded(place, is_last):
                    self.end_input(name, place, is_last)

    def take(self, name, edge, batch):
        for record in batch.records:
            self.subtasks[name].taken[edge, record] += 1
            self.forward(name, record)

    def end_input(self, name, place, is_last):
        subtask = self.subtasks[name]
        assert place not in subtask.ended_inputs
        subtask.ended_inputs.add(place)
        assert is_last == (len(subtask.ended_inputs) == len(self.graph.into(name[0])))
        if is_last:
            self.broadcast(name, EndOfInput())

    def snapshot(self, name, barrier, *, is_whole=True):
        subtask = self.subtasks[name]
        assert is_whole or barrier.is_unaligned
        if is_whole:
            subtask.in_flight[barrier.checkpoint_id] = ()
        subtask.ended_at[barrier.checkpoint_id] = frozenset(subtask.ended_inputs)
        assert barrier.checkpoint_id not in subtask.snapshots
        assert barrier.checkpoint_id not in subtask.aborted
        subtask.snapshots[barrier.checkpoint_id] = Counter(subtask.taken)
        self.broadcast(name, barrier)

    def forward(self, name, record):
        for edge, target in self.graph.out_of(name[0]):
            self.send(
                name, edge, self.graph.targets(edge, target, record), Batch.of_records([record])
            )

    def broadcast(self, name, element):
        for edge, target in self.graph.out_of(name[0]):
            for i in range(self.graph.parallelism[target]):
                self.send(name, edge, (target, i), element)

    def send(self, name, edge, to, element):
        wire = (to, Channel(edge, name[1]))
        self.sent[wire] += 1
        self.wires.setdefault(wire, deque()).append((self.sent[wire], element))


@st.composite
def plans_of_sources(draw, graph, modes):
    """For each source: its records with barriers in between, its end, and barriers after it."""
    plans = {}
    for source in graph.sources:
        count = draw(st.integers(0, 6))
        plan = [(source, k) for k in range(count)]
        if draw(st.booleans()):
            plan.append(EndOfInput())
        places = sorted(
            draw(st.lists(st.integers(0, len(plan)), min_size=len(modes), max_size=len(modes)))
        )
        for number, place in reversed(list(enumerate(places, 1))):
            plan.insert(place, replace(modes[number - 1], checkpoint_id=number))
        if EndOfInput() in plan and draw(st.booleans()):
            del plan[plan.index(EndOfInput()) + 1 :]
        plans[source] = plan
    return plans


def reached_by(graph, plans, number):
    """The sources that emit the barrier, and all vertices downstream."""
    sources = {
        source
        for source, plan in plans.items()
        if number in [step.checkpoint_id for step in plan if isinstance(step, Barrier)]
    }
    vertices = set()
    further = {target for vertex, _ in sources for _, target in graph.out_of(vertex)}
    while further:
        vertices |= further
        further = {t for vertex in further for _, t in graph.out_of(vertex)} - vertices
    return sources | {name for name in graph.subtasks if name[0] in vertices}


def records_before(plans, number):
    """What the sources emit before the barrier of a checkpoint; everything for None."""
    found = []
    for source, plan in plans.items():
        for step in plan:
            if isinstance(step, Barrier) and step.checkpoint_id == number:
                break
            if isinstance(step, tuple):
                found.append((source, step))
    return found


@given(data=st.data())
@examples(150)
def test_a_snapshot_is_the_effect_of_the_records_before_the_barrier(data):
    graph = data.draw(graphs())
    modes = data.draw(st.lists(st.sampled_from([EXACT, LOOSE, UNALIGNED]), max_size=4))
    plans = data.draw(plans_of_sources(graph, modes))
    number_and_time = st.tuples(st.integers(1, len(modes) or 1), st.integers(0, 60))
    aborts = data.draw(st.lists(number_and_time, max_size=2))
    flow = Flow(graph, plans, random.Random(data.draw(st.integers(0, 10_000))))
    flow.run(aborts)
    given_up = flow.declined | {number for number, _ in aborts}

    everything = effects(graph, records_before(plans, None))
    for name, subtask in flow.subtasks.items():
        assert subtask.taken == everything[name]
        assert subtask.gate is None or subtask.gate.bytes_waiting == 0
        assert subtask.gate is None or not subtask.gate._waiting
    for number, mode in enumerate(modes, 1):
        expected = effects(graph, records_before(plans, number))
        reached = reached_by(graph, plans, number)
        for name, subtask in flow.subtasks.items():
            if number not in given_up:
                assert (number in subtask.snapshots) == (name in reached)
            if number in subtask.snapshots and mode is EXACT:
                assert subtask.snapshots[number] == expected[name]
            if number in subtask.snapshots and mode is LOOSE:
                assert subtask.snapshots[number] >= expected[name]


class Restored(Flow):
    """The same graph, resuming from a checkpoint of another run."""

    def __init__(self, before, plans, number, rnd):
        super().__init__(before.graph, {}, rnd)
        for name, subtask in self.subtasks.items():
            taken = before.subtasks[name]
            subtask.taken = Counter(taken.snapshots[number])
            subtask.ended_inputs = set(taken.ended_at[number])
            if subtask.gate is not None:
                channels = subtask.gate._inputs
                subtask.gate = InputGate(channels, ended_inputs=subtask.ended_inputs)
                for channel, element in taken.in_flight[number]:
                    self.send((name[0], channel.source), channel.edge, name, element)
        for name, plan in plans.items():
            position = [getattr(step, "checkpoint_id", None) for step in plan].index(number)
            rest = [step for step in plan[position:] if not isinstance(step, Barrier)]
            self.subtasks[name].plan.extend(
                [EndOfInput()] if EndOfInput() in plan[:position] else rest
            )
        for name, subtask in self.subtasks.items():
            inputs = self.graph.into(name[0])
            if inputs and len(subtask.ended_inputs) == len(inputs):
                self.broadcast(name, EndOfInput())


@given(data=st.data())
@examples(100)
def test_whatever_was_in_flight_a_restored_run_ends_like_an_undisturbed_one(data):
    graph = data.draw(graphs())
    modes = data.draw(st.lists(st.sampled_from([EXACT, UNALIGNED]), min_size=1, max_size=3))
    plans = data.draw(plans_of_sources(graph, modes))
    rnd = random.Random(data.draw(st.integers(0, 10_000)))
    flow = Flow(graph, plans, rnd)
    flow.run([])
    everything = effects(graph, records_before(plans, None))
    for number in range(1, len(modes) + 1):
        if not all(number in subtask.in_flight for subtask in flow.subtasks.values()):
            continue
        restored = Restored(flow, plans, number, rnd)
        restored.run([])
        assert {name: each.taken for name, each in restored.subtasks.items()} == everything


def test_records_that_an_unaligned_barrier_overtook_are_part_of_its_snapshot():
    graph = Graph((1, 1, 1), ((0, 2), (1, 2)))
    barrier, late = replace(UNALIGNED, checkpoint_id=1), ((1, 0), 0)
    flow = Flow(graph, {(0, 0): [barrier], (1, 0): [late, barrier]}, random.Random(0))
    flow.act((0, 0), flow.subtasks[0, 0].plan.popleft())
    flow.transport(next(iter(flow.wires)))
    joined = flow.subtasks[2, 0]
    assert joined.snapshots == {1: Counter()}
    flow.run([])
    assert joined.taken == Counter({(1, late): 1})
    ((channel, batch),) = joined.in_flight[1]
    assert (channel, batch.records) == (Channel(1, 0), [late])


def test_the_overlap_of_at_least_once_is_real():
    graph = Graph((1, 1, 1), ((0, 2), (1, 2)))
    early, late = ((0, 0), 0), ((1, 0), 0)
    overlaps = []
    for mode in (EXACT, LOOSE):
        barrier = replace(mode, checkpoint_id=1)
        plans = {(0, 0): [barrier, early], (1, 0): [late, barrier]}
        flow = Flow(graph, plans, random.Random(0))
        for source in ((0, 0), (0, 0), (1, 0), (1, 0)):
            flow.act(source, flow.subtasks[source].plan.popleft())
        for wire in [wire for wire in flow.wires if wire[1].edge == 0] * 2:
            flow.transport(wire)
        flow.run([])
        overlaps.append(set(flow.subtasks[2, 0].snapshots[1]))
    assert overlaps == [{(1, late)}, {(0, early), (1, late)}]
