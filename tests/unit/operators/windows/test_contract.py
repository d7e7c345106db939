"""What windows, triggers and evictors are owed: facts of Flink's suites as tables."""

import math

import pytest

from tests.unit.operators.windows.windowed import WindowHarness, windows
from tidegate.datastream.functions import ProcessWindowFunction
from tidegate.datastream.window import (
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    EventTimeSessionWindows,
    GlobalWindows,
    TimeEvictor,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from tidegate.operators.windows.merging import MergingWindowSet

C, F, P, FP = (
    TriggerResult.CONTINUE,
    TriggerResult.FIRE,
    TriggerResult.PURGE,
    TriggerResult.FIRE_AND_PURGE,
)
END = 2**63 - 1


class Scripted(Trigger):
    """Answers as told, and writes down what it is asked."""

    def __init__(self, on_element=C, on_time=C, timer=None):
        self.answers = {"element": on_element, "time": on_time}
        self.timer = timer
        self.calls = []

    def on_element(self, element, timestamp, window, ctx):
        self.calls.append(("element", element[1], window.start))
        if self.timer is not None:
            ctx.register_event_time_timer(self.timer)
        return self.answers["element"]

    def on_event_time(self, time, window, ctx):
        self.calls.append(("time", time, window.start))
        return self.answers["time"]

    def on_processing_time(self, time, window, ctx):
        raise AssertionError("no timer of processing time was set")

    def on_merge(self, window, ctx):
        self.calls.append(("merge", window.start, window.end))

    def can_merge(self):
        return True

    def clear(self, window, ctx):
        self.calls.append(("clear", window.start, window.end))


class Everywhere(WindowAssigner):
    """Assigns the windows that it is told."""

    def __init__(self, *spans):
        self.spans = spans

    def assign_windows(self, element, timestamp, context):
        return [TimeWindow(*span) for span in self.spans]

    def get_default_trigger(self, env):
        return Scripted()

    def is_event_time(self):
        return True


class Held(ProcessWindowFunction):
    """What the window holds when it fires; what it clears."""

    cleared = ()

    def process(self, key, context, elements):
        yield [value for _, value in elements], context.window().start

    def clear(self, context):
        self.cleared = (*self.cleared, context.window().start)


def opened(assigner, **options):
    return WindowHarness(windows(assigner, function=Held(), **options), copy=False)


def results(tested):
    return [result for result, _ in tested.take_timed()]


# The answer to every record, and what comes out after each of two records.
ANSWERS = {
    C: ([], []),
    F: ([([1], 0)], [([1, 2], 0)]),
    P: ([], []),
    FP: ([([1], 0)], [([2], 0)]),
}
# What is left in the window after both, seen at its end.
LEFT = {C: [1, 2], F: [1, 2], P: None, FP: None}


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_record_fires_and_purges_as_the_trigger_says(answer):
    trigger = Scripted(on_element=answer, on_time=F, timer=9)
    with opened(TumblingEventTimeWindows.of(10), trigger=trigger) as tested:
        for value, expected in zip((1, 2), ANSWERS[answer], strict=True):
            tested.add(("a", value, 5))
            assert results(tested) == expected
        tested.watermark(9)
        assert results(tested) == ([] if LEFT[answer] is None else [(LEFT[answer], 0)])


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_timer_fires_and_purges_as_the_trigger_says(answer):
    trigger = Scripted(on_time=answer, timer=5)
    with opened(TumblingEventTimeWindows.of(10), trigger=trigger, lateness=10) as tested:
        tested.add(("a", 1, 3))
        tested.watermark(4)
        assert trigger.calls == [("element", 1, 0)]
        tested.watermark(5)
        assert trigger.calls[1:] == [("time", 5, 0)]
        assert results(tested) == ([([1], 0)] if answer in (F, FP) else [])
        trigger.answers["element"] = F
        tested.add(("a", 2, 3))
        is_purged = answer in (P, FP)
        assert results(tested) == [([2] if is_purged else [1, 2], 0)]


# The windows of a record, the watermark before it, the lateness: where the trigger is asked, and
# whether the record is late.
PLACES = [
    ([(0, 10), (20, 30)], 5, 0, [0, 20], False),
    ([(0, 10), (20, 30)], 9, 0, [20], False),
    ([(0, 10), (20, 30)], 9, 1, [0, 20], False),
    ([(0, 10), (20, 30)], 29, 0, [], True),
    ([(0, 10), (20, 30)], 29, 1, [20], False),
    ([], 5, 0, [], True),
    ([], 2, 0, [], False),
]


@pytest.mark.parametrize(("spans", "watermark", "lateness", "asked", "is_late"), PLACES)
def test_a_record_goes_to_its_windows_that_are_not_over(spans, watermark, lateness, asked, is_late):
    trigger = Scripted()
    options = {"trigger": trigger, "lateness": lateness, "late_tag": "late"}
    with opened(Everywhere(*spans), **options) as tested:
        tested.watermark(watermark)
        tested.add(("a", 1, 4))
        assert [start for what, _, start in trigger.calls if what == "element"] == asked
        assert tested.side_output("late") == ([("a", 1)] if is_late else [])


# Lateness, and when the window of [0, 10) is removed.
@pytest.mark.parametrize(("lateness", "removed_at"), [(0, 9), (1, 10), (20, 29)])
def test_a_window_goes_with_all_that_is_known_of_it_when_its_lateness_is_over(lateness, removed_at):
    trigger = Scripted(timer=100)
    with opened(TumblingEventTimeWindows.of(10), trigger=trigger, lateness=lateness) as tested:
        tested.add(("a", 1, 5), ("a", 2, 6))
        tested.watermark(removed_at - 1)
        assert ("clear", 0, 10) not in trigger.calls
        tested.watermark(removed_at)
        assert trigger.calls.count(("clear", 0, 10)) == 1
        assert tested.operator.function.cleared == (0,)
        assert not any(tested.operator.contents.table.values)
        trigger.answers["time"] = F
        tested.watermark(END)  # the trigger's own timer finds nothing to show
        assert results(tested) == []


@pytest.mark.parametrize("lateness", [0, 5, END])
def test_a_window_without_an_end_is_never_removed(lateness):
    operator = windows(GlobalWindows.create(), trigger=CountTrigger.of(2), lateness=lateness)
    with WindowHarness(operator) as tested:
        tested.add(("a", 1, 5))
        assert not tested.operator.backend.event_timers.timers()
        tested.watermark(END - 1)
        tested.add(("a", 2, 6))
        assert [result[1] for result in results(tested)] == [[1, 2]]


# Windows of a key, the next one, what becomes of it, and what is there then. Those that merge.
W = TimeWindow
SETS = [
    ([], (0, 3), (0, 3), [(0, 3)], []),
    ([(0, 3)], (0, 3), (0, 3), [(0, 3)], []),
    ([(0, 3)], (11, 14), (11, 14), [(0, 3), (11, 14)], []),
    ([(0, 3)], (1, 4), (0, 4), [(0, 4)], [(0, 3)]),
    ([(0, 3)], (3, 6), (0, 6), [(0, 6)], [(0, 3)]),
    ([(0, 3)], (4, 7), (4, 7), [(0, 3), (4, 7)], []),
    ([(0, 9)], (2, 5), (0, 9), [(0, 9)], []),
    ([(0, 3), (8, 11)], (3, 8), (0, 11), [(0, 11)], [(0, 3), (8, 11)]),
    ([(0, 3), (5, 8), (20, 23)], (2, 6), (0, 8), [(0, 8), (20, 23)], [(0, 3), (5, 8)]),
    ([(5, 8), (0, 3)], (3, 5), (0, 8), [(0, 8)], [(0, 3), (5, 8)]),
]


@pytest.mark.parametrize(("there", "new", "result", "then", "merged"), SETS)
def test_a_new_window_merges_with_those_that_it_touches(there, new, result, then, merged):
    gap = EventTimeSessionWindows.with_gap(3)
    windows_of_key = MergingWindowSet(gap, [W(*span) for span in there])
    found, merges = windows_of_key.add(W(*new))
    assert found == W(*result)
    assert sorted((w.start, w.end) for w in windows_of_key.windows) == then
    assert [sorted((w.start, w.end) for w in each.merged) for each in merges] == (
        [sorted(merged)] if merged else []
    )
    windows_of_key.retire(found)
    assert found not in windows_of_key.windows


def test_triggers_hear_of_a_merge_before_the_record_that_caused_it():
    trigger = Scripted()
    with opened(EventTimeSessionWindows.with_gap(3), trigger=trigger) as tested:
        tested.add(("a", 1, 0), ("a", 2, 5), ("a", 3, 2))
        assert trigger.calls == [
            ("element", 1, 0),
            ("element", 2, 5),
            ("merge", 0, 8),
            ("clear", 0, 3),
            ("clear", 5, 8),
            ("element", 3, 0),
        ]
        assert [t.timestamp for t in tested.operator.backend.event_timers.timers()] == [7]


# What an evictor leaves of the records 1, 2, 3, ... at the seconds 1, 2, 3, ..., when every second
# one fires: what each firing shows.
EVICTED = [
    (CountEvictor.of(3), [[1, 2], [2, 3, 4], [4, 5, 6], [6, 7, 8]]),
    (CountEvictor.of(3, True), [[1, 2], [1, 2, 3, 4], [2, 3, 4, 5, 6], [4, 5, 6, 7, 8]]),
    (CountEvictor.of(0), [[], [], [], []]),
    (TimeEvictor.of(2_000), [[1, 2], [3, 4], [5, 6], [7, 8]]),
    (TimeEvictor.of(2_000, True), [[1, 2], [1, 2, 3, 4], [3, 4, 5, 6], [5, 6, 7, 8]]),
    (DeltaEvictor.of(2, lambda e, last: last[1] - e[1]), [[1, 2], [3, 4], [5, 6], [7, 8]]),
    (
        DeltaEvictor.of(2, lambda e, last: last[1] - e[1], True),
        [[1, 2], [1, 2, 3, 4], [3, 4, 5, 6], [5, 6, 7, 8]],
    ),
    (
        DeltaEvictor.of(2, lambda e, last: math.nan),
        [[1, 2], [1, 2, 3, 4], [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7, 8]],
    ),
]


@pytest.mark.parametrize(("evictor", "shown"), EVICTED)
def test_an_evictor_removes_records_for_good(evictor, shown):
    operator = windows(GlobalWindows.create(), trigger=CountTrigger.of(2), evictor=evictor)
    with WindowHarness(operator) as tested:
        found = []
        for value in range(1, 9):
            tested.add(("a", value, 1_000 * value))
            found += [result[1] for result in results(tested)]
            if value == 4:
                snapshot = tested.snapshot()
        assert found == shown
    with WindowHarness(operator, restore_from=[snapshot]) as restored:
        restored.add(("a", 5, 5_000), ("a", 6, 6_000))
        assert [result[1] for result in results(restored)] == shown[2:3]
