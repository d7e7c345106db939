"""Built-in aggregates over windows: the same on columns, by record, and without a key."""

import pytest

from tests.api.results import collect
from tidegate.common import Row, Types, WatermarkStrategy
from tidegate.datastream import OutputTag
from tidegate.datastream.aggregates import (
    avg_,
    count,
    max_,
    sum_,
    window_end,
    window_start,
)
from tidegate.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)

BID = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
BIDS = [("a", 3, 1), ("b", 5, 4), ("a", 1, 12), ("a", 9, 8), ("b", 9, 25), ("a", 2, 26)]


def by_item(bid):
    return bid[0]


@pytest.fixture(params=["typed", "untyped"])
def stream(env, request):
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda b, _: b[2]
    )
    bids = env.from_collection(BIDS, BID if request.param == "typed" else None)
    return bids.assign_timestamps_and_watermarks(strategy)


def test_records_of_a_window_as_in_java(stream):
    keyed = stream.key_by(by_item)

    def results(aggregation):
        windows = keyed.window(TumblingEventTimeWindows.of(10))
        return sorted(map(tuple, collect(getattr(windows, aggregation)(1))))

    assert results("sum") == sorted(
        [("a", 12, 1), ("b", 5, 4), ("a", 1, 12), ("b", 9, 25), ("a", 2, 26)]
    )
    assert ("a", 9, 8) in results("max_by")


def test_agg_gives_a_row_for_each_window(stream):
    windows = stream.key_by(by_item).window(SlidingEventTimeWindows.of(20, 10))
    rows = collect(
        windows.agg(start=window_start(), n=count(), total=sum_(1), mean=avg_(1), end=window_end())
    )
    assert sorted(tuple(row) for row in rows if row[0] == "a") == sorted(
        [
            ("a", -10, 2, 12, 6.0, 10),
            ("a", 0, 3, 13, 13 / 3, 20),
            ("a", 10, 2, 3, 1.5, 30),
            ("a", 20, 1, 2, 2.0, 40),
        ]
    )
    assert {row.n for row in rows if row.start == 20} == {1}


def test_sessions_and_counts(stream):
    counts = stream.key_by(by_item).window(EventTimeSessionWindows.with_gap(8)).count()
    assert sorted(collect(counts)) == sorted([("a", 3), ("a", 1), ("b", 1), ("b", 1)])


def test_other_triggers_run_by_record(stream):
    windows = stream.key_by(by_item).window(TumblingEventTimeWindows.of(100))
    rows = collect(windows.trigger(CountTrigger.of(2)).agg(n=count(), top=max_(1)))
    assert sorted(map(tuple, rows)) == sorted([("a", 2, 3), ("a", 4, 9), ("b", 2, 9)])


def test_windows_without_a_key_have_no_field_of_it(stream):
    rows = collect(stream.window_all(TumblingEventTimeWindows.of(10)).agg(n=count(), top=max_(1)))
    assert rows == [Row(n=3, top=9), Row(n=1, top=1), Row(n=2, top=9)]


def test_late_records_go_to_their_side_output(stream):
    late = OutputTag("late", BID)
    by_time = stream.key_by(by_item).window(TumblingEventTimeWindows.of(4))
    sums = by_time.side_output_late_data(late).sum(1)
    assert len(collect(sums)) + len(collect(sums.get_side_output(late))) == 6
