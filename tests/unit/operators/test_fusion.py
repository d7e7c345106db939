"""A fused loop gives what calls of the function give, and is refused where it would not."""

import linecache
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tidegate.core.errors import TidegateError
from tidegate.core.poison import PoisonOrders
from tidegate.operators.functions import KeyedProcessFunction, OutputTag
from tidegate.operators.fusion import fusion_of, source_of
from tidegate.operators.keyed import KeyedProcessOperator
from tidegate.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from tidegate.state.keys.selection import select_key
from tidegate.stream.batch import Batch
from tidegate.testing.harness import OperatorHarness
from tidegate.types.arrow import arrow_format
from tidegate.types.typeinfo import Types

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
FORMAT = arrow_format(PAIR)
RECORDS = [(1, 3), (2, 5), (1, -2), (2, 0), (1, 7), (3, 1)]
LIMIT = 4


class Counting(KeyedProcessFunction):
    """The state and attributes of all functions here."""

    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.other = runtime_context.get_state(ValueStateDescriptor("other", Types.LONG()))
        self.kept = runtime_context.get_list_state(ListStateDescriptor("kept", Types.LONG()))
        self.__private = runtime_context.get_state(ValueStateDescriptor("own", Types.LONG()))
        self.calls = 0

    def add(self, number):
        self.total.update((self.total.value() or 0) + number)
        return self.total.value()

    def on_timer(self, timestamp, ctx):
        yield timestamp, self.total.value()


class Sums(Counting):
    def process_element(self, value, ctx):
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        yield value[0], total


class Branches(Counting):
    """Branches, loops, returns, several states, several results or none."""

    def process_element(self, value, ctx):
        key, number = value
        if number < 0:
            self.total.clear()
            return
        seen: int = self.other.value() or 0
        seen += 1
        self.other.update(seen)
        for i in range(number):
            if i > LIMIT:
                break
            yield i, seen
        else_ = min(number, LIMIT)
        if else_ == LIMIT:
            yield key, else_
        elif else_:
            yield key, -1
        self.total.update((self.total.value() or 0) + max(number, 1))
        yield key, self.total.value()


class Context(Counting):
    def process_element(self, value, ctx):
        self.calls += 1
        self.kept.add(value[1])
        ctx.timer_service().register_event_time_timer(value[1])
        self.total.update(ctx.get_current_key())
        yield ctx.get_current_key(), ctx.timestamp() or len(list(self.kept.get()))


class Helped(Counting):
    """Another method uses the state of the current key."""

    def process_element(self, value, ctx):
        yield value[0], self.add(value[1])
        yield value[0], self.total.value()


class Replaced(Counting):
    """A method that is called here exchanges the state."""

    def swap(self):
        self.total, self.other = self.other, self.total

    def process_element(self, value, ctx):
        self.total.update(value[1])
        self.swap()
        yield value[0], self.total.value() or 0


class Private(Counting):
    def open(self, runtime_context):
        super().open(runtime_context)
        self.__own = self.total

    def process_element(self, value, ctx):
        self.__own.update((self.__own.value() or 0) + 1)
        yield value[0], self.__own.value()


class Failing(Counting):
    def process_element(self, value, ctx):
        self.total.update(value[1])
        yield value[0], 1
        yield value[0], 10 // value[1]


class Documented(Counting):
    def process_element(self, value, ctx):
        """A text
        of several lines.
        """
        yield value[0], 1


def nested():
    class Nested(Counting):
        def process_element(self, value, ctx):
            yield value[0], 10 // value[1]

    return Nested


class Silent(Counting):
    def process_element(self, value, ctx):
        self.total.update(value[1])


class OutOfRange(Counting):
    def process_element(self, value, ctx):
        yield value[0], value[2]


class Unpacks(Counting):
    def process_element(self, value, ctx):
        self.total.update(*value[1:])
        yield value[0], self.total.value()


class Lease:
    """Something that is returned when nobody refers to it."""

    held = 0

    def __init__(self):
        self.others = Lease.held
        Lease.held += 1

    def __del__(self):
        Lease.held -= 1


class Releases(Counting):
    def process_element(self, value, ctx):
        lease = Lease()
        yield value[0], lease.others


class Exchanged(Counting):
    """Has other state once a timer has fired."""

    def open(self, runtime_context):
        super().open(runtime_context)
        self.current = self.other
        zero = ValueStateDescriptor("zero", Types.LONG(), default_value=0)
        self.later = runtime_context.get_state(zero)

    def on_timer(self, timestamp, ctx):
        self.current = self.later
        yield timestamp, 0

    def process_element(self, value, ctx):
        before = self.current.value()
        self.current.update(value[1])
        ctx.timer_service().register_event_time_timer(1)
        yield value[0], -1 if before is None else before


FUSED = [
    *(Sums, Branches, Context, Helped, Replaced, Private, Failing, Silent, OutOfRange, Unpacks),
    *(Releases, Exchanged, Documented, nested()),
]


class StaleVariable(Counting):
    """A loop would find the variable of the record before."""

    def process_element(self, value, ctx):
        if value[1] > 2:
            last = value[1]
        yield value[0], last


class StaleInLoop(Counting):
    def process_element(self, value, ctx):
        for i in range(value[1]):
            last = i
        yield value[0], last


class ReturnsInLoop(Counting):
    def process_element(self, value, ctx):
        for i in range(10):
            if i == value[1]:
                return
            yield i, i


class Comprehends(Counting):
    def process_element(self, value, ctx):
        yield value[0], sum(i for i in range(value[1]))


class Tries(Counting):
    def process_element(self, value, ctx):
        try:
            yield value[0], 10 // value[1]
        except ZeroDivisionError:
            yield value[0], 0


class Receives(Counting):
    def process_element(self, value, ctx):
        received = yield value[0], 1
        assert received is None


class LooksAtItself(Counting):
    def process_element(self, value, ctx):
        yield value[0], len(locals())


class ReturnsList(Counting):
    def process_element(self, value, ctx):
        return [(value[0], value[1])]


class YieldsVariable(Counting):
    """The tuple could be anything."""

    def process_element(self, value, ctx):
        yield value


class StalePrivate(Counting):
    def process_element(self, value, ctx):
        if value[1] > 2:
            __last = value[1]
        yield value[0], __last


class PrivateArguments(Counting):
    def process_element(self, __value, __ctx):
        yield __value[0], __value[1]


class Intercepted(Counting):
    def __getattribute__(self, name):
        is_called = name == "process_element"
        return self.other_method if is_called else object.__getattribute__(self, name)

    def other_method(self, value, ctx):
        yield value[0], 7

    def process_element(self, value, ctx):
        yield value[0], 1


REFUSED = [
    *(StaleVariable, StaleInLoop, ReturnsInLoop, Comprehends, Tries, Receives),
    *(LooksAtItself, ReturnsList, YieldsVariable, StalePrivate, PrivateArguments, Intercepted),
]


def operator_of(function, key=0):
    return KeyedProcessOperator(function, [select_key(key, PAIR)], FORMAT)


def outcome_of(function, *, fusion, key=0, records=RECORDS, times=None, **settings):
    """Results with their times, the failure, and the state afterwards."""
    given = {"tidegate.function.fusion": fusion}
    with OperatorHarness(operator_of(function, key), settings=given, **settings) as harness:
        assert fusion or harness.operator._fusion is None
        failures = []
        half = len(records) // 2
        for part in (slice(0, half), slice(half, None)):
            batch = Batch.of_records(records[part], FORMAT)
            if times is not None:
                batch = batch.stamped(times[part])
            try:
                harness.process_batch(batch)
            except TidegateError as failure:
                failures.append((str(failure), failure.suspects))
                break
            harness.watermark(2)
        if not failures:
            harness.watermark(5)
        held = harness.operator.function
        state = [list(held.total.by_place), list(held.other.by_place), held.calls]
        return harness.timed_output, failures, state


def is_fused(function):
    with OperatorHarness(operator_of(function)) as harness:
        return harness.operator._fusion is not None


@pytest.mark.parametrize("kind", [*FUSED, *REFUSED])
@pytest.mark.parametrize("key", [0, lambda pair: pair[0]])
@pytest.mark.parametrize("is_timed", [False, True])
def test_a_fused_function_does_what_its_calls_do(kind, key, is_timed):
    times = np.arange(100, 100 + len(RECORDS), dtype=np.int64) if is_timed else None
    fused = outcome_of(kind(), fusion=True, key=key, times=times)
    assert fused == outcome_of(kind(), fusion=False, key=key, times=times)


@pytest.mark.parametrize("kind", FUSED)
def test_what_has_the_same_meaning_in_a_loop_is_fused(kind):
    assert is_fused(kind())


@pytest.mark.parametrize("kind", REFUSED)
def test_what_would_mean_something_else_in_a_loop_is_not(kind):
    assert not is_fused(kind())


def fusion(kind):
    with OperatorHarness(operator_of(kind())) as harness:
        return harness.operator._fusion


def test_state_is_inlined_only_if_nothing_can_replace_it():
    assert fusion(Sums).states == ("total",)
    assert fusion(Branches).states == ("other", "total")
    assert fusion(Helped).states == fusion(Replaced).states == ()


def test_records_are_not_built_if_only_fields_are_read():
    assert fusion(Sums).fields == (0, 1)
    assert fusion(Silent).fields == (1,)
    assert fusion(Branches).fields is None


def test_the_key_is_set_for_all_code_that_may_ask_for_it():
    assert not fusion(Sums).uses_key
    assert fusion(Helped).uses_key and fusion(Context).uses_key


def test_a_failure_shows_the_line_and_the_record_and_keeps_earlier_results():
    results, [(failure, suspects)], _ = outcome_of(Failing(), fusion=True)
    assert "yield value[0], 10 // value[1]" in failure
    assert "in process_element" in failure and __file__ in failure
    assert "(2, 0)" in failure and suspects == range(1)
    assert [result for result, _ in results][-1] == (2, 1)


def test_a_record_that_is_skipped_leaves_no_results():
    orders = PoisonOrders(skips_at_once=True)
    fused = outcome_of(Failing(), fusion=True, poison=orders)
    assert fused == outcome_of(Failing(), fusion=False, poison=orders)
    assert len(fused[0]) == 2 * (len(RECORDS) - 1)


def test_a_method_whose_source_is_that_of_another_is_not_fused():
    assert fusion_of(Sums.process_element, source_of(Sums.process_element), Sums()) is not None
    assert fusion_of(Sums.process_element, source_of(Failing.process_element), Sums()) is None
    assert fusion_of(Sums.process_element, None, Sums()) is None


def test_a_method_of_one_object_is_called():
    function = Sums()
    function.process_element = lambda value, ctx: [(0, 0)]
    assert not is_fused(function)
    results, _, _ = outcome_of(function, fusion=True)
    assert {result for result, _ in results} == {(0, 0)}


def test_a_stream_with_side_outputs_is_not_fused():
    tag = OutputTag("side", Types.LONG())
    sides = {tag.tag_id: arrow_format(Types.LONG())}
    operator = KeyedProcessOperator(Sums(), [select_key(0, PAIR)], FORMAT, sides)
    with OperatorHarness(operator) as harness:
        assert harness.operator._fusion is None


# --- any function -------------------------------------------------------------------------------

NUMBERS = st.recursive(
    st.sampled_from(
        [
            *("value[0]", "value[1]", "a", "b", "2", "self.calls", "LIMIT", "len(value)"),
            *("(self.total.value() or 0)", "(self.other.value() or 0)"),
            *("ctx.get_current_key()", "self.add(1)"),
        ]
    ),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({' '.join(t)})"),
    max_leaves=4,
)


def indented(lines):
    return [f"    {line}" for line in lines]


SIMPLE = st.one_of(
    st.tuples(st.sampled_from("ab"), NUMBERS).map(lambda t: [f"{t[0]} = {t[1]}"]),
    st.tuples(st.sampled_from("ab"), NUMBERS).map(lambda t: [f"{t[0]} += {t[1]}"]),
    st.tuples(st.sampled_from(["total", "other"]), NUMBERS).map(
        lambda t: [f"self.{t[0]}.update({t[1]} % 1000)"]
    ),
    st.sampled_from([["self.total.clear()"], ["self.calls += 1"], ["return"]]),
    st.tuples(NUMBERS, NUMBERS).map(lambda t: [f"yield {t[0]} % 1000, {t[1]} % 1000"]),
)
BLOCKS = st.recursive(
    st.lists(SIMPLE, min_size=1, max_size=3).map(
        lambda many: [line for one in many for line in one]
    ),
    lambda inner: st.one_of(
        st.tuples(NUMBERS, inner, inner).map(
            lambda t: [f"if {t[0]} > 3:", *indented(t[1]), "else:", *indented(t[2])]
        ),
        st.tuples(NUMBERS, inner).map(lambda t: [f"for a in range({t[0]} % 3):", *indented(t[1])]),
        st.tuples(inner, inner).map(lambda t: t[0] + t[1]),
    ),
    max_leaves=5,
)
NAMES = count()


def function_of(lines):
    """A function object with this method, whose source can be read."""
    body = ["class Drawn(Counting):", "    def process_element(self, value, ctx):"]
    body += indented(indented(["a = value[1]", *lines, "yield 0, 0"]))
    text = "\n".join(body) + "\n"
    filename = f"<drawn {next(NAMES)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    scope = {"Counting": Counting, "LIMIT": LIMIT, "__name__": __name__}
    exec(compile(text, filename, "exec"), scope)
    return scope["Drawn"]()


@examples(60)
@given(BLOCKS, st.lists(st.tuples(st.integers(0, 3), st.integers(-3, 9)), min_size=2, max_size=8))
def test_any_function_does_the_same_fused_and_called(lines, records):
    function = function_of(lines)
    fused = outcome_of(function, fusion=True, records=records, copy=False)
    called = outcome_of(function_of(lines), fusion=False, records=records, copy=False)
    assert without_files(fused) == without_files(called)


def nested(depth):
    loops = [f"{'    ' * i}for x{i} in range(1):" for i in range(depth)]
    return [*loops, f"{'    ' * depth}yield 0, 0"]


TOO_DEEP = [
    nested(20),
    [f"yield 0, {' + '.join(['value[1]'] * 800)}"],
    ["if a == 0:", "    yield 0, 0", *(["elif a == 1:", "    yield 0, 1"] * 250)],
]


@pytest.mark.parametrize("lines", TOO_DEEP, ids=["loops", "operators", "branches"])
def test_a_function_too_deep_for_a_loop_is_called(lines):
    fused = outcome_of(function_of(lines), fusion=True, copy=False)
    assert fused == outcome_of(function_of(lines), fusion=False, copy=False)
    assert not fused[1]


def without_files(outcome):
    results, failures, state = outcome
    return results, [(text.split("\n")[-3:], suspects) for text, suspects in failures], state
