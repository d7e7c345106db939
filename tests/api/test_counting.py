"""What functions count, add up and log, and where it can be read."""

import logging

import pytest

from tests.programs import PATIENCE, wait_until
from tests.taps import Tap
from tidegate.common.accumulators import Accumulator, ListAccumulator
from tidegate.datastream import MapFunction
from tidegate.testing.environments import mini_environment
from tidegate.web.documents.jobs import accumulators
from tidegate.web.documents.vertices import metric_documents, vertex_metrics
from tidegate.web.metrics import rendered


class Counting(MapFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_long_counter("seen")
        self.odd = ListAccumulator()
        runtime_context.add_accumulator("odd", self.odd)
        group = runtime_context.get_metrics_group().add_group("words")
        self.counter = group.counter("read")
        self.meter = group.meter("rate")
        self.lengths = group.distribution("length")
        group.gauge("last", lambda: self.last)
        group.gauge("broken", lambda: 1 / 0)

    def map(self, value):
        self.last = value
        self.seen.add(1)
        self.counter.inc()
        self.meter.mark_event()
        self.lengths.update(value)
        if value % 2:
            self.odd.add(value)
        return value


def test_accumulators_are_merged_over_all_subtasks(env):
    env.from_collection(list(range(10))).rebalance().map(Counting()).print()
    result = env.execute()
    assert result.get_accumulator_result("seen") == 10
    assert sorted(result.get_all_accumulator_results()["odd"]) == [1, 3, 5, 7, 9]


def test_accumulators_count_from_the_last_restart_as_in_flink():
    class Failing(Counting):
        def map(self, value):
            if value == 3 and self.is_first:
                raise ValueError("once")
            return super().map(value)

        def open(self, runtime_context):
            self.is_first = runtime_context.get_attempt_number() == 0
            super().open(runtime_context)

    restarts = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "1 ms",
    }
    env = mini_environment(restarts)
    env.from_collection(list(range(5))).map(Failing()).print()
    assert env.execute().get_accumulator_result("seen") == 5


def test_two_kinds_of_accumulators_with_one_name_are_refused(env):
    class Other(MapFunction):
        def open(self, runtime_context):
            runtime_context.add_accumulator("seen", ListAccumulator())

        def map(self, value):
            return value

    env.from_collection([1]).map(Counting()).map(Other()).print()
    with pytest.raises(Exception, match="'seen' is both LongCounter and ListAccumulator"):
        env.execute()


def test_an_accumulator_of_the_users_own(env):
    env.set_parallelism(2)

    class Largest(MapFunction):
        def open(self, runtime_context):
            self.largest = Maximum()
            runtime_context.add_accumulator("largest", self.largest)

        def map(self, value):
            self.largest.add(value)
            return value

    env.from_collection([3, 9, 4]).rebalance().map(Largest()).print()
    assert env.execute().get_accumulator_result("largest") == 9


class Maximum(Accumulator):
    def __init__(self):
        self.value = 0

    def add(self, value):
        self.value = max(self.value, value)

    def get_local_value(self):
        return self.value

    def reset_local(self):
        self.value = 0

    def merge(self, other):
        self.add(other.value)


def test_metrics_of_functions_reach_prometheus_and_rest():
    env = mini_environment()
    tap = Tap(range(10))
    env.from_source(tap).map(Counting()).name("count").print()
    client = env.execute_async()
    job = client._job
    tap.let(6)

    def metric():
        lines = rendered([job]).decode().splitlines()
        start = "flink_taskmanager_job_task_operator_words_read{"
        return [line for line in lines if line.startswith(start) and line.endswith(" 6.0")]

    wait_until(metric)
    assert 'operator_name="count"' in metric()[0]
    assert client.get_accumulators().result(PATIENCE)["seen"] == 6
    progress = next(p for p in job.vertices() if "count" in p.vertex.name)
    values = vertex_metrics(progress, None)
    names = [each.id for each in metric_documents(values, None)]
    assert "0.count.words.read" in names
    assert "0.count.words.broken" not in names
    asked = "0.numRecordsIn,0.count.words.read,0.count.words.length.max,0.count.words.last,none"
    assert [(each.id, each.value) for each in metric_documents(values, asked)] == [
        ("0.numRecordsIn", "6"),
        ("0.count.words.read", "6"),
        ("0.count.words.length.max", "5"),
        ("0.count.words.last", "5"),
    ]
    (seen,) = [a for a in accumulators(job).user_task_accumulators if a.name == "seen"]
    assert (seen.type, seen.value) == ("int", "6")
    client.cancel_and_wait()


def test_log_records_carry_the_operator_and_the_subtask(env, caplog):
    class Logging(MapFunction):
        def map(self, value):
            logging.getLogger("my.job").warning("saw %s", value)
            return value

    env.from_collection([5]).rebalance().map(Logging()).name("log").print()
    env.execute()
    (record,) = [r for r in caplog.records if r.name == "my.job"]
    assert record.threadName.startswith("log")
    assert record.threadName.endswith("/2)")
