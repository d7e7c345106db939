"""Windows against a naive interpreter, whatever is late, merged, restarted or rescaled."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.effort import examples
from tests.properties.subtasks import Subtasks
from tests.unit.operators.windows.windowed import BACKENDS, BY_FIRST, aggregated, windows
from tidegate.datastream.functions import AggregateFunction, WindowFunction
from tidegate.datastream.window import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    MergingWindowAssigner,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from tidegate.stream.batch import Batch
from tidegate.stream.elements import WatermarkStatus

END = 2**63 - 1
INTERVAL = 4
COUNT = 3
ASSIGNERS = {
    "tumbling": TumblingEventTimeWindows.of(10, 3),
    "sliding": SlidingEventTimeWindows.of(12, 4),
    "ragged": SlidingEventTimeWindows.of(10, 4, 1),
    "gaps": SlidingEventTimeWindows.of(4, 10),
    "sessions": EventTimeSessionWindows.with_gap(5),
    "dynamic sessions": EventTimeSessionWindows.with_dynamic_gap(lambda record: 2 + record[1]),
}
TRIGGERS = {
    "end": EventTimeTrigger(),
    "end, purging": PurgingTrigger.of(EventTimeTrigger()),
    "count": CountTrigger.of(COUNT),
    "count, purging": PurgingTrigger.of(CountTrigger.of(COUNT)),
    "continuous": ContinuousEventTimeTrigger.of(INTERVAL),
    "continuous, purging": PurgingTrigger.of(ContinuousEventTimeTrigger.of(INTERVAL)),
}


class Sorted(AggregateFunction):
    """The values in order, so that nothing depends on the order of merges."""

    def create_accumulator(self):
        return ()

    def add(self, value, accumulator):
        return (*accumulator, value[1])

    def get_result(self, accumulator):
        return tuple(sorted(accumulator))

    def merge(self, one, other):
        return one + other


class WithKey(WindowFunction):
    def apply(self, key, window, inputs):
        return [(key, value) for value in inputs]


@dataclass
class Pane:
    """A window of a key."""

    values: list = field(default_factory=list)
    count: int = 0
    next_fire: int | None = None
    timers: set = field(default_factory=set)


class Naive:
    """All windows of all keys in a dict, record by record and timer by timer."""

    def __init__(self, assigner, trigger, lateness):
        self.assigner, self.trigger, self.lateness = assigner, trigger, lateness
        self.panes = {}
        self.watermark = -(2**63)
        self.results, self.late = [], []

    def add(self, key, value, time):
        is_skipped = True
        for found in self.assigner.assign_windows((key, value), time, None):
            window = found.start, found.end
            if isinstance(self.assigner, MergingWindowAssigner):
                window = self.merge(key, window)
            if window[1] - 1 + self.lateness <= self.watermark:
                continue
            is_skipped = False
            pane = self.panes.setdefault((key, window), Pane())
            pane.values.append(value)
            self.on_element(key, window, pane, time)
            pane.timers.add(window[1] - 1 + self.lateness)
        if is_skipped and time + self.lateness <= self.watermark:
            self.late.append((key, value))

    def merge(self, key, new):
        """The session that a new one is merged into."""
        old = [w for k, w in self.panes if k == key and w[0] <= new[1] and new[0] <= w[1]]
        new = min([new[0], *(w[0] for w in old)]), max([new[1], *(w[1] for w in old)])
        if not old or old == [new]:
            return new
        merged = [self.panes.pop((key, window)) for window in old]
        pane = self.panes[key, new] = Pane()
        pane.values = [value for part in merged for value in part.values]
        pane.count = sum(part.count for part in merged)
        fires = [part.next_fire for part in merged if part.next_fire is not None]
        pane.next_fire = min(fires, default=None)
        if pane.next_fire is not None:
            pane.timers.add(pane.next_fire)
        if self.trigger.startswith("end") and new[1] - 1 > self.watermark:
            pane.timers.add(new[1] - 1)
        return new

    def on_element(self, key, window, pane, time):
        last = window[1] - 1
        if self.trigger.startswith("count"):
            pane.count += 1
            if pane.count >= COUNT:
                pane.count = 0
                self.fire(key, window, pane)
        elif last <= self.watermark:
            self.fire(key, window, pane)
        else:
            pane.timers.add(last)
            if self.trigger.startswith("continuous") and pane.next_fire is None:
                self.plan(time - time % INTERVAL, pane, last)

    @staticmethod
    def plan(time, pane, last):
        pane.next_fire = min(time + INTERVAL, last)
        pane.timers.add(pane.next_fire)

    def fire(self, key, window, pane):
        if pane.values:
            self.results.append((key, tuple(sorted(pane.values)), window[1] - 1))
        if self.trigger.endswith("purging"):
            pane.values = []

    def advance(self, watermark):
        self.watermark = watermark
        while due := [
            (time, key, window)
            for (key, window), pane in self.panes.items()
            for time in pane.timers
            if time <= watermark
        ]:
            time, key, window = min(due)
            pane, last = self.panes[key, window], window[1] - 1
            pane.timers.remove(time)
            if time == last and not self.trigger.startswith("count"):
                self.fire(key, window, pane)
            elif self.trigger.startswith("continuous") and pane.next_fire == time:
                self.plan(time, pane, last)
                self.fire(key, window, pane)
            if time == last + self.lateness:
                del self.panes[key, window]


RECORD = st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 60))
STEPS = st.lists(
    st.lists(RECORD, min_size=1, max_size=8)
    | st.integers(0, 20)
    | st.sampled_from(["restart", "rescale", "idle", "active"]),
    max_size=12,
)


@pytest.mark.parametrize("backend", sorted(BACKENDS))
@pytest.mark.parametrize("assigner", sorted(ASSIGNERS))
@examples(12)
@example(  # a watermark that does not move fires nothing
    steps=[[("a", 0, 1)], 2, [("a", 0, 0)], 0, [("a", 0, 0)]], trigger="continuous", lateness=3
)
@given(
    steps=STEPS,
    trigger=st.sampled_from(sorted(TRIGGERS)),
    lateness=st.sampled_from([0, 0, 3, 15]),
)
def test_windows_fire_as_a_naive_interpreter_says(backend, assigner, steps, trigger, lateness):
    operator = windows(
        ASSIGNERS[assigner],
        trigger=TRIGGERS[trigger],
        lateness=lateness,
        late_tag="late",
        contents=aggregated(Sorted()),
        function=WithKey(),
    )
    naive = Naive(ASSIGNERS[assigner], trigger, lateness)
    job = Subtasks(operator, BACKENDS[backend])
    results, late = [], []
    watermark, is_idle = None, False
    for step in [*steps, "active", END]:
        match step:
            case list():
                for record in step:
                    naive.add(*record)
                stamps = np.array([time for *_, time in step], np.int64)
                job.process(
                    Batch(records=[(k, v) for k, v, _ in step], timestamps=stamps), BY_FIRST
                )
            case "idle" | "active":
                is_idle = step == "idle"
                for part in job.harnesses:
                    part.watermark_status(WatermarkStatus[step.upper()])
            case int() if is_idle:
                job.watermark((watermark or 0) + step)  # does not count
            case int():
                before = watermark
                watermark = step if before is None or step == END else before + step
                if watermark != before:
                    naive.advance(watermark)
                job.watermark(watermark)
            case _:
                is_idle = False
                count = len(job.harnesses)
                job.start(count if step == "restart" else 1 + count % 3)
                for part in job.harnesses if watermark is not None else ():
                    part.operator._time.watermark = watermark
        results += [(*result, at) for result, at in job.take()]
        late += job.take_side("late")
    for part in job.harnesses:
        assert not part.operator.backend.event_timers.timers()
        assert not any(part.operator.contents.table.values)
    job.close()
    assert sorted(results) == sorted(naive.results)
    assert sorted(late) == sorted(naive.late)
