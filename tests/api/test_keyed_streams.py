"""Aggregations by key: a result for every record, as in Flink."""

from dataclasses import dataclass

import pytest

from tests.api.results import collect, in_any_order
from tidegate.common import Row, Types
from tidegate.datastream import (
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapFunction,
    ReduceFunction,
    RuntimeExecutionMode,
)
from tidegate.datastream.aggregates import avg_, count, max_, min_, sum_
from tidegate.datastream.state import ValueStateDescriptor

TRIPLE = Types.TUPLE([Types.STRING(), Types.LONG(), Types.STRING()])
RECORDS = [("a", 3, "x"), ("b", 5, "x"), ("a", 1, "y"), ("a", 3, "z"), ("b", 9, "y")]


def by_word(record):
    return record[0]


@pytest.fixture(params=["typed", "untyped"])
def keyed(env, request):
    type_info = TRIPLE if request.param == "typed" else None
    return env.from_collection(RECORDS, type_info).key_by(by_word)


def results_by_key(stream):
    found = {}
    for record in collect(stream):
        found.setdefault(record[0], []).append(tuple(record)[1:])
    return found


def test_agg_gives_a_row_with_the_key_and_every_aggregate(keyed):
    rows = collect(keyed.agg(n=count(), total=sum_(1), top=max_(1), mean=avg_(1), first=min_(2)))
    of_a = [tuple(row)[1:] for row in rows if row[0] == "a"]
    assert of_a == [(1, 3, 3, 3.0, "x"), (2, 4, 3, 2.0, "x"), (3, 7, 3, 7 / 3, "x")]


def test_sum_gives_the_first_record_with_the_running_sum(keyed):
    assert results_by_key(keyed.sum(1)) == {
        "a": [(3, "x"), (4, "x"), (7, "x")],
        "b": [(5, "x"), (14, "x")],
    }


def test_min_and_max_give_the_first_record_with_the_extreme_so_far(keyed):
    assert results_by_key(keyed.min(1)) == {
        "a": [(3, "x"), (1, "x"), (1, "x")],
        "b": [(5, "x"), (5, "x")],
    }
    assert results_by_key(keyed.max(1)) == {
        "a": [(3, "x"), (3, "x"), (3, "x")],
        "b": [(5, "x"), (9, "x")],
    }


def test_min_by_and_max_by_give_the_record_that_has_the_extreme_first(keyed):
    assert results_by_key(keyed.min_by(1)) == {
        "a": [(3, "x"), (1, "y"), (1, "y")],
        "b": [(5, "x"), (5, "x")],
    }
    assert results_by_key(keyed.max_by(1)) == {
        "a": [(3, "x"), (3, "x"), (3, "x")],
        "b": [(5, "x"), (9, "y")],
    }


def test_count_gives_key_and_number(keyed):
    assert in_any_order(keyed.count()) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2)]


def test_reduce_gives_what_the_function_makes_of_all_records_so_far(keyed):
    def join(one, other):
        return one[0], one[1] + other[1], one[2] + other[2]

    class Join(ReduceFunction):
        def reduce(self, value1, value2):
            return join(value1, value2)

    expected = {
        "a": [(3, "x"), (4, "xy"), (7, "xyz")],
        "b": [(5, "x"), (14, "xy")],
    }
    assert results_by_key(keyed.reduce(join)) == expected
    assert results_by_key(keyed.reduce(Join())) == expected


def test_fields_may_be_named(env):
    rows = env.from_collection(
        [("a", 1), ("a", 2)], Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()])
    )
    assert collect(rows.key_by("word").sum("n")) == [Row(word="a", n=1), Row(word="a", n=3)]


def test_dataclasses_are_summed_by_field(env):
    @dataclass
    class WordCount:
        word: str
        frequency: int

    counts = env.from_collection([WordCount("a", 1), WordCount("a", 4)], WordCount)
    assert collect(counts.key_by(lambda c: c.word).sum("frequency")) == [
        WordCount("a", 1),
        WordCount("a", 5),
    ]


def test_single_values_are_aggregated_whole(env):
    numbers = env.from_collection([5, 2, 7], Types.LONG()).key_by(lambda n: "all")
    assert collect(numbers.sum()) == [5, 7, 14]
    assert collect(numbers.min()) == [5, 2, 2]
    untyped = env.from_collection([5, 2, 7]).key_by(lambda n: "all")
    assert collect(untyped.max()) == [5, 5, 7]


def test_keys_may_be_tuples_of_fields(env):
    stream = env.from_collection(RECORDS, TRIPLE).key_by((0, 2)).count()
    assert sorted(collect(stream)) == [
        (("a", "x"), 1),
        (("a", "y"), 1),
        (("a", "z"), 1),
        (("b", "x"), 1),
        (("b", "y"), 1),
    ]


def test_the_key_type_may_be_declared_and_the_selector_be_an_object(env):
    class Parity(KeySelector):
        def get_key(self, value):
            return value % 2

    stream = env.from_sequence(1, 6).key_by(Parity(), key_type=Types.INT()).sum()
    assert sorted(collect(stream))[-2:] == [9, 12]


def test_maps_flat_maps_and_filters_have_the_state_of_the_key(env):
    class Counting:
        def open(self, runtime_context):
            self.count = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))

        def next(self):
            self.count.update((self.count.value() or 0) + 1)
            return self.count.value()

    class Numbered(Counting, MapFunction):
        def map(self, value):
            return value, self.next()

    class EverySecond(Counting, FlatMapFunction):
        def flat_map(self, value):
            if self.next() % 2 == 0:
                yield value

    class First(Counting, FilterFunction):
        def filter(self, value):
            return self.next() == 1

    words = env.from_collection(list("abaab")).key_by(lambda word: word)
    assert in_any_order(words.map(Numbered())) == [
        ("a", 1),
        ("a", 2),
        ("a", 3),
        ("b", 1),
        ("b", 2),
    ]
    assert in_any_order(words.flat_map(EverySecond())) == ["a", "b"]
    assert in_any_order(words.filter(First())) == ["a", "b"]


def test_in_batch_mode_an_aggregation_gives_one_result_for_a_key(env):
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    pairs = Types.TUPLE([Types.STRING(), Types.LONG()])
    words = env.from_collection([("a", 1), ("b", 1), ("a", 1)], pairs).key_by(lambda p: p[0])
    assert in_any_order(words.sum(1)) == [("a", 2), ("b", 1)]
    assert in_any_order(words.reduce(lambda x, y: (x[0], x[1] + y[1]))) == [("a", 2), ("b", 1)]
    assert in_any_order(words.count()) == [("a", 2), ("b", 1)]


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_lists_may_be_keys(env, mode, backend):
    env.set_runtime_mode(mode).configure({"state.backend.type": backend})
    records = [("a", 1, 2), ("b", 1, 2), ("a", 1, 5)]
    words = env.from_collection(records).key_by(lambda r: [r[0], [r[1]]])
    assert in_any_order(words.reduce(lambda x, y: (*x[:2], x[2] + y[2])))[-2:] == [
        ("a", 1, 7),
        ("b", 1, 2),
    ]
    counts = in_any_order(words.count())
    assert counts[-1] == (("b", (1,)), 1)
    assert (("a", (1,)), 2) in counts
    windows = words.count_window(2).reduce(lambda x, y: (*x[:2], x[2] + y[2]))
    assert in_any_order(windows) == [("a", 1, 7)]


def test_a_keyed_stream_can_be_keyed_again_and_printed(env, capsys):
    words = env.from_collection(RECORDS, TRIPLE).key_by(by_word).key_by(lambda r: r[2])
    words.count().set_parallelism(1).print("letters")
    env.set_parallelism(1).execute()
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "letters> (x,1)",
        "letters> (x,2)",
        "letters> (y,1)",
        "letters> (y,2)",
        "letters> (z,1)",
    ]
