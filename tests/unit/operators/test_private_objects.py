"""What a function emitted stays as it was, whatever the function does with its object later."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest

from tests.unit.operators.windows.windowed import reduced, windows
from tidegate.connectors.collection import CollectionSource
from tidegate.connectors.source import InputStatus
from tidegate.core.modes import StateBackendType
from tidegate.exchange.codec import decode, encode
from tidegate.operators.endpoints.operators import SourceOperator
from tidegate.operators.endpoints.source_function import SourceFunctionSource
from tidegate.operators.functions import (
    CoFlatMapFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ReduceFunction,
    SourceFunction,
)
from tidegate.operators.keyed import (
    KeyedFilterOperator,
    KeyedFlatMapOperator,
    KeyedMapOperator,
    KeyedProcessOperator,
    KeyedReduceOperator,
)
from tidegate.operators.stateless import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    ProcessOperator,
)
from tidegate.operators.two_inputs.co import CoFlatMapOperator
from tidegate.operators.windows.assigners import EventTimeSessionWindows, TumblingEventTimeWindows
from tidegate.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from tidegate.state.keys.selection import select_key
from tidegate.stream.batch import Batch
from tidegate.testing.harness import OperatorHarness
from tidegate.types.arrow import arrow_format
from tidegate.types.infer import as_type_info
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

ONE_KEY = [select_key(lambda record: 0)]
REUSE = {"pipeline.object-reuse": True}
SIDE = OutputTag("side")


@dataclass
class Box:
    content: object


def arrived(records):
    """The records as they come from another slot."""
    (batch,) = decode(encode(Batch.of_records(records)), None)
    return batch


@dataclass(slots=True)
class SlottedBox:
    content: object


class Reusing(
    MapFunction,
    FlatMapFunction,
    ProcessFunction,
    CoFlatMapFunction,
    KeyedProcessFunction,
    SourceFunction,
):
    """Emits one and the same object for all records, after it has changed it."""

    def __init__(self, wrap=lambda numbers: numbers):
        self.wrap = wrap
        self.numbers = []

    def open(self, runtime_context):
        pass

    def close(self):
        pass

    def map(self, value):
        self.numbers.append(value)
        return self.wrap(self.numbers)

    def flat_map(self, value):
        self.numbers.append(value)
        yield self.wrap(self.numbers)

    flat_map1 = flat_map2 = flat_map

    def process_element(self, value, ctx):
        yield from self.flat_map(value)

    def run(self, ctx):
        for number in (1, 2, 3):
            ctx.collect(self.map(number))

    def cancel(self):
        pass


class Inside:
    """Wraps an object by name: functions travel pickled."""

    def __init__(self, kind):
        self.kind = kind

    def __call__(self, numbers):
        match self.kind:
            case "list":
                return numbers
            case "tuple":
                return ("numbers", numbers)
            case "dict":
                return {"numbers": numbers}
            case "row":
                return Row(numbers=numbers)
            case "object":
                return Box(numbers)


OPERATORS = {
    "map": MapOperator,
    "flat_map": FlatMapOperator,
    "process": ProcessOperator,
    "co_flat_map": CoFlatMapOperator,
    "keyed map": lambda function: KeyedMapOperator(function, ONE_KEY),
    "keyed flat_map": lambda function: KeyedFlatMapOperator(function, ONE_KEY),
    "keyed process": lambda function: KeyedProcessOperator(function, ONE_KEY),
}


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        *((operator, "dict") for operator in OPERATORS),
        *(("map", kind) for kind in ("list", "tuple", "row", "object")),
    ],
)
def test_an_object_that_is_emitted_again_and_again_is_another_each_time(operator, kind):
    wrap = Inside(kind)
    with OperatorHarness(OPERATORS[operator](Reusing(wrap))) as harness:
        harness.process([1, 2])
        harness.process([3])
        assert harness.output == [wrap([1]), wrap([1, 2]), wrap([1, 2, 3])]


@pytest.mark.parametrize("operator", OPERATORS)
def test_objects_are_shared_where_they_are_reused(operator):
    with OperatorHarness(OPERATORS[operator](Reusing()), settings=REUSE) as harness:
        harness.process([1, 2, 3])
        assert harness.output == [[1, 2, 3]] * 3


def test_fields_of_a_typed_stream_are_private_too():
    numbers = Types.ROW_NAMED(["numbers"], [Types.LIST(Types.LONG())])
    operator = MapOperator(Reusing(Inside("row")), arrow_format(numbers))
    with OperatorHarness(operator) as harness:
        harness.process([1, 2])
        assert harness.output == [Row(numbers=[1]), Row(numbers=[1, 2])]


class Hashed:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __hash__(self):
        return 0


@dataclass(frozen=True)
class Frozen:
    n: object


class Thawed(Frozen):
    """A class of its own: its attributes can change."""


class Kept(MapFunction):
    """Emits what it keeps, and changes it with the next record."""

    def __init__(self, make, change):
        self.kept = make()
        self.change = change

    def map(self, value):
        self.change(self.kept, value)
        return self.emitted()

    def emitted(self):
        return self.kept


class KeptAsKey(Kept):
    def emitted(self):
        return {self.kept: 1}


class KeptInAList(Kept):
    def emitted(self):
        return [self.kept]


class KeptInAPartial(Kept):
    def emitted(self):
        return partial(print, self.kept)


class KeptInAnArray(Kept):
    def emitted(self):
        return self.kept[0]


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        (Kept(lambda: ([0], 0), lambda kept, n: kept[0].append(n)), repr),
        (KeptInAList(lambda: ([0], 0), lambda kept, n: kept[0].append(n)), repr),
        (Kept(lambda: Frozen([]), lambda kept, n: kept.n.append(n)), repr),
        (Kept(lambda: Thawed(0), lambda kept, n: vars(kept).update(n=n)), repr),
        (
            KeptAsKey(lambda: Hashed(0), lambda kept, n: setattr(kept, "n", n)),
            lambda d: next(iter(d)).n,
        ),
        (KeptInAPartial(list, lambda kept, n: kept.append(n)), repr),
        (KeptInAnArray(lambda: np.zeros(1, "i8,i8"), lambda kept, n: kept.fill(n)), repr),
    ],
)
def test_what_can_change_is_found_wherever_it_is(function, shown):
    with OperatorHarness(MapOperator(function), copy=False) as harness:
        harness.process([1, 2])
        first, second = map(shown, harness.output)
        assert first != second


class ChangesBehindTheYield(FlatMapFunction):
    def flat_map(self, value):
        record = {"n": value}
        yield record
        record["n"] = "changed"


def test_what_was_yielded_is_not_changed_by_the_rest_of_the_generator():
    with OperatorHarness(FlatMapOperator(ChangesBehindTheYield())) as harness:
        harness.process([1, 2])
        assert harness.output == [{"n": 1}, {"n": 2}]


class EmitsState(KeyedProcessFunction):
    """Emits what stands in state, which it goes on changing."""

    def open(self, runtime_context):
        self.value = runtime_context.get_state(ValueStateDescriptor("value"))
        self.list = runtime_context.get_list_state(ListStateDescriptor("list"))
        self.map = runtime_context.get_map_state(MapStateDescriptor("map"))

    def process_element(self, value, ctx):
        items = self.value.value() or []
        items.append(value)
        self.value.update(items)
        self.list.add([value])
        self.map.put("all", items)
        yield items
        yield self.list.get()
        yield self.map.get("all")
        next(iter(self.list.get())).append("late")


@pytest.mark.parametrize("backend", StateBackendType)
def test_state_that_is_emitted_is_emitted_as_it_is_then(backend):
    operator = KeyedProcessOperator(EmitsState(), ONE_KEY)
    with OperatorHarness(operator, settings={"state.backend.type": backend}) as harness:
        harness.process([1, 2, 3])
        assert harness.output[0::3] == [[1], [1, 2], [1, 2, 3]]
        assert harness.output[1::3] == [
            [[1]],
            [[1, "late"], [2]],
            [[1, "late", "late"], [2], [3]],
        ]
        assert harness.output[2::3] == [[1], [1, 2], [1, 2, 3]]


class EmitsOnTimer(KeyedProcessFunction):
    def __init__(self):
        self.fired = []

    def process_element(self, value, ctx):
        ctx.timer_service().register_processing_time_timer(value)

    def on_timer(self, timestamp, ctx):
        self.fired.append(timestamp)
        yield self.fired


def test_what_timers_emit_is_private():
    with OperatorHarness(KeyedProcessOperator(EmitsOnTimer(), ONE_KEY)) as harness:
        harness.process([1, 2])
        harness.advance(1)
        assert harness.output == [[1], [1, 2]]


class SendsAside(ProcessFunction):
    def __init__(self):
        self.seen = []

    def process_element(self, value, ctx):
        self.seen.append(value)
        yield SIDE, self.seen
        yield "main", value


def test_side_outputs_are_private_on_a_typed_stream_as_well():
    main = arrow_format(Types.TUPLE([Types.STRING(), Types.LONG()]))
    operator = ProcessOperator(SendsAside(), main, {"side": None})
    with OperatorHarness(operator) as harness:
        harness.process([1, 2])
        assert harness.side_output("side") == [[1], [1, 2]]
        assert harness.output == [("main", 1), ("main", 2)]


class MarksTheOneBefore(FilterFunction, MapFunction):
    def __init__(self):
        self.before = {}

    def filter(self, value):
        self.before["followed"] = True
        self.before = value
        return True

    def map(self, value):
        self.filter(value)
        return value


@pytest.mark.parametrize(
    "make",
    [
        FilterOperator,
        MapOperator,
        lambda function: KeyedFilterOperator(function, ONE_KEY),
        lambda function: KeyedMapOperator(function, ONE_KEY),
    ],
)
def test_a_function_that_keeps_a_record_cannot_change_it_any_more(make):
    with OperatorHarness(make(MarksTheOneBefore())) as harness:
        harness.process_batch(arrived([{"n": 1}, {"n": 2}]))
        assert harness.output == [{"n": 1}, {"n": 2}]


def test_a_reduce_function_may_change_and_return_what_it_is_given():
    def add(total, record):
        total["n"] += record["n"]
        return total

    with OperatorHarness(KeyedReduceOperator(add, ONE_KEY)) as harness:
        harness.process([{"n": 1}, {"n": 2}, {"n": 3}])
        assert harness.output == [{"n": 1}, {"n": 3}, {"n": 6}]


class ReusesOneTotal(ReduceFunction):
    def __init__(self):
        self.total = {}

    def reduce(self, value1, value2):
        self.total.update(key=value1["key"], n=value1["n"] + value2["n"])
        return self.total


BY_KEY = [select_key(lambda record: record["key"])]
OF_TWO_KEYS = [{"key": key, "n": n} for n in (1, 2, 3) for key in "ab"]


def test_a_reduce_function_may_return_one_object_for_all_keys():
    with OperatorHarness(KeyedReduceOperator(ReusesOneTotal(), BY_KEY)) as harness:
        harness.process(OF_TWO_KEYS)
        assert harness.output[-2:] == [{"key": "a", "n": 6}, {"key": "b", "n": 6}]


@pytest.mark.parametrize(
    ("assigner", "times"),
    [
        (TumblingEventTimeWindows.of(10), [1, 1, 2, 2, 3, 3]),
        (EventTimeSessionWindows.with_gap(3), [1, 1, 7, 7, 4, 4]),
    ],
)
def test_a_reduce_function_may_return_one_object_for_all_windows(assigner, times):
    operator = windows(assigner, contents=reduced(ReusesOneTotal()), keys=BY_KEY)
    with OperatorHarness(operator) as harness:
        stamps = np.array(times, np.int64)
        harness.process_batch(Batch(records=OF_TWO_KEYS, timestamps=stamps))
        harness.watermark(20)
        assert harness.output == [{"key": "a", "n": 6}, {"key": "b", "n": 6}]


def test_a_source_function_may_collect_one_object_again_and_again():
    with OperatorHarness(SourceOperator(SourceFunctionSource(Reusing(Inside("dict"))))) as harness:
        harness.assign_all_splits()
        while harness.run_slice().status is not InputStatus.END_OF_INPUT:
            pass
        assert harness.output == [{"numbers": [1, 2, 3][:n]} for n in (1, 2, 3)]


class ReusesAVariable(SourceFunction):
    def run(self, ctx):
        record = {"n": 0}
        for number in (1, 2, 3):
            record["n"] = number
            ctx.collect(record)
            ctx.collect_with_timestamp(record, number)

    def cancel(self):
        pass


def test_a_source_function_may_change_a_variable_that_it_has_collected():
    with OperatorHarness(SourceOperator(SourceFunctionSource(ReusesAVariable()))) as harness:
        harness.assign_all_splits()
        while harness.run_slice().status is not InputStatus.END_OF_INPUT:
            pass
        assert harness.output == [{"n": n} for n in (1, 1, 2, 2, 3, 3)]


class Remembering(MapFunction):
    def __init__(self, kind):
        self.kind = kind
        self.made = []

    def map(self, value):
        event = self.kind([value])
        self.made.append(id(event))
        return event


def in_a_tuple(numbers):
    return numbers, 1


@pytest.mark.parametrize("kind", [Box, SlottedBox, list, Row, in_a_tuple])
def test_an_object_that_nobody_else_has_is_not_copied(kind):
    function = Remembering(kind)
    with OperatorHarness(MapOperator(function), copy=False) as harness:
        harness.process([1, 2, 3])
        assert [id(event) for event in harness.output] == function.made


class Marks(MapFunction):
    def __init__(self):
        self.given = []

    def map(self, value):
        self.given.append(id(value))
        value["marked"] = True
        return value


@pytest.mark.parametrize(
    "make", [MapOperator, lambda function: KeyedMapOperator(function, ONE_KEY)]
)
def test_a_record_that_is_changed_and_handed_on_is_not_copied(make):
    function = Marks()
    with OperatorHarness(make(function), copy=False) as harness:
        harness.process_batch(Batch.of_records([{"n": 1}, {"n": 2}]))
        assert harness.output == [{"n": 1, "marked": True}, {"n": 2, "marked": True}]
        assert list(map(id, harness.output)) == function.given


class KeepsAGenerator(MapFunction):
    def map(self, value):
        self.kept = (number for number in range(value))
        return self.kept


def test_an_object_that_cannot_be_copied_is_handed_on_as_it_is():
    with OperatorHarness(MapOperator(KeepsAGenerator())) as harness:
        harness.process([2])
        assert list(harness.output[0]) == [0, 1]


def test_a_collection_keeps_its_records_when_they_are_changed_downstream():
    source = CollectionSource([{"n": 1}])
    for _ in range(2):
        with OperatorHarness(SourceOperator(source), copy=False) as harness:
            harness.assign_all_splits()
            harness.run_slice()
            assert harness.output == [{"n": 1}]
            harness.output[0]["n"] = 2


REUSED = {"n": 0}


class Event:
    """Its methods are code of users: they may return what they keep."""

    def __init__(self, n):
        self.n = n

    def filled(self):
        REUSED["n"] = self.n
        return REUSED


def filled(record):
    REUSED["n"] = record
    return REUSED


@pytest.mark.parametrize(
    ("function", "records"),
    [(filled, [1, 2]), (lambda event: event.filled(), [Event(1), Event(2)])],
)
def test_a_plain_function_may_reuse_an_object_too(function, records):
    with OperatorHarness(MapOperator(function)) as harness:
        harness.process_batch(arrived(records))
        assert harness.output == [{"n": 1}, {"n": 2}]


def numbered(record):
    return {"n": record}


def test_it_is_known_that_values_of_pythons_own_types_run_no_code():
    with OperatorHarness(MapOperator(numbered)) as harness:
        for records in ([1, 2], [Event(1), Event(2)]):
            harness.process_batch(arrived(records))
        assert [batch.is_inert for batch in harness.batches] == [True, False]


class Pair(NamedTuple):
    word: str
    n: int


@pytest.mark.parametrize(
    ("result", "type_info", "is_inert"),
    [
        (("a", 1), None, True),
        (("a", 1, None), None, True),
        ("a", None, True),
        (("a", Event(1)), None, False),
        (Event(1), None, False),
        (Pair("a", 1), None, False),
        (Pair("a", 1), as_type_info(Pair), False),
    ],
)
@pytest.mark.parametrize("operator", [MapOperator, FlatMapOperator])
def test_results_that_were_queried_are_marked(operator, result, type_info, is_inert):
    format = None if type_info is None else arrow_format(type_info)
    found = result if operator is MapOperator else [result]
    with OperatorHarness(operator(lambda record: found, format)) as harness:
        harness.process([1, 2])
        assert [batch.is_inert for batch in harness.batches] == [is_inert]
