"""What functions are given and what becomes of what they return."""

import dataclasses
from typing import NamedTuple

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.api.results import collect, in_any_order
from tidegate.common import Row, Types
from tidegate.core.errors import TypeMismatch, UserFunctionError
from tidegate.datastream import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
)

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


def test_map_gives_one_result_for_every_record(env):
    assert in_any_order(env.from_collection([1, 2, 3]).map(lambda n: n * 10)) == [10, 20, 30]


def test_flat_map_gives_any_number_of_results(env):
    lines = env.from_collection(["to be", "", "or not"])
    assert in_any_order(lines.flat_map(str.split)) == ["be", "not", "or", "to"]


def test_a_flat_map_may_be_a_generator_or_return_nothing(env):
    def repeat(n):
        if n == 0:
            return None
        return (n for _ in range(n))

    assert in_any_order(env.from_collection([0, 1, 2]).flat_map(repeat)) == [1, 2, 2]


def test_filter_keeps_what_is_true(env):
    assert in_any_order(env.from_sequence(1, 10).filter(lambda n: n % 3 == 0)) == [3, 6, 9]


def test_one_function_object_lives_in_every_subtask_from_open_to_close(env, tmp_path):
    class Numbered(MapFunction):
        def open(self, runtime_context):
            self.subtask = runtime_context.get_index_of_this_subtask()
            self.of = runtime_context.get_number_of_parallel_subtasks()
            self.seen = 0

        def map(self, value):
            self.seen += 1
            return self.subtask, self.of, self.seen

        def close(self):
            (tmp_path / str(self.subtask)).write_text(str(self.seen))

    found = in_any_order(env.from_collection(list("abcde")).rebalance().map(Numbered()))
    assert found == [(0, 2, 1), (0, 2, 2), (0, 2, 3), (1, 2, 1), (1, 2, 2)]
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"0": "3", "1": "2"}


def test_filters_and_flat_maps_may_be_objects_too(env):
    class Even(FilterFunction):
        def filter(self, value):
            return value % 2 == 0

    class Twice(FlatMapFunction):
        def flat_map(self, value):
            yield value
            yield value

    stream = env.from_sequence(1, 4).filter(Even()).flat_map(Twice())
    assert in_any_order(stream) == [2, 2, 4, 4]


def test_functions_read_the_parameters_of_the_job(env):
    class Scaled(MapFunction):
        def open(self, runtime_context):
            self.factor = int(runtime_context.get_job_parameter("factor", "1"))

        def map(self, value):
            return value * self.factor

    env.get_config().set_global_job_parameters({"factor": 5})
    assert in_any_order(env.from_collection([1, 2]).map(Scaled())) == [5, 10]


def test_a_process_function_has_a_context_and_side_outputs(env):
    odd, many = OutputTag("odd", Types.LONG()), OutputTag("many")

    class Route(ProcessFunction):
        def process_element(self, value, ctx):
            assert ctx.timer_service().current_processing_time() > 0
            if value % 2:
                yield odd, value
            elif value > 6:
                yield many, {"n": value}
            else:
                yield str(value)

    routed = env.from_sequence(1, 8).process(Route(), Types.STRING())
    assert in_any_order(routed.get_side_output(odd)) == [1, 3, 5, 7]
    assert collect(routed.get_side_output(many)) == [{"n": 8}]
    assert in_any_order(routed) == ["2", "4", "6"]


def test_a_side_output_can_be_transformed_and_keyed_like_any_stream(env):
    tag = OutputTag("words", PAIR)

    class Divert(ProcessFunction):
        def process_element(self, value, ctx):
            yield tag, (value, 1)

    words = env.from_collection(list("aab")).process(Divert()).get_side_output(tag)
    assert in_any_order(words.key_by(lambda pair: pair[0]).sum(1)) == [
        ("a", 1),
        ("a", 2),
        ("b", 1),
    ]


def test_records_are_what_their_type_says(env):
    @dataclasses.dataclass(order=True)
    class Person:
        name: str
        age: int

    class Point(NamedTuple):
        x: int
        y: int

    rows = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
    people = env.from_collection([("Ada", 36), ("Bob", 7)], rows)
    assert in_any_order(people.map(repr)) == ["Row(name='Ada', age=36)", "Row(name='Bob', age=7)"]
    assert in_any_order(people.map(lambda row: Person(row.name, row.age), Person)) == [
        Person("Ada", 36),
        Person("Bob", 7),
    ]
    points = env.from_collection([(1, 2)]).map(lambda pair: Point(*pair), Point)
    assert collect(points.map(lambda point: point.x + point.y)) == [3]
    assert collect(
        env.from_collection([(1, "a")]).map(Row, [Types.TUPLE([Types.INT(), Types.STRING()])])
    ) == [Row(f0=(1, "a"))]


def test_a_record_of_another_type_ends_the_job_with_both(env):
    stream = env.from_collection([1, 2]).map(lambda n: "two" if n == 2 else n, Types.LONG())
    with pytest.raises((TypeMismatch, UserFunctionError), match="two"):
        collect(stream)


def test_a_collection_of_another_type_is_refused_at_once(env):
    with pytest.raises(TypeMismatch, match="'x'"):
        env.from_collection([1, "x"], Types.LONG())


def test_an_exception_of_the_user_comes_with_operator_subtask_and_record(env):
    def divide(n):
        return 1 / n

    stream = env.from_collection([2, 1, 0]).map(divide).name("Divide").uid("divide-1")
    with pytest.raises(UserFunctionError) as failed:
        collect(stream.set_parallelism(1))
    message = str(failed.value)
    assert message.startswith("Traceback (most recent call last):")
    assert "ZeroDivisionError: division by zero" in message
    assert "in operator 'Divide' (uid 'divide-1'), subtask (1/1)" in message
    assert message.endswith("while processing the record 0")


def test_what_came_before_a_failure_is_not_swallowed(env):
    stream = env.from_collection([4, 2, 0, 1]).map(lambda n: 8 // n).set_parallelism(1)
    with stream.execute_and_collect() as records:
        assert [next(records), next(records)] == [2, 4]
        with pytest.raises(UserFunctionError):
            next(records)


def test_a_projection_keeps_the_named_fields_in_order(env):
    pairs = env.from_collection([("a", 1, True)], Types.TUPLE([str_(), Types.LONG(), bool_()]))
    assert collect(pairs.project(2, 0)) == [(True, "a")]
    rows = env.from_collection(
        [("a", 1)], Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()])
    )
    assert collect(rows.project("n")) == [Row(n=1)]
    assert collect(pairs.key_by(0).project(1)) == [(1,)]


def str_():
    return Types.STRING()


def bool_():
    return Types.BOOLEAN()


def double_in_arrow(batch):
    values = pc.multiply(batch.column("f1"), 2)
    return pa.RecordBatch.from_arrays([batch.column("f0"), values], schema=batch.schema)


def double_in_pandas(frame):
    frame["f1"] = frame["f1"] * 2
    return frame


def double_in_polars(frame):
    return frame.with_columns(pl.col("f1") * 2)


@pytest.mark.parametrize(
    ("function", "format"),
    [
        (double_in_arrow, "arrow"),
        (double_in_arrow, None),
        (double_in_pandas, "pandas"),
        (double_in_polars, "polars"),
    ],
)
def test_map_batches_works_on_whole_frames(env, function, format):
    pairs = env.from_collection([("a", 1), ("b", 2)], PAIR)
    assert in_any_order(pairs.map_batches(function, format=format)) == [("a", 2), ("b", 4)]


def test_map_batches_may_change_the_columns_and_the_number_of_rows(env):
    total = Types.ROW_NAMED(["total"], [Types.LONG()])

    def add_up(frame: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"total": [frame["f1"].sum()]})

    pairs = env.from_collection([("a", 1), ("b", 2), ("c", 3)], PAIR)
    assert collect(pairs.map_batches(add_up, total).set_parallelism(1)) == [Row(total=6)]


def test_map_batches_says_which_column_is_missing(env):
    pairs = env.from_collection([("a", 1)], PAIR)
    with pytest.raises(Exception, match="f1"):
        collect(pairs.map_batches(lambda frame: frame.select(["f0"])))
