"""A cached stream is computed by one job, and read by the jobs after it."""

import pytest

from tests.api.results import in_any_order
from tidegate.common import Time, Types, WatermarkStrategy
from tidegate.connectors.datagen import DataGeneratorSource
from tidegate.core.errors import GraphError, UserFunctionError
from tidegate.datastream import RuntimeExecutionMode
from tidegate.datastream.window import TumblingEventTimeWindows
from tidegate.testing.environments import mini_environment

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


@pytest.fixture(params=list(RuntimeExecutionMode))
def env(env, request):
    return env.set_runtime_mode(request.param)


@pytest.fixture
def calls(tmp_path):
    """A function that counts how often it was called, wherever it runs."""

    class Calls:
        log = tmp_path / "calls"

        def __call__(self, number):
            with self.log.open("a") as file:
                file.write("x")
            return str(number % 2), number

        def count(self):
            return len(self.log.read_text()) if self.log.exists() else 0

    return Calls()


@pytest.mark.parametrize("type_info", [None, PAIR])
def test_only_the_first_job_computes_the_stream(env, calls, type_info):
    cached = env.from_sequence(1, 4).map(calls, type_info).cache()
    everything = [("0", 2), ("0", 4), ("1", 1), ("1", 3)]
    assert in_any_order(cached) == everything
    assert in_any_order(cached.filter(lambda pair: pair[1] > 2)) == [("0", 4), ("1", 3)]
    assert in_any_order(cached.cache().union(cached)) == sorted(everything * 2)
    assert calls.count() == 4


def test_an_invalidated_stream_is_computed_and_kept_again(env, calls):
    cached = env.from_sequence(1, 4).map(calls).cache()
    assert len(in_any_order(cached)) == 4
    cached.invalidate()
    assert len(in_any_order(cached)) == 4
    assert len(in_any_order(cached)) == 4
    assert calls.count() == 8


def test_what_a_failed_job_has_kept_is_not_read(env, calls):
    cached = env.from_sequence(1, 4).map(calls).cache()
    with pytest.raises(UserFunctionError):
        in_any_order(cached.map(lambda pair: 1 // (pair[1] - 3)))
    assert len(in_any_order(cached)) == 4
    before = calls.count()
    assert len(in_any_order(cached)) == 4
    assert calls.count() == before


def test_records_keep_their_timestamps(env, calls):
    timed = env.from_sequence(1, 4).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n, _: n)
    )
    cached = timed.map(calls).cache()
    windows = cached.key_by(lambda pair: pair[0]).window(
        TumblingEventTimeWindows.of(Time.milliseconds(3))
    )
    expected = [("0", 2), ("0", 4), ("1", 1), ("1", 3)]
    assert in_any_order(windows.sum(1)) == expected
    assert in_any_order(windows.sum(1)) == expected
    assert calls.count() == 4


def test_a_stream_without_records_is_kept_too(env, calls):
    cached = env.from_collection([]).map(calls).cache()
    assert in_any_order(cached) == in_any_order(cached) == []


def test_a_stream_that_never_ends_cannot_be_kept():
    env = mini_environment()
    env.from_source(DataGeneratorSource(str), source_name="numbers").cache().print()
    with pytest.raises(GraphError, match=r"cache\(\) needs a stream that ends.*'numbers'"):
        env.execute()


def test_a_keyed_stream_is_no_operator_to_keep(env):
    with pytest.raises(GraphError, match=r"cache\(\) is not possible on a KeyedStream"):
        env.from_sequence(1, 4).key_by(lambda n: n).cache()
