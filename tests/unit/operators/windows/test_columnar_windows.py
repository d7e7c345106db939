"""Windows on columns: what a property over short streams does not show."""

from dataclasses import replace

import numpy as np
import pytest

from tests.savepoints import stored
from tidegate import state_reader
from tidegate.core.errors import StateMisuse, StateTypeChanged, TypeMismatch
from tidegate.core.poison import PoisonOrders
from tidegate.operators.aggregations.accumulators import Sum
from tidegate.operators.aggregations.aggregates import (
    count,
    max_,
    min_,
    plan_aggregates,
    sum_,
    window_end,
    window_start,
)
from tidegate.operators.aggregations.kinds import Aggregation
from tidegate.operators.windows.assigners import (
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from tidegate.operators.windows.columnar import combining
from tidegate.operators.windows.columnar.choice import (
    columnar_agg,
    columnar_aggregation,
    columnar_windowing,
    window_combiner,
)
from tidegate.operators.windows.operator import WindowSettings
from tidegate.operators.windows.triggers import CountTrigger
from tidegate.state.keys.selection import select_key
from tidegate.stream.batch import Batch
from tidegate.stream.elements import FINAL_WATERMARK, NO_WATERMARK
from tidegate.testing.harness import OperatorHarness
from tidegate.types.arrow import arrow_format
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

BIDS = Types.ROW_NAMED(["item", "price"], [Types.STRING(), Types.LONG()])
FORMAT = arrow_format(BIDS)
KEY = select_key("item", BIDS)
TUMBLING = TumblingEventTimeWindows.of(10)


def settings_of(assigner, lateness=0):
    return WindowSettings(assigner, assigner.get_default_trigger(None), lateness)


def named(assigner, **aggregates):
    plan = plan_aggregates(aggregates, KEY, BIDS, None, has_windows=True)
    return columnar_agg(settings_of(assigner), plan, {})


def bids(times, prices=None, items=None):
    records = [
        Row(item, price)
        for item, price in zip(items or "a" * len(times), prices or times, strict=True)
    ]
    stamps = np.array(times, np.int64)
    return Batch(columns=FORMAT.encode(records), format=FORMAT, timestamps=stamps)


def test_a_row_has_the_key_the_aggregates_and_the_bounds_of_the_window_if_asked():
    operator = named(
        TUMBLING, start=window_start(), bids=count(), top=max_("price"), e=window_end()
    )
    with OperatorHarness(operator) as harness:
        harness.process_batch(bids([3, 12, 5, 19]))
        harness.watermark(9)
        assert harness.output == [Row(item="a", start=0, bids=2, top=5, e=10)]
        assert harness.batches[0].timestamps.tolist() == [9]
        harness.watermark(2**63 - 1)
        assert harness.output[1:] == [Row(item="a", start=10, bids=2, top=19, e=20)]


def test_a_long_sliding_window_is_the_sum_of_its_slices():
    """Far more slices than a block has, with keys that come and go, and a gap of years."""
    rng = np.random.default_rng(7)
    times = np.sort(rng.integers(0, 3000, 4000))
    times[3000:] += 10**11
    items = rng.integers(0, 40, 4000) + times // 1000
    prices = rng.integers(-100, 100, 4000)
    operator = named(
        SlidingEventTimeWindows.of(500, 5), s=window_start(), n=count(), total=sum_("price")
    )
    expected = {}
    for time, item, price in zip(times.tolist(), items.tolist(), prices.tolist(), strict=True):
        for start in range(time - time % 5, time - 500, -5):
            n, total = expected.get((str(item), start), (0, 0))
            expected[str(item), start] = n + 1, total + price
    with OperatorHarness(operator) as harness:
        for first in range(0, 4000, 250):
            part = slice(first, first + 250)
            names = list(map(str, items[part].tolist()))
            harness.process_batch(bids(times[part].tolist(), prices[part].tolist(), names))
            harness.watermark(int(times[part][-1]) - 30)
        harness.watermark(10**12)
        found = {(row.item, row.s): (row.n, row.total) for row in harness.output}
        assert len(harness.output) == len(found)
        assert found == expected


def test_keys_without_windows_are_forgotten():
    with OperatorHarness(named(TUMBLING, n=count())) as harness:
        for step in range(40):
            names = [f"{step} {number}" for number in range(500)]
            harness.process_batch(bids([10 * step] * 500, items=names))
            harness.watermark(10 * step + 9)
        assert len(harness.output) == 20_000
        assert len(harness.operator._table.keys) < 3_000


@pytest.mark.parametrize(
    ("assigner", "end"),
    [(TumblingProcessingTimeWindows.of(10_000), 10), (ProcessingTimeSessionWindows(7_000), 9)],
)
def test_windows_of_processing_time_fire_by_the_clock(assigner, end):
    with OperatorHarness(named(assigner, n=count(), end=window_end())) as harness:
        start = harness.clock.time()
        assert harness.operator.next_timer() is None
        harness.clock.advance(-start % 10)
        harness.process_batch(bids([0]))
        harness.advance(2)
        harness.process_batch(bids([0]))
        harness.advance(end - 2.5)
        assert harness.output == []
        harness.advance(1)
        at = int((start - start % 10 + (10 if start % 10 else 0) + end) * 1000)
        assert harness.output == [Row(item="a", n=2, end=at)]
        assert harness.operator.next_timer() is None


def test_records_without_timestamps_are_refused():
    harness = OperatorHarness(named(TUMBLING, n=count()))
    with pytest.raises(StateMisuse, match="assign_timestamps_and_watermarks"):
        harness.process([Row("a", 1)], type_info=BIDS)
    harness.close()


@pytest.mark.parametrize("assigner", [TUMBLING, SlidingEventTimeWindows.of(30, 10)])
@pytest.mark.parametrize("sizes", [[2], [1, 1]])
def test_a_sum_beyond_64_bits_is_an_error(assigner, sizes):
    harness = OperatorHarness(named(assigner, total=sum_("price")))

    def run():
        for size in sizes:
            harness.process_batch(bids([1] * size, [2**62] * size))
        harness.watermark(9)

    with pytest.raises(TypeMismatch, match="exceeds the range of 64-bit"):
        run()
    harness.close()


def test_a_sum_of_merged_sessions_beyond_64_bits_is_an_error():
    operator = named(EventTimeSessionWindows.with_gap(10), total=sum_("price"))
    with OperatorHarness(operator) as harness:
        for time in (0, 18):
            harness.process_batch(bids([time], [2**62]))
        with pytest.raises(TypeMismatch, match="exceeds the range of 64-bit"):
            harness.process_batch(bids([9], [1]))


def test_sums_that_come_near_64_bits_are_exact():
    with OperatorHarness(named(TUMBLING, total=sum_("price"))) as harness:
        for price in (2**62, 2**62 - 1, -(2**62), 5):
            harness.process_batch(bids([1], [price]))
        harness.watermark(9)
        assert harness.output == [Row(item="a", total=2**62 + 4)]


@pytest.mark.filterwarnings("error")
def test_sums_of_many_keys_may_be_infinite():
    weights = Types.ROW_NAMED(["item", "weight"], [Types.LONG(), Types.DOUBLE()])
    format, key = arrow_format(weights), select_key("item", weights)
    plan = plan_aggregates({"total": sum_("weight")}, key, weights, None, has_windows=True)
    columns = format.encode([Row(item, 1e308) for item in range(500)] * 2)
    with OperatorHarness(columnar_agg(settings_of(TUMBLING), plan, {})) as harness:
        harness.process_batch(Batch(columns=columns, format=format, timestamps=np.zeros(1000, int)))
        harness.watermark(9)
        assert [row.total for row in harness.output] == [float("inf")] * 500


def test_a_combiner_pauses_only_after_many_records_without_a_gain(monkeypatch):
    monkeypatch.setattr(combining, "_TRIAL", 4)
    monkeypatch.setattr(combining, "_FIRST_PAUSE", 3)
    plan = plan_aggregates({"total": sum_("price")}, KEY, BIDS, None, has_windows=True)

    def rows_of(batch):
        harness.process_batch(batch)
        return len(harness.batches.pop())

    with OperatorHarness(window_combiner(settings_of(TUMBLING), plan)) as harness:
        assert rows_of(bids([1, 2], items="ab")) == 2
        assert rows_of(bids([1] * 6)) == 1  # a small batch before it decides nothing
        assert rows_of(bids([1, 2, 3, 4], items="abcd")) == 4  # no gain
        assert rows_of(bids([1, 2, 3])) == 3  # as they are
        assert rows_of(bids([1, 2, 3])) == 1  # another trial


def test_a_combiner_does_not_check_small_sums_because_there_were_many():
    plan = plan_aggregates({"total": sum_("price")}, KEY, BIDS, None, has_windows=True)
    combiner = window_combiner(settings_of(TUMBLING), plan)
    with OperatorHarness(combiner) as harness:
        for _ in range(5):
            harness.process_batch(bids([1, 2], [2**60, 2**60]))
        assert not any(part.is_strained for part in sums_of(harness.operator._accumulators))


def sums_of(accumulators):
    return [part for part in accumulators.parts if isinstance(part, Sum)]


def test_a_sum_beyond_the_type_of_its_field_is_an_error():
    small = Types.TUPLE([Types.STRING(), Types.BYTE()])
    format = arrow_format(small)
    settings = settings_of(TUMBLING)
    key = select_key(0, small)
    operator = columnar_aggregation(settings, Aggregation.SUM, 1, key, small, {})
    columns = format.encode([("a", 100), ("a", 100)])
    with OperatorHarness(operator) as harness:
        harness.process_batch(
            Batch(columns=columns, format=format, timestamps=np.zeros(2, np.int64))
        )
        with pytest.raises(TypeMismatch, match="sum of 200 exceeds the range of int8"):
            harness.watermark(9)


def test_a_float_sum_beyond_32_bits_fails():
    pair = Types.TUPLE([Types.STRING(), Types.FLOAT()])
    format = arrow_format(pair)
    key = select_key(0, pair)
    operator = columnar_aggregation(settings_of(TUMBLING), Aggregation.SUM, 1, key, pair, {})
    columns = format.encode([("a", 3e38), ("a", 3e38)])
    with OperatorHarness(operator) as harness:
        harness.process_batch(
            Batch(columns=columns, format=format, timestamps=np.zeros(2, np.int64))
        )
        with pytest.raises(TypeMismatch, match="a sum: a value is outside the range of float"):
            harness.watermark(9)


def test_only_windows_that_wait_for_their_end_are_columnar():
    dynamic = DynamicEventTimeSessionWindows.with_dynamic_gap(lambda record: 5)
    for assigner in (dynamic, GlobalWindows.create()):
        assert columnar_windowing(settings_of(assigner)) is None
    assert columnar_windowing(WindowSettings(TUMBLING, CountTrigger.of(2))) is None
    assert columnar_windowing(settings_of(EventTimeSessionWindows.with_gap(3))) is not None
    assert named(TUMBLING, first=min_("item")) is None


def test_the_state_reads_as_key_window_and_value(tmp_path):
    harness = OperatorHarness(named(TUMBLING, total=sum_("price")), max_parallelism=128)
    harness.process_batch(bids([3, 12, 5, 19], items="abaa"))
    frozen = harness.snapshot().keyed
    path = stored(tmp_path / "savepoint", {"windows": lambda backend: frozen}, parallelism=1)
    reader = state_reader(path)
    (state,) = reader.operators()[0].states
    found = {
        (key, value["window_start"], value["window_end"], value["total"])
        for key, value in reader.entries("windows", state.name)
    }
    assert found == {("a", 0, 10, 8), ("b", 10, 20, 12), ("a", 10, 20, 19)}
    harness.close()


def test_slices_with_many_keys_are_restored_with_another_parallelism():
    """The first slice knows fewer keys than there are, others have only some of them or few."""
    every = [f"{number}" for number in range(10_000)]
    operator = named(SlidingEventTimeWindows.of(40, 10), s=window_start(), total=sum_("price"))
    with OperatorHarness(operator, max_parallelism=4) as harness:
        for time, items in enumerate([every[:5000], every, every[::2], every[:7]]):
            prices = list(range(len(items)))
            harness.process_batch(bids([10 * time] * len(items), prices, items))
            harness.watermark(10 * time + 5)
        before = len(harness.output)
        snapshot = harness.snapshot()
        sizes = [sum(n for _, n in chunk.groups) for chunk in snapshot.keyed.chunks()]
        assert sizes == [5000, 10_000, 5000, 7]
        harness.watermark(1000)
        expected = sorted(map(str, harness.output[before:]))
        found = []
        for subtask in range(2):
            with harness.restore(snapshot, parallelism=2, subtask=subtask) as restored:
                restored.watermark(1000)
                found += map(str, restored.output)
        assert sorted(found) == expected


def test_windows_of_another_size_cannot_be_restored():
    with OperatorHarness(named(TUMBLING, n=count())) as harness:
        harness.process_batch(bids([3]))
        other = named(TumblingEventTimeWindows.of(20), n=count())
        with pytest.raises(StateTypeChanged, match="windows of 10 ms"):
            OperatorHarness(other, restore_from=[harness.snapshot()])


def test_what_comes_after_a_job_that_had_ended_is_not_late():
    """As after a savepoint with --drain, of a program that is fed by another source then."""
    with OperatorHarness(named(TUMBLING, bids=count())) as harness:
        harness.process_batch(bids([3]))
        harness.finish()
        ended = replace(harness.snapshot(), received=NO_WATERMARK, emitted=NO_WATERMARK)
        with harness.restore(ended) as restored:
            restored.process_batch(bids([5, 6]))
            restored.watermark(9)
            assert restored.output == [Row(item="a", bids=2)]


def test_no_record_is_late_where_the_clock_goes_back():
    """As on another machine, whose clock is a little behind."""
    with OperatorHarness(named(TumblingProcessingTimeWindows.of(10), bids=count())) as harness:
        harness.process_batch(bids([0]))
        harness.advance(1)
        assert harness.take_output() == [Row(item="a", bids=1)]
        harness.clock.advance(-2)
        harness.process_batch(bids([0]))
        harness.advance(3)
        assert harness.output == [Row(item="a", bids=1)]


@pytest.mark.parametrize("no_time", [NO_WATERMARK, NO_WATERMARK + 1, FINAL_WATERMARK])
def test_a_record_without_a_time_is_skipped_alone(no_time):
    skips = PoisonOrders(skips_at_once=True)
    with OperatorHarness(named(TUMBLING, bids=count()), poison=skips) as harness:
        harness.process_batch(bids([3, no_time, 5]))
        harness.watermark(9)
        assert harness.output == [Row(item="a", bids=2)]
    plan = plan_aggregates({"bids": count()}, KEY, BIDS, None, has_windows=True)
    combiner = window_combiner(settings_of(TUMBLING), plan)
    with OperatorHarness(combiner, poison=skips) as harness:
        harness.process_batch(bids([3, no_time, 5]))
        assert [(row[0], row[1]) for row in harness.output] == [("a", 1), ("a", 1)]


@pytest.mark.parametrize("assigner", [TUMBLING, EventTimeSessionWindows.with_gap(10)])
def test_one_timestamp_in_nanoseconds_stays_in_its_window(assigner):
    far = 1_700_000_000_000_000_000
    with OperatorHarness(named(assigner, start=window_start(), bids=count())) as harness:
        harness.process_batch(bids([0] * 9000 + [far] + [5] * 9000))
        harness.watermark(2**63 - 1)
        assert [(row.start, row.bids) for row in harness.output] == [(0, 18_000), (far, 1)]


def test_a_slice_is_stored_again_only_if_a_record_came_for_it():
    items = [f"{number}" for number in range(5000)]
    operator = named(SlidingEventTimeWindows.of(40, 10), total=sum_("price"))

    def payloads(harness):
        return [chunk.payload for chunk in harness.snapshot().keyed.chunks()]

    with OperatorHarness(operator, max_parallelism=4) as harness:
        for time in (0, 10):
            harness.process_batch(bids([time] * len(items), [1] * len(items), items))
        harness.watermark(20)
        first, second = payloads(harness)
        again = payloads(harness)
        assert again[0] is first and again[1] is second
        harness.process_batch(bids([12, 13], [100, 200], ["7", "new"]))
        unchanged, changed, _ = payloads(harness)  # the new key is in a part of its own
        assert unchanged is first
        assert changed != second
        snapshot = harness.snapshot()
    with OperatorHarness(operator, max_parallelism=4, restore_from=[snapshot]) as harness:
        harness.watermark(39)
        found = {row[0]: row[1] for row in harness.output}
    assert found == {**dict.fromkeys(items, 2), "7": 102, "new": 200}
