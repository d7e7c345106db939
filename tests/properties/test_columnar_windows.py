"""Windows on columns give what windows by record give, and what a naive interpreter gives."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from tests.effort import examples
from tests.properties.subtasks import Subtasks
from tidegate.core.modes import StateBackendType
from tidegate.operators.aggregations import accumulators
from tidegate.operators.aggregations.aggregates import (
    avg_,
    count,
    max_,
    min_,
    plan_aggregates,
    sum_,
    window_end,
    window_start,
)
from tidegate.operators.aggregations.choice import aggregation_output_type
from tidegate.operators.aggregations.kinds import Aggregation
from tidegate.operators.aggregations.named_by_record import NamedAggregates
from tidegate.operators.windows.aggregates import AggregatedRecord, AggregateRows, CountWithKey
from tidegate.operators.windows.assigners import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from tidegate.operators.windows.columnar import combining, operator, slices, table
from tidegate.operators.windows.columnar.choice import (
    columnar_agg,
    columnar_aggregation,
    window_combiner,
)
from tidegate.operators.windows.contents import AggregatedContents, ReducedContents
from tidegate.operators.windows.merging_operator import window_operator
from tidegate.operators.windows.operator import WindowSettings
from tidegate.state.keys.selection import KeySelection, select_key
from tidegate.stream.batch import Batch
from tidegate.testing.harness import OperatorHarness
from tidegate.types.arrow import arrow_format
from tidegate.types.typeinfo import Types

RECORD = Types.TUPLE([Types.STRING(), Types.LONG(), Types.INT(), Types.SQL_DATE(), Types.DOUBLE()])
FORMAT = arrow_format(RECORD)
KEY = select_key(0, RECORD)
BY_FUNCTION = KeySelection(KEY.selector)
SETTINGS = [{"state.backend.type": backend} for backend in StateBackendType]
AGGREGATES = {
    "n": count(),
    "prices": count(1),
    "total": sum_(1),
    "low": min_(1),
    "high": max_(3),
    "mean": avg_(2),
    "weight": sum_(4),
    "least": min_(4),
    "start": window_start(),
    "end": window_end(),
}
DAYS = st.dates(*(np.datetime64(day).item() for day in ("2020-01-01", "2020-01-04")))


@st.composite
def sliced_assigners(draw):
    if draw(st.booleans()):
        size = draw(st.integers(1, 12))
        return TumblingEventTimeWindows.of(size, draw(st.integers(1 - size, size - 1)))
    slide = draw(st.integers(1, 12))
    offset = draw(st.integers(1 - slide, slide - 1))
    return SlidingEventTimeWindows.of(draw(st.integers(1, 20)), slide, offset)


def assigners():
    return sliced_assigners() | st.integers(1, 8).map(EventTimeSessionWindows.with_gap)


RECORDS = st.tuples(
    st.sampled_from([*"abcdefgh", None]),
    st.none() | st.integers(-5, 5),
    st.none() | st.integers(-5, 5),
    st.none() | DAYS,
    # The order of additions would show in the sum of other floats.
    st.none() | st.integers(-8, 8).map(lambda quarters: quarters / 4) | st.just(float("nan")),
)
STEPS = st.tuples(
    st.lists(st.tuples(st.integers(-14, 6), RECORDS), max_size=12),
    st.sampled_from([0, 1, 5, 60]),
    st.none() | st.integers(-9, 3),
    st.sampled_from([None, None, None, 1, 2, 3]),
)
"""(records by time, by how much time moves, the watermark, with how many subtasks to go on)."""
PROGRAMS = st.tuples(
    assigners(),
    st.sampled_from([0, 0, 3, 15]),
    st.sampled_from([None, *Aggregation]),
    st.lists(STEPS, max_size=8),
)


def both_operators(assigner, lateness, aggregation):
    """The same windows on columns and by record; named aggregates if no aggregation is given."""
    settings = WindowSettings(assigner, assigner.get_default_trigger(None), lateness, "late")
    late = {"late": FORMAT}
    if aggregation is None:
        plan = plan_aggregates(AGGREGATES, KEY, RECORD, None, has_windows=True)
        contents = AggregatedContents(NamedAggregates(list(AGGREGATES.values())), None)
        function, output = AggregateRows(plan), plan.output_type
        columnar = columnar_agg(settings, plan, late)
    else:
        output = aggregation_output_type(aggregation, KEY, RECORD)
        columnar = columnar_aggregation(settings, aggregation, 1, KEY, RECORD, late)
        if aggregation is Aggregation.COUNT:
            contents, function = AggregatedContents(NamedAggregates([count(1)]), None), None
            function = CountWithKey()
        else:
            contents, function = ReducedContents(AggregatedRecord(aggregation, 1), RECORD), None
    is_session = isinstance(assigner, EventTimeSessionWindows)
    assume(not is_session or aggregation in (None, Aggregation.COUNT))
    assert columnar is not None
    by_record = window_operator(
        settings, contents, function, [BY_FUNCTION], arrow_format(output), late
    )
    return columnar, by_record


class CombinedSubtasks(Subtasks):
    """Records are added up before they come to the subtasks."""

    def __init__(self, operator, combiner, settings):
        self._combiner = OperatorHarness(combiner)
        self._key = select_key(combiner.rows.key_columns, combiner.rows.type_info)
        operator.partial = combiner.rows
        super().__init__(operator, settings)

    def process(self, batch, key, side=0):
        self._combiner.process_batch(batch)
        for combined in self._combiner.batches:
            super().process(combined, self._key)
        self._combiner.batches.clear()


@pytest.fixture
def small_limits(monkeypatch):
    """Small limits, so that few keys behave like many."""
    monkeypatch.setattr(table, "_FEWEST_KEYS", 2)
    monkeypatch.setattr(slices, "_MOST_RUNS", 2)
    monkeypatch.setattr(slices, "_DENSE_SHARE", slices._DENSE_SHARE)  # tests set it themselves
    monkeypatch.setattr(accumulators, "_SPARE_RECORDS", 2)
    monkeypatch.setattr(combining, "_MOST_KEYS", 4)
    monkeypatch.setattr(combining, "_TRIAL", 8)
    monkeypatch.setattr(combining, "_FIRST_PAUSE", 4)
    monkeypatch.setattr(operator, "_MANY_ROWS", 2)
    monkeypatch.setattr(operator, "_ROWS_PER_GROUP", 0)


@pytest.mark.usefixtures("small_limits")
@examples(30, suppress=[HealthCheck.function_scoped_fixture])
@given(PROGRAMS, st.sampled_from([1, 2, 8]), st.permutations(SETTINGS))
def test_columns_give_what_records_give(program, dense_share, backends):
    assigner, lateness, aggregation, steps = program
    slices._DENSE_SHARE = dense_share
    columnar, by_record = both_operators(assigner, lateness, aggregation)
    one, other = Subtasks(columnar, backends[0]), Subtasks(by_record, {})
    assert_alike(one, other, steps, backends)


@pytest.mark.usefixtures("small_limits")
@examples(20, suppress=[HealthCheck.function_scoped_fixture])
@given(sliced_assigners(), st.lists(STEPS, max_size=8), st.permutations(SETTINGS))
def test_what_is_added_up_before_it_travels_gives_the_same(assigner, steps, backends):
    settings = WindowSettings(assigner, assigner.get_default_trigger(None))
    plan = plan_aggregates(AGGREGATES, KEY, RECORD, None, has_windows=True)
    combiner = window_combiner(settings, plan)
    if combiner is None:
        assert assigner.slide > assigner.size
        return
    columnar = columnar_agg(settings, plan, {})
    contents = AggregatedContents(NamedAggregates(list(AGGREGATES.values())), None)
    by_record = window_operator(
        settings, contents, AggregateRows(plan), [BY_FUNCTION], plan.output_format, {}
    )
    one = CombinedSubtasks(columnar, combiner, backends[0])
    assert_alike(one, Subtasks(by_record, {}), steps, backends)


def assert_alike(one, other, steps, backends):
    now = time = 0
    for records, moved, watermark, subtasks in [*steps, ([], 0, 10**6, None)]:
        now += moved
        batch = Batch(
            columns=FORMAT.encode([record for _, record in records]),
            format=FORMAT,
            timestamps=np.array([now + behind for behind, _ in records], np.int64),
        )
        for each in (one, other) if records else ():
            each.process(batch, KEY)
        assert taken(one) == taken(other)
        if watermark is not None:
            time = max(time, now + watermark)
            for each in (one, other):
                each.watermark(time)
            assert taken(one) == taken(other)
        one.snapshots()
        if subtasks is not None:
            one.start(subtasks, backends[1])
    one.close()
    other.close()


def taken(subtasks):
    """Results and late records, in any order."""
    return [sorted(map(repr, found)) for found in (subtasks.take(), subtasks.take_side("late"))]
