from typing import NamedTuple

import pytest

from tidegate.connectors.driver_side import CollectSink, PrintSink, flink_text
from tidegate.core.errors import InternalError, UserError
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.testing.environments import mini_environment
from tidegate.testing.harness import OperatorHarness
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types


@pytest.mark.parametrize(
    ("identifier", "parallelism", "line"),
    [(None, 1, "x"), (None, 4, "3> x"), ("out", 1, "out> x"), ("out", 4, "out:3> x")],
)
def test_a_line_begins_as_in_flink(identifier, parallelism, line):
    sink = SinkOperator(PrintSink(identifier))
    subtask = 2 if parallelism > 1 else 0
    with OperatorHarness(sink, parallelism=parallelism, subtask=subtask) as harness:
        harness.process(["x"])
    assert harness.console == [line]


def test_every_line_of_a_batch_has_the_prefix():
    with OperatorHarness(SinkOperator(PrintSink("n"))) as harness:
        harness.process([1, 2])
    assert harness.console == ["n> 1", "n> 2"]


def test_records_of_typed_streams_look_as_in_flink_and_others_as_in_python():
    with OperatorHarness(SinkOperator(PrintSink())) as harness:
        harness.process([("a", 1)], type_info=Types.TUPLE([Types.STRING(), Types.LONG()]))
        harness.process([("a", 1)])
    assert harness.console == ["(a,1)", "('a', 1)"]


def test_a_record_of_another_type_than_declared_is_an_error():
    env = mini_environment({"tidegate.console.live-line": "off"})
    env.from_collection([1]).map(lambda n: "one", output_type=Types.LONG()).print()
    with pytest.raises(UserError, match="record 'one' does not fit the declared type"):
        env.execute()


class Point(NamedTuple):
    x: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (("a", None, False), "(a,null,false)"),
        (Row("a", 1), "+I[a, 1]"),
        (Row(name="a", inner=Row(x=True)), "+I[a, +I[true]]"),
        ([1, "b"], "[1, b]"),
        ({"k": [1]}, "{k=[1]}"),
        (Point(3), "Point(x=3)"),
    ],
)
def test_values_as_flink_shows_them(value, text):
    assert flink_text(value) == text


def test_collected_batches_reach_the_collector_of_their_name():
    with OperatorHarness(SinkOperator(CollectSink("result"))) as harness:
        harness.process([1, 2])
        harness.process([3])
    assert harness.delivered == {"result": [1, 2, 3]}


def test_a_collector_that_nobody_asked_for_is_a_bug_of_ours():
    from tidegate.connectors.sink import WriterContext

    context = WriterContext(subtask=0, parallelism=1, operator_name="", console=print)
    with pytest.raises(InternalError, match="no collector in the driver is named 'result'"):
        CollectSink("result").create_writer(context)
