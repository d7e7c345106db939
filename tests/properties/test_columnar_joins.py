"""Joins on columns give what joins by record give, in the same order for each key."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.effort import examples
from tests.properties.subtasks import Subtasks
from tests.unit.operators.windows.windowed import BACKENDS
from tidegate.core.poison import PoisonOrders
from tidegate.operators.joins.columnar import buffer, operator, windowed
from tidegate.operators.joins.columnar.interval import ColumnarIntervalJoin
from tidegate.operators.joins.columnar.windowed import columnar_window_join
from tidegate.operators.joins.functions import JoinedWindows
from tidegate.operators.joins.interval_join import IntervalJoinOperator, IntervalSettings
from tidegate.operators.joins.selection import (
    SelectedInInterval,
    SelectedInWindow,
    columnar_selection,
    left,
    right,
    select_fields,
)
from tidegate.operators.poison import DEAD_LETTERS
from tidegate.operators.windows.assigners import SlidingEventTimeWindows, TumblingEventTimeWindows
from tidegate.operators.windows.contents import ListedContents
from tidegate.operators.windows.merging_operator import window_operator
from tidegate.operators.windows.operator import WindowSettings
from tidegate.state.keys.selection import KeySelection, select_key
from tidegate.stream.batch import Batch
from tidegate.testing.harness import OperatorHarness
from tidegate.types.arrow import arrow_format
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

TYPES = (
    Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()]),
    Types.ROW_NAMED(["note", "timestamp", "who"], [Types.STRING(), Types.LONG(), Types.STRING()]),
)
FORMATS = tuple(map(arrow_format, TYPES))
KEYS = select_key(0, TYPES[0]), select_key("who", TYPES[1])
BY_FUNCTION = [KeySelection(key.selector) for key in KEYS]
SELECTED = select_fields(
    {"who": right("who"), "n": left(1), "note": right(0), "at": right(1), "again": left(1)}, TYPES
)
LATE = dict(zip(("late left", "late right"), FORMATS, strict=True))


def interval_joins(bounds):
    settings = IntervalSettings(*bounds, tuple(LATE))
    columnar = ColumnarIntervalJoin(settings, columnar_selection(SELECTED, KEYS), LATE)
    output = arrow_format(SELECTED.output_type)
    by_record = IntervalJoinOperator(
        settings, SelectedInInterval(SELECTED), BY_FUNCTION, output, LATE
    )
    return columnar, by_record


def window_joins(assigner):
    settings = WindowSettings(assigner, assigner.get_default_trigger(None), 0, "late left")
    tagged = {"late left": None}
    columnar = columnar_window_join(settings, columnar_selection(SELECTED, KEYS), tagged)
    assert columnar is not None
    by_record = window_operator(
        settings,
        ListedContents(None),
        JoinedWindows(SelectedInWindow(SELECTED)),
        BY_FUNCTION,
        arrow_format(SELECTED.output_type),
        tagged,
    )
    return columnar, by_record


@pytest.fixture
def limited(monkeypatch):
    """Small limits, so that what happens with many records happens with few."""

    def limit(pairs, number):
        monkeypatch.setattr("tidegate.stream.batch._PIECE", 3)
        monkeypatch.setattr(buffer, "_SPARE_ROWS", 2)
        monkeypatch.setattr(operator, "_FEWEST_KEYS", 2)
        monkeypatch.setattr(buffer, "_LARGEST_NUMBER", number)
        for each in (buffer, windowed):
            monkeypatch.setattr(each, "PAIRS_AT_ONCE", pairs)

    return limit


KEY = st.sampled_from(["a", "b", "c", None])
LEFT = st.tuples(KEY, st.integers(0, 3), st.none() | st.just(7))
RIGHT = st.builds(Row, note=st.sampled_from("xy"), timestamp=st.integers(0, 3), who=KEY)
RECORDS = st.tuples(st.just(0), LEFT) | st.tuples(st.just(1), RIGHT)
STEPS = st.tuples(
    st.lists(st.tuples(st.integers(-6, 3), RECORDS), max_size=12),
    st.sampled_from([0, 1, 3, 60]),
    st.none() | st.integers(-4, 1),
    st.sampled_from([None, None, None, 1, 2, 3]),
)
"""(records by time, by how much time moves, the watermark, with how many subtasks to go on)."""

LIMITS = st.tuples(st.sampled_from([1, 3, 1000]), st.sampled_from([200, 2**63 - 1]))
"""(pairs emitted at once, the largest number of an index)."""


def assert_alike(columnar, by_record, steps, backend):
    one, other = both = [Subtasks(each, BACKENDS[backend], 2) for each in (columnar, by_record)]
    now = time = 0
    for records, moved, watermark, subtasks in [*steps, ([], 0, 10**6, None)]:
        now += moved
        for side in (0, 1):
            times = [now + behind for behind, (of, _) in records if of == side]
            given = [record for _, (of, record) in records if of == side]
            batch = Batch(
                columns=FORMATS[side].encode(given),
                format=FORMATS[side],
                timestamps=np.array(times, np.int64),
            )
            for each in both if given else ():
                each.process(batch, KEYS[side], side)
            assert taken(one) == taken(other)
        if watermark is not None:
            time = max(time, now + watermark)
            for each in both:
                each.watermark(time)
            assert taken(one) == taken(other)
        if subtasks is not None:
            one.start(subtasks)
    one.close()
    other.close()


def taken(subtasks):
    """Results in their order for each key, and late records."""
    found = sorted(subtasks.take(), key=lambda each: repr(each[0][0]))
    return found, [sorted(map(repr, subtasks.take_side(tag))) for tag in LATE]


@examples(25, suppress=[HealthCheck.function_scoped_fixture])
@given(
    bounds=st.tuples(st.integers(-4, 4), st.integers(-4, 4)).map(sorted),
    steps=st.lists(STEPS, max_size=10),
    limits=LIMITS,
    backend=st.sampled_from(sorted(BACKENDS)),
)
def test_interval_joins_on_columns_give_what_records_give(limited, bounds, steps, limits, backend):
    limited(*limits)
    assert_alike(*interval_joins(bounds), steps, backend)


@st.composite
def assigners(draw):
    size, slide = draw(st.integers(1, 9)), draw(st.integers(1, 6))
    if draw(st.booleans()):
        return TumblingEventTimeWindows.of(size, draw(st.integers(0, size - 1)))
    return SlidingEventTimeWindows.of(size, slide, draw(st.integers(0, slide - 1)))


@examples(25, suppress=[HealthCheck.function_scoped_fixture])
@given(
    assigner=assigners(),
    steps=st.lists(STEPS, max_size=10),
    limits=LIMITS,
    backend=st.sampled_from(sorted(BACKENDS)),
)
def test_window_joins_on_columns_give_what_records_give(limited, assigner, steps, limits, backend):
    limited(*limits)
    assert_alike(*window_joins(assigner), steps, backend)


def test_a_record_at_the_end_of_time_is_in_no_window():
    for join in window_joins(TumblingEventTimeWindows.of(5)):
        with OperatorHarness(join, inputs=2, poison=PoisonOrders(skips_at_once=True)) as harness:
            columns = FORMATS[0].encode([("a", 1, None), ("b", 2, None)])
            times = np.array([1, 2**63 - 1])
            harness.process_batch(Batch(columns=columns, format=FORMATS[0], timestamps=times), 0)
            (letter,) = harness.side_output(DEAD_LETTERS)
            assert letter.record.startswith("('b', 2")
