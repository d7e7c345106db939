"""The same programs on Spark: DataFrames, slots in processes of their own, sessions."""

import os

import pytest

from tests.api.results import collect, in_any_order
from tidegate.common import Row, Types
from tidegate.core.errors import ConfigError, UserFunctionError
from tidegate.datastream import (
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    StreamExecutionEnvironment,
)
from tidegate.datastream.execution.spark_session import active_session
from tidegate.datastream.state import ValueStateDescriptor

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
ROW = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()])


def test_a_keyed_sum_crosses_the_shuffle(spark_env):
    words = spark_env.from_collection([("a", 1), ("b", 1), ("a", 2)], PAIR)
    assert in_any_order(words.key_by(lambda pair: pair[0]).sum(1)) == [
        ("a", 1),
        ("a", 3),
        ("b", 1),
    ]


def test_functions_live_in_processes_of_their_own(spark_env):
    class Where(MapFunction):
        def open(self, runtime_context):
            self.pid = os.getpid()

        def map(self, value):
            return self.pid

    pids = set(collect(spark_env.from_sequence(1, 10).rebalance().map(Where())))
    assert len(pids) == 2
    assert os.getpid() not in pids


def test_state_timers_and_side_outputs_work_across_processes(spark_env):
    seen = OutputTag("seen", Types.STRING())

    class Count(KeyedProcessFunction):
        def open(self, runtime_context):
            self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

        def process_element(self, value, ctx):
            self.count.update((self.count.value() or 0) + 1)
            yield value, self.count.value()
            yield seen, ctx.get_current_key()

    stream = spark_env.from_collection(list("aab")).key_by(lambda word: word).process(Count())
    stream.get_side_output(seen).print("seen")
    assert in_any_order(stream) == [("a", 1), ("a", 2), ("b", 1)]


def test_print_reaches_the_output_of_the_program(spark_env, capsys):
    spark_env.from_collection([1, 2], Types.LONG()).rebalance().print("n")
    spark_env.execute()
    assert sorted(capsys.readouterr().out.splitlines()) == ["n:1> 1", "n:2> 2"]


def test_a_dataframe_becomes_a_stream_and_a_stream_a_dataframe(spark_env):
    assert collect(spark_env.from_collection([1])) == [1]
    spark = active_session()
    frame = spark.createDataFrame([("a", 1), ("b", 5), ("a", 3)], "word string, n long")
    rows = spark_env.from_dataframe(frame)
    assert rows.get_type() == ROW
    assert sorted(collect(rows), key=str) == [
        Row(word="a", n=1),
        Row(word="a", n=3),
        Row(word="b", n=5),
    ]
    result = rows.key_by("word").max("n").to_dataframe()
    assert result.columns == ["word", "n"]
    assert {(row.word, row.n) for row in result.collect()} == {("a", 1), ("a", 3), ("b", 5)}
    assert result.groupBy("word").count().count() == 2


def test_an_error_of_the_user_has_no_java_frames(spark_env):
    def fail(value):
        raise ValueError(f"cannot take {value}")

    spark_env.from_collection(["x"]).map(fail).name("Fail").uid("f")
    with pytest.raises(UserFunctionError) as failed:
        spark_env.execute()
    message = str(failed.value)
    assert "ValueError: cannot take x" in message
    assert "in operator 'Fail' (uid 'f')" in message
    assert "while processing the record 'x'" in message
    assert "java" not in message
    assert "py4j" not in message


def test_an_environment_takes_the_session_that_is_there(spark_env):
    assert collect(spark_env.from_collection([1])) == [1]
    spark = active_session()
    other = StreamExecutionEnvironment.get_execution_environment(spark=spark)
    with StreamExecutionEnvironment.get_execution_environment() as third:
        assert in_any_order(third.set_parallelism(1).from_sequence(1, 3)) == [1, 2, 3]
    assert other.get_parallelism() >= 1
    assert active_session() is not None


def test_files_are_imported_by_the_slots(spark_env, tmp_path):
    module = tmp_path / "added_for_slots.py"
    module.write_text("def answer():\n    return 42\n")

    def ask(_):
        import added_for_slots

        return added_for_slots.answer()

    spark_env.add_python_file(str(module))
    assert collect(spark_env.from_collection([0]).map(ask)) == [42]
    spark_env.add_python_file(str(tmp_path))
    spark_env.from_collection([0]).print()
    with pytest.raises(ConfigError, match=r"python\.files"):
        spark_env.execute()
    spark_env._configuration.unset("python.files")
