"""Facts about Flink's interval join, as tables."""

import numpy as np
import pytest

from tests.unit.operators.windows.windowed import BACKENDS, BY_FIRST, WindowHarness
from tidegate.core.errors import UserFunctionError
from tidegate.core.poison import PoisonOrders
from tidegate.datastream.functions import ProcessJoinFunction
from tidegate.operators.joins.columnar.interval import ColumnarIntervalJoin
from tidegate.operators.joins.interval_join import IntervalJoinOperator, IntervalSettings
from tidegate.operators.joins.selection import columnar_selection, left, right, select_fields
from tidegate.operators.poison import DEAD_LETTERS
from tidegate.state.keys.selection import select_key
from tidegate.stream.batch import Batch
from tidegate.stream.elements import FINAL_WATERMARK, NO_WATERMARK
from tidegate.types.arrow import arrow_format
from tidegate.types.typeinfo import Types

ALL = [1, 2, 3, 4]
END = FINAL_WATERMARK
PAIRS = {
    # lower, upper: (left, right) for records at 1 to 4 on both sides
    (0, 0): [(1, 1), (2, 2), (3, 3), (4, 4)],
    (-1, 1): [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3), (3, 4), (4, 3), (4, 4)],
    (0, 2): [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (2, 4), (3, 3), (3, 4), (4, 4)],
    (-2, 0): [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3), (4, 2), (4, 3), (4, 4)],
    (1, 2): [(1, 2), (1, 3), (2, 3), (2, 4), (3, 4)],
    (-2, -1): [(2, 1), (3, 1), (3, 2), (4, 2), (4, 3)],
    (3, 9): [(1, 4)],
}


class Pairs(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        assert (ctx.get_left_timestamp(), ctx.get_right_timestamp()) == (left[1], right[1])
        assert ctx.get_timestamp() == max(left[1], right[1])
        yield left[1], right[1]


class ColumnHarness(WindowHarness):
    """With typed records (key, value, timestamp), whose results are shown as tuples."""

    def add(self, *records, input_index=0):
        stamps = np.array([timestamp for *_, timestamp in records], np.int64)
        columns = FORMAT.encode([tuple(record) for *record, _ in records])
        batch = Batch(columns=columns, format=FORMAT, timestamps=stamps)
        self.process_batch(batch, input_index)

    def take_timed(self):
        return [(tuple(row), time) for row, time in super().take_timed()]


RECORD = Types.TUPLE([Types.STRING(), Types.LONG()])
FORMAT = arrow_format(RECORD)
COLUMNS = columnar_selection(
    select_fields({"ours": left(1), "theirs": right(1)}, (RECORD, RECORD)),
    (select_key(0, RECORD), select_key(0, RECORD)),
)


@pytest.fixture(params=[*sorted(BACKENDS), "columns"])
def joined(request):
    """A harness of a join by record, on each backend, or on columns."""
    made = []

    def make(lower, upper, **settings):
        settings = IntervalSettings(lower, upper, **settings)
        if request.param == "columns":
            formats = dict.fromkeys(filter(None, settings.late_tags))
            made.append(ColumnHarness(ColumnarIntervalJoin(settings, COLUMNS, formats)))
        else:
            operator = IntervalJoinOperator(settings, Pairs(), [BY_FIRST, BY_FIRST])
            made.append(WindowHarness(operator, settings=BACKENDS[request.param]))
        return made[-1]

    yield make
    for each in made:
        each.close()


def at(*times, key="k"):
    return [(key, time, time) for time in times]


def pairs(harness):
    return sorted(pair for pair, _ in harness.take_timed())


def kept(harness):
    join = harness.operator
    if isinstance(join, ColumnarIntervalJoin):
        frozen = (b.freeze(join._needed_since(side)) for side, b in enumerate(join._buffers))
        return [len(rows.keys) for read in frozen for rows in read()]
    counts = [sum(map(len, filter(None, b.values))) for b in join._buffers]
    assert any(counts) == bool(join.backend.event_timers.timers())
    return counts


@pytest.mark.parametrize(("bounds", "expected"), PAIRS.items())
@pytest.mark.parametrize("first", [0, 1])
def test_records_within_the_bounds_are_joined_whichever_side_comes_first(
    joined, bounds, expected, first
):
    harness = joined(*bounds)
    harness.add(*at(*ALL), input_index=first)
    harness.add(*at(*ALL), input_index=1 - first)
    assert pairs(harness) == expected


def test_results_have_the_later_timestamp(joined):
    harness = joined(-1, 1)
    harness.add(*at(5))
    harness.add(*at(4, 6), input_index=1)
    assert harness.take_timed() == [((5, 4), 5), ((5, 6), 6)]


def test_keys_do_not_meet(joined):
    harness = joined(0, 0)
    harness.add(*at(1, key="a"))
    harness.add(*at(1, key="b"), input_index=1)
    assert pairs(harness) == []


@pytest.mark.parametrize(
    ("bounds", "left", "right"),
    [
        # how long records at 1 to 4 stay, by watermark
        ((-1, 1), {2: 4, 3: 3, 4: 2, 5: 1, 6: 0}, {2: 4, 3: 3, 4: 2, 5: 1, 6: 0}),
        ((0, 2), {3: 4, 4: 3, 7: 0}, {2: 3, 3: 2, 5: 0}),
        ((-2, -1), {2: 3, 5: 0}, {3: 4, 4: 3, 7: 0}),
    ],
)
def test_buffers_hold_what_may_still_be_joined(joined, bounds, left, right):
    harness = joined(*bounds)
    harness.add(*at(*ALL))
    harness.add(*at(*ALL), input_index=1)
    for watermark in range(8):
        harness.watermark(watermark)
        found = kept(harness)
        assert left.get(watermark, found[0]) == found[0]
        assert right.get(watermark, found[1]) == found[1]
    assert kept(harness) == [0, 0]


@pytest.mark.parametrize("side", [0, 1])
def test_a_record_at_the_watermark_is_not_late_and_meets_all_partners(joined, side):
    bounds = (0, 2) if side == 0 else (-2, 0)
    harness = joined(*bounds)
    harness.add(*at(2, 3), input_index=side)
    harness.watermark(5)
    harness.add(*at(4, 5), input_index=1 - side)
    assert pairs(harness) == [(3, 5) if side == 0 else (5, 3)]


@pytest.mark.parametrize("side", [0, 1])
def test_records_at_the_watermark_meet_whether_they_came_before_or_after_it(joined, side):
    harness = joined(0, 0)
    harness.add(*at(5), input_index=side)
    harness.watermark(5)
    harness.add(*at(5), input_index=side)
    harness.add(*at(5), input_index=1 - side)
    assert pairs(harness) == [(5, 5), (5, 5)]


def test_late_records_go_to_the_output_of_their_side(joined):
    harness = joined(-1, 1, late_tags=("left", "right"))
    harness.watermark(3)
    harness.add(*at(2, 3))
    harness.add(*at(1, 4), input_index=1)
    assert pairs(harness) == [(3, 4)]
    assert harness.side_output("left") == [("k", 2)]
    assert harness.side_output("right") == [("k", 1)]


def test_buffers_are_part_of_a_checkpoint(joined):
    harness = joined(0, 10)
    harness.add(*at(1, 2))
    restored = harness.again()
    restored.add(*at(3), input_index=1)
    assert pairs(restored) == [(1, 3), (2, 3)]
    restored.watermark(100)
    assert kept(restored) == [0, 0]
    restored.close()


def test_records_whose_timer_is_early_are_forgotten_in_time():
    """Earlier versions forgot a record one millisecond earlier, so their savepoints have these."""
    operator = IntervalJoinOperator(IntervalSettings(0, 2), Pairs(), [BY_FIRST, BY_FIRST])
    with WindowHarness(operator) as harness:
        harness.add(*at(1))
        timers = harness.operator.backend.event_timers
        timers.delete(4, "k")
        timers.register(3, "k", harness.operator.backend.places_of(["k"])[0])
        harness.watermark(3)
        assert kept(harness) == [1, 0]
        harness.watermark(4)
        assert kept(harness) == [0, 0]


@pytest.mark.parametrize(
    ("bounds", "ours", "theirs"),
    [((0, END), 5, 7), ((-(2**63), 2**63), 5, 3), ((0, 10), END, END), ((-10, 0), END, END - 9)],
)
@pytest.mark.parametrize("first", [0, 1])
def test_records_are_joined_up_to_the_end_of_time(joined, bounds, ours, theirs, first):
    harness = joined(*bounds)
    harness.add(*at((ours, theirs)[first]), input_index=first)
    restored = harness.again()
    restored.add(*at((theirs, ours)[first]), input_index=1 - first)
    assert pairs(restored) == [(ours, theirs)]
    restored.watermark(END)
    restored.close()


def test_a_record_without_a_timestamp_is_refused(joined):
    with pytest.raises(UserFunctionError, match="assign_timestamps_and_watermarks"):
        joined(0, 1).process_batch(Batch.of_records([("k", 1)], FORMAT))


class Picky(Pairs):
    def process_element(self, left, right, ctx):
        if left[1] == 6 and right[1] == 5:
            raise ValueError(left, right)
        return super().process_element(left, right, ctx)


def test_what_the_function_fails_on_is_skipped_alone_between_late_records():
    operator = IntervalJoinOperator(
        IntervalSettings(-9, 9, ("late", None)), Picky(), [BY_FIRST, BY_FIRST]
    )
    with WindowHarness(operator, poison=PoisonOrders(skips_at_once=True), inputs=2) as harness:
        harness.watermark(2, 0)
        harness.watermark(2, 1)
        harness.add(*at(4, 5), input_index=1)
        harness.add(*at(1, 7, 0, 6, 1, 8, NO_WATERMARK, 10))
        assert pairs(harness) == [(7, 4), (7, 5), (8, 4), (8, 5), (10, 4), (10, 5)]
        assert harness.side_output("late") == [("k", 1), ("k", 0), ("k", 1)]
        skipped = [letter.record for letter in harness.side_output(DEAD_LETTERS)]
        assert skipped == ["('k', 6)", f"('k', {NO_WATERMARK})"]
        harness.add(*at(11), input_index=1)
        assert pairs(harness) == [(7, 11), (8, 11), (10, 11)]
