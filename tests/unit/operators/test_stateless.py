import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tidegate.core.errors import MissingField, UserFunctionError
from tidegate.operators.functions import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
)
from tidegate.operators.stateless import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    ProcessOperator,
    ProjectOperator,
)
from tidegate.stream.batch import Batch
from tidegate.testing.harness import OperatorHarness, as_batch
from tidegate.types.arrow import arrow_format
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

PAIRS = Types.TUPLE([Types.STRING(), Types.LONG()])


def stamped(records, timestamps):
    return Batch(records=records, timestamps=np.array(timestamps, dtype=np.int64))


class Opened(MapFunction):
    def open(self, runtime_context):
        self.suffix = runtime_context.get_task_name_with_subtasks()

    def map(self, value):
        return f"{value} by {self.suffix}"

    def close(self):
        self.suffix = "closed"


def test_map_calls_a_plain_function():
    with OperatorHarness(MapOperator(lambda x: x + 1)) as harness:
        harness.process([1, 2])
    assert harness.output == [2, 3]


def test_map_opens_and_closes_its_function_once():
    with OperatorHarness(MapOperator(Opened()), name="Map", parallelism=4, subtask=1) as harness:
        harness.process(["a"])
    assert harness.output == ["a by Map (2/4)"]
    assert harness.operator.function.suffix == "closed"


def test_map_reads_columns_and_writes_its_declared_format():
    format = arrow_format(PAIRS)
    with OperatorHarness(MapOperator(lambda r: (r[0], r[1] + 1), format)) as harness:
        harness.process([("a", 1), ("b", 2)], type_info=PAIRS)
    assert harness.batches[0].columns.to_pydict() == {"f0": ["a", "b"], "f1": [2, 3]}


def test_map_keeps_the_timestamps():
    with OperatorHarness(MapOperator(str)) as harness:
        harness.process_batch(stamped([1, 2], [10, 20]))
    assert harness.batches[0].timestamps.tolist() == [10, 20]


@pytest.mark.parametrize("operator", [MapOperator, FlatMapOperator])
def test_results_before_a_failing_record_are_emitted(operator):
    def inverse(x):
        return 1 / x if operator is MapOperator else [1 / x]

    with OperatorHarness(operator(inverse), name="Inverse", uid="inv") as harness:
        with pytest.raises(UserFunctionError) as failure:
            harness.process([1, 2, 0, 4])
        assert harness.output == [1.0, 0.5]
    assert failure.value.args[:4] == ("Inverse", "inv", "(1/1)", "0")
    assert failure.value.cause == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize("type_info", [None, Types.LONG()])
@pytest.mark.parametrize(
    ("operator", "function", "expected"),
    [
        (MapOperator, lambda x: 100 // x, lambda xs: [100 // x for x in xs]),
        (FilterOperator, lambda x: 100 // x > 9, lambda xs: [x for x in xs if 100 // x > 9]),
        (
            FlatMapOperator,
            lambda x: [100 // x] * 2,
            lambda xs: [100 // x for x in xs for _ in "ab"],
        ),
    ],
)
@examples(30)
@given(records=st.lists(st.integers(0, 15), max_size=30))
def test_the_output_is_that_of_the_records_before_the_first_that_fails(
    operator, function, expected, type_info, records
):
    before = records[: records.index(0)] if 0 in records else records
    harness = OperatorHarness(operator(function), copy=False)
    if before == records:
        harness.process(records, type_info=type_info)
    else:
        with pytest.raises(UserFunctionError) as failure:
            harness.process(records, type_info=type_info)
        assert failure.value.args[3] == "0"
    assert harness.output == expected(before)


def test_results_of_the_failing_record_before_it_failed_are_emitted():
    def two_then_fail(x):
        yield x
        yield x
        raise ValueError(x)

    with OperatorHarness(FlatMapOperator(two_then_fail)) as harness:
        with pytest.raises(UserFunctionError, match="ValueError: 7"):
            harness.process([7, 8])
        assert harness.output == [7, 7]


def test_a_stop_iteration_of_the_function_is_a_failure_and_not_the_end():
    with OperatorHarness(MapOperator(lambda x: next(iter(x)))) as harness:
        with pytest.raises(UserFunctionError, match="StopIteration"):
            harness.process([[1], [], [3]])
        assert harness.output == [1]


def test_sys_exit_is_a_failure_of_the_record():
    def leave(record):
        raise SystemExit(3)

    harness = OperatorHarness(MapOperator(leave))
    with harness, pytest.raises(UserFunctionError, match="SystemExit: 3"):
        harness.process([1])


class Longer(FilterFunction):
    def filter(self, value):
        return len(value[0]) > 1


def test_filter_keeps_columns_as_columns():
    with OperatorHarness(FilterOperator(Longer())) as harness:
        harness.process([("a", 1), ("bb", 2), ("cc", 3)], type_info=PAIRS)
    (batch,) = harness.batches
    assert batch.is_columnar
    assert batch.columns.to_pydict() == {"f0": ["bb", "cc"], "f1": [2, 3]}
    assert batch.records == [("bb", 2), ("cc", 3)]


def test_filter_passes_a_batch_on_when_all_of_it_is_kept():
    batch = as_batch([("bb", 2)], arrow_format(PAIRS))
    with OperatorHarness(FilterOperator(Longer())) as harness:
        harness.process_batch(batch)
    assert harness.batches[0] is batch


def test_filter_takes_anything_true_and_keeps_timestamps():
    with OperatorHarness(FilterOperator(lambda x: x)) as harness:
        harness.process_batch(stamped([0, "", 5, "x", None], [1, 2, 3, 4, 5]))
    assert harness.output == [5, "x"]
    assert harness.batches[0].timestamps.tolist() == [3, 4]


def test_filter_emits_what_it_kept_before_a_failing_record():
    with OperatorHarness(FilterOperator(lambda x: 10 // x > 2)) as harness:
        with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
            harness.process([1, 9, 2, 0, 1])
        assert harness.output == [1, 2]


def test_filter_names_the_record_whose_verdict_has_no_truth():
    harness = OperatorHarness(FilterOperator(lambda x: np.arange(x) if x else True))
    with harness, pytest.raises(UserFunctionError) as failure:
        harness.process([0, 3])
    assert failure.value.args[3] == "3"
    assert "truth value" in failure.value.cause


class Repeat(FlatMapFunction):
    def flat_map(self, value):
        return [value] * value if value else None


def test_flat_map_takes_any_iterable_and_none():
    with OperatorHarness(FlatMapOperator(Repeat())) as harness:
        harness.process([0, 1, 2])
    assert harness.output == [1, 2, 2]


def test_flat_map_repeats_the_timestamp_of_the_record():
    with OperatorHarness(FlatMapOperator(Repeat())) as harness:
        harness.process_batch(stamped([2, 0, 1], [10, 20, 30]))
    assert harness.batches[0].timestamps.tolist() == [10, 10, 30]


LATE = OutputTag("late", Types.LONG())


class Route(ProcessFunction):
    def process_element(self, value, ctx):
        if value < 0:
            yield LATE, value
        else:
            yield value, ctx.timestamp()


def test_process_sends_tagged_values_to_their_side_output():
    operator = ProcessOperator(Route(), side_formats={"late": arrow_format(Types.LONG())})
    with OperatorHarness(operator) as harness:
        harness.process_batch(stamped([1, -2, 3, -4], [10, 20, 30, 40]))
    assert harness.output == [(1, 10), (3, 30)]
    assert harness.side_output("late") == [-2, -4]
    assert harness.side_batches["late"][0].timestamps.tolist() == [20, 40]
    assert harness.side_batches["late"][0].columns.to_pydict() == {"value": [-2, -4]}


class TimeOfDay(ProcessFunction):
    def process_element(self, value, ctx):
        timers = ctx.timer_service()
        yield timers.current_processing_time(), timers.current_watermark(), ctx.timestamp()


def test_process_sees_the_clock_and_the_watermark():
    with OperatorHarness(ProcessOperator(TimeOfDay())) as harness:
        harness.clock.advance(1.5)
        harness.process(["x"])
        harness.watermark(99)
        harness.process(["x"])
    assert harness.output == [(1500, -(2**63), None), (1500, 99, None)]


def test_a_record_without_a_timestamp_has_not_that_of_the_record_before():
    with OperatorHarness(ProcessOperator(TimeOfDay())) as harness:
        harness.process(["x"], timestamps=[7])
        harness.process(["x"])
    assert [timestamp for _, _, timestamp in harness.output] == [7, None]


class TimerWithoutKey(ProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_processing_time_timer(1)


def test_a_timer_on_a_stream_without_keys_tells_the_way_out():
    harness = OperatorHarness(ProcessOperator(TimerWithoutKey()))
    with harness, pytest.raises(UserFunctionError, match=r"call key_by\(\)"):
        harness.process([1])


def test_project_selects_columns_without_making_records():
    chosen = arrow_format(Types.TUPLE([Types.LONG(), Types.STRING()]))
    with OperatorHarness(ProjectOperator([1, 0], chosen)) as harness:
        harness.process([("a", 1), ("b", 2)], type_info=PAIRS)
    (batch,) = harness.batches
    assert batch.is_columnar
    assert batch.records == [(1, "a"), (2, "b")]


def test_project_of_untyped_records_makes_tuples():
    with OperatorHarness(ProjectOperator([2, 0])) as harness:
        harness.process([("a", 1, "x"), ["b", 2, "y"]])
    assert harness.output == [("x", "a"), ("y", "b")]


def test_project_names_a_field_that_is_missing():
    harness = OperatorHarness(ProjectOperator([0, 2]))
    with harness, pytest.raises(MissingField, match="no field 2; the fields are: 0, 1"):
        harness.process([("a", 1)])


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (Opened, r"Opened is a class: pass an instance, Opened\(\)"),
        (Repeat(), "expected a MapFunction or a function, got Repeat"),
        (3, "expected a MapFunction or a function, got int"),
    ],
)
def test_what_is_no_map_function_is_refused_at_once(function, complaint):
    with pytest.raises(TypeError, match=complaint):
        MapOperator(function)


def test_pyarrow_batches_of_a_projection_have_the_declared_schema():
    chosen = arrow_format(Types.ROW_NAMED(["n"], [Types.LONG()]))
    with OperatorHarness(ProjectOperator([1], chosen)) as harness:
        harness.process([("a", 1)], type_info=PAIRS)
    assert harness.batches[0].columns.schema == pa.schema([("n", pa.int64())])


def test_a_projection_of_rows_is_rows_whatever_form_they_come_in():
    rows = Types.ROW_NAMED(["name", "size"], [Types.STRING(), Types.LONG()])
    sizes = arrow_format(Types.ROW_NAMED(["size"], [Types.LONG()]))
    with OperatorHarness(ProjectOperator([1], sizes)) as harness:
        harness.process([Row(name="a", size=1)], type_info=rows)
        harness.process_batch(Batch.of_records([Row(name="b", size=2)], arrow_format(rows)))
    assert harness.output == [Row(size=1), Row(size=2)]


def test_a_projection_of_one_field_is_tuples_of_one():
    with OperatorHarness(ProjectOperator([1])) as harness:
        harness.process([("a", 1), ("b", 2)])
    assert harness.output == [(1,), (2,)]
