"""Broadcast state: written by one input, read by the other, the same in every subtask."""

import numpy as np
import pytest

from tidegate.core.errors import UserFunctionError
from tidegate.core.modes import StateBackendType
from tidegate.operators.functions import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedStateFunction,
    OutputTag,
    TimeDomain,
)
from tidegate.operators.two_inputs.broadcast import (
    BroadcastProcessOperator,
    KeyedBroadcastProcessOperator,
)
from tidegate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from tidegate.state.keys.selection import KeySelection
from tidegate.stream.batch import Batch
from tidegate.testing.harness import OperatorHarness
from tidegate.types.typeinfo import Types

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
BY_FIRST = KeySelection(lambda pair: pair[0])
UNKNOWN = OutputTag("unknown")


class Priced(BroadcastProcessFunction):
    """Records with the price that the other stream gave them."""

    def process_element(self, value, ctx):
        price = ctx.get_broadcast_state(RULES).get(value)
        if price is None:
            yield UNKNOWN, value
        else:
            yield value, price

    def process_broadcast_element(self, value, ctx):
        name, price = value
        rules = ctx.get_broadcast_state(RULES)
        if price is None:
            rules.remove(name)
        else:
            rules.put(name, price)
        yield "rules", len(list(rules.keys()))


@pytest.fixture(params=list(StateBackendType), ids=lambda backend: backend.value)
def settings(request):
    """Of either state backend."""
    return {"state.backend.type": request.param}


def unkeyed(function, *descriptors):
    return BroadcastProcessOperator(function, descriptors or (RULES,))


def keyed(function, *descriptors):
    return KeyedBroadcastProcessOperator(function, BY_FIRST, descriptors or (RULES,))


def test_records_see_what_was_broadcast_before_them():
    with OperatorHarness(unkeyed(Priced())) as harness:
        harness.process(["tea"])
        harness.process([("tea", 3), ("milk", 2)], input_index=1)
        harness.process(["tea", "milk"])
        harness.process([("tea", None)], input_index=1)
        harness.process(["tea"])
        assert harness.output == [
            ("rules", 1),
            ("rules", 2),
            ("tea", 3),
            ("milk", 2),
            ("rules", 1),
        ]
        assert harness.side_output("unknown") == ["tea", "tea"]


def test_broadcast_state_goes_to_every_subtask_of_a_restored_job():
    with OperatorHarness(unkeyed(Priced())) as harness:
        harness.process([("tea", 3)], input_index=1)
        snapshot = harness.snapshot()
        harness.process([("tea", 4)], input_index=1)
    for subtask in range(3):
        with harness.restore(snapshot, parallelism=3, subtask=subtask) as restored:
            restored.process(["tea"])
            assert restored.output == [("tea", 3)]


class Looks(BroadcastProcessFunction):
    """Calls what it was made with on the state that records are given."""

    def __init__(self, look, descriptor=RULES):
        self.look = look
        self.descriptor = descriptor

    def process_element(self, value, ctx):
        yield self.look(ctx.get_broadcast_state(self.descriptor))

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put_all(value)


@pytest.mark.parametrize(
    ("look", "found"),
    [
        (lambda state: state.get("a"), 1),
        (lambda state: state["c"], None),
        (lambda state: "b" in state, True),
        (lambda state: state.contains("c"), False),
        (sorted, ["a", "b"]),
        (lambda state: sorted(state.keys()), ["a", "b"]),
        (lambda state: sorted(state.values()), [1, 2]),
        (lambda state: dict(state.items()), {"a": 1, "b": 2}),
        (lambda state: state.is_empty(), False),
    ],
)
def test_records_read_the_state(look, found):
    with OperatorHarness(unkeyed(Looks(look))) as harness:
        harness.process([{"a": 1, "b": 2}], input_index=1)
        harness.process(["record"])
        assert harness.output == [found]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda state: state.put("a", 1), "has no attribute 'put'"),
        (lambda state: state.remove("a"), "has no attribute 'remove'"),
        (lambda state: state.clear(), "only broadcast records can change"),
    ],
)
def test_records_cannot_change_the_state(change, problem):
    harness = OperatorHarness(unkeyed(Looks(change)))
    with harness, pytest.raises(UserFunctionError, match=problem):
        harness.process(["record"])


def test_a_state_must_be_declared_where_the_stream_is_broadcast():
    other = MapStateDescriptor("other")
    harness = OperatorHarness(unkeyed(Looks(list, other)))
    with harness, pytest.raises(UserFunctionError, match=r"no broadcast state 'other', only rules"):
        harness.process(["record"])


def test_a_state_has_the_type_that_it_was_declared_with():
    other = MapStateDescriptor("rules", Types.STRING(), Types.STRING())
    harness = OperatorHarness(unkeyed(Looks(list, other)))
    with harness, pytest.raises(UserFunctionError, match=r"state 'rules' holds .* declared as"):
        harness.process(["record"])


class Times(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield ctx.timestamp(), ctx.current_processing_time(), ctx.current_watermark()

    process_broadcast_element = process_element


@pytest.mark.parametrize("input_index", [0, 1])
def test_both_sides_know_the_time(input_index):
    with OperatorHarness(unkeyed(Times())) as harness:
        harness.advance(2)
        harness.watermark(50)
        batch = Batch(records=["x", "y"], timestamps=np.array([70, 80]))
        harness.process_batch(batch, input_index)
        assert harness.output == [(70, 2000, 50), (80, 2000, 50)]
        assert harness.batches[0].timestamps.tolist() == [70, 80]


class Limits(KeyedBroadcastProcessFunction):
    """A sum for every key, which is told when it passes the limit; reset by `None`."""

    def open(self, runtime_context):
        self.sum = runtime_context.get_state(SUM)

    def process_element(self, value, ctx):
        total = (self.sum.value() or 0) + value[1]
        self.sum.update(total)
        if total > (ctx.get_broadcast_state(RULES).get("limit") or 0):
            timers = ctx.timer_service()
            timers.register_processing_time_timer(ctx.current_processing_time() + 1000)
            timers.register_event_time_timer(100)
            yield ctx.get_current_key(), total

    def process_broadcast_element(self, value, ctx):
        if value is None:
            ctx.apply_to_keyed_state(SUM, lambda key, state: state.clear())
        elif value == "touch":
            self.sum.value()
        else:
            ctx.get_broadcast_state(RULES).put("limit", value)

    def on_timer(self, timestamp, ctx):
        limit = ctx.get_broadcast_state(RULES).get("limit")
        yield ctx.time_domain(), ctx.get_current_key(), self.sum.value(), limit


SUM = ValueStateDescriptor("sum", Types.LONG())


def test_keyed_records_have_their_own_state_and_the_broadcast_one(settings):
    with OperatorHarness(keyed(Limits()), settings=settings) as harness:
        harness.process([5], input_index=1)
        harness.process([("a", 3), ("b", 6), ("a", 3)])
        assert harness.output == [("b", 6), ("a", 6)]


def test_timers_read_the_broadcast_state(settings):
    with OperatorHarness(keyed(Limits()), settings=settings) as harness:
        harness.process([5], input_index=1)
        harness.process([("a", 6)])
        harness.process([7], input_index=1)
        harness.take_output()
        harness.advance(1)
        harness.watermark(100)
        assert harness.output == [
            (TimeDomain.PROCESSING_TIME, "a", 6, 7),
            (TimeDomain.EVENT_TIME, "a", 6, 7),
        ]


def test_both_states_are_in_a_snapshot(settings):
    with OperatorHarness(keyed(Limits()), settings=settings) as harness:
        harness.process([5], input_index=1)
        harness.process([("a", 4)])
        snapshot = harness.snapshot()
    with harness.restore(snapshot) as restored:
        restored.process([("a", 2)])
        assert restored.output == [("a", 6)]


def test_a_broadcast_record_changes_the_state_of_every_key(settings):
    with OperatorHarness(keyed(Limits()), settings=settings) as harness:
        harness.process([("a", 3), ("b", 4)])
        harness.process([None], input_index=1)
        harness.take_output()
        harness.process([("a", 1), ("b", 1)])
        assert harness.output == [("a", 1), ("b", 1)]


def test_a_broadcast_record_has_no_key(settings):
    with OperatorHarness(keyed(Limits()), settings=settings) as harness:
        harness.process([("a", 3)])
        with pytest.raises(UserFunctionError, match=r"no key.*ctx.apply_to_keyed_state"):
            harness.process(["touch"], input_index=1)


class Sums:
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value

    def get_result(self, accumulator):
        return accumulator


class Collects(KeyedStateFunction):
    def __init__(self, found, read):
        self.found = found
        self.read = read

    def process(self, key, state):
        self.found.append((key, self.read(state)))


class EveryKind(KeyedBroadcastProcessFunction):
    """Puts each record into a state, all of which a broadcast record reads."""

    def __init__(self, descriptor, write, read):
        self.descriptor, self.write, self.read = descriptor, write, read

    def open(self, runtime_context):
        get = {
            ValueStateDescriptor: runtime_context.get_state,
            ListStateDescriptor: runtime_context.get_list_state,
            MapStateDescriptor: runtime_context.get_map_state,
            ReducingStateDescriptor: runtime_context.get_reducing_state,
            AggregatingStateDescriptor: runtime_context.get_aggregating_state,
        }
        self.state = get[type(self.descriptor)](self.descriptor)

    def process_element(self, value, ctx):
        self.write(self.state, value[1])

    def process_broadcast_element(self, value, ctx):
        found = []
        ctx.apply_to_keyed_state(self.descriptor, Collects(found, self.read))
        yield sorted(found)


@pytest.mark.parametrize(
    ("descriptor", "write", "read", "found"),
    [
        (
            ValueStateDescriptor("s"),
            lambda state, value: state.update(value),
            lambda state: state.value(),
            [("a", 3), ("b", 2)],
        ),
        (
            ListStateDescriptor("s"),
            lambda state, value: state.add(value),
            list,
            [("a", [1, 3]), ("b", [2])],
        ),
        (
            MapStateDescriptor("s"),
            lambda state, value: state.put(value, True),
            lambda state: sorted(state.keys()),
            [("a", [1, 3]), ("b", [2])],
        ),
        (
            ReducingStateDescriptor("s", lambda a, b: a + b),
            lambda state, value: state.add(value),
            lambda state: state.get(),
            [("a", 4), ("b", 2)],
        ),
        (
            AggregatingStateDescriptor("s", Sums()),
            lambda state, value: state.add(value),
            lambda state: state.get(),
            [("a", 4), ("b", 2)],
        ),
    ],
    ids=["value", "list", "map", "reducing", "aggregating"],
)
def test_every_kind_of_keyed_state_is_reached_by_a_broadcast_record(
    settings, descriptor, write, read, found
):
    operator = keyed(EveryKind(descriptor, write, read))
    with OperatorHarness(operator, settings=settings) as harness:
        harness.process([("a", 1), ("b", 2), ("a", 3)])
        harness.process(["all"], input_index=1)
        assert harness.output == [found]


def test_all_of_many_keys_in_columns_are_reached(settings):
    by_column = KeySelection(lambda pair: pair[0], columns=0)
    operator = KeyedBroadcastProcessOperator(Limits(), by_column, (RULES,))
    with OperatorHarness(operator, settings=settings) as harness:
        records = [(f"key {i}", i) for i in range(25_000)]
        harness.process([1 << 40], input_index=1)
        harness.process(records, type_info=PAIR)
        harness.process([None], input_index=1)
        harness.process([0], input_index=1)
        harness.process([("key 7", 1), ("key 24999", 2)], type_info=PAIR)
        assert harness.output == [("key 7", 1), ("key 24999", 2)]


def test_a_failing_broadcast_record_is_named():
    class Fails(Priced):
        def process_broadcast_element(self, value, ctx):
            yield "before"
            raise ValueError("no rule")

    harness = OperatorHarness(unkeyed(Fails()), name="Rules")
    with harness, pytest.raises(UserFunctionError, match=r"ValueError: no rule") as failure:
        harness.process(["bad"], input_index=1)
    assert harness.output == ["before"]
    assert failure.value.args[3] == "'bad'"
