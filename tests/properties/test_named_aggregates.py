"""`agg` on columns gives what a loop over the records gives."""

import math
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tests.properties.strategies import in_dictionaries
from tidegate.core.errors import GraphError, TypeMismatch
from tidegate.core.modes import StateBackendType
from tidegate.operators.aggregations.aggregates import (
    avg_,
    count,
    max_,
    min_,
    plan_aggregates,
    sum_,
    window_start,
)
from tidegate.operators.aggregations.named import RunningAggregates
from tidegate.operators.aggregations.named_by_record import RunningRecordAggregates
from tidegate.state.keys.selection import KeySelection, select_key
from tidegate.state.rocksdb.columnar import RocksDBColumnarState
from tidegate.stream.batch import Batch
from tidegate.testing.harness import OperatorHarness, as_batch
from tidegate.types.arrow import arrow_format
from tidegate.types.row import Row
from tidegate.types.typeinfo import ArrowTypeInfo, Types

BACKENDS = st.sampled_from([{"state.backend.type": backend} for backend in StateBackendType])
BIDS = Types.ROW_NAMED(["item", "price", "weight"], [Types.STRING(), Types.LONG(), Types.DOUBLE()])
NUMBERS = {
    Types.LONG(): st.integers(-(2**40), 2**40),
    Types.INT(): st.integers(-1000, 1000),
    # The order of additions shows in sums of other floats.
    Types.DOUBLE(): st.integers(-8, 8).map(lambda n: n / 4) | st.sampled_from([math.nan]),
    ArrowTypeInfo(pa.uint32()): st.integers(0, 1000),
}


@st.composite
def programs(draw):
    """(key fields, aggregates, type, batches of records)."""
    kinds = draw(st.lists(st.sampled_from(list(NUMBERS)), min_size=1, max_size=2))
    width = draw(st.integers(1, 2))
    type_info = Types.TUPLE([Types.STRING()] * width + kinds)
    record = st.tuples(
        *[st.none() | st.sampled_from("abc")] * width,
        *(st.none() | NUMBERS[kind] for kind in kinds),
    )
    field = st.integers(width, width + len(kinds) - 1)
    aggregate = st.one_of(
        st.builds(count, st.none() | field),
        *(st.builds(f, field) for f in (sum_, min_, max_, avg_)),
    )
    chosen = draw(st.lists(aggregate, min_size=1, max_size=4))
    aggregates = {f"a{place}": each for place, each in enumerate(chosen)}
    batches = draw(st.lists(st.lists(record, max_size=20), max_size=4))
    return 0 if width == 1 else (0, 1), aggregates, type_info, batches


def planned(key, aggregates, type_info):
    selection = select_key(key, type_info)
    return plan_aggregates(aggregates, selection, type_info, None, has_windows=False), selection


@examples(25)
@given(programs(), st.booleans(), BACKENDS, st.integers(0, 4))
def test_columns_give_what_a_loop_over_records_gives(program, encoded, backend, cut):
    key, aggregates, type_info, batches = program
    plan, selection = planned(key, aggregates, type_info)
    assert plan.format is not None
    columnar = OperatorHarness(RunningAggregates(plan), settings=backend)
    looping = OperatorHarness(RunningRecordAggregates(plan, KeySelection(selection.selector)))
    results = []
    for number, records in enumerate(batches):
        batch = as_batch(records, arrow_format(type_info))
        looping.process_batch(batch)
        if encoded:
            batch = Batch.of_columns(in_dictionaries(batch.columns), batch.format)
        columnar.process_batch(batch)
        results += columnar.take_output()
        if isinstance(columnar.operator.state, RocksDBColumnarState):
            columnar.operator.state.shrink(1)
        if number == cut:
            columnar, old = columnar.restore(columnar.snapshot()), columnar
            old.close()
    assert list(map(repr, results)) == list(map(repr, looping.output))
    columnar.close()
    looping.close()


def test_a_row_has_the_fields_of_the_key_and_the_aggregates():
    aggregates = {"bids": count(), "total": sum_("price"), "top": max_("price")}
    plan, _ = planned("item", aggregates, BIDS)
    with OperatorHarness(RunningAggregates(plan)) as harness:
        harness.process([Row("a", 3, 0.5), Row("a", 2, None)], type_info=BIDS)
        assert harness.output == [
            Row(item="a", bids=1, total=3, top=3),
            Row(item="a", bids=2, total=5, top=3),
        ]


def test_a_name_may_be_the_one_that_another_aggregate_gives_its_count():
    aggregates = {"m": avg_("price"), "m count": count(), "m count_": sum_("price")}
    plan, _ = planned("item", aggregates, BIDS)
    with OperatorHarness(RunningAggregates(plan)) as harness:
        harness.process([Row("a", 3, None)], type_info=BIDS)
        with harness.restore(harness.snapshot()) as restored:
            restored.process([Row("a", 6, None)], type_info=BIDS)
            assert [tuple(row) for row in restored.output] == [("a", 4.5, 2, 9)]


def test_the_mean_of_large_integers_is_that_of_python():
    numbers = [3**33 + number**11 for number in range(20)]
    batch = as_batch([Row("a", number, None) for number in numbers], arrow_format(BIDS))
    sums = accumulate(numbers)
    expected = [total / number for number, total in enumerate(sums, 1)]
    plan, _ = planned("item", {"mean": avg_("price")}, BIDS)
    with OperatorHarness(RunningAggregates(plan)) as harness:
        harness.process_batch(batch)
        assert [row.mean for row in harness.output] == expected
    (accumulator,) = plan.accumulators()
    results = accumulator.results([np.cumsum(numbers), np.arange(1, 21)])
    assert results[0].to_pylist() == expected


def test_running_extremes_of_text_are_columnar():
    assert planned("item", {"first": min_("item")}, BIDS)[0].format is not None


def test_a_sum_beyond_64_bits_fails_after_the_results_before_it():
    plan, _ = planned("item", {"total": sum_("price"), "n": count()}, BIDS)
    with OperatorHarness(RunningAggregates(plan)) as harness:
        harness.process([Row("a", 2**62, None)], type_info=BIDS)
        with pytest.raises(TypeMismatch, match="exceeds the range of 64-bit"):
            harness.process([Row("b", 1, None), Row("a", 2**62, None)], type_info=BIDS)
        assert [row.n for row in harness.output] == [1, 1]


@pytest.mark.parametrize(
    ("aggregates", "message"),
    [
        ({}, "needs aggregates"),
        ({"n": "count"}, "expected count"),
        ({"item": count()}, "another name"),
        ({"n": sum_("item")}, "numeric field"),
        ({"n": window_start()}, "has no windows"),
    ],
)
def test_what_makes_no_sense_is_refused(aggregates, message):
    with pytest.raises(GraphError, match=message):
        planned("item", aggregates, BIDS)
