"""Windows on columns give what windows by record give, and what a naive interpreter gives."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from tests.effort import examples
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
from tidegate.operators.windows.columnar import combining, slices, table
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
MAX_PARALLELISM = 8
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


class Subtasks:
    """All subtasks of an operator, and all that they have emitted."""

    def __init__(self, operator, settings):
        self._operator = operator
        self._settings = settings
        self._harnesses = []
        self.results = []
        self.late = []
        self.start(1)

    def start(self, count, settings=None):
        snapshots = [harness.snapshot() for harness in self._harnesses]
        old = self._harnesses
        self._harnesses = [
            OperatorHarness(
                self._operator,
                parallelism=count,
                subtask=subtask,
                max_parallelism=MAX_PARALLELISM,
                settings=settings or self._settings,
                restore_from=snapshots,
            )
            for subtask in range(count)
        ]
        for harness in old:
            harness.close()

    def process(self, records, times):
        self._distribute(batch_of(records, times), KEY)
        return self._taken()

    def _distribute(self, batch, key):
        groups = key.hashes(batch) % MAX_PARALLELISM
        for harness in self._harnesses:
            own = [place for place, g in enumerate(groups) if int(g) in harness.context.key_groups]
            if own:
                harness.process_batch(batch.take(np.array(own)))

    def watermark(self, timestamp):
        for harness in self._harnesses:
            harness.watermark(timestamp)
        return self._taken()

    def _taken(self):
        """What was emitted since the last call: results with their times, and late records."""
        found = []
        for harness in self._harnesses:
            for batch in harness.batches:
                found += zip(map(repr, batch.records), batch.timestamps.tolist(), strict=True)
            harness.batches.clear()
            found += [("late", repr(record)) for record in harness.side_output("late")]
            harness.side_batches.clear()
        return sorted(found, key=repr)

    def close(self):
        for harness in self._harnesses:
            harness.close()


def batch_of(records, times):
    return Batch(
        columns=FORMAT.encode(records), format=FORMAT, timestamps=np.array(times, np.int64)
    )


class CombinedSubtasks(Subtasks):
    """Records are added up before they come to the subtasks."""

    def __init__(self, operator, combiner, settings):
        self._combiner = OperatorHarness(combiner)
        self._key = select_key(combiner.rows.key_columns, combiner.rows.type_info)
        operator.partial = combiner.rows
        super().__init__(operator, settings)

    def process(self, records, times):
        self._combiner.process_batch(batch_of(records, times))
        for batch in self._combiner.batches:
            self._distribute(batch, self._key)
        self._combiner.batches.clear()
        return self._taken()


@pytest.fixture
def small_limits(monkeypatch):
    """Small limits, so that few keys behave like many."""
    monkeypatch.setattr(table, "_FEWEST_KEYS", 2)
    monkeypatch.setattr(slices, "_MOST_RUNS", 2)
    monkeypatch.setattr(accumulators, "_SPARE_RECORDS", 2)
    monkeypatch.setattr(combining, "_MOST_KEYS", 4)
    monkeypatch.setattr(combining, "_TRIAL", 8)
    monkeypatch.setattr(combining, "_FIRST_PAUSE", 4)


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
        if records:
            times = [now + behind for behind, _ in records]
            given = [record for _, record in records]
            assert one.process(given, times) == other.process(given, times)
        if watermark is not None:
            time = max(time, now + watermark)
            assert one.watermark(time) == other.watermark(time)
        if subtasks is not None:
            one.start(subtasks, backends[1])
    one.close()
    other.close()
