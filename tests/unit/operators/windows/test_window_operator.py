"""Facts about Flink's window operator, as tables: what goes in, what comes out when."""

import math

import pytest

from tests.unit.operators.windows.windowed import (
    BACKENDS,
    WindowHarness,
    aggregated,
    reduced,
    windows,
)
from tidegate.core.durations import Time
from tidegate.core.errors import UserFunctionError
from tidegate.core.poison import PoisonOrders
from tidegate.datastream.functions import AggregateFunction, ProcessWindowFunction, WindowFunction
from tidegate.datastream.window import (
    ContinuousEventTimeTrigger,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    ProcessingTimeoutTrigger,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from tidegate.operators.output_tag import OutputTag
from tidegate.operators.poison import DEAD_LETTERS
from tidegate.operators.windows.operator import LATE_RECORDS, NO_TIMESTAMP
from tidegate.state.descriptors import ValueStateDescriptor

END = 2**63 - 1
RECORDS = [
    ("key2", 1, 3999),
    ("key2", 1, 3000),
    ("key1", 1, 20),
    ("key1", 1, 0),
    ("key1", 1, 999),
    ("key2", 1, 1998),
    ("key2", 1, 1999),
    ("key2", 1, 1000),
]
SLIDING = {
    999: [("key1", 3)],
    1999: [("key1", 3), ("key2", 3)],
    2999: [("key1", 3), ("key2", 3)],
    3999: [("key2", 5)],
    4999: [("key2", 2)],
    5999: [("key2", 2)],
    6999: [],
    7999: [],
}
TUMBLING = {
    999: [],
    1999: [],
    2999: [("key1", 3), ("key2", 3)],
    3999: [],
    4999: [],
    5999: [("key2", 2)],
    6999: [],
}


class Total(AggregateFunction):
    """Sums values in a list, which it changes in place."""

    def create_accumulator(self):
        return [0]

    def add(self, value, accumulator):
        accumulator[0] += value[1]
        return accumulator

    def get_result(self, accumulator):
        return accumulator[0]

    def merge(self, one, other):
        return [one[0] + other[0]]


class WithKey(WindowFunction):
    def apply(self, key, window, inputs):
        return [(key, value) for value in inputs]


class Summed(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, sum(value for _, value in elements)


FORMS = {
    "reduce": lambda: {"contents": reduced()},
    "aggregate": lambda: {"contents": aggregated(Total()), "function": WithKey()},
    "process": lambda: {"function": Summed()},
}


@pytest.fixture(params=sorted(BACKENDS))
def backend(request):
    return BACKENDS[request.param]


@pytest.fixture
def harness(backend):
    """Makes harnesses, and closes them."""
    made = []

    def make(*args, **options):
        found = WindowHarness(windows(*args, **options), settings=backend)
        made.append(found)
        return found

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize(
    ("assigner", "expected"),
    [
        (SlidingEventTimeWindows.of(Time.seconds(3), Time.seconds(1)), SLIDING),
        (TumblingEventTimeWindows.of(Time.seconds(3)), TUMBLING),
    ],
    ids=["sliding", "tumbling"],
)
@pytest.mark.parametrize("together", [True, False])
def test_windows_fire_when_the_watermark_passes_their_end(
    harness, form, assigner, expected, together
):
    tested = harness(assigner, **FORMS[form]())
    if together:
        tested.add(*RECORDS)
    else:
        for record in RECORDS:
            tested.add(record)
    for number, (watermark, results) in enumerate(expected.items()):
        if number == 3:
            tested = tested.again()
        assert tested.fired(watermark) == [(result, watermark) for result in results]
    assert not tested.operator.backend.event_timers.timers()
    assert not any(tested.operator.contents.table.values)


def test_sessions_merge_and_fire_a_gap_after_their_last_record(harness):
    tested = harness(EventTimeSessionWindows.with_gap(Time.seconds(3)))
    tested.add(("key2", 1, 0), ("key2", 2, 1000), ("key2", 3, 2500), ("key1", 1, 10))
    tested.add(("key1", 2, 1000))
    tested = tested.again()
    tested.add(("key1", 3, 2500), ("key2", 4, 5501), ("key2", 5, 6000), ("key2", 5, 6000))
    tested.add(("key2", 6, 6050))
    assert tested.fired(12000) == [
        (("key1", [1, 2, 3], 10, 5500), 5499),
        (("key2", [1, 2, 3], 0, 5500), 5499),
        (("key2", [4, 5, 5, 6], 5501, 9050), 9049),
    ]
    tested.add(("key2", 10, 15000), ("key2", 20, 15000))
    assert tested.fired(17999) == [(("key2", [10, 20], 15000, 18000), 17999)]
    assert not tested.operator.backend.event_timers.timers()
    assert not any(tested.operator._sets.values)


@pytest.mark.parametrize("form", ["reduce", "aggregate"])
def test_what_sessions_were_folded_into_is_merged(harness, form):
    tested = harness(EventTimeSessionWindows.with_gap(10), **FORMS[form]())
    tested.add(("a", 1, 0), ("a", 2, 15), ("a", 4, 30), ("b", 8, 0))
    tested.add(("a", 16, 8), ("a", 32, 24))
    assert tested.fired(100) == [(("a", 55), 39), (("b", 8), 9)]


def test_sessions_that_touch_are_one(harness):
    tested = harness(EventTimeSessionWindows.with_gap(10))
    tested.add(("a", 1, 0), ("a", 2, 10), ("b", 1, 0), ("b", 2, 11))
    assert [result for result, _ in tested.fired(100)] == [
        ("a", [1, 2], 0, 20),
        ("b", [1], 0, 10),
        ("b", [2], 11, 21),
    ]


def test_a_gap_may_depend_on_the_record(harness):
    tested = harness(EventTimeSessionWindows.with_dynamic_gap(lambda record: record[1]))
    tested.add(("a", 5, 0), ("a", 50, 4), ("a", 1, 30))
    assert tested.fired(100) == [(("a", [5, 50, 1], 0, 54), 53)]


def test_late_records_fire_again_until_the_lateness_is_over_then_go_to_the_side(harness):
    trigger = PurgingTrigger.of(EventTimeTrigger.create())
    tested = harness(
        TumblingEventTimeWindows.of(Time.seconds(2)),
        trigger=trigger,
        lateness=500,
        late_tag="late",
        contents=reduced(),
    )
    tested.add(("key2", 1, 500))
    assert tested.fired(1500) == []
    tested.add(("key2", 1, 1300))
    assert tested.fired(2300) == [(("key2", 2), 1999)]
    tested.add(("key2", 1, 1997))
    assert tested.take_timed() == [(("key2", 1), 1999)]
    assert tested.fired(6000) == []
    tested.add(("key2", 1, 1998))
    assert tested.fired(7000) == []
    assert tested.side_output("late") == [("key2", 1)]


def test_without_purging_a_late_firing_holds_everything(harness):
    tested = harness(TumblingEventTimeWindows.of(10), lateness=10, contents=reduced())
    tested.add(("a", 1, 1))
    assert tested.fired(9) == [(("a", 1), 9)]
    tested.add(("a", 2, 2), ("a", 4, 12), ("a", 8, 3))
    assert [result for result, _ in tested.take_timed()] == [("a", 11), ("a", 3)]
    assert tested.fired(19) == [(("a", 4), 19)]
    assert not [t for t in tested.operator.backend.event_timers.timers() if t.timestamp < 29]


def test_a_late_session_record_joins_a_session_that_still_lives(harness):
    tested = harness(
        EventTimeSessionWindows.with_gap(Time.seconds(3)),
        trigger=PurgingTrigger.of(EventTimeTrigger()),
        late_tag="late",
        contents=reduced(),
    )
    tested.add(("key2", 1, 1000))
    tested.watermark(1999)
    tested.add(("key2", 1, 2000))
    tested.watermark(4998)
    tested.add(("key2", 1, 4500))
    assert tested.fired(8500) == [(("key2", 3), 7499)]
    tested.add(("key2", 1, 7000))
    assert tested.fired(10000) == [(("key2", 1), 9999)]
    tested.add(("key2", 1, 14500))
    assert tested.fired(20000) == [(("key2", 1), 17499)]
    tested.add(("key2", 1, 10000))
    assert tested.fired(20100) == []
    assert tested.side_output("late") == [("key2", 1)]


def test_records_that_are_dropped_are_counted(harness):
    tested = harness(TumblingEventTimeWindows.of(10))
    tested.watermark(20)
    tested.add(("a", 1, 5), ("a", 2, 25), ("b", 3, 0))
    counter = tested.operator._runtime.get_metrics_group().counter(LATE_RECORDS)
    assert counter.get_count() == 2
    assert tested.fired(END) == [(("a", [2], 20, 30), 29)]


def test_a_record_of_a_window_of_the_past_is_no_late_record_by_itself(harness):
    """Only what lies behind the watermark is late: not what a gap between windows swallows."""
    tested = harness(SlidingEventTimeWindows.of(5, 10), late_tag="late")
    tested.watermark(3)
    tested.add(("a", 1, 7))
    assert tested.side_output("late") == []
    assert tested.fired(END) == []


def test_a_count_trigger_purges_a_global_window(harness):
    trigger = PurgingTrigger.of(CountTrigger.of(4))
    tested = harness(GlobalWindows.create(), trigger=trigger, contents=reduced())
    tested.add(*[("key2", 1, 0)] * 3, *[("key1", 1, 0)] * 3)
    tested = tested.again()
    tested.add(("key2", 1, 0), ("key2", 1, 0))
    assert tested.take_timed() == [(("key2", 4), END)]
    tested.add(*[("key2", 1, 0)] * 3, ("key1", 1, 0))
    assert tested.take_timed() == [(("key1", 4), END), (("key2", 4), END)]


def test_a_continuous_trigger_fires_every_interval_and_at_the_end(harness):
    tested = harness(
        TumblingEventTimeWindows.of(10),
        trigger=ContinuousEventTimeTrigger.of(4),
        contents=reduced(),
    )
    tested.add(("a", 1, 1))
    assert tested.fired(3) == []
    assert tested.fired(4) == [(("a", 1), 9)]
    tested.add(("a", 1, 6))
    tested = tested.again()
    assert tested.fired(8) == [(("a", 2), 9)]
    assert tested.fired(9) == [(("a", 2), 9)]
    assert not tested.operator.backend.event_timers.timers()


def test_a_count_trigger_of_sessions_merges_its_count(harness):
    tested = harness(
        EventTimeSessionWindows.with_gap(10), trigger=PurgingTrigger.of(CountTrigger.of(4))
    )
    tested.add(("a", 1, 0), ("a", 2, 15), ("a", 3, 16))
    assert tested.take_timed() == []
    tested.add(("a", 4, 8))
    assert tested.take_timed() == [(("a", [1, 2, 3, 4], 0, 26), 25)]


def test_a_delta_trigger_fires_when_a_record_is_far_from_the_last_one(harness):
    trigger = PurgingTrigger.of(DeltaTrigger.of(10, lambda old, new: new[1] - old[1]))
    tested = harness(GlobalWindows(), trigger=trigger)
    tested.add(("a", 0, 0), ("a", 10, 0), ("a", 11, 0), ("a", 21, 0), ("a", 22, 0))
    assert [result[1] for result, _ in tested.take_timed()] == [[0, 10, 11], [21, 22]]


def test_a_delta_of_nan_is_above_nothing(harness):
    tested = harness(GlobalWindows(), trigger=DeltaTrigger.of(10, lambda old, new: new[1] - old[1]))
    tested.add(("a", 0.0, 0), ("a", math.nan, 0), ("a", 11.0, 0))
    assert [len(result[1]) for result, _ in tested.take_timed()] == [3]


def test_a_timeout_fires_what_the_nested_trigger_has_not(harness):
    trigger = PurgingTrigger.of(ProcessingTimeoutTrigger.of(CountTrigger.of(3), Time.seconds(5)))
    tested = harness(GlobalWindows(), trigger=trigger)
    tested.add(("a", 1, 0), ("a", 2, 0))
    tested.advance(4.9)
    assert tested.take_timed() == []
    tested.advance(0.2)
    assert [result[1] for result, _ in tested.take_timed()] == [[1, 2]]
    tested.add(("a", 3, 0), ("a", 4, 0), ("a", 5, 0))
    assert [result[1] for result, _ in tested.take_timed()] == [[3, 4, 5]]
    assert tested.operator.next_timer() is None


@pytest.mark.parametrize(
    ("reset", "clears", "expected"), [(False, True, 5.0), (True, True, 7.0), (False, False, 5.0)]
)
def test_a_timeout_counts_from_the_first_or_the_latest_record(harness, reset, clears, expected):
    trigger = ProcessingTimeoutTrigger.of(CountTrigger.of(9), 5000, reset, clears)
    tested = harness(GlobalWindows(), trigger=trigger)
    tested.add(("a", 1, 0))
    tested.advance(2)
    tested.add(("a", 2, 0))
    assert tested.operator.next_timer() == expected


def test_windows_of_processing_time_fire_by_the_clock(harness):
    tested = harness(TumblingProcessingTimeWindows.of(Time.seconds(3)))
    tested.clock.advance(0.003)
    tested.process([("a", 1), ("b", 2)])
    tested.advance(2.5)
    tested.process([("a", 3)])
    tested = tested.again()
    tested.advance(0.6)
    tested.process([("a", 4)])
    tested.advance(3)
    assert tested.output == [
        ("a", [1, 3], 0, 3000),
        ("b", [2], 0, 3000),
        ("a", [4], 3000, 6000),
    ]
    assert tested.operator.next_timer() is None


def test_sliding_windows_of_processing_time(harness):
    tested = harness(SlidingProcessingTimeWindows.of(2000, 1000))
    tested.process([("a", 1)])
    tested.advance(1.5)
    tested.process([("a", 2)])
    tested.advance(5)
    assert [(values, start) for _, values, start, _ in tested.output] == [
        ([1], -1000),
        ([1, 2], 0),
        ([2], 1000),
    ]


def test_sessions_of_processing_time(harness):
    tested = harness(ProcessingTimeSessionWindows.with_gap(Time.seconds(3)))
    tested.process([("a", 1)])
    tested.advance(2)
    tested.process([("a", 2)])
    tested.advance(2.5)
    assert tested.output == []
    tested.advance(1)
    assert tested.output == [("a", [1, 2], 0, 5000)]


def test_count_windows_fire_when_they_are_full(harness):
    tested = harness(CountTumblingWindowAssigner.of(3))
    tested.process([("a", n) for n in range(7)] + [("b", 0)])
    assert tested.output == [("a", [0, 1, 2], None, None), ("a", [3, 4, 5], None, None)]
    tested = tested.again()
    tested.process([("a", 7), ("b", 1), ("a", 8)])
    assert tested.output == [("a", [6, 7, 8], None, None)]


def test_sliding_count_windows_overlap(harness):
    tested = harness(CountSlidingWindowAssigner.of(3, 2))
    tested.process([("a", n) for n in range(8)])
    assert [values for _, values, *_ in tested.output] == [[0, 1, 2], [2, 3, 4], [4, 5, 6]]


class Remembering(ProcessWindowFunction):
    """Counts the firings of the window and of the key."""

    def open(self, runtime_context):
        self.keyed = runtime_context.get_state(ValueStateDescriptor("firings"))

    def process(self, key, context, elements):
        own = context.window_state().get_state(ValueStateDescriptor("firings"))
        all_ = context.global_state().get_state(ValueStateDescriptor("firings"))
        own.update((own.value() or 0) + 1)
        all_.update((all_.value() or 0) + 1)
        assert self.keyed.value() == all_.value()
        yield key, context.window().start, own.value(), all_.value()
        yield OutputTag("aside"), context.current_watermark()

    def clear(self, context):
        context.window_state().get_state(ValueStateDescriptor("firings")).clear()


def test_a_process_function_has_state_of_the_window_and_of_the_key(harness):
    tested = harness(TumblingEventTimeWindows.of(10), lateness=100, function=Remembering())
    tested.add(("a", 1, 1), ("a", 1, 11))
    tested.watermark(19)
    tested = tested.again()
    tested.watermark(19)
    tested.add(("a", 1, 2), ("a", 1, 12), ("a", 1, 13))
    assert tested.take_output() == [("a", 0, 2, 3), ("a", 10, 2, 4), ("a", 10, 3, 5)]
    assert tested.side_output("aside") == [19, 19, 19]
    tested.watermark(500)
    states = tested.operator.backend
    assert list(states.keys("window/firings")) == []
    assert list(states.keys("firings")) == ["a"]


def test_windows_that_merge_have_no_state_of_their_own(harness):
    tested = harness(EventTimeSessionWindows.with_gap(10), function=Remembering())
    tested.add(("a", 1, 1))
    with pytest.raises(UserFunctionError, match=r"global_state\(\)"):
        tested.watermark(100)


def test_a_record_without_a_timestamp_is_refused(harness):
    tested = harness(TumblingEventTimeWindows.of(10))
    with pytest.raises(UserFunctionError, match="assign_timestamps_and_watermarks"):
        tested.process([("a", 1)])


@pytest.mark.parametrize("no_time", [NO_TIMESTAMP, NO_TIMESTAMP + 1, END])
def test_a_record_without_a_time_is_skipped_alone(no_time):
    operator = windows(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    with WindowHarness(operator, poison=PoisonOrders(skips_at_once=True)) as harness:
        harness.add(("a", 1, 1), ("a", 2, no_time), ("a", 3, 3))
        assert len(harness.side_output(DEAD_LETTERS)) == 1
        assert harness.fired(END) == [(("a", [1, 3], 0, 10), 9)]


def extended(one, other):
    one[1].extend(other[1])
    return one


def test_windows_do_not_share_what_a_function_changes_in_place(harness):
    sliding = SlidingEventTimeWindows.of(Time.milliseconds(20), Time.milliseconds(10))
    found = harness(sliding, trigger=CountTrigger.of(2), contents=reduced(extended))
    found.add(("a", [1], 11), ("a", [2], 12))
    assert found.output == [("a", [1, 2])] * 2


def test_a_failure_names_the_record(harness):
    def broken(one, other):
        raise ValueError("no sum")

    tested = harness(TumblingEventTimeWindows.of(10), contents=reduced(broken))
    with pytest.raises(UserFunctionError, match=r"\('a', 2\)"):
        tested.add(("a", 1, 1), ("a", 2, 2))


def test_a_sliding_window_holds_records_in_the_order_in_which_they_came(harness):
    tested = harness(SlidingEventTimeWindows.of(20, 10))
    nan, other_nan = float("nan"), float("nan")
    tested.add((nan, 1, 5), (other_nan, 2, 12), (nan, 3, 6), (nan, 4, 13))
    held = {result[2]: result[1] for result, _ in tested.fired(100)}
    assert held == {-10: [1, 3], 0: [1, 2, 3, 4], 10: [2, 4]}


def test_keys_that_are_nan_share_a_window(harness):
    tested = harness(TumblingEventTimeWindows.of(10), contents=reduced())
    tested.add((float("nan"), 1, 1), (float("nan"), 2, 2))
    tested.add((float("nan"), 4, 2))
    [(result, _)] = tested.fired(10)
    assert result[1] == 7


def test_a_snapshot_keeps_what_windows_held_when_it_was_taken(harness):
    """Accumulators are changed in place: not those that a snapshot still reads."""
    tested = harness(TumblingEventTimeWindows.of(10), contents=aggregated(Total()))
    tested.add(("a", 1, 1))
    snapshot = tested.snapshot()
    tested.add(("a", 2, 1))
    restored = WindowHarness(
        windows(TumblingEventTimeWindows.of(10), contents=aggregated(Total())),
        settings=tested.context.settings,
        restore_from=[snapshot],
    )
    assert restored.fired(10) == [(1, 9)]
    assert tested.fired(10) == [(3, 9)]
    restored.close()


def test_windows_of_a_key_follow_its_key_group_when_the_job_is_rescaled(backend):
    operator = windows(TumblingEventTimeWindows.of(10), contents=reduced())
    keys = [f"key{n}" for n in range(50)]
    first = WindowHarness(operator, settings=backend, max_parallelism=16)
    first.add(*[(key, 1, 5) for key in keys])
    snapshot = first.snapshot()
    parts = [
        WindowHarness(
            operator,
            settings=backend,
            max_parallelism=16,
            parallelism=3,
            subtask=subtask,
            restore_from=[snapshot],
        )
        for subtask in range(3)
    ]
    found = [part.fired(10) for part in parts]
    assert sorted(result for part in found for (result, _) in part) == sorted(
        (key, 1) for key in keys
    )
    assert all(found)
    for each in (first, *parts):
        each.close()
