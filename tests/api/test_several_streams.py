"""Unions, connected streams, and streams that are used twice."""

import pyarrow as pa
import pytest

from tests.api.results import collect, in_any_order
from tidegate.common import Types
from tidegate.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    OutputTag,
)
from tidegate.datastream.state import ListStateDescriptor, ValueStateDescriptor
from tidegate.testing.environments import mini_environment

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


class Label(CoMapFunction):
    def map1(self, value):
        return f"number {value}"

    def map2(self, value):
        return None if value == "drop" else f"text {value}"


class Spread(CoFlatMapFunction):
    def flat_map1(self, value):
        yield from range(value)

    def flat_map2(self, value):
        return list(value) if value else None


def test_a_union_has_the_records_of_all_its_streams(env):
    a, b, c = env.from_collection([1, 2]), env.from_collection([3]), env.from_collection([4])
    assert in_any_order(a.union(b, c)) == [1, 2, 3, 4]


def test_a_stream_united_with_itself_comes_twice(env):
    numbers = env.from_collection([1, 2], Types.LONG())
    assert in_any_order(numbers.union(numbers)) == [1, 1, 2, 2]


def test_united_rows_keep_the_names_of_their_fields():
    env = mini_environment({"tidegate.step.max-records": 1}, parallelism=1)  # several steps

    def rows_of(name):
        row = Types.ROW_NAMED([name], [Types.LONG()])
        return env.from_sequence(1, 3).map_batches(renamed_to(name), row)

    shown = rows_of("a").union(rows_of("b")).map(repr, Types.STRING())
    assert in_any_order(shown) == [f"Row({name}={value})" for name in "ab" for value in (1, 2, 3)]


def renamed_to(name):
    return lambda columns: pa.RecordBatch.from_arrays(columns.columns, names=[name])


def test_keyed_streams_can_be_united(env):
    left = env.from_collection([("a", 1)], PAIR).key_by(lambda pair: pair[0])
    right = env.from_collection([("b", 2)], PAIR).key_by(lambda pair: pair[0])
    assert in_any_order(left.union(right)) == [("a", 1), ("b", 2)]


def test_a_stream_that_is_used_twice_runs_once(env, tmp_path):
    def note(value):
        (tmp_path / f"{value}").touch(exist_ok=False)
        return value

    base = env.from_collection([1, 2, 3]).map(note)
    doubled, squared = base.map(lambda n: 2 * n), base.map(lambda n: n * n)
    assert in_any_order(doubled.union(squared)) == [1, 2, 4, 4, 6, 9]


def test_a_co_map_sees_both_streams_and_drops_none(env):
    connected = env.from_collection([1, 2]).connect(env.from_collection(["a", "drop"]))
    stream = connected.map(Label(), Types.STRING())
    assert stream.get_name() == "Co-Map"
    assert in_any_order(stream) == ["number 1", "number 2", "text a"]


def test_a_co_flat_map_gives_any_number_of_results(env):
    connected = env.from_collection([2]).connect(env.from_collection(["ab", ""]))
    assert sorted(map(str, collect(connected.flat_map(Spread())))) == ["0", "1", "a", "b"]


def test_a_co_process_function_has_side_outputs(env):
    tag = OutputTag("second", Types.STRING())

    class Split(CoProcessFunction):
        def process_element1(self, value, ctx):
            yield value

        def process_element2(self, value, ctx):
            yield tag, value

    connected = env.from_collection([1, 2]).connect(env.from_collection(["a"]))
    split = connected.process(Split(), Types.LONG())
    assert collect(split.get_side_output(tag)) == ["a"]
    assert in_any_order(split) == [1, 2]


class Enrich(KeyedCoProcessFunction):
    """Orders wait for the name of their customer, whichever comes first."""

    def open(self, runtime_context):
        self.name = runtime_context.get_state(ValueStateDescriptor("name", Types.STRING()))
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting", Types.LONG()))

    def process_element1(self, value, ctx):
        if self.name.value() is None:
            self.waiting.add(value[1])
        else:
            yield self.name.value(), value[1]

    def process_element2(self, value, ctx):
        self.name.update(value[1])
        for amount in self.waiting.get():
            yield value[1], amount
        self.waiting.clear()


@pytest.mark.parametrize("how", ["keys of the connection", "keyed streams"])
def test_keyed_streams_share_state_by_key(env, how):
    orders = env.from_collection([(1, 10), (2, 20), (1, 30), (3, 99)])
    customers = env.from_collection([(2, "Bob"), (1, "Ada")])
    if how == "keyed streams":
        connected = orders.key_by(lambda o: o[0]).connect(customers.key_by(lambda c: c[0]))
    else:
        connected = orders.connect(customers).key_by(lambda o: o[0], lambda c: c[0])
    stream = connected.process(Enrich(), PAIR)
    assert stream.get_name() == "Keyed Co-Process"
    assert in_any_order(stream) == [("Ada", 10), ("Ada", 30), ("Bob", 20)]


def test_co_maps_of_keyed_streams_have_state_too(env):
    class Sum(CoMapFunction):
        def open(self, runtime_context):
            self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

        def add(self, value):
            self.total.update((self.total.value() or 0) + value[1])
            return value[0], self.total.value()

        map1 = map2 = add

    left = env.from_collection([("a", 1), ("b", 1)], PAIR).key_by(lambda pair: pair[0])
    right = env.from_collection([("a", 5)], PAIR).key_by(lambda pair: pair[0])
    found = collect(left.connect(right).map(Sum()))
    assert {key: max(n for k, n in found if k == key) for key in "ab"} == {"a": 6, "b": 1}


def test_a_keyed_function_on_streams_without_keys_is_refused(env):
    connected = env.from_collection([1]).connect(env.from_collection([2]))
    with pytest.raises(TypeError, match=r"call key_by\(key1, key2\) before process\(\)"):
        connected.process(Enrich())
    with pytest.raises(TypeError, match="CoMapFunction"):
        connected.map(lambda value: value)
