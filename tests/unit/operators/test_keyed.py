import numpy as np
import pytest

from tidegate.core.errors import TypeMismatch, UserFunctionError
from tidegate.operators.functions import (
    CoFlatMapFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    OutputTag,
    ReduceFunction,
)
from tidegate.operators.keyed import (
    KeyedFilterOperator,
    KeyedFlatMapOperator,
    KeyedMapOperator,
    KeyedProcessOperator,
    KeyedReduceOperator,
)
from tidegate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from tidegate.state.keys.selection import select_key
from tidegate.stream.batch import Batch
from tidegate.testing.harness import OperatorHarness, as_batch
from tidegate.types.arrow import arrow_format
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

PAIRS = Types.TUPLE([Types.STRING(), Types.LONG()])
TOTAL = ValueStateDescriptor("total", Types.LONG())
ODD = OutputTag("odd", Types.LONG())
BY_FIRST = select_key(0)


class RunningSum(KeyedProcessFunction):
    def open(self, runtime_context):
        self.total = runtime_context.get_state(TOTAL)

    def process_element(self, value, ctx):
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        yield ctx.get_current_key(), total


class SumMap(MapFunction):
    def open(self, runtime_context):
        self.total = runtime_context.get_state(TOTAL)

    def map(self, value):
        self.total.update((self.total.value() or 0) + value[1])
        return self.total.value()


class Pairs(FlatMapFunction):
    """Every second value of a key, with the one before."""

    def open(self, runtime_context):
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting"))

    def flat_map(self, value):
        self.waiting.add(value[1])
        if len(list(self.waiting)) == 2:
            yield value[0], list(self.waiting)
            self.waiting.clear()


class FirstOnly(FilterFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def filter(self, value):
        known = self.seen.value()
        self.seen.update(True)
        return not known


class SharedCoFlat(CoFlatMapFunction):
    def open(self, runtime_context):
        self.words = runtime_context.get_map_state(MapStateDescriptor("words"))

    def flat_map1(self, value):
        self.words.put(value[1], True)

    def flat_map2(self, value):
        return sorted(self.words.keys())


class SharedProcess(KeyedCoProcessFunction):
    def open(self, runtime_context):
        self.limit = runtime_context.get_state(ValueStateDescriptor("limit"))

    def process_element1(self, value, ctx):
        self.limit.update(value[1])

    def process_element2(self, value, ctx):
        if self.limit.value() is not None and value > self.limit.value():
            yield value, ctx.get_current_key()
            ctx.timer_service().register_processing_time_timer(5)

    def on_timer(self, timestamp, ctx):
        yield "timer", timestamp, ctx.get_current_key()


def test_a_process_function_has_the_state_of_the_records_key():
    with OperatorHarness(KeyedProcessOperator(RunningSum(), [BY_FIRST])) as harness:
        harness.process([("a", 1), ("b", 10), ("a", 2)])
        harness.process([("b", 5)])
        assert harness.output == [("a", 1), ("b", 10), ("a", 3), ("b", 15)]


def test_typed_batches_come_in_as_columns_and_go_out_as_columns():
    operator = KeyedProcessOperator(RunningSum(), [select_key(0, PAIRS)], arrow_format(PAIRS))
    with OperatorHarness(operator) as harness:
        harness.process([("a", 1), ("a", 2)], type_info=PAIRS)
        assert harness.batches[0].columns.to_pydict() == {"f0": ["a", "a"], "f1": [1, 3]}


def test_functions_see_records_as_declared_also_if_they_never_travelled():
    rows = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()])
    operator = KeyedMapOperator(lambda row: row, [select_key("word", rows)])
    with OperatorHarness(operator) as harness:
        harness.process_batch(Batch.of_records([{"word": "a", "n": 1}], arrow_format(rows)))
        assert harness.output == [Row(word="a", n=1)]
        with pytest.raises(TypeMismatch):
            harness.process_batch(Batch.of_records([{"word": 3, "n": 1}], arrow_format(rows)))


def test_map_flat_map_and_filter_have_keyed_state():
    records = [("a", 1), ("b", 2), ("a", 3), ("a", 5), ("b", 8)]
    for operator, expected in (
        (KeyedMapOperator(SumMap(), [BY_FIRST]), [1, 2, 4, 9, 10]),
        (KeyedFlatMapOperator(Pairs(), [BY_FIRST]), [("a", [1, 3]), ("b", [2, 8])]),
        (KeyedFilterOperator(FirstOnly(), [BY_FIRST]), [("a", 1), ("b", 2)]),
    ):
        with OperatorHarness(operator) as harness:
            harness.process(records)
            assert harness.output == expected


def test_plain_functions_do_on_a_keyed_stream_too():
    records = [("a", 1), ("b", 2)]
    for operator, expected in (
        (KeyedMapOperator(lambda x: x[1], [BY_FIRST]), [1, 2]),
        (KeyedFlatMapOperator(lambda x: [x[0]] * x[1], [BY_FIRST]), ["a", "b", "b"]),
        (KeyedFilterOperator(lambda x: x[1] > 1, [BY_FIRST]), [("b", 2)]),
    ):
        with OperatorHarness(operator) as harness:
            harness.process(records)
            assert harness.output == expected


class Largest(ReduceFunction):
    def reduce(self, value1, value2):
        return max(value1, value2, key=lambda value: value[1])


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda a, b: (a[0], a[1] + b[1]), [("a", 1), ("b", 7), ("a", 4)]),
        (Largest(), [("a", 1), ("b", 7), ("a", 3)]),
    ],
)
def test_reduce_emits_a_result_for_every_record(function, expected):
    with OperatorHarness(KeyedReduceOperator(function, [BY_FIRST])) as harness:
        harness.process([("a", 1), ("b", 7), ("a", 3)])
        assert harness.output == expected


def test_results_of_a_reduce_do_not_change_when_the_function_changes_its_argument():
    def add(one, other):
        one[1] += other[1]
        return one

    with OperatorHarness(KeyedReduceOperator(add, [BY_FIRST])) as harness:
        harness.process([["a", 1], ["a", 2]])
        snapshot = harness.snapshot()
        harness.process([["a", 3]])
        assert harness.output == [["a", 1], ["a", 3], ["a", 6]]
    with OperatorHarness(KeyedReduceOperator(add, [BY_FIRST]), restore_from=[snapshot]) as harness:
        harness.process([["a", 10]])
        assert harness.output == [["a", 13]]


def test_connected_streams_share_the_state_of_a_key():
    keys = [BY_FIRST, select_key(lambda word: word)]
    with OperatorHarness(KeyedFlatMapOperator(SharedCoFlat(), keys)) as harness:
        harness.process([("a", "y"), ("a", "x"), ("b", "z")])
        harness.process(["a", "b", "c"], input_index=1)
        assert harness.output == ["x", "y", "z"]


def test_a_co_process_function_shares_state_and_timers():
    keys = [BY_FIRST, select_key(lambda number: "a" if number % 2 else "b")]
    with OperatorHarness(KeyedProcessOperator(SharedProcess(), keys)) as harness:
        harness.process([("a", 10)])
        harness.process([11, 12, 9], input_index=1)
        assert harness.take_output() == [(11, "a")]
        harness.advance(1)
        assert harness.output == [("timer", 5, "a")]


def test_every_kind_of_state_is_had_from_the_runtime_context():
    class Uses(KeyedProcessFunction):
        def open(self, runtime_context):
            self.reducing = runtime_context.get_reducing_state(
                ReducingStateDescriptor("r", lambda a, b: a + b)
            )
            self.aggregating = runtime_context.get_aggregating_state(
                AggregatingStateDescriptor("g", Mean())
            )
            self.entries = runtime_context.get_map_state(MapStateDescriptor("m"))
            self.items = runtime_context.get_list_state(ListStateDescriptor("l"))

        def process_element(self, value, ctx):
            self.reducing.add(value[1])
            self.aggregating.add(value[1])
            self.entries[value[1]] = True
            self.items.add(value[1])
            yield (
                self.reducing.get(),
                self.aggregating.get(),
                list(self.entries),
                list(self.items),
            )

    class Mean:
        def create_accumulator(self):
            return (0, 0)

        def add(self, value, accumulator):
            return accumulator[0] + value, accumulator[1] + 1

        def get_result(self, accumulator):
            return accumulator[0] / accumulator[1]

    with OperatorHarness(KeyedProcessOperator(Uses(), [BY_FIRST])) as harness:
        harness.process([("a", 1), ("b", 7), ("a", 2)])
        assert harness.output[2] == (3, 1.5, [1, 2], [1, 2])


def test_side_outputs_are_chosen_by_tag():
    class Splits(KeyedProcessFunction):
        def process_element(self, value, ctx):
            if value[1] % 2:
                yield ODD, value[1]
            else:
                yield value

    operator = KeyedProcessOperator(Splits(), [BY_FIRST], side_formats={"odd": None})
    with OperatorHarness(operator) as harness:
        harness.process([("a", 1), ("a", 2), ("b", 3)])
        assert harness.output == [("a", 2)]
        assert harness.side_output("odd") == [1, 3]


@pytest.mark.parametrize("how", ["generator", "list", "none"])
def test_a_process_function_may_return_any_iterable_or_nothing(how):
    class Returns(KeyedProcessFunction):
        def process_element(self, value, ctx):
            return {"generator": (v for v in value), "list": list(value), "none": None}[how]

    with OperatorHarness(KeyedProcessOperator(Returns(), [BY_FIRST])) as harness:
        harness.process([("a", 1)])
        assert harness.output == ([] if how == "none" else ["a", 1])


def failing(value, *rest):
    if value[1] == 0:
        raise ZeroDivisionError("no zero here")
    return [value]


class FailingProcess(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield "before"
        failing(value)
        yield value


@pytest.mark.parametrize(
    ("operator", "before"),
    [
        (KeyedMapOperator(lambda value: failing(value)[0], [BY_FIRST]), [("a", 1)]),
        (KeyedFlatMapOperator(failing, [BY_FIRST]), [("a", 1)]),
        (KeyedFilterOperator(failing, [BY_FIRST]), [("a", 1)]),
        (KeyedReduceOperator(lambda a, b: failing(b)[0], [select_key(lambda x: 0)]), [("a", 1)]),
        (KeyedProcessOperator(FailingProcess(), [BY_FIRST]), ["before", ("a", 1), "before"]),
    ],
    ids=["map", "flat_map", "filter", "reduce", "process"],
)
def test_what_came_before_a_failure_goes_out_first(operator, before):
    with OperatorHarness(operator, name="Divide") as harness:
        with pytest.raises(UserFunctionError, match="no zero here") as failure:
            harness.process([("a", 1), ("b", 0), ("a", 2)])
        assert harness.output == before
    assert "in operator 'Divide'" in str(failure.value)
    assert "record ('b', 0)" in str(failure.value)


def test_a_failing_key_selector_is_a_failure_at_its_record():
    class Itself(MapFunction):
        def map(self, value):
            return value

    with OperatorHarness(KeyedMapOperator(Itself(), [select_key(lambda x: 1 / x)])) as harness:
        with pytest.raises(UserFunctionError, match=r"ZeroDivisionError.*\n.*\n.*record 0"):
            harness.process([2, 1, 0, 4])
        assert harness.output == [2, 1]


@pytest.mark.parametrize("key", [{1}, object()])
def test_a_key_that_cannot_be_one_is_a_failure_with_what_to_do(key):
    operator = KeyedProcessOperator(RunningSum(), [select_key(lambda x: key)])
    with (
        OperatorHarness(operator) as harness,
        pytest.raises(UserFunctionError, match="Return a supported key"),
    ):
        harness.process([("a", 1)])


def test_a_key_selector_object_is_opened_and_closed_with_the_operator():
    class ByShift(KeySelector):
        def open(self, runtime_context):
            self.shift = runtime_context.get_index_of_this_subtask()

        def get_key(self, value):
            return value[1] + self.shift

        def close(self):
            self.shift = None

    class KeyOf(KeyedProcessFunction):
        def process_element(self, value, ctx):
            yield ctx.get_current_key()

    operator = KeyedProcessOperator(KeyOf(), [select_key(ByShift())])
    with OperatorHarness(operator, parallelism=2, subtask=1) as harness:
        harness.process([("a", 1)])
        assert harness.output == [2]
    assert harness.operator.keys[0].selector.shift is None


class KeyAndField(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield ctx.get_current_key(), ctx.timestamp()
        if value[1] == FAILING:
            raise ValueError("asked to fail")


FAILING = 20_000
"""In the second piece of a batch."""


@pytest.mark.parametrize(("key", "key_of"), [(0, str), ((0, 1), lambda n: (str(n), n))])
def test_a_large_batch_gives_what_small_ones_give(key, key_of):
    kind = Types.TUPLE([Types.STRING(), Types.BIG_INT()])
    operator = KeyedProcessOperator(KeyAndField(), [select_key(key, kind)])
    records = [(str(n), n) for n in range(FAILING + 2)]
    with OperatorHarness(operator) as harness:
        with pytest.raises(UserFunctionError) as raised:
            harness.process(
                records, type_info=kind, timestamps=[7 * n for n, _ in enumerate(records)]
            )
        results = [((key_of(n), 7 * n), 7 * n) for n in range(FAILING + 1)]
        assert harness.timed_output == results
    assert raised.value.suspects == range(FAILING, FAILING + 1)


def test_a_function_of_the_wrong_kind_is_refused():
    with pytest.raises(TypeError, match="needs a KeyedProcessFunction"):
        KeyedProcessOperator(lambda x: x, [BY_FIRST])
    with pytest.raises(TypeError, match="needs a KeyedCoProcessFunction"):
        KeyedProcessOperator(RunningSum(), [BY_FIRST, BY_FIRST])


def test_state_resumes_from_a_snapshot_and_later_changes_are_not_in_it():
    with OperatorHarness(KeyedProcessOperator(RunningSum(), [BY_FIRST])) as harness:
        harness.process([("a", 1), ("b", 10)])
        snapshot = harness.snapshot()
        harness.process([("a", 100)])
    operator = KeyedProcessOperator(RunningSum(), [BY_FIRST])
    with OperatorHarness(operator, restore_from=[snapshot]) as harness:
        harness.process([("a", 2), ("b", 2), ("c", 2)])
        assert harness.output == [("a", 3), ("b", 12), ("c", 2)]


def test_results_have_the_timestamps_of_their_records():
    class Stamped(KeyedProcessFunction):
        def process_element(self, value, ctx):
            yield from [ctx.timestamp()] * value[1]

    batch = as_batch([("a", 2), ("b", 0), ("a", 1)])
    batch.timestamps = np.array([10, 20, 30])
    with OperatorHarness(KeyedProcessOperator(Stamped(), [BY_FIRST])) as harness:
        harness.process_batch(batch)
        assert harness.output == [10, 10, 30]
        assert harness.batches[0].timestamps.tolist() == [10, 10, 30]


class AsksTwice(MapFunction):
    """Copies a declaration and forgets to give it another name."""

    def __init__(self, *names):
        self.names = names

    def open(self, runtime_context):
        for name in self.names:
            runtime_context.get_state(ValueStateDescriptor(name, Types.LONG()))

    def map(self, value):
        return value


@pytest.mark.parametrize(("names", "warnings"), [(("a", "b"), 0), (("a", "a", "a"), 1)])
def test_two_descriptors_of_one_name_are_warned_of_once(caplog, names, warnings):
    operator = KeyedMapOperator(AsksTwice(*names), [select_key(lambda value: value)])
    with OperatorHarness(operator):
        pass
    found = [each for each in caplog.messages if "two descriptors for the state" in each]
    assert len(found) == warnings
