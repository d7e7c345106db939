"""Functions with every kind of state, whose results do not depend on the order of records.

Each record is counted, stored, and forwarded once: immediately, when its timer fires, or when the
rule that it waits for arrives. A program of such functions has one result, however its records are
distributed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import Any

from tidegate.datastream import OutputTag, TimeDomain
from tidegate.datastream.functions import (
    AggregateFunction,
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
)
from tidegate.operators.checkpointed import CheckpointedFunction
from tidegate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from tidegate.types.typeinfo import Types

SIGHTED = OutputTag("sighted", Types.STRING())
"""What functions report about a record, besides the record itself."""
RULES = MapStateDescriptor("rules", Types.LONG(), Types.STRING())
RULE_COUNT = 5
"""Records wait for one of this many rules; the last one never arrives."""
LATEST = 1000
"""Timers are due between 1 ms and this; those that should never fire, from NEVER on."""
NEVER = 10**9


def due(record: int) -> int:
    """When the timer of a record fires."""
    return record * 7919 % LATEST + 1


# --- what functions found when they were opened -------------------------------------------------


class Takeovers:
    """The operator state that subtasks found, by function name."""

    def __init__(self) -> None:
        self._found: dict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)

    def add(self, name: str, subtasks: int, states: dict[str, Any]) -> None:
        """Record the states with which a subtask starts."""
        self._found[name].append((subtasks, states))

    def deployments(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """For each deployment of a function: what each of its subtasks found."""
        for name, found in self._found.items():
            rest = iter(found)
            for subtasks, first in rest:
                yield name, [first, *(states for _, states in islice(rest, subtasks - 1))]


_takeovers: dict[str, Takeovers] = {}


def takeovers_of(run: str) -> Takeovers:
    """Those of one run of a program; slots share this process with the test."""
    return _takeovers.setdefault(run, Takeovers())


class _Named:
    """A function that knows its run and operator."""

    def __init__(self, name: str, run: str) -> None:
        self.name = name
        self.run = run

    def found(self, runtime_context: Any, states: dict[str, Any]) -> None:
        """Record what this subtask found."""
        subtasks = runtime_context.get_number_of_parallel_subtasks()
        takeovers_of(self.run).add(self.name, subtasks, states)


# --- keyed state and timers ---------------------------------------------------------------------


class CountAndTotal(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value

    def get_result(self, accumulator: tuple[int, int]) -> str:
        return f"{accumulator[1]} of {accumulator[0]}"


def add(first: int, second: int) -> int:
    return first + second


class _Keyed(_Named):
    """Stores each record in all five kinds of keyed state; some wait for a timer."""

    def __init__(self, name: str, run: str, *, typed: bool) -> None:
        super().__init__(name, run)
        long = Types.LONG() if typed else None
        self.descriptors = (
            ValueStateDescriptor("count", long),
            ListStateDescriptor("records", long),
            MapStateDescriptor("times", long, long),
            ReducingStateDescriptor("sum", add, long),
            AggregatingStateDescriptor("mean", CountAndTotal()),
            MapStateDescriptor("held", long, Types.LIST(Types.LONG()) if typed else None),
        )

    def open(self, runtime_context: Any) -> None:
        count, records, times, total, mean, held = self.descriptors
        self.count = runtime_context.get_state(count)
        self.records = runtime_context.get_list_state(records)
        self.times = runtime_context.get_map_state(times)
        self.total = runtime_context.get_reducing_state(total)
        self.mean = runtime_context.get_aggregating_state(mean)
        self.held = runtime_context.get_map_state(held)

    def remember(self, value: int, ctx: Any) -> Any:
        rank = (self.count.value() or 0) + 1
        self.count.update(rank)
        self.records.add(value)
        self.times.put(value, (self.times.get(value) or 0) + 1)
        self.total.add(value)
        self.mean.add(value)
        yield SIGHTED, f"{self.name}: {ctx.get_current_key()} has {rank}"
        timers = ctx.timer_service()
        match value % 4:
            case 0:
                self.held.put(due(value), [*(self.held.get(due(value)) or ()), value])
                timers.register_processing_time_timer(due(value))
                return
            case 1:
                timers.register_processing_time_timer(NEVER + value % 20)
                timers.register_event_time_timer(NEVER + value % 20)
            case 2:
                timers.delete_processing_time_timer(NEVER + 100)
                timers.register_processing_time_timer(NEVER + 101)
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        if ctx.time_domain() is TimeDomain.EVENT_TIME:
            return  # the end of the input fires it; nothing waits for it
        waiting = self.held.get(timestamp)
        assert waiting, f"{self.name} has a timer at {timestamp} and nothing that waits for it"
        self.held.remove(timestamp)
        for value in waiting:
            yield SIGHTED, f"{self.name}: {ctx.get_current_key()} held {value} until {timestamp}"
            yield value


class Keyed(_Keyed, KeyedProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        return self.remember(value, ctx)


class KeyedTwice(_Keyed, KeyedCoProcessFunction):
    """Like `Keyed`, over two inputs."""

    def process_element1(self, value: int, ctx: Any) -> Any:
        return self.remember(value, ctx)

    def process_element2(self, value: int, ctx: Any) -> Any:
        return self.remember(value, ctx)


# --- operator state -----------------------------------------------------------------------------


class Tally(_Named, MapFunction, CheckpointedFunction):
    """Stores each record in a split list, and in a union list."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.split = store.get_list_state(ListStateDescriptor("split"))
        self.union = store.get_union_list_state(ListStateDescriptor("union", Types.LONG()))
        self.kept = list(self.split)
        self.everyone = list(self.union)

    def open(self, runtime_context: Any) -> None:
        self.found(runtime_context, {"split": [*self.kept], "union": [*self.everyone]})
        subtask = runtime_context.get_index_of_this_subtask()
        count = runtime_context.get_number_of_parallel_subtasks()
        self.own = [record for record in self.everyone if record % count == subtask]

    def map(self, value: int) -> int:
        self.kept.append(value)
        self.own.append(value)
        return value

    def snapshot_state(self, context: Any) -> None:
        self.split.update(self.kept)
        self.union.update(self.own)


# --- broadcast state ----------------------------------------------------------------------------


class _Ruled(_Named, CheckpointedFunction):
    """Forwards a record when its rule arrives."""

    def initialize_state(self, context: Any) -> None:
        self.rules = context.get_operator_state_store().get_broadcast_state(RULES)

    def snapshot_state(self, context: Any) -> None:
        pass

    def judged(self, value: int, rule: str) -> Any:
        yield SIGHTED, f"{self.name}: {value} by {rule}"
        yield value

    def split_by(self, number: int, waiting: Any) -> tuple[list[int], list[int]]:
        """The records that the rule releases, and those that still wait."""
        gone = [value for value in waiting if value % RULE_COUNT == number]
        return gone, [value for value in waiting if value % RULE_COUNT != number]


class Ruled(_Ruled, BroadcastProcessFunction):
    """Waiting records are in a split list."""

    def initialize_state(self, context: Any) -> None:
        super().initialize_state(context)
        self.stored = context.get_operator_state_store().get_list_state(
            ListStateDescriptor("waiting", Types.LONG())
        )
        self.waiting = list(self.stored)

    def snapshot_state(self, context: Any) -> None:
        self.stored.update(self.waiting)

    def open(self, runtime_context: Any) -> None:
        self.found(runtime_context, {"rules": dict(self.rules.items())})

    def process_element(self, value: int, ctx: Any) -> Any:
        rule = ctx.get_broadcast_state(RULES).get(value % RULE_COUNT)
        if rule is not None:
            return self.judged(value, rule)
        self.waiting.append(value)
        return None

    def process_broadcast_element(self, value: tuple[int, str], ctx: Any) -> Any:
        number, rule = value
        ctx.get_broadcast_state(RULES).put(number, rule)
        gone, self.waiting = self.split_by(number, self.waiting)
        for record in gone:
            yield from self.judged(record, rule)


class KeyedRuled(_Ruled, KeyedBroadcastProcessFunction):
    """Waiting records are in the state of their key."""

    waiting_descriptor = ListStateDescriptor("waiting", Types.LONG())

    def open(self, runtime_context: Any) -> None:
        self.found(runtime_context, {"rules": dict(self.rules.items())})
        self.waiting = runtime_context.get_list_state(self.waiting_descriptor)

    def process_element(self, value: int, ctx: Any) -> Any:
        rule = ctx.get_broadcast_state(RULES).get(value % RULE_COUNT)
        if rule is not None:
            return self.judged(value, rule)
        self.waiting.add(value)
        return None

    def process_broadcast_element(self, value: tuple[int, str], ctx: Any) -> Any:
        number, rule = value
        ctx.get_broadcast_state(RULES).put(number, rule)
        released: list[int] = []

        def take(key: Any, waiting: Any) -> None:
            gone, rest = self.split_by(number, waiting)
            released.extend(gone)
            waiting.update(rest)

        ctx.apply_to_keyed_state(self.waiting_descriptor, take)
        for record in released:
            yield from self.judged(record, rule)
