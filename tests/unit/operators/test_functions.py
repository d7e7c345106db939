import copy
import pickle
import sys

import pytest

from tidegate.core.clock import ManualClock
from tidegate.operators import functions
from tidegate.operators.functions import (
    AggregateFunction,
    Function,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    OutputTag,
    Partitioner,
    RuntimeContext,
    bound_method,
)
from tidegate.operators.metrics import MetricGroup
from tidegate.operators.stateless import MapOperator
from tidegate.testing.harness import OperatorHarness
from tidegate.types.typeinfo import RowTypeInfo, Types


@pytest.mark.parametrize(
    ("contract", "methods"),
    [
        ("MapFunction", ["map"]),
        ("FlatMapFunction", ["flat_map"]),
        ("FilterFunction", ["filter"]),
        ("ReduceFunction", ["reduce"]),
        ("AggregateFunction", ["create_accumulator", "add", "get_result"]),
        ("KeySelector", ["get_key"]),
        ("Partitioner", ["partition"]),
        ("ProcessFunction", ["process_element"]),
        ("KeyedProcessFunction", ["process_element"]),
        ("CoMapFunction", ["map1", "map2"]),
        ("CoFlatMapFunction", ["flat_map1", "flat_map2"]),
        ("CoProcessFunction", ["process_element1", "process_element2"]),
        ("KeyedCoProcessFunction", ["process_element1", "process_element2"]),
        ("BroadcastProcessFunction", ["process_element", "process_broadcast_element"]),
        ("KeyedBroadcastProcessFunction", ["process_element", "process_broadcast_element"]),
        ("SourceFunction", ["run", "cancel"]),
        ("SinkFunction", ["invoke"]),
    ],
)
def test_a_contract_asks_for_exactly_its_methods(contract, methods):
    kind = getattr(functions, contract)
    assert issubclass(kind, Function)
    assert sorted(kind.__abstractmethods__) == sorted(methods)


def test_open_close_and_on_timer_may_be_omitted():
    class Silent(KeyedProcessFunction):
        def process_element(self, value, ctx):
            return []

    silent = Silent()
    assert (silent.open(None), silent.close(), silent.on_timer(1, None)) == (None, None, None)


def test_merge_is_needed_only_where_accumulators_are_merged():
    class Count(AggregateFunction):
        def create_accumulator(self):
            return 0

        def add(self, value, accumulator):
            return accumulator + 1

        def get_result(self, accumulator):
            return accumulator

    with pytest.raises(NotImplementedError, match="Count does not define merge"):
        Count().merge(1, 2)


def test_bound_method_takes_the_contract_or_a_callable():
    class Last(KeySelector):
        def get_key(self, value):
            return value[-1]

    assert bound_method(Last(), KeySelector, "get_key")("abc") == "c"
    assert bound_method(len, KeySelector, "get_key")("abc") == 3
    with pytest.raises(TypeError, match="expected a Partitioner or a function, got Last"):
        bound_method(Last(), Partitioner, "partition")


class Describe(MapFunction):
    def open(self, runtime_context):
        self.context: RuntimeContext = runtime_context

    def map(self, value):
        context = self.context
        return {
            "name": context.get_task_name(),
            "of": context.get_task_name_with_subtasks(),
            "subtask": context.get_index_of_this_subtask(),
            "parallelism": context.get_number_of_parallel_subtasks(),
            "max": context.get_max_number_of_parallel_subtasks(),
            "attempt": context.get_attempt_number(),
            "parameter": context.get_job_parameter("threshold", "0"),
            "default": context.get_job_parameter("absent", "7"),
        }


def test_the_runtime_context_tells_who_the_subtask_is():
    harness = OperatorHarness(
        MapOperator(Describe()),
        name="Describe",
        parallelism=6,
        subtask=2,
        max_parallelism=64,
        attempt=3,
        settings={"threshold": "12"},
    )
    harness.process([1])
    assert harness.output == [
        {
            "name": "Describe",
            "of": "Describe (3/6)",
            "subtask": 2,
            "parallelism": 6,
            "max": 64,
            "attempt": 2,
            "parameter": "12",
            "default": "7",
        }
    ]


def test_output_tags_are_known_by_their_id():
    assert OutputTag("late") == OutputTag("late", Types.LONG())
    assert len({OutputTag("late"), OutputTag("late"), OutputTag("early")}) == 2
    assert pickle.loads(pickle.dumps(OutputTag("late", Types.LONG()))).type_info == Types.LONG()


@pytest.mark.parametrize("copied", [copy.copy, lambda tag: pickle.loads(pickle.dumps(tag))])
def test_a_process_knows_that_it_has_tags(monkeypatch, copied):
    tag = OutputTag("late")
    monkeypatch.setattr(OutputTag, "are_used", False)
    copied(tag)
    assert OutputTag.are_used


def test_a_list_of_types_makes_a_tag_of_rows():
    assert isinstance(OutputTag("rows", [Types.STRING(), Types.LONG()]).type_info, RowTypeInfo)


@pytest.mark.parametrize(
    ("arguments", "error"), [(("",), ValueError), ((None,), ValueError), (("a", int), TypeError)]
)
def test_a_tag_needs_a_name_and_a_type_that_is_one(arguments, error):
    with pytest.raises(error, match="tag"):
        OutputTag(*arguments)


def test_metrics_are_read_by_dotted_name():
    clock = ManualClock()
    metrics = MetricGroup(clock)
    metrics.counter("seen").inc()
    metrics.counter("seen").inc(4)
    metrics.counter("seen").dec(2)
    metrics.gauge("level", lambda: 9)
    group = metrics.add_group("kind", "fast")
    group.meter("events", time_span_in_seconds=10).mark_event(20)
    group.distribution("sizes").update(3)
    group.distribution("sizes").update(1)
    assert dict(metrics.readings()) == {
        "seen": 3,
        "level": 9,
        "kind.fast.events.count": 20,
        "kind.fast.events.rate": 2.0,
        "kind.fast.sizes.count": 2,
        "kind.fast.sizes.sum": 4,
        "kind.fast.sizes.min": 1,
        "kind.fast.sizes.max": 3,
    }


def test_metrics_may_be_registered_while_they_are_read():
    metrics = MetricGroup()

    def register():
        metrics.counter("later")
        metrics.add_group("kind").counter("other")
        return 1.0

    metrics.gauge("ratio", register)
    assert dict(metrics.readings()) == {"ratio": 1.0, "kind.other": 0}
    assert dict(metrics.readings()) == {"ratio": 1.0, "later": 0, "kind.other": 0}


def test_a_failing_gauge_has_no_value():
    metrics = MetricGroup()
    metrics.gauge("broken", lambda: 1 / 0)
    metrics.gauge("gone", sys.exit)
    metrics.gauge("level", lambda: 9)
    assert dict(metrics.readings()) == {"level": 9}


def test_a_meter_forgets_what_is_older_than_its_span():
    clock = ManualClock()
    meter = MetricGroup(clock).meter("events", time_span_in_seconds=5)
    meter.mark_event(10)
    clock.advance(3)
    meter.mark_event(5)
    assert meter.get_rate() == 3.0
    clock.advance(3)
    assert (meter.get_rate(), meter.get_count()) == (1.0, 15)


def test_a_metric_has_one_kind():
    metrics = MetricGroup()
    metrics.counter("n")
    with pytest.raises(ValueError, match="metric 'n' is a Counter already"):
        metrics.meter("n")
