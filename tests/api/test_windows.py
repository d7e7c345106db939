"""Windows and joins in programs, with watermarks that travel."""

import pytest

from tests.api.results import collect, in_any_order
from tidegate.common import Duration, Row, Time, Types, WatermarkGenerator, WatermarkStrategy
from tidegate.core.errors import GraphError
from tidegate.datastream import (
    AggregateFunction,
    AllWindowFunction,
    CoGroupFunction,
    CountEvictor,
    EventTimeSessionWindows,
    FlatJoinFunction,
    GlobalWindows,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessingTimeoutTrigger,
    ProcessJoinFunction,
    ProcessWindowFunction,
    TumblingEventTimeWindows,
    WindowFunction,
)
from tidegate.datastream.joins import left, right
from tidegate.datastream.window import (
    CountTrigger,
    NeverTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeWindow,
)
from tidegate.operators.joins.columnar.interval import ColumnarIntervalJoin
from tidegate.operators.joins.columnar.windowed import ColumnarWindowJoin

TYPE = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
RECORDS = [("a", 1, 1), ("b", 2, 3), ("a", 3, 12), ("a", 4, 4), ("b", 5, 25), ("a", 6, 13)]
"""(key, value, timestamp)"""


def timed(env, records=RECORDS, type_info=None, bound=10):
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(bound))
    assigned = strategy.with_timestamp_assigner(lambda record, _: record[2])
    return env.from_collection(records, type_info).assign_timestamps_and_watermarks(assigned)


@pytest.fixture(params=["typed", "untyped"])
def stream(env, request):
    env.set_parallelism(2)
    return timed(env, type_info=TYPE if request.param == "typed" else None)


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, one, other):
        return one[0] + other[0], one[1] + other[1]


class WithBounds(ProcessWindowFunction[tuple, tuple, str, TimeWindow]):
    def process(self, key, context: ProcessWindowFunction.Context[TimeWindow], elements):
        window = context.window()
        yield key, window.start, window.end, list(elements)


class Values(WindowFunction[tuple, tuple, str, TimeWindow]):
    def apply(self, key, window, inputs):
        return [(key, window.max_timestamp(), sorted(value for _, value, _ in inputs))]


class AllValues(AllWindowFunction[tuple, tuple, TimeWindow]):
    def apply(self, window, inputs):
        yield window.start, sorted(value for _, value, _ in inputs)


class Counted(ProcessAllWindowFunction[tuple, tuple, TimeWindow]):
    def process(self, context, elements):
        yield context.window().end, len(list(elements))


def tumbling(stream):
    return stream.key_by(lambda r: r[0]).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))


def test_reduce(stream):
    sums = tumbling(stream).reduce(lambda one, two: (one[0], one[1] + two[1], two[2]))
    assert [tuple(r)[:2] for r in in_any_order(sums)] == [("a", 5), ("a", 9), ("b", 2), ("b", 5)]


def test_an_aggregate_alone_and_with_a_process_function(stream):
    assert in_any_order(tumbling(stream).aggregate(Mean(), output_type=Types.DOUBLE())) == [
        *(2.0, 2.5, 4.5, 5.0)
    ]
    both = tumbling(stream).aggregate(Mean(), WithBounds())
    assert in_any_order(both) == [
        ("a", 0, 10, [2.5]),
        ("a", 10, 20, [4.5]),
        ("b", 0, 10, [2.0]),
        ("b", 20, 30, [5.0]),
    ]


def test_apply_and_process(stream):
    assert in_any_order(tumbling(stream).apply(Values())) == [
        ("a", 9, [1, 4]),
        ("a", 19, [3, 6]),
        ("b", 9, [2]),
        ("b", 29, [5]),
    ]
    found = in_any_order(tumbling(stream).process(WithBounds()))
    assert [(key, start, len(held)) for key, start, _, held in found] == [
        ("a", 0, 2),
        ("a", 10, 2),
        ("b", 0, 1),
        ("b", 20, 1),
    ]


def test_sessions(stream):
    sessions = stream.key_by(lambda r: r[0]).window(EventTimeSessionWindows.with_gap(9))
    assert in_any_order(sessions.apply(Values())) == [
        ("a", 21, [1, 3, 4, 6]),
        ("b", 11, [2]),
        ("b", 33, [5]),
    ]


def test_windows_without_keys(stream):
    windows = SlidingEventTimeWindows.of(20, 10)
    assert in_any_order(stream.window_all(windows).apply(AllValues())) == [
        (-10, [1, 2, 4]),
        (0, [1, 2, 3, 4, 6]),
        (10, [3, 5, 6]),
        (20, [5]),
    ]
    assert in_any_order(stream.window_all(TumblingEventTimeWindows.of(10)).process(Counted())) == [
        (10, 3),
        (20, 2),
        (30, 1),
    ]


def test_count_windows(env):
    numbers = env.from_collection([("a", n) for n in range(7)])
    held = numbers.key_by(lambda r: r[0]).count_window(3).reduce(lambda x, y: (x[0], x[1] + y[1]))
    assert collect(held) == [("a", 3), ("a", 12)]
    sliding = numbers.count_window_all(4, 2).reduce(lambda x, y: ("all", x[1] + y[1]))
    assert collect(sliding) == [("all", 6), ("all", 14)]


def test_an_evictor_keeps_the_last_records(env):
    env.set_parallelism(1)
    windows = timed(env).key_by(lambda r: r[0]).window(TumblingEventTimeWindows.of(100))
    kept = windows.evictor(CountEvictor.of(1)).process(WithBounds())
    assert [(key, [r[1] for r in held]) for key, _, _, held in in_any_order(kept)] == [
        ("a", [6]),
        ("b", [5]),
    ]


def test_a_trigger_fires_before_the_end(stream):
    trigger = PurgingTrigger.of(CountTrigger.of(2))
    windows = stream.key_by(lambda r: r[0]).window(GlobalWindows.create()).trigger(trigger)
    fired = windows.reduce(lambda one, two: (one[0], one[1] + two[1], 0))
    assert [tuple(r)[:2] for r in in_any_order(fired)] == [("a", 4), ("a", 10), ("b", 7)]


class Punctuated(WatermarkGenerator):
    """A watermark behind every record."""

    def on_event(self, event, event_timestamp, output):
        output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output):
        pass


def test_late_records_go_to_a_side_output(env):
    env.set_parallelism(1)
    late = OutputTag("late", TYPE)
    strategy = WatermarkStrategy.for_generator(Punctuated)
    records = [("a", 1, 1), ("a", 2, 50), ("a", 3, 2), ("a", 4, 45), ("a", 5, 51)]
    stream = env.from_collection(records, TYPE).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda record, _: record[2])
    )
    results = tumbling(stream).side_output_late_data(late).apply(Values())
    side = results.get_side_output(late).map(lambda record: ("late", 0, [record[1]]))
    assert in_any_order(results.union(side)) == [
        ("a", 9, [1]),
        ("a", 59, [2, 5]),
        ("late", 0, [3]),
        ("late", 0, [4]),
    ]


def test_joins_of_windows(env):
    orders = timed(env, [("a", 1, 1), ("a", 2, 2), ("b", 3, 3), ("c", 4, 14)])
    payments = timed(env, [("a", 10, 5), ("b", 20, 15), ("c", 40, 12), ("d", 50, 1)])
    both = orders.join(payments).where(lambda r: r[0]).equal_to(lambda r: r[0])
    pairs = both.window(TumblingEventTimeWindows.of(10)).apply(lambda o, p: (o[0], o[1], p[1]))
    assert in_any_order(pairs) == [("a", 1, 10), ("a", 2, 10), ("c", 4, 40)]

    class Twice(FlatJoinFunction):
        def join(self, first, second):
            return [first[1], second[1]] if first[0] == "c" else None

    flat = both.window(TumblingEventTimeWindows.of(10)).apply(Twice())
    assert in_any_order(flat) == [4, 40]


def test_a_co_group_sees_also_what_has_no_partner(env):
    class Sizes(CoGroupFunction):
        def co_group(self, first, second):
            yield (first or second)[0][0], len(first), len(second)

    left = timed(env, [("a", 1, 1), ("a", 2, 2), ("b", 3, 3)])
    right = timed(env, [("a", 10, 5), ("d", 50, 1)])
    grouped = left.co_group(right).where(lambda r: r[0]).equal_to(lambda r: r[0])
    sizes = grouped.window(TumblingEventTimeWindows.of(10)).apply(Sizes())
    assert in_any_order(sizes) == [("a", 2, 1), ("b", 1, 0), ("d", 0, 1)]


def test_interval_joins(env):
    class Pair(ProcessJoinFunction):
        def process_element(self, left, right, ctx):
            yield left[1], right[1], ctx.get_timestamp()

    left = timed(env, [("a", 1, 10), ("b", 2, 10)], bound=100).key_by(lambda r: r[0])
    right = timed(env, [("a", n, n) for n in range(7, 14)], bound=100).key_by(lambda r: r[0])
    joined = left.interval_join(right).between(-2, 2)
    assert in_any_order(joined.process(Pair())) == [
        *((1, 8, 10), (1, 9, 10), (1, 10, 10), (1, 11, 11), (1, 12, 12))
    ]
    joined = left.interval_join(right).between(-2, 2)
    narrow = joined.lower_bound_exclusive().upper_bound_exclusive()
    assert [pair[1] for pair in in_any_order(narrow.process(Pair()))] == [9, 10, 11]


@pytest.mark.parametrize("typed", [TYPE, None])
def test_fields_of_both_records_are_selected_on_columns_or_by_record(env, typed):
    rows = [("a", 1, 1), ("a", 2, 12), ("b", 3, 3)]
    others = [("a", 10, 5), ("a", 20, 13), ("c", 30, 3)]
    one, other = timed(env, rows, typed, 50), timed(env, others, typed, 50)
    windows = one.join(other).where(lambda r: r[0]).equal_to(lambda r: r[0])
    fields = {"who": left(0), "ours": left(1), "theirs": right(1)}
    joined = windows.window(TumblingEventTimeWindows.of(10)).select(**fields)
    within = one.key_by(lambda r: r[0]).interval_join(other.key_by(lambda r: r[0])).between(-8, 1)
    for pairs, operator in (
        (joined, ColumnarWindowJoin),
        (within.select(**fields), ColumnarIntervalJoin),
    ):
        (upstream,) = pairs._upstreams
        assert isinstance(upstream.transformation.operator, operator) is (typed is not None)
    assert sorted(map(tuple, collect(joined))) == [("a", 1, 10), ("a", 2, 20)]
    selected = collect(within.select(**fields))
    assert sorted(selected, key=tuple) == [
        Row(**dict(zip(fields, pair, strict=True))) for pair in (("a", 2, 10), ("a", 2, 20))
    ]
    with pytest.raises(GraphError, match="left"):
        within.select(who=0)
    with pytest.raises(GraphError, match="without fields"):
        within.select()


def test_what_does_not_fit_is_refused_when_the_program_is_built(env):
    stream = env.from_collection([("a", 1)])
    with pytest.raises(AttributeError, match="key_by"):
        stream.window(TumblingEventTimeWindows.of(10))
    sessions = stream.key_by(lambda r: r[0]).window(EventTimeSessionWindows.with_gap(5))
    with pytest.raises(GraphError, match="merge"):
        sessions.trigger(NeverTrigger())
    with pytest.raises(GraphError, match="merge"):
        sessions.trigger(ProcessingTimeoutTrigger.of(CountTrigger.of(1), 5))
    with pytest.raises(TypeError, match="ProcessWindowFunction"):
        sessions.process(AllValues())
    with pytest.raises(TypeError, match="assigner"):
        stream.window_all(10)
    with pytest.raises(GraphError, match="where"):
        stream.join(stream).equal_to(0)
    with pytest.raises(GraphError, match="key_by"):
        stream.key_by(lambda r: r[0]).interval_join(stream)
